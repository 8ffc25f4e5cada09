//! Guest images: what they are on disk, how they are built, where they are kept.
//!
//! An image is a directory with a description (`image.json`), a kernel and one or more initramfs
//! layers. A virtual machine only ever *opens* one: [`Image::open`] and [`Image::default_cached`]
//! read files and nothing else, they never build and never fetch. Building is for the command line
//! and for developer tasks, by the modules below.
//!
//! | module | owns |
//! |---|---|
//! | [`Image`], [`ImageConfig`] | the format: reading it, its digest, adding layers; how its commands run |
//! | [`ImageBuilder`] | an image out of somebody's root: a [`Source`] on a [`Foundation`] |
//! | [`store`] | the images of a cache: names, what they share, removal |
//! | `tree`, `newc`, `spool` | a root file system in memory, and its form as an initramfs |
//! | `directory`, `oci`, `layer`, `headers`, `compression` | what fills a tree; hostile until proven otherwise |
//! | [`DebianRoot`] | a Debian release by the distribution's own tool |
//! | [`InitramfsBuilder`] | small reproducible archives made by hand |
//! | [`kernel`] | the recipe that turns a distribution's kernel source package into our `vmlinux` |
//! | [`default_image`] | kernel + init + busybox as one image in the cache |
//! | [`debian`] | fetching and unpacking Debian packages without installing them |
//! | [`Cache`] | the directory everything is kept in, its locks and its atomic publication |
//! | [`foreign_text`] | how text of a source is shown to people |
//! | [`progress`] | how long steps are reported, without knowing a terminal |
//!
//! It knows nothing of KVM, of virtual machines or of the agent's protocol; the init program is a
//! path that the caller hands in.

#![forbid(unsafe_code)]

mod builder;
mod cache;
mod command;
mod compression;
mod config;
pub mod debian;
mod debian_root;
pub mod default_image;
mod digest;
mod directory;
mod error;
pub mod foreign_text;
mod foundation;
mod headers;
mod image;
mod initramfs;
pub mod kernel;
mod layer;
mod newc;
mod notes;
mod oci;
pub mod progress;
mod spool;
pub mod store;
#[cfg(test)]
mod testing;
mod tree;

pub use builder::{Built, ImageBuilder, Source, UNPACKED_MAX};
pub use cache::{Cache, CacheLock, Scratch};
pub use config::ImageConfig;
pub use debian_root::DebianRoot;
pub use digest::{ContentKey, file_sha256};
pub use error::{Error, Result};
pub use foundation::Foundation;
pub use image::{Image, KernelKind, MemoryNeed};
pub use initramfs::{InitramfsBuilder, concatenate};
