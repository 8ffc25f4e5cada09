//! What every run needs: the emulator, the L1 kernel and its modules, busybox, our init.
//!
//! Kernel and modules come from the newest cloud kernel package of the distribution, unpacked in the
//! cache and never installed. An emulator must be installed ([`PACKAGES`]).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use forebay_images::Cache;
use forebay_images::debian::Package;
use forebay_images::default_image::busybox;
use forebay_images::progress::Progress;

use crate::emulator::Program;
use crate::{Error, Result};

/// Debian packages that a host needs to run the rig.
pub const PACKAGES: &[&str] = &["qemu-system-x86", "seabios", "xz-utils"];

/// L1's modules, in the order they depend on each other.
const MODULES: [&str; 3] = [
    "virt/lib/irqbypass.ko",
    "arch/x86/kvm/kvm.ko",
    "arch/x86/kvm/kvm-amd.ko",
];

pub(crate) const CACHE_KIND: &str = "rig";
/// Names the entry; a newer kernel package does not replace one that works. Counts up when what is
/// in an entry changes.
const ENTRY: &str = "l1-6.12-v1";

/// Paths of what every run needs.
#[derive(Debug, Clone)]
pub struct Assets {
    pub(crate) emulator: Program,
    pub(crate) kernel: PathBuf,
    pub(crate) modules: Vec<PathBuf>,
    pub(crate) busybox: PathBuf,
    pub(crate) init: PathBuf,
}

impl Assets {
    /// Finds the assets in the cache, or fetches them.
    ///
    /// `init` is the statically linked `forebay-rig-init` of this crate: building programs is the
    /// caller's business.
    ///
    /// # Errors
    /// [`Error::Images`] if a package cannot be had, [`Error::File`].
    pub fn get_or_fetch(cache: &Cache, init: &Path, progress: &dyn Progress) -> Result<Self> {
        let _one_at_a_time = cache.lock(CACHE_KIND)?;
        let entry = match cache.get(CACHE_KIND, ENTRY) {
            Some(entry) => entry,
            None => fetch(cache, progress)?,
        };
        Ok(Self {
            emulator: Program::get_or_fetch(cache, progress)?,
            kernel: entry.join("vmlinuz"),
            modules: MODULES
                .iter()
                .map(|module| entry.join(file_name(module)))
                .collect(),
            busybox: busybox(cache, progress)?,
            init: init.to_path_buf(),
        })
    }
}

/// Takes the kernel and the unpacked modules out of the package.
fn fetch(cache: &Cache, progress: &dyn Progress) -> Result<PathBuf> {
    let step = progress.step("fetch kernel of the rig", None);
    let package = Package::newest_named("linux-image-6.12", "-cloud-amd64")?;
    let unpacked = cache.scratch(CACHE_KIND, "package")?;
    let entry = cache.publish(CACHE_KIND, ENTRY, |target| {
        // Guests that run on the distribution's kernel have theirs out of it, too.
        package.unpack_kept_into(cache, unpacked.path())?;
        let release = package
            .name
            .strip_prefix("linux-image-")
            .unwrap_or(&package.name);
        copy(
            &unpacked
                .path()
                .join("boot")
                .join(format!("vmlinuz-{release}")),
            &target.join("vmlinuz"),
        )?;
        let modules = unpacked
            .path()
            .join("lib/modules")
            .join(release)
            .join("kernel");
        for module in MODULES {
            take_module(&modules.join(module), &target.join(file_name(module)))?;
        }
        let version = target.join("package");
        fs::write(&version, format!("{} {}\n", package.name, package.version))
            .map_err(Error::file("write", &version))
    })?;
    step.finish(&package.version);
    Ok(entry)
}

/// Copies a module, uncompressing it if the package has it compressed: L1's loader takes it as it is.
fn take_module(module: &Path, target: &Path) -> Result<()> {
    if module.exists() {
        return copy(module, target);
    }
    let compressed = module.with_extension("ko.xz");
    let out = fs::File::create(target).map_err(Error::file("create", target))?;
    let status = Command::new("xz")
        .args(["--decompress", "--stdout"])
        .arg(&compressed)
        .stdout(out)
        .status()
        .map_err(Error::file("uncompress with xz", &compressed))?;
    if status.success() {
        return Ok(());
    }
    let failed = std::io::Error::other(format!("xz: {status}"));
    Err(Error::file("uncompress", &compressed)(failed))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to)
        .map(drop)
        .map_err(Error::file("copy", from))
}

fn file_name(module: &str) -> &str {
    module.rsplit('/').next().unwrap_or(module)
}
