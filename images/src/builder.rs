//! An image out of somebody's root file system: a directory, a container image, a Debian release.
//!
//! ```text
//! --from-dir ─┐
//! --oci ──────┼─▶ Tree ─▶ root.cpio ┐
//! --debian ───┘                      ├─▶ image.json, digest ─▶ the cache
//! foundation: kernel, init ─▶ init.cpio, vmlinux ┘
//! ```
//!
//! Our init comes in a layer of its own above the root, and what the root has in its place is left
//! out: the agent is PID 1 of every guest.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter};
use std::path::{Path, PathBuf};

use crate::compression::Bounded;
use crate::debian_root::DebianRoot;
use crate::foundation::{Foundation, INIT};
use crate::image::{self, Described, Parts};
use crate::layer::Unpack;
use crate::notes::Notes;
use crate::progress::Progress;
use crate::spool::Spool;
use crate::tree::{Contents, Kind, Meta, Node, Refused, Tree};
use crate::{
    Cache, Error, Image, ImageConfig, InitramfsBuilder, KernelKind, Result, Scratch, directory,
    newc, oci, store,
};

/// What the files of an image may take at most, in bytes, unless the caller says otherwise.
pub const UNPACKED_MAX: u64 = 8 << 30;
/// What is mounted over, or written to by everybody, with its mode.
const PLACES: [(&[u8], u32); 5] = [
    (b"dev", 0o755),
    (b"proc", 0o555),
    (b"run", 0o755),
    (b"sys", 0o555),
    (b"tmp", 0o1777),
];

/// Where a root file system is taken from.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// A directory of this host: all that is in it, links not followed.
    Directory(PathBuf),
    /// A container image for `linux/amd64`: an OCI image layout or what `docker save` wrote, as a
    /// directory or as a tar archive, which may be compressed.
    Container {
        /// The directory or archive.
        path: PathBuf,
        /// Which image of several: its name, the end of that, or a digest.
        reference: Option<String>,
    },
    /// A release of Debian.
    Debian(DebianRoot),
}

/// What a build gave.
#[derive(Debug, Clone)]
pub struct Built {
    /// The image, in the cache.
    pub image: Image,
    /// What was left out or replaced, one line each, for whoever asked for the image.
    pub notes: Vec<String>,
}

/// Builds images into a cache.
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it builds"]
pub struct ImageBuilder<'a> {
    cache: &'a Cache,
    foundation: Foundation,
    name: Option<String>,
    unpacked_max: u64,
    newest: Option<u32>,
}

impl<'a> ImageBuilder<'a> {
    /// For images with this kernel and init.
    pub fn new(cache: &'a Cache, foundation: Foundation) -> Self {
        Self {
            cache,
            foundation,
            name: None,
            unpacked_max: UNPACKED_MAX,
            newest: None,
        }
    }

    /// The name under which the image can be found: at most 64 letters, digits, `.`, `-` and `_`. An
    /// image that had it loses it.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// What files, and whatever comes out of compressed parts, may take, in bytes; [`UNPACKED_MAX`]
    /// if nothing is said.
    pub fn unpacked_max(mut self, bytes: u64) -> Self {
        self.unpacked_max = bytes;
        self
    }

    /// No file of the image is newer than this, in seconds since 1970. Without it, files of a directory
    /// and of a container image have the times that these say, and a Debian root's are 0.
    pub fn newest_time(mut self, seconds: u32) -> Self {
        self.newest = Some(seconds);
        self
    }

    /// Builds the image of a root. The same source, times included, gives the same digest; where the
    /// cache has that image already, it stays.
    ///
    /// # Errors
    /// [`Error::ImageName`]; [`Error::Archive`] and [`Error::ContainerImage`] for a source that is
    /// broken, hostile or too large; [`Error::Command`] and [`Error::NoPackage`] where Debian's tools
    /// fail; [`Error::File`].
    pub fn build(&self, source: &Source, progress: &dyn Progress) -> Result<Built> {
        if let Some(name) = &self.name {
            store::check_name(name)?;
        }
        let scratch = self.cache.scratch("build", "image")?;
        let directory = scratch.path().join("image");
        fs::create_dir(&directory).map_err(Error::file("create", &directory))?;
        let mut work = Work {
            tree: Tree::new(),
            spool: Spool::within(scratch.path()).map_err(Error::file("write", scratch.path()))?,
            notes: Notes::default(),
            config: ImageConfig::default(),
            origin: self.foundation.origin.clone(),
        };
        self.read(source, &scratch, &mut work, progress)?;
        let step = progress.step("write image", None);
        work.complete(self.foundation.modules.as_deref())?;
        let described = self.write(&directory, &mut work)?;
        let image = store::publish(self.cache, &directory, &described, self.name.as_deref())?;
        work.notes.memory_need(image.memory_need());
        step.finish(&format!(
            "digest {}",
            described.digest.get(..16).unwrap_or_default()
        ));
        Ok(Built {
            image,
            notes: work.notes.lines(),
        })
    }

    fn read(
        &self,
        source: &Source,
        scratch: &Scratch,
        work: &mut Work,
        progress: &dyn Progress,
    ) -> Result<()> {
        let limit = self.unpacked_max;
        let Work {
            tree, spool, notes, ..
        } = work;
        let kind = match source {
            Source::Directory(path) => {
                let step = progress.step("read directory", None);
                directory::read(path, tree, spool, notes, limit, self.newest)?;
                step.finish("done");
                "directory"
            }
            Source::Container { path, reference } => {
                let reference = reference.as_deref();
                let step = progress.step("unpack container image", None);
                let read = oci::read(path, reference, tree, spool, notes, limit, self.newest)?;
                step.finish("done");
                work.config = read.config;
                work.origin.extend(read.origin);
                "container image"
            }
            Source::Debian(root) => {
                let newest = self.newest.unwrap_or(0);
                let archive = scratch.path().join("root.tar");
                let origin = root.make(self.cache, &archive, newest, progress)?;
                work.unpack("the Debian root", &archive, limit, newest)?;
                work.origin.extend(origin);
                root.settle(&mut work.tree).map_err(refused)?;
                "debian"
            }
        };
        work.origin.insert("root.kind".to_owned(), kind.to_owned());
        Ok(())
    }

    fn write(&self, directory: &Path, work: &mut Work) -> Result<Described> {
        let foundation = &self.foundation;
        let mut init = InitramfsBuilder::new();
        init.early_devices()
            .file("init", 0o755, foundation.init.clone());
        let root = directory.join("root.cpio");
        let file = File::create(&root).map_err(Error::file("create", &root))?;
        work.tree
            .write(BufWriter::with_capacity(1 << 20, file), &root)?;
        init.write_file(&directory.join("init.cpio"))?;
        let kernel = match foundation.kernel_kind {
            KernelKind::Vmlinux => "vmlinux",
            KernelKind::BzImage => "vmlinuz",
        };
        fs::copy(&foundation.kernel, directory.join(kernel))
            .map_err(Error::file("copy", &foundation.kernel))?;
        image::describe(
            directory,
            Parts {
                name: self.name.as_deref().unwrap_or_default(),
                kernel,
                kernel_kind: foundation.kernel_kind,
                initramfs: &[
                    ("root.cpio", work.tree.unpacked_len()),
                    ("init.cpio", init.unpacked_len()),
                ],
                cmdline: &foundation.cmdline,
                config: std::mem::take(&mut work.config),
                origin: std::mem::take(&mut work.origin),
            },
        )
    }
}

/// A build under way.
struct Work {
    tree: Tree,
    spool: Spool,
    notes: Notes,
    config: ImageConfig,
    origin: BTreeMap<String, String>,
}

impl Work {
    /// Adds what a guest needs of its root, and takes away what would be in the agent's way.
    fn complete(&mut self, modules: Option<&Path>) -> Result<()> {
        // So that links of the root are followed.
        self.tree.begin_layer();
        if self.tree.remove(INIT) {
            self.notes.init_replaced();
        }
        for (place, mode) in PLACES {
            if self.tree.get(place).is_none() {
                self.add_directory(place, mode)?;
            }
        }
        if let Some(modules) = modules {
            self.add_files(modules)?;
        }
        // As container tools make it.
        if let Some(workdir) = &self.config.workdir {
            let place = workdir.trim_start_matches('/').as_bytes();
            self.tree.ensure_directory(place).map_err(refused)?;
        }
        Ok(())
    }

    /// Unpacks a tar archive that is the whole root. `limit` is how many bytes it may have.
    fn unpack(&mut self, name: &str, archive: &Path, limit: u64, newest: u32) -> Result<()> {
        let file = File::open(archive).map_err(Error::file("open", archive))?;
        let mut left = limit;
        let bounded = Bounded {
            inner: BufReader::with_capacity(1 << 20, file),
            left: &mut left,
            limit,
        };
        let mut unpack = Unpack {
            tree: &mut self.tree,
            spool: &mut self.spool,
            notes: &mut self.notes,
            layer: false,
            newest: Some(newest),
        };
        unpack.run(name, bounded)
    }

    /// Puts the files of an archive of ours into the root, where the root's own links lead.
    fn add_files(&mut self, archive: &Path) -> Result<()> {
        let failed = |error: io::Error| Error::file("read", archive)(error);
        let mut reader = BufReader::new(File::open(archive).map_err(failed)?);
        while let Some((header, contents)) = newc::read(&mut reader, u32::MAX).map_err(failed)? {
            if header.mode & newc::TYPE_MASK == newc::REGULAR {
                let node = Node {
                    meta: Meta::of_root(header.mode & !newc::TYPE_MASK),
                    kind: Kind::File(Contents::Bytes(contents)),
                };
                self.tree.insert(&header.name, node).map_err(refused)?;
            }
        }
        Ok(())
    }

    fn add_directory(&mut self, path: &[u8], mode: u32) -> Result<()> {
        let node = Node {
            meta: Meta::of_root(mode),
            kind: Kind::Directory,
        };
        self.tree.insert(path, node).map_err(refused)
    }
}

fn refused(Refused { path, reason }: Refused) -> Error {
    Error::Entry { path, reason }
}

/// A small file of root's, unless the root has one of that path.
pub(crate) fn add_file(tree: &mut Tree, path: &[u8], text: &str) -> Result<(), Refused> {
    if tree.get(path).is_some() {
        return Ok(());
    }
    let node = Node {
        meta: Meta::of_root(0o644),
        kind: Kind::File(Contents::Bytes(text.into())),
    };
    tree.insert(path, node)
}

#[cfg(test)]
#[path = "builder_test.rs"]
mod tests;
