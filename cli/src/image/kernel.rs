//! `--kernel` of `forebay image build`: which kernel an image gets.

use std::convert::Infallible;
use std::path::PathBuf;

use anyhow::Result;
use forebay_images::kernel::{self, Fragment, cloud};
use forebay_images::{Cache, Foundation, KernelKind};

use super::report::Lines;

/// A kernel as people name it. A file of one of these names is meant by `./debian`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kernel {
    /// The default image's.
    Minimal,
    /// The same for guests of several vCPUs on fewer processors.
    MinimalShared,
    /// The distribution's for virtual machines, with its modules.
    Debian,
    File(PathBuf),
}

impl Kernel {
    pub(super) fn parse(text: &str) -> Result<Self, Infallible> {
        Ok(match text {
            "minimal" => Self::Minimal,
            "minimal-shared" => Self::MinimalShared,
            "debian" => Self::Debian,
            path => Self::File(path.into()),
        })
    }

    /// Puts it into the foundation of an image, fetched or built if it is not in the cache.
    pub(super) fn put_into(&self, foundation: Foundation, cache: &Cache) -> Result<Foundation> {
        Ok(match self {
            Self::Minimal => foundation,
            Self::MinimalShared => {
                let fragment = Fragment::microvm_shared_processors();
                let kernel = kernel::get_or_build(cache, &fragment, &Lines)?;
                foundation.with_kernel(kernel.vmlinux, KernelKind::Vmlinux)
            }
            Self::Debian => foundation.with_cloud_kernel(&cloud::get_or_fetch(cache, &Lines)?),
            Self::File(path) => foundation.with_kernel(path, KernelKind::of_file(path)?),
        })
    }
}

#[cfg(test)]
#[path = "kernel_test.rs"]
mod tests;
