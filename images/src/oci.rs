//! Container images: what to take out of an OCI image layout or what `docker save` wrote, and the
//! tree that its layers make.
//!
//! | file | owns |
//! |---|---|
//! | `blobs.rs` | files by name in a directory or a tar archive |
//! | `manifest.rs` | which of the images in there, for which platform; its layers and configuration |
//! | here | digests, layers in order |
//!
//! Nothing is trusted: a blob is hashed before anything in it is looked at, a layer once more as it
//! is unpacked, and what unpacks to more than was allowed ends the build.

mod blobs;
mod manifest;

use std::collections::BTreeMap;
use std::path::Path;

use crate::compression::{Bounded, Hashing, plain};
use crate::foreign_text::shown;
use crate::layer::Unpack;
use crate::notes::Notes;
use crate::spool::Spool;
use crate::tree::Tree;
use crate::{Error, ImageConfig, Result};
use blobs::Blobs;
use manifest::Chosen;

/// What came out of a container image, beside its tree.
#[derive(Debug)]
pub(crate) struct Unpacked {
    pub(crate) config: ImageConfig,
    pub(crate) origin: BTreeMap<String, String>,
}

/// Unpacks the image of this reference, or the only one, for `linux/amd64`. `limit` is how many bytes
/// may come out of compressed parts.
///
/// # Errors
/// [`Error::ContainerImage`] for what is no such image or a part of it that is not as promised,
/// [`Error::Archive`] for a layer that holds what a tree cannot, [`Error::File`].
pub(crate) fn read(
    path: &Path,
    reference: Option<&str>,
    tree: &mut Tree,
    spool: &mut Spool,
    notes: &mut Notes,
    limit: u64,
    newest: Option<u32>,
) -> Result<Unpacked> {
    let mut left = limit;
    let blobs = Blobs::open(
        path,
        spool,
        Budget {
            left: &mut left,
            limit,
        },
    )?;
    let Chosen {
        layers,
        config,
        origin,
    } = manifest::choose(&blobs, reference)?;
    for (number, layer) in layers.iter().enumerate() {
        let name = format!(
            "{}, layer {} ({})",
            path.display(),
            number + 1,
            layer.blob.name
        );
        let damaged = |reason: String| blobs.wrong(format!("layer {}: {reason}", layer.blob.name));
        let raw = blobs.read(&layer.blob)?;
        let plain = plain(raw).map_err(|error| damaged(error.to_string()))?;
        let mut hashed = Hashing::new(Bounded {
            inner: plain,
            left: &mut left,
            limit,
        });
        tree.begin_layer();
        Unpack {
            tree,
            spool,
            notes,
            layer: true,
            newest,
        }
        .run(&name, &mut hashed)?;
        let found = hashed
            .finish()
            .map_err(|error| damaged(error.to_string()))?;
        if found != layer.diff {
            let reason = format!(
                "unpacked it has SHA-256 {found}, promised is {}",
                layer.diff
            );
            return Err(damaged(reason));
        }
    }
    Ok(Unpacked { config, origin })
}

/// How many bytes may still come out of compressed parts.
pub(crate) struct Budget<'a> {
    pub(crate) left: &'a mut u64,
    pub(crate) limit: u64,
}

impl Budget<'_> {
    fn bound<R>(&mut self, inner: R) -> Bounded<'_, R> {
        Bounded {
            inner,
            left: self.left,
            limit: self.limit,
        }
    }
}

fn wrong(path: &Path, reason: String) -> Error {
    Error::ContainerImage {
        path: path.to_path_buf(),
        reason: shown(&reason),
    }
}

#[cfg(test)]
#[path = "oci_test.rs"]
mod tests;
