//! The kernels that are booted: ours in both forms, and the distribution's.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use forebay::{Image, VmBuilder};
use forebay_images::kernel::cloud::CloudKernel;

use crate::bench::guest::{BareGuest, Guests};

/// Names our kernel for vCPUs that share processors.
const SHARED_VARIABLE: &str = "FOREBAY_SHARED_KERNEL";
/// Names the directory of the distribution's kernel.
const CLOUD_VARIABLE: &str = "FOREBAY_CLOUD_KERNEL";

/// One kernel.
pub(crate) struct Kernel {
    /// In tables.
    pub(crate) name: &'static str,
    pub(crate) file: PathBuf,
    /// The layer with the modules that a guest of it needs.
    pub(crate) modules: Option<PathBuf>,
    /// What a guest of it with the default image can boot in, in MiB.
    pub(crate) least_mib: u32,
    /// It takes thirty times the work of ours, so a quick look boots it once.
    pub(crate) long: bool,
}

/// All of them.
pub(crate) struct Kernels {
    /// The default image's.
    pub(crate) minimal: Kernel,
    /// The same, for several vCPUs on fewer processors.
    pub(crate) shared: Kernel,
    /// The distribution's, uncompressed.
    pub(crate) debian: Kernel,
    /// The same as its package has it.
    pub(crate) bzimage: Kernel,
}

impl Kernel {
    /// The kernel of an image.
    pub(crate) fn of(image: &Image) -> Self {
        Self::minimal("minimal", image.kernel().to_owned())
    }

    fn minimal(name: &'static str, file: PathBuf) -> Self {
        Self {
            name,
            file,
            modules: None,
            least_mib: 64,
            long: false,
        }
    }

    fn debian(name: &'static str, file: PathBuf, modules: &Path) -> Self {
        Self {
            name,
            file,
            modules: Some(modules.to_owned()),
            least_mib: 128,
            long: true,
        }
    }

    /// A VM of this kernel.
    pub(crate) fn boots(&self, builder: VmBuilder) -> VmBuilder {
        let builder = builder.kernel(&self.file);
        match &self.modules {
            Some(modules) => builder.initramfs(modules),
            None => builder,
        }
    }

    /// The bare guest of this kernel.
    pub(crate) fn bare(&self, guests: &Guests) -> Result<BareGuest> {
        let modules = self.modules.as_deref();
        let mut guest = BareGuest::of(&guests.with_helper, &self.file, modules)?;
        // The distribution's has a driver for it, ours has none.
        guest.wants_rtc = modules.is_some();
        Ok(guest)
    }
}

impl Kernels {
    /// Finds them: the image has the first, the environment says where the others are.
    pub(crate) fn find(image: &Image) -> Result<Self> {
        let named = |variable| {
            std::env::var_os(variable)
                .with_context(|| format!("{variable} is not set; `cargo xtask bench boot` sets it"))
        };
        let cloud = CloudKernel::open(named(CLOUD_VARIABLE)?)?;
        let vmlinux = cloud
            .vmlinux
            .clone()
            .context("the distribution's kernel could not be uncompressed")?;
        Ok(Self {
            minimal: Kernel::of(image),
            shared: Kernel::minimal("minimal-shared", named(SHARED_VARIABLE)?.into()),
            debian: Kernel::debian("Debian, vmlinux", vmlinux, &cloud.modules),
            bzimage: Kernel::debian("Debian, bzImage", cloud.bzimage, &cloud.modules),
        })
    }
}
