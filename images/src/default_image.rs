//! The default image: our kernel, our init, busybox.
//!
//! Small enough to copy at every boot and complete enough to run shell scripts in. Called by the
//! command line and by developer tasks; the init program is theirs to build.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::debian::Package;
use crate::image::{self, CACHE_KIND, DEFAULT_NAME, Parts};
use crate::kernel::Kernel;
use crate::progress::Progress;
use crate::store;
use crate::{
    Cache, ContentKey, Error, Image, ImageConfig, InitramfsBuilder, KernelKind, Result, command,
    file_sha256,
};

/// The package with the statically linked busybox.
pub const BUSYBOX_PACKAGE: &str = "busybox-static";

/// Counts up whenever the files below or what is recorded of the parts change.
const RECIPE: &str = "3";

const PASSWD: &str = "\
root:x:0:0:root:/root:/bin/sh
nobody:x:65534:65534:nobody:/nonexistent:/bin/false
";

const GROUP: &str = "\
root:x:0:
tty:x:5:
nogroup:x:65534:
";

pub(crate) const HOSTS: &str = "\
127.0.0.1 localhost
::1 localhost
";

/// A statically linked busybox: the installed one, else the one of its Debian package, unpacked in
/// the cache.
///
/// # Errors
/// As [`Package::newest`] and [`Package::unpack_into`].
pub fn busybox(cache: &Cache, progress: &dyn Progress) -> Result<PathBuf> {
    // Debian's plain `busybox` package has the same path and is dynamic, so the installed file
    // alone says nothing.
    let installed = Path::new("/bin/busybox");
    if Path::new("/var/lib/dpkg/info/busybox-static.list").exists() && installed.exists() {
        return Ok(installed.to_path_buf());
    }
    let kept = cache.path("packages", BUSYBOX_PACKAGE);
    if !kept.is_dir() {
        let step = progress.step("fetch busybox", None);
        let package = Package::newest(BUSYBOX_PACKAGE)?;
        cache.publish("packages", BUSYBOX_PACKAGE, |target| {
            package.unpack_into(cache, target)
        })?;
        step.finish(&package.version);
    }
    Ok(kept.join("bin/busybox"))
}

/// Builds the image of these three parts, unless the cache has it, and makes it the one that
/// [`Image::default_cached`] opens.
///
/// # Errors
/// [`Error::File`] if a part cannot be read, [`Error::Command`] if busybox does not run here.
pub fn get_or_build(
    cache: &Cache,
    kernel: &Kernel,
    init: &Path,
    busybox: &Path,
    progress: &dyn Progress,
) -> Result<Image> {
    let key = ContentKey::new("default image")
        .text(RECIPE)
        .file(&kernel.vmlinux)?
        .file(init)?
        .file(busybox)?
        .short();
    let directory = cache.get_or_publish(CACHE_KIND, &key, |target| -> Result<()> {
        let step = progress.step("build default image", None);
        let vmlinux = target.join("vmlinux");
        fs::copy(&kernel.vmlinux, &vmlinux).map_err(Error::file("copy", &kernel.vmlinux))?;
        let root = root(init, busybox)?;
        root.write_file(&target.join("initramfs.cpio"))?;
        let described = image::describe(
            target,
            Parts {
                name: DEFAULT_NAME,
                kernel: "vmlinux",
                kernel_kind: KernelKind::Vmlinux,
                initramfs: &[("initramfs.cpio", root.unpacked_len())],
                cmdline: "",
                config: ImageConfig::default(),
                origin: origin(kernel, busybox)?,
            },
        )?;
        step.finish(&format!("digest {}", &described.digest[..16]));
        Ok(())
    })?;
    store::name(cache, DEFAULT_NAME, &key)?;
    Image::open(directory)
}

/// The root file system.
fn root(init: &Path, busybox: &Path) -> Result<InitramfsBuilder> {
    let mut root = InitramfsBuilder::new();
    root.early_devices()
        .host_file("init", 0o755, init)
        .host_file("bin/busybox", 0o755, busybox)
        .directory("proc", 0o555)
        .directory("sys", 0o555)
        .directory("run", 0o755)
        .directory("tmp", 0o1777)
        .directory("root", 0o700)
        .directory("workspace", 0o755)
        .directory("mnt", 0o755)
        .file("etc/passwd", 0o644, PASSWD)
        .file("etc/group", 0o644, GROUP)
        .file("etc/hosts", 0o644, HOSTS)
        .file("etc/hostname", 0o644, "microvm\n")
        .symlink("etc/mtab", "/proc/self/mounts");
    let applets = command::output(Command::new(busybox).arg("--list-full"))?;
    for applet in applets.lines().map(str::trim) {
        // Some lists name the binary itself and links at the root of old initrds.
        if applet.contains('/') && !root.contains(applet) {
            root.symlink(applet, "/bin/busybox");
        }
    }
    Ok(root)
}

fn origin(kernel: &Kernel, busybox: &Path) -> Result<BTreeMap<String, String>> {
    let facts = &kernel.facts;
    // Its first line names its version and the package that it is from, wherever it was taken from.
    let busybox_says = command::output(&mut Command::new(busybox))?;
    let busybox_version = busybox_says.lines().next().unwrap_or_default();
    Ok([
        ("kernel.release", facts.release.as_str()),
        ("kernel.source_package", &facts.source_package),
        ("kernel.source_version", &facts.source_version),
        ("kernel.source_sha256", &facts.source_sha256),
        ("kernel.compiler", &facts.compiler),
        ("kernel.options_sha256", &facts.options_sha256),
        ("busybox.version", busybox_version),
        ("busybox.sha256", &file_sha256(busybox)?),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into())
}

#[cfg(test)]
#[path = "default_image_test.rs"]
mod tests;
