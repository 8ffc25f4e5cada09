//! The distribution's own kernel for virtual machines, as the kernel of a guest: one that has
//! everything, where ours has what it was built with.
//!
//! ```text
//! linux-image-…-cloud-amd64 ─┬─ boot/vmlinuz ────────────▶ vmlinuz
//!                            │      └─ its payload ──────▶ vmlinux      boots faster
//!                            └─ lib/modules ─ those of ──▶ modules.cpio an initramfs layer
//!                                  our devices
//! ```
//!
//! The package is unpacked and not installed. The kernel finds the machine's devices by ACPI, but
//! their drivers are modules; the layer holds those, uncompressed, and the list by which PID 1 loads
//! them (`/etc/forebay/modules`). The layer fits this kernel alone.
//!
//! The newest package of the series is taken when there is none in the cache; later ones do not
//! replace it.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{CACHE_KIND, FACTS, modules, payload};
use crate::debian::Package;
use crate::progress::Progress;
use crate::{Cache, Error, KernelKind, Result};

/// The kernels' packages are named so, with a version between the two.
const PACKAGE: (&str, &str) = ("linux-image-6.12", "-cloud-amd64");
/// Names the cache entry. Counts up when what is in it changes.
const ENTRY: &str = "cloud-6.12-v2";
const BZIMAGE: &str = "vmlinuz";
const VMLINUX: &str = "vmlinux";
const MODULES: &str = "modules.cpio";

/// Debian packages that are needed beside the package manager: the kernel's modules are compressed.
pub const PACKAGES: &[&str] = &["xz-utils"];

/// A distribution's kernel in the cache.
#[derive(Debug, Clone)]
pub struct CloudKernel {
    /// Where it was opened.
    pub directory: PathBuf,
    /// The kernel as the package has it.
    pub bzimage: PathBuf,
    /// The same, uncompressed; `None` if it is compressed in a way that is not known here.
    pub vmlinux: Option<PathBuf>,
    /// The initramfs layer with the modules that a guest of this kernel needs.
    pub modules: PathBuf,
    /// What it is.
    pub facts: CloudKernelFacts,
}

/// What package a kernel is from; kept beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloudKernelFacts {
    /// What `uname -r` says in the guest.
    pub release: String,
    /// The package.
    pub package: String,
    /// Its version.
    pub version: String,
    /// Modules in the layer, in the order of loading.
    pub modules: Vec<String>,
}

impl CloudKernel {
    /// The file to boot, the one that boots faster, and its kind.
    pub fn file(&self) -> (&Path, KernelKind) {
        match &self.vmlinux {
            Some(vmlinux) => (vmlinux, KernelKind::Vmlinux),
            None => (&self.bzimage, KernelKind::BzImage),
        }
    }

    /// Opens the kernel in a directory: a cache entry, or a copy of one.
    ///
    /// # Errors
    /// [`Error::File`] or [`Error::Description`] if there is none or it is damaged.
    pub fn open(directory: impl Into<PathBuf>) -> Result<Self> {
        let directory = directory.into();
        let path = directory.join(FACTS);
        let text = fs::read(&path).map_err(Error::file("read", &path))?;
        let facts =
            serde_json::from_slice(&text).map_err(|source| Error::Description { path, source })?;
        Ok(Self {
            bzimage: directory.join(BZIMAGE),
            vmlinux: Some(directory.join(VMLINUX)).filter(|path| path.exists()),
            modules: directory.join(MODULES),
            directory,
            facts,
        })
    }
}

/// Gets the kernel from the cache, or fetches its package: some 35 MB.
///
/// # Errors
/// [`Error::NoPackage`], [`Error::KernelPackage`] if a driver is missing in it, a failed program's
/// [`Error::Command`], [`Error::File`].
pub fn get_or_fetch(cache: &Cache, progress: &dyn Progress) -> Result<CloudKernel> {
    if let Some(kernel) = cached(cache)? {
        return Ok(kernel);
    }
    let _one_at_a_time = cache.lock("cloud-kernel")?;
    if let Some(kernel) = cached(cache)? {
        return Ok(kernel);
    }
    let step = progress.step("fetch the distribution's kernel", None);
    let package = Package::newest_named(PACKAGE.0, PACKAGE.1)?;
    let unpacked = cache.scratch(CACHE_KIND, "cloud-package")?;
    let entry = cache.publish(CACHE_KIND, ENTRY, |target| {
        // The rig's own kernel is another part of it.
        package.unpack_kept_into(cache, unpacked.path())?;
        take(&package, unpacked.path(), target)
    })?;
    let kernel = CloudKernel::open(entry)?;
    step.finish(&package.version);
    Ok(kernel)
}

/// The kernel if it is in the cache already; never fetches.
///
/// # Errors
/// [`Error::File`] or [`Error::Description`] if the entry is damaged.
pub fn cached(cache: &Cache) -> Result<Option<CloudKernel>> {
    cache
        .get(CACHE_KIND, ENTRY)
        .map(CloudKernel::open)
        .transpose()
}

/// Makes an entry out of a package's files.
fn take(package: &Package, unpacked: &Path, target: &Path) -> Result<()> {
    let release = package
        .name
        .strip_prefix("linux-image-")
        .unwrap_or(&package.name);
    let built = unpacked.join("boot").join(format!("vmlinuz-{release}"));
    let bzimage = fs::read(&built).map_err(Error::file("read", &built))?;
    let path = target.join(BZIMAGE);
    fs::write(&path, &bzimage).map_err(Error::file("write", &path))?;
    let path = target.join(VMLINUX);
    if let Some(vmlinux) = payload::uncompressed(&bzimage) {
        fs::write(&path, vmlinux).map_err(Error::file("write", &path))?;
    }
    let loaded = modules::layer(
        &package.name,
        release,
        &unpacked.join("lib/modules").join(release),
        &target.join(MODULES),
    )?;
    let facts = CloudKernelFacts {
        release: release.to_owned(),
        package: package.name.clone(),
        version: package.version.clone(),
        modules: loaded,
    };
    let path = target.join(FACTS);
    let text = serde_json::to_vec_pretty(&facts).map_err(|source| Error::Description {
        path: path.clone(),
        source,
    })?;
    fs::write(&path, text).map_err(Error::file("write", &path))
}
