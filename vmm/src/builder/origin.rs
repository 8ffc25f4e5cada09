//! What a VM was booted from, as its templates and snapshots keep it: enough to boot another like it,
//! without its memory.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use forebay_exec::GroupLimits;
use forebay_images::{Image, MemoryNeed};
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

use super::VmBuilder;
use crate::cpu_template::SavedTemplateV1;
use crate::error::UsageError;
use crate::exec_spec::ExecSpec;
use crate::memory::MIB;
use crate::snapshot::RestoreError;

/// The builder that a VM was started with, its image taken apart, but for what belongs to one VM
/// alone (console, attach socket) and for the limits of executions.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub(crate) struct OriginV1 {
    #[n(0)]
    kernel: SourceV1,
    #[n(1)]
    initramfs: Vec<SourceV1>,
    #[n(2)]
    cmdline: Vec<String>,
    #[n(3)]
    cpus: u8,
    #[n(4)]
    memory_mib: u32,
    #[n(5)]
    forkable: bool,
    #[n(6)]
    huge_pages: bool,
    #[n(7)]
    cpu_template: SavedTemplateV1,
    #[n(8)]
    hostname: Option<String>,
    #[n(9)]
    env: Vec<(ByteVec, ByteVec)>,
    #[n(10)]
    current_dir: Option<ByteVec>,
    #[n(11)]
    user: Option<String>,
    #[n(12)]
    memory_limit: Option<u64>,
    #[n(13)]
    process_limit: Option<u32>,
    #[n(14)]
    cpu_weight: Option<u16>,
    #[n(15)]
    cpu_limit: Option<f64>,
    #[n(16)]
    image: Option<ImageV1>,
}

/// The image that kernel and first layers are of.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub(super) struct ImageV1 {
    #[n(0)]
    name: String,
    #[n(1)]
    directory: ByteVec,
    #[n(2)]
    digest: String,
    /// Bytes of the kernel, of the archives, and of what these unpack to.
    #[n(3)]
    need: (u64, u64, u64),
}

impl ImageV1 {
    pub(super) fn of(image: &Image) -> Self {
        let MemoryNeed {
            kernel,
            archives,
            unpacked,
        } = image.memory_need();
        Self {
            name: image.name().to_owned(),
            directory: image.directory().as_os_str().as_bytes().to_vec().into(),
            digest: image.digest().to_owned(),
            need: (kernel, archives, unpacked),
        }
    }

    /// Whether the same image is where it was, by its contents.
    fn is_there(&self) -> bool {
        let directory = OsString::from_vec(self.directory.to_vec());
        Image::open(directory).is_ok_and(|image| image.digest() == self.digest)
    }

    /// A guest that cannot hold its own root would only panic.
    pub(super) fn check_memory(&self, mib: u32) -> Result<(), UsageError> {
        let (kernel, archives, unpacked) = self.need;
        let need = MemoryNeed {
            kernel,
            archives,
            unpacked,
        };
        if !need.can_be_met() {
            return Err(UsageError::new(
                "image",
                &self.name,
                "no guest can boot it: kernel and archives must lie below 3 GiB, whatever memory the \
                 guest has; leave something out of it",
            ));
        }
        let least = need.least_bytes().div_ceil(MIB);
        if u64::from(mib) >= least {
            return Ok(());
        }
        let [kernel, archives, unpacked] =
            [kernel, archives, unpacked].map(|bytes| bytes.div_ceil(MIB));
        Err(UsageError::new(
            "memory_mib",
            mib,
            format!(
                "this image needs at least {least} MiB to boot: its kernel {kernel} MiB, its \
                 initramfs {archives} MiB, and twice the {unpacked} MiB that it unpacks to, since \
                 files may fill half of a guest's memory"
            ),
        ))
    }
}

/// A file, and what tells whether it is still the same.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
struct SourceV1 {
    #[n(0)]
    path: ByteVec,
    #[n(1)]
    bytes: u64,
    /// Of the last change of what is in it: seconds and nanoseconds.
    #[n(2)]
    changed: (i64, i64),
}

impl SourceV1 {
    /// A file that is there; one that is not fails the boot anyhow, and is kept by its name.
    fn of(path: &Path) -> Self {
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let (bytes, changed) = identity(&absolute).unwrap_or_default();
        Self {
            path: absolute.into_os_string().into_vec().into(),
            bytes,
            changed,
        }
    }

    /// Its path, if it is what it was. One that is `part_of` an image that is where it was may have
    /// been made anew.
    fn find(&self, part_of: Option<&ImageV1>) -> Result<PathBuf, RestoreError> {
        let path = PathBuf::from(OsString::from_vec(self.path.to_vec()));
        let changed = |why: String| RestoreError::Origin {
            path: path.clone(),
            why,
        };
        match identity(&path) {
            Ok(now) if now == (self.bytes, self.changed) => Ok(path),
            Ok((bytes, _)) if bytes != self.bytes => Err(changed(format!(
                "has {bytes} bytes now and had {}",
                self.bytes
            ))),
            Ok(_) if part_of.is_some_and(ImageV1::is_there) => Ok(path),
            Ok(_) => Err(changed("was written to since".to_owned())),
            Err(error) => Err(changed(format!("cannot be found: {error}"))),
        }
    }
}

fn identity(path: &Path) -> std::io::Result<(u64, (i64, i64))> {
    let file = fs::metadata(path)?;
    Ok((file.len(), (file.mtime(), file.mtime_nsec())))
}

impl VmBuilder {
    /// What is kept of it. For a builder whose image was [taken apart](VmBuilder::take_image_apart).
    pub(crate) fn origin(&self) -> OriginV1 {
        let GroupLimits {
            memory_limit,
            process_limit,
            cpu_weight,
            cpu_limit,
        } = self.exec.group;
        let bytes = |text: &std::ffi::OsStr| ByteVec::from(text.as_bytes().to_vec());
        OriginV1 {
            kernel: SourceV1::of(self.kernel.as_deref().unwrap_or(Path::new(""))),
            initramfs: self.initramfs.iter().map(|p| SourceV1::of(p)).collect(),
            cmdline: self.cmdline.clone(),
            cpus: self.cpus,
            memory_mib: self.memory_mib,
            forkable: self.forkable,
            huge_pages: self.huge_pages,
            cpu_template: self.cpu_template.save(),
            hostname: self.exec.hostname.clone(),
            env: self
                .exec
                .env
                .iter()
                .map(|(key, value)| (bytes(key), bytes(value)))
                .collect(),
            current_dir: self.exec.current_dir.as_ref().map(|p| bytes(p.as_os_str())),
            user: self.user.clone(),
            memory_limit,
            process_limit,
            cpu_weight,
            cpu_limit,
            image: self.image_was.clone(),
        }
    }
}

impl OriginV1 {
    /// As whom commands run that name no user.
    pub(crate) fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The guest was given another hostname.
    pub(crate) fn rename(&mut self, hostname: String) {
        self.hostname = Some(hostname);
    }

    /// A builder of a VM like that one, with today's limits of executions.
    ///
    /// Nothing is trusted here: the builder checks its values as it does a caller's.
    pub(crate) fn builder(&self) -> Result<VmBuilder, RestoreError> {
        let text = |bytes: &ByteVec| OsString::from_vec(bytes.to_vec());
        let find = |file: &SourceV1| {
            let image = self.image.as_ref();
            file.find(image.filter(|image| file.path.starts_with(&image.directory)))
        };
        Ok(VmBuilder {
            kernel: Some(find(&self.kernel)?),
            initramfs: self.initramfs.iter().map(find).collect::<Result<_, _>>()?,
            cmdline: self.cmdline.clone(),
            cpus: self.cpus,
            memory_mib: self.memory_mib,
            forkable: self.forkable,
            huge_pages: self.huge_pages,
            cpu_template: self.cpu_template.restore()?,
            user: self.user.clone(),
            image_was: self.image.clone(),
            saved: true,
            exec: ExecSpec {
                hostname: self.hostname.clone(),
                env: self.env.iter().map(|(k, v)| (text(k), text(v))).collect(),
                current_dir: self.current_dir.as_ref().map(|p| PathBuf::from(text(p))),
                group: GroupLimits {
                    memory_limit: self.memory_limit,
                    process_limit: self.process_limit,
                    cpu_weight: self.cpu_weight,
                    cpu_limit: self.cpu_limit,
                },
                ..ExecSpec::default()
            },
            ..VmBuilder::default()
        })
    }
}

#[cfg(test)]
#[path = "origin_test.rs"]
mod tests;
