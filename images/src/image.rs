//! The image format: a directory with `image.json`, a kernel and initramfs layers.
//!
//! Owns opening an image; `description.rs` has the description, which it reads and writes, and the
//! digest. Does not build anything. Called by the `forebay` crate to open an image, and by
//! [`default_image`](crate::default_image) and [`ImageBuilder`](crate::ImageBuilder) to write one.
//!
//! Opening checks that every file is there with its recorded size; [`Image::verify`] hashes them.
//! The digest is over what a guest can see (kernel, layers in order, command line, how commands
//! run), not over names or origins: equal digests boot equal guests.

mod description;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::foreign_text::shown;
use crate::{Cache, Error, ImageConfig, Result, file_sha256};
use description::Description;
pub(crate) use description::{Described, Parts, describe};

/// What the guest's kernel needs at boot beside its own file and the initramfs, at the very least.
const KERNEL_RESERVE: u64 = 16 << 20;

/// Where the memory ends that kernel and archives can be loaded into: above it is the hole for devices.
const LOADABLE_END: u64 = 3 << 30;

/// The cache's name for the image that [`Image::default_cached`] opens.
pub(crate) const DEFAULT_NAME: &str = "default";

/// The cache kind under which images are kept.
pub(crate) const CACHE_KIND: &str = "images";

/// How the kernel file is to be booted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum KernelKind {
    /// An uncompressed ELF `vmlinux` with a PVH entry note.
    Vmlinux,
    /// A compressed kernel as distributions have it (`vmlinuz`), by the 64-bit boot protocol.
    BzImage,
}

impl KernelKind {
    /// What a kernel file seems to be: a bzImage if it has the header of one, else a `vmlinux`.
    /// Whether it can be booted is found out when it is.
    ///
    /// # Errors
    /// [`Error::File`] if it cannot be read.
    pub fn of_file(path: &Path) -> Result<Self> {
        const HEADER: (u64, [u8; 4]) = (0x202, *b"HdrS");
        let mut magic = [0; 4];
        let file = File::open(path).map_err(Error::file("open", path))?;
        match file.read_exact_at(&mut magic, HEADER.0) {
            Ok(()) if magic == HEADER.1 => Ok(Self::BzImage),
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => {
                Err(Error::file("read", path)(error))
            }
            _ => Ok(Self::Vmlinux),
        }
    }

    /// As in `image.json`.
    fn name(self) -> &'static str {
        match self {
            Self::Vmlinux => "vmlinux",
            Self::BzImage => "bzimage",
        }
    }
}

/// What an image takes of a guest's memory to boot, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryNeed {
    /// The kernel's file.
    pub kernel: u64,
    /// The initramfs layers as they are.
    pub archives: u64,
    /// What they unpack to, in whole pages and with what the kernel keeps for each entry.
    pub unpacked: u64,
}

impl MemoryNeed {
    /// The least memory that such a guest can be given. The kernel gives the archives' memory back
    /// only when it has unpacked them, and what they unpack to may fill half of the rest.
    pub fn least_bytes(&self) -> u64 {
        [KERNEL_RESERVE, self.archives, self.unpacked, self.unpacked]
            .into_iter()
            .fold(self.kernel, u64::saturating_add)
    }

    /// Whether a guest can have as much: kernel and archives must lie below 3 GiB together, however
    /// large the guest is.
    pub fn can_be_met(&self) -> bool {
        self.kernel.saturating_add(self.archives) < LOADABLE_END
    }

    /// A layer of this length; one that does not say what it unpacks to is taken for as much.
    fn add_layer(&mut self, len: u64, unpacked: Option<u64>) {
        // Of a description that says anything.
        self.archives = self.archives.saturating_add(len);
        self.unpacked = self.unpacked.saturating_add(unpacked.unwrap_or(len));
    }
}

/// A guest image that was opened: paths and facts, no open files.
#[derive(Debug, Clone)]
pub struct Image {
    name: String,
    directory: PathBuf,
    kernel: PathBuf,
    kernel_kind: KernelKind,
    initramfs: Vec<PathBuf>,
    cmdline: String,
    config: ImageConfig,
    origin: BTreeMap<String, String>,
    digest: String,
    memory: MemoryNeed,
    /// Digests of the kernel and then of each layer, in order.
    file_digests: Vec<String>,
}

impl Image {
    /// Opens the image in a directory.
    ///
    /// Reads the description and the sizes of the files, not their contents.
    ///
    /// # Errors
    /// [`Error::File`] if there is no description, [`Error::Description`] or [`Error::Format`] if it
    /// cannot be understood, [`Error::DamagedImage`] if a file is missing, has another size, or is
    /// not a plain file of the directory: nothing outside it is ever an image's.
    pub fn open(directory: impl AsRef<Path>) -> Result<Self> {
        let directory = directory.as_ref();
        Self::from_description(directory, Description::read(directory)?)
    }

    /// Opens the image that was last built as this machine's default.
    ///
    /// Never builds and never fetches.
    ///
    /// # Errors
    /// [`Error::NoDefaultImage`] if there is none: it names the command that builds it. Otherwise as
    /// [`open`](Self::open).
    pub fn default_cached() -> Result<Self> {
        Self::default_in(&Cache::of_user()?)
    }

    /// As [`default_cached`](Self::default_cached), in a given cache.
    ///
    /// # Errors
    /// As [`default_cached`](Self::default_cached).
    pub fn default_in(cache: &Cache) -> Result<Self> {
        let path = cache.path(CACHE_KIND, DEFAULT_NAME);
        // The entry is a link to an image named by its digest. Resolved now, so that a new default
        // published while this one is in use does not mix two images.
        match fs::canonicalize(&path) {
            Ok(directory) => Self::open(directory),
            Err(_) => Err(Error::NoDefaultImage { path }),
        }
    }

    /// The name given when it was built; for people, not an identity.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The directory it was opened from.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The kernel file.
    pub fn kernel(&self) -> &Path {
        &self.kernel
    }

    /// How the kernel file is to be booted.
    pub fn kernel_kind(&self) -> KernelKind {
        self.kernel_kind
    }

    /// The initramfs layers, lowest first. Each is an uncompressed `newc` archive; in guest memory
    /// they lie one after the other, each starting on a multiple of four bytes, and files of later
    /// layers replace those of earlier ones.
    pub fn initramfs(&self) -> &[PathBuf] {
        &self.initramfs
    }

    /// What this image adds to the kernel command line; often empty.
    pub fn cmdline(&self) -> &str {
        &self.cmdline
    }

    /// How commands run in it if nobody says otherwise. Empty unless it was made of a container image
    /// that says something.
    pub fn config(&self) -> &ImageConfig {
        &self.config
    }

    /// The command line that the image names, program first; empty if it names none. See
    /// [`ImageConfig::command`].
    pub fn command(&self) -> Vec<String> {
        self.config.command()
    }

    /// What it takes of a guest's memory to boot it.
    pub fn memory_need(&self) -> MemoryNeed {
        self.memory
    }

    /// What it was made of, by name (kernel source package, its version and checksum, …).
    pub fn origin(&self) -> &BTreeMap<String, String> {
        &self.origin
    }

    /// The image's identity: 64 hexadecimal digits over kernel, layers in order, command line and
    /// [`config`](Self::config).
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Adds one more initramfs layer on top. The layer's file is read once for the digest and must
    /// stay unchanged while the image is used.
    ///
    /// # Errors
    /// [`Error::File`] if the layer cannot be read.
    pub fn with_layer(mut self, path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        self.file_digests.push(file_sha256(&path)?);
        let len = fs::metadata(&path)
            .map_err(Error::file("read", &path))?
            .len();
        self.memory.add_layer(len, None);
        self.initramfs.push(path);
        self.digest = description::digest_of(
            &self.file_digests,
            self.kernel_kind,
            &self.cmdline,
            &self.config,
        );
        Ok(self)
    }

    /// Reads every file and compares its SHA-256 with the recorded one.
    ///
    /// # Errors
    /// [`Error::DamagedImage`] naming the first file that differs, or [`Error::File`].
    pub fn verify(&self) -> Result<()> {
        let files = std::iter::once(&self.kernel).chain(&self.initramfs);
        for (path, recorded) in files.zip(&self.file_digests) {
            if file_sha256(path)? != *recorded {
                return Err(self.damaged(format!("{} is not as it was built", path.display())));
            }
        }
        Ok(())
    }

    fn from_description(directory: &Path, description: Description) -> Result<Self> {
        let layers = description.initramfs;
        let file_digests: Vec<_> = std::iter::once(&description.kernel.file)
            .chain(&layers)
            .map(|file| file.sha256.clone())
            .collect();
        let mut memory = MemoryNeed {
            kernel: description.kernel.file.size,
            archives: 0,
            unpacked: 0,
        };
        for layer in &layers {
            memory.add_layer(layer.size, layer.unpacked);
        }
        let image = Self {
            name: description.name,
            directory: directory.to_path_buf(),
            kernel: directory.join(&description.kernel.file.path),
            kernel_kind: description.kernel.kind,
            initramfs: layers
                .iter()
                .map(|file| directory.join(&file.path))
                .collect(),
            digest: description::digest_of(
                &file_digests,
                description.kernel.kind,
                &description.cmdline,
                &description.config,
            ),
            cmdline: description.cmdline,
            config: description.config,
            memory,
            origin: description.origin,
            file_digests,
        };
        for file in std::iter::once(&description.kernel.file).chain(&layers) {
            file.check(directory)
                .map_err(|reason| image.damaged(format!("{}: {reason}", shown(&file.path))))?;
        }
        if image.digest != description.digest {
            return Err(image.damaged("the recorded digest does not fit the recorded files".into()));
        }
        Ok(image)
    }

    fn damaged(&self, reason: String) -> Error {
        Error::DamagedImage {
            image: self.directory.clone(),
            reason,
        }
    }
}

#[cfg(test)]
#[path = "image_test.rs"]
mod tests;
