//! Errors of this crate: what failed, on which file or program, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

/// The result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an image could not be opened or built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No default image was built on this machine yet.
    #[error(
        "there is no default image at {}: build it with `cargo xtask image` in forebay's source tree, \
         or open another with Image::open",
        path.display()
    )]
    NoDefaultImage {
        /// Where it was looked for.
        path: PathBuf,
    },

    /// A file of an image is missing or has another size than its description says.
    #[error("image {}: {reason}; build the image again", image.display())]
    DamagedImage {
        /// The image's directory.
        image: PathBuf,
        /// What does not fit, with the file's name.
        reason: String,
    },

    /// An image that others cannot be built on.
    #[error("image {} is no foundation of others: {reason}", image.display())]
    NoFoundation {
        /// The image's directory.
        image: PathBuf,
        /// What is missing, and what to do.
        reason: String,
    },

    /// `image.json` could not be understood.
    #[error("{}: not an image description: {source}", path.display())]
    Description {
        /// The description's path.
        path: PathBuf,
        /// Where in the text, and why.
        source: serde_json::Error,
    },

    /// The image was written by a newer version of this crate.
    #[error(
        "{}: image format {found}, this version reads up to {supported}; update forebay or build the image again",
        path.display()
    )]
    Format {
        /// The description's path.
        path: PathBuf,
        /// The format it says it has.
        found: u32,
        /// The newest format this version reads.
        supported: u32,
    },

    /// An initramfs entry that no archive can hold.
    #[error("initramfs entry {path:?}: {reason}")]
    Entry {
        /// The path inside the archive.
        path: String,
        /// Why it cannot be written.
        reason: String,
    },

    /// An archive or directory has something that cannot be in an image.
    #[error("{archive}: entry {entry:?}: {reason}")]
    Archive {
        /// The archive, layer or directory.
        archive: String,
        /// The path inside it, or the last one before the fault.
        entry: String,
        /// Why it cannot be taken.
        reason: String,
    },

    /// A container image that is none, is for another platform, or is not as it promises.
    #[error("container image {}: {reason}", path.display())]
    ContainerImage {
        /// The directory or archive.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },

    /// The cache has no image of this name or digest.
    #[error("there is no image {reference:?} in {}; `forebay image ls` lists them", cache.display())]
    NoSuchImage {
        /// What was looked for.
        reference: String,
        /// The cache's directory.
        cache: PathBuf,
    },

    /// Several images' digests begin with these digits.
    #[error("the digests of {count} images begin with {reference}: give more digits")]
    AmbiguousImage {
        /// What was looked for.
        reference: String,
        /// How many were found.
        count: usize,
    },

    /// A name that no image can have.
    #[error(
        "{name:?} cannot be an image's name: use 1 to 64 letters, digits, `.`, `-` and `_`, first a \
         letter or digit, and nothing that looks like a digest"
    )]
    ImageName {
        /// The name.
        name: String,
    },

    /// A word that cannot be a Debian release, package or archive.
    #[error("{text:?} cannot be a Debian {what}'s name")]
    DebianName {
        /// What it should be.
        what: &'static str,
        /// As it was given.
        text: String,
    },

    /// An operation on a host file failed.
    #[error("cannot {operation} {}: {source}", path.display())]
    File {
        /// What was tried.
        operation: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },

    /// A program that a build needs could not be started.
    #[error("cannot run `{command}`: {source}; is the package that has it installed?")]
    Start {
        /// The command line.
        command: String,
        /// What the system said.
        source: io::Error,
    },

    /// A program that a build needs ended with an error.
    #[error("`{command}` failed ({status}):\n{tail}")]
    Command {
        /// The command line.
        command: String,
        /// How it ended.
        status: ExitStatus,
        /// The last lines it printed.
        tail: String,
    },

    /// The package manager offers no such package.
    #[error("apt offers no package {package}: {hint}")]
    NoPackage {
        /// The package's name or pattern.
        package: String,
        /// What to do about it.
        hint: String,
    },

    /// This system has not Debian's package manager.
    #[error(
        "{package} comes from a Debian package, and this system has no {program}: build on Debian or \
         one of its derivatives (a container will do), then bring its cache along (FOREBAY_CACHE, or \
         ~/.cache/forebay)"
    )]
    NoPackageManager {
        /// The package's name or how it begins.
        package: String,
        /// The program that was not found.
        program: String,
    },

    /// A fetched file is not the one that was pinned.
    #[error("{}: SHA-256 is {found}, pinned is {expected}; the download was removed, try again", path.display())]
    Checksum {
        /// The file.
        path: PathBuf,
        /// Its digest, hexadecimal.
        found: String,
        /// The digest it should have.
        expected: String,
    },

    /// The kernel's configuration system did not take options of the fragment.
    #[error(
        "these lines of {} did not reach the kernel's .config: {}; an option they depend on is missing or renamed",
        fragment.display(),
        lines.join(", ")
    )]
    KernelConfig {
        /// The fragment.
        fragment: PathBuf,
        /// The lines, as written there.
        lines: Vec<String>,
    },

    /// A kernel package lacks what a guest cannot do without.
    #[error("kernel package {package}: {reason}")]
    KernelPackage {
        /// Its name.
        package: String,
        /// What is missing or not as expected.
        reason: String,
    },

    /// Neither `$FOREBAY_CACHE`, `$XDG_CACHE_HOME` nor `$HOME` says where the cache is.
    #[error("no place for the cache: set FOREBAY_CACHE to a directory")]
    NoCacheDirectory,
}

impl Error {
    /// For `map_err`: an operation on `path` failed.
    pub(crate) fn file(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::File {
            operation,
            path,
            source,
        }
    }
}
