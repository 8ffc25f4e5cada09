//! The guests that are measured: our default image, and a bare guest with a port server as PID 1.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use forebay::Image;
use tempfile::TempDir;

/// Guest memory in MiB, ours and the peer's.
pub(crate) const MEMORY_MIB: u32 = 256;
/// Where the helper program lies in the guest.
pub(crate) const HELPER: &str = "/bin/forebay-guest-helper";

/// Names the image's directory; the default image otherwise.
const IMAGE_VARIABLE: &str = "FOREBAY_IMAGE";
/// Names the initramfs layer with the helper program.
const HELPER_VARIABLE: &str = "FOREBAY_HELPER_LAYER";

/// The image under measurement, without and with the helper program.
pub(crate) struct Guests {
    /// As a user has it.
    pub(crate) image: Image,
    /// With [`HELPER`] in a layer of its own.
    pub(crate) with_helper: Image,
    /// For us and for the peer alike.
    pub(crate) bare: BareGuest,
}

/// A kernel and the initramfs of [`Guests::with_helper`] as any virtual machine monitor takes them, to be
/// booted with the port server in place of our init.
pub(crate) struct BareGuest {
    pub(crate) kernel: PathBuf,
    /// All layers in one file.
    pub(crate) initramfs: PathBuf,
    /// For the kernel's command line.
    pub(crate) words: String,
    /// Of the peer's machine: our own announces that it has no clock of a PC, the peer cannot, and a
    /// kernel that could drive one looks for it for more than a second.
    pub(crate) wants_rtc: bool,
    _directory: TempDir,
}

impl Guests {
    /// Finds them where the environment says.
    pub(crate) fn find() -> Result<Self> {
        let image = match std::env::var_os(IMAGE_VARIABLE) {
            Some(directory) => Image::open(directory)?,
            None => Image::default_cached()?,
        };
        let layer = std::env::var_os(HELPER_VARIABLE).with_context(|| {
            format!("{HELPER_VARIABLE} is not set; `cargo xtask bench` sets it")
        })?;
        let with_helper = image.clone().with_layer(layer)?;
        let bare = BareGuest::of(&with_helper, image.kernel(), None)?;
        Ok(Self {
            image,
            with_helper,
            bare,
        })
    }
}

impl BareGuest {
    /// An image with the helper, booted with this kernel and the layer of its modules.
    pub(crate) fn of(image: &Image, kernel: &Path, modules: Option<&Path>) -> Result<Self> {
        let directory = tempfile::tempdir().context("make a directory for an initramfs")?;
        let initramfs = directory.path().join("initramfs.cpio");
        let layers = image.initramfs().iter().map(PathBuf::as_path);
        let layers: Vec<_> = layers.chain(modules).collect();
        forebay_images::concatenate(&layers, &initramfs)?;
        Ok(Self {
            kernel: kernel.to_owned(),
            initramfs,
            // The kernel hands a word that it does not know to init as an argument.
            words: format!("rdinit={HELPER} port-server"),
            wants_rtc: false,
            _directory: directory,
        })
    }
}
