//! What an image has beside its root: a kernel, with its modules, and the agent as PID 1. Taken from
//! another image, mostly the default one; [`ImageBuilder`](crate::ImageBuilder) puts a root on it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use crate::kernel::cloud::CloudKernel;
use crate::{Error, Image, KernelKind, Result, newc};

/// Where the agent is in every image.
pub(crate) const INIT: &[u8] = b"init";
/// Largest init, in bytes.
const INIT_MAX: u32 = 64 << 20;
/// What the origin of an image tells whose kernel came with modules.
const MODULAR: &str = "kernel.package";

/// What an image has beside its root: a kernel, and the agent as PID 1.
#[derive(Debug, Clone)]
pub struct Foundation {
    pub(crate) kernel: PathBuf,
    pub(crate) kernel_kind: KernelKind,
    pub(crate) init: Vec<u8>,
    pub(crate) cmdline: String,
    /// An archive of them, whose files go into the root.
    pub(crate) modules: Option<PathBuf>,
    pub(crate) origin: BTreeMap<String, String>,
}

impl Foundation {
    /// Those of another image, such as the default one.
    ///
    /// # Errors
    /// [`Error::NoFoundation`] if it has no `/init`, or if its kernel came with modules
    /// ([`with_cloud_kernel`](Self::with_cloud_kernel)): they are in its root, and the kernel alone
    /// reaches no guest. [`Error::File`].
    pub fn of(image: &Image) -> Result<Self> {
        let unfit = |reason: &str| Error::NoFoundation {
            image: image.directory().to_path_buf(),
            reason: reason.to_owned(),
        };
        if image.origin().contains_key(MODULAR) {
            return Err(unfit(
                "its kernel needs modules, which are in its root: take the default image, and the \
                 kernel from its package",
            ));
        }
        let mut init = None;
        for layer in image.initramfs().iter().rev() {
            init = find_init(layer)?;
            if init.is_some() {
                break;
            }
        }
        let origin = image
            .origin()
            .iter()
            .filter(|(name, _)| name.starts_with("kernel."));
        Ok(Self {
            kernel: image.kernel().to_path_buf(),
            kernel_kind: image.kernel_kind(),
            init: init.ok_or_else(|| unfit("there is no init in it"))?,
            cmdline: image.cmdline().to_owned(),
            modules: None,
            origin: origin
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
        })
    }

    /// The agent: a static program.
    pub fn init(&self) -> &[u8] {
        &self.init
    }

    /// With another kernel.
    #[must_use]
    pub fn with_kernel(mut self, path: impl Into<PathBuf>, kind: KernelKind) -> Self {
        self.kernel = path.into();
        self.kernel_kind = kind;
        self.cmdline.clear();
        self.modules = None;
        self.origin.clear();
        self
    }

    /// With the distribution's kernel and its modules, which PID 1 loads.
    #[must_use]
    pub fn with_cloud_kernel(self, kernel: &CloudKernel) -> Self {
        let (file, kind) = kernel.file();
        let facts = &kernel.facts;
        let mut foundation = self.with_kernel(file, kind);
        foundation.modules = Some(kernel.modules.clone());
        foundation.origin = [
            ("kernel.release", &facts.release),
            (MODULAR, &facts.package),
            ("kernel.version", &facts.version),
        ]
        .map(|(name, value)| (name.to_owned(), value.clone()))
        .into();
        foundation
    }

    /// With another init: a static program.
    ///
    /// # Errors
    /// [`Error::File`] if it cannot be read.
    pub fn with_init(mut self, path: &Path) -> Result<Self> {
        self.init = fs::read(path).map_err(Error::file("read", path))?;
        Ok(self)
    }
}

/// The contents of `/init` in an archive.
fn find_init(archive: &Path) -> Result<Option<Vec<u8>>> {
    let failed = |error: io::Error| Error::file("read", archive)(error);
    let mut reader = BufReader::new(File::open(archive).map_err(failed)?);
    while let Some(header) = newc::read_header(&mut reader).map_err(failed)? {
        if header.name == INIT && header.mode & newc::TYPE_MASK == newc::REGULAR {
            let contents = newc::read_contents(&mut reader, &header, INIT_MAX);
            return contents.map(Some).map_err(failed);
        }
        newc::skip_contents(&mut reader, &header).map_err(failed)?;
    }
    Ok(None)
}

#[cfg(test)]
#[path = "foundation_test.rs"]
mod tests;
