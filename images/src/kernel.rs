//! The guest kernel: from the distribution's kernel source package to a stripped `vmlinux`. Beside it
//! [`cloud`] has the distribution's own kernel as a guest's.
//!
//! Owns the recipe and its cache entries. Called by the command line and by developer tasks, never
//! while a virtual machine starts. The options and their reasons are in `kernel-config/`.
//!
//! ```text
//! linux-source package ── tar ──▶ source tree ─┐
//! microvm.fragment ──▶ allnoconfig ─▶ .config ─┴─▶ make vmlinux ─▶ strip ─▶ cache/kernel/<key>/
//!                                       │                                    vmlinux  System.map
//!                                       └─ every line of the fragment        config   kernel.json
//!                                          must have arrived
//! ```
//!
//! The key is over what is asked for: the recipe's version, the pinned version of the source package
//! and the fragment's options (its comments may change freely). Where the archive has dropped the
//! pinned version, the newest takes its place under the same key, once: later ones do not replace a
//! kernel that works. `kernel.json` says what it was made of. Builder, host, time and environment
//! are fixed, so that the same compiler gives the same bytes.

pub mod cloud;
mod fragment;
mod modules;
mod payload;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::debian::Package;
use crate::progress::Progress;
use crate::{Cache, ContentKey, Error, Result, command, file_sha256};
pub use fragment::Fragment;

/// The package that holds the kernel's source.
pub const SOURCE_PACKAGE: &str = "linux-source-6.12";
/// The version this recipe was measured with. Where apt has dropped it, the newest is taken.
pub const SOURCE_VERSION: &str = "6.12.117-1~deb12u1";
/// SHA-256 of the source archive in that version of the package.
pub const SOURCE_SHA256: &str = "585a4a074597aefa2b1a68ada83a3184ba351c127544dea80618bbcceaa3961f";

/// Debian packages that a kernel build needs beside a C compiler.
pub const BUILD_PACKAGES: &[&str] = &[
    "bc",
    "bison",
    "flex",
    "gcc",
    "libc6-dev",
    "libelf-dev",
    "libssl-dev",
    "make",
    "xz-utils",
];

/// Counts up whenever the steps below change what comes out of the same source and options.
const RECIPE: &str = "2";
/// Lines that a whole build prints; the progress bar's estimated end.
const BUILD_LINES: u64 = 1860;
const CACHE_KIND: &str = "kernel";
const FACTS: &str = "kernel.json";

/// A built kernel in the cache.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// The uncompressed, stripped ELF image.
    pub vmlinux: PathBuf,
    /// What it was built from.
    pub facts: KernelFacts,
}

/// What a kernel was built from; kept beside it and copied into images.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelFacts {
    /// What `uname -r` says in the guest.
    pub release: String,
    /// The source package.
    pub source_package: String,
    /// Its version.
    pub source_version: String,
    /// SHA-256 of the source archive in it.
    pub source_sha256: String,
    /// The compiler's own first line.
    pub compiler: String,
    /// SHA-256 over the fragment's options.
    pub options_sha256: String,
}

/// Gets the kernel of these options from the cache, or builds it.
///
/// A build takes minutes on all processors and needs [`BUILD_PACKAGES`]; two at a time in one cache
/// wait for each other.
///
/// # Errors
/// [`Error::NoPackage`], [`Error::Checksum`], [`Error::KernelConfig`], or a failed program's
/// [`Error::Command`].
pub fn get_or_build(cache: &Cache, fragment: &Fragment, progress: &dyn Progress) -> Result<Kernel> {
    // Looked up before apt is asked: what is cached needs no package lists and no network.
    if let Some(kernel) = cached(cache, fragment)? {
        return Ok(kernel);
    }
    let _one_at_a_time = cache.lock("kernel")?;
    if let Some(kernel) = cached(cache, fragment)? {
        return Ok(kernel);
    }
    let source = Package::pinned_or_newest(SOURCE_PACKAGE, SOURCE_VERSION)?;
    if source.version != SOURCE_VERSION {
        progress.note(&format!(
            "{SOURCE_PACKAGE} {SOURCE_VERSION} is not on offer any more, using {}",
            source.version
        ));
    }
    let entry = cache.publish(CACHE_KIND, &key(fragment), |target| {
        let work = cache.scratch("build", "kernel")?;
        Build {
            cache,
            source: &source,
            fragment,
            work: work.path(),
            progress,
        }
        .run(target)
    })?;
    Kernel::open(&entry)
}

/// The kernel of these options if it is in the cache already; never builds.
///
/// # Errors
/// [`Error::File`] or [`Error::Description`] if the entry is damaged.
pub fn cached(cache: &Cache, fragment: &Fragment) -> Result<Option<Kernel>> {
    cache
        .get(CACHE_KIND, &key(fragment))
        .map(|entry| Kernel::open(&entry))
        .transpose()
}

fn key(fragment: &Fragment) -> String {
    ContentKey::new("kernel")
        .text(RECIPE)
        .text(SOURCE_VERSION)
        .text(&fragment.normalised())
        .short()
}

impl Kernel {
    fn open(entry: &Path) -> Result<Self> {
        let path = entry.join(FACTS);
        let text = fs::read(&path).map_err(Error::file("read", &path))?;
        let facts =
            serde_json::from_slice(&text).map_err(|source| Error::Description { path, source })?;
        Ok(Self {
            vmlinux: entry.join("vmlinux"),
            facts,
        })
    }
}

/// One build under way.
struct Build<'a> {
    cache: &'a Cache,
    source: &'a Package,
    fragment: &'a Fragment,
    work: &'a Path,
    progress: &'a dyn Progress,
}

impl Build<'_> {
    fn run(&self, target: &Path) -> Result<()> {
        let source_sha256 = self.fetch()?;
        let tree = self.unpack()?;
        let out = self.work.join("out");
        fs::create_dir_all(&out).map_err(Error::file("create", &out))?;
        self.configure(&tree, &out)?;
        self.compile(&tree, &out)?;

        let vmlinux = target.join("vmlinux");
        command::output(
            Command::new("strip")
                .args(["--strip-all", "-o"])
                .args([&vmlinux, &out.join("vmlinux")]),
        )?;
        for (built, kept) in [("System.map", "System.map"), (".config", "config")] {
            let built = out.join(built);
            fs::copy(&built, target.join(kept)).map_err(Error::file("copy", &built))?;
        }
        let release = out.join("include/config/kernel.release");
        let release = fs::read_to_string(&release).map_err(Error::file("read", &release))?;
        let compiler = command::output(Command::new("gcc").arg("--version"))?;
        let facts = KernelFacts {
            release: release.trim().to_owned(),
            source_package: self.source.name.clone(),
            source_version: self.source.version.clone(),
            source_sha256,
            compiler: compiler.lines().next().unwrap_or_default().to_owned(),
            options_sha256: ContentKey::new("options")
                .text(&self.fragment.normalised())
                .digest(),
        };
        let path = target.join(FACTS);
        let text = serde_json::to_vec_pretty(&facts).map_err(|source| Error::Description {
            path: path.clone(),
            source,
        })?;
        fs::write(&path, text).map_err(Error::file("write", &path))
    }

    /// Fetches the package, unpacks its archive, and returns the archive's digest.
    fn fetch(&self) -> Result<String> {
        let title = format!("fetch {} {}", self.source.name, self.source.version);
        let step = self.progress.step(&title, None);
        self.source.unpack_into(self.cache, self.work)?;
        let archive = self.archive();
        let sha256 = file_sha256(&archive)?;
        if self.source.version == SOURCE_VERSION && sha256 != SOURCE_SHA256 {
            return Err(Error::Checksum {
                path: archive,
                found: sha256,
                expected: SOURCE_SHA256.to_owned(),
            });
        }
        step.finish(&format!("sha256 {}", &sha256[..16]));
        Ok(sha256)
    }

    fn archive(&self) -> PathBuf {
        self.work
            .join("usr/src")
            .join(format!("{SOURCE_PACKAGE}.tar.xz"))
    }

    fn unpack(&self) -> Result<PathBuf> {
        let step = self.progress.step("unpack kernel source", None);
        let tree = self.work.join("source");
        fs::create_dir_all(&tree).map_err(Error::file("create", &tree))?;
        command::output(
            Command::new("tar")
                .args(["--extract", "--strip-components=1", "--file"])
                .arg(self.archive())
                .arg("--directory")
                .arg(&tree),
        )?;
        step.finish("done");
        Ok(tree)
    }

    fn configure(&self, tree: &Path, out: &Path) -> Result<()> {
        let step = self.progress.step("configure kernel", None);
        let path = self.work.join("fragment");
        fs::write(&path, self.fragment.normalised()).map_err(Error::file("write", &path))?;
        command::output(
            make(tree, out)
                .env("KCONFIG_ALLCONFIG", &path)
                .arg("allnoconfig"),
        )?;
        let config = out.join(".config");
        let config = fs::read_to_string(&config).map_err(Error::file("read", &config))?;
        let lost = self.fragment.missing_from(&config);
        if !lost.is_empty() {
            return Err(Error::KernelConfig {
                fragment: self.fragment.path().to_path_buf(),
                lines: lost,
            });
        }
        step.finish("every option arrived");
        Ok(())
    }

    fn compile(&self, tree: &Path, out: &Path) -> Result<()> {
        let mut step = self.progress.step("compile kernel", Some(BUILD_LINES));
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let mut done = 0;
        command::lines(
            make(tree, out)
                .arg(format!("-j{processors}"))
                .arg("vmlinux"),
            |line| {
                // What kbuild did: "  CC      kernel/fork.o". Warnings are not indented.
                if line.starts_with("  ") {
                    done += 1;
                    step.advance(done);
                }
            },
        )?;
        step.finish(&format!("{done} steps"));
        Ok(())
    }
}

/// `make` with everything fixed that would otherwise end up in the image. Of the environment only
/// the search path is kept: kbuild takes its compiler, its flags, its architecture and its place in
/// a jobserver from variables.
fn make(tree: &Path, out: &Path) -> Command {
    let mut command = Command::new("make");
    command
        .arg("-C")
        .arg(tree)
        .arg(format!("O={}", out.display()))
        .args(["ARCH=x86_64", "LOCALVERSION="])
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
        .env("KBUILD_BUILD_TIMESTAMP", "1970-01-01")
        .env("KBUILD_BUILD_USER", "forebay")
        .env("KBUILD_BUILD_HOST", "forebay")
        .env("KBUILD_BUILD_VERSION", "1")
        .env("LC_ALL", "C");
    command
}

#[cfg(test)]
#[path = "kernel_test.rs"]
mod tests;
