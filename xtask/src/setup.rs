//! Set-up: what tasks need and the repository does not hold. Each step is cached by content, so a
//! second set-up only looks.
//!
//! Order matters on a small machine: the guest kernel builds alone, before cargo builds anything
//! else.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use forebay_images::kernel::cloud::{self, CloudKernel};
use forebay_images::kernel::{self, Fragment, Kernel};
use forebay_images::progress::Progress;
use forebay_images::{Cache, ContentKey, Image, InitramfsBuilder, default_image};
use forebay_rig::Assets;

use crate::{apt, place, workspace};

/// Counts up whenever [`layer`] makes something else of the same program.
const LAYER_RECIPE: &str = "1";

/// What is needed to run guests.
#[derive(Clone)]
pub(crate) struct Guest {
    /// The default image.
    pub(crate) image: Image,
    /// An initramfs layer with the tests' own guest program at `/bin/forebay-guest-helper`.
    pub(crate) helper_layer: PathBuf,
    /// Further files for the programs that run guests, each with the variable that names it to them.
    pub(crate) named: Vec<(&'static str, PathBuf)>,
}

impl Guest {
    /// With the distribution's kernel beside it.
    pub(crate) fn with_cloud_kernel(mut self, progress: &dyn Progress) -> Result<Self> {
        let kernel = cloud_kernel(progress)?;
        self.named
            .push((place::CLOUD_KERNEL_VARIABLE, kernel.directory));
        Ok(self)
    }

    /// With our kernel for vCPUs that share processors beside it.
    pub(crate) fn with_shared_kernel(mut self, progress: &dyn Progress) -> Result<Self> {
        let fragment = Fragment::microvm_shared_processors();
        let kernel = kernel(&Cache::of_user()?, &fragment, progress)?;
        self.named
            .push((place::SHARED_KERNEL_VARIABLE, kernel.vmlinux));
        Ok(self)
    }
}

/// `cargo xtask setup`.
pub(crate) fn task(progress: &dyn Progress) -> Result<ExitCode> {
    let guest = guest(progress)?;
    println!("image: {}", guest.image.directory().display());
    match place::obstacle()? {
        None => println!("guests run directly on this machine"),
        Some(obstacle) => {
            rig(progress)?;
            println!("guests run in the rig: {obstacle}");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The default image and the tests' layer.
pub(crate) fn guest(progress: &dyn Progress) -> Result<Guest> {
    let cache = Cache::of_user()?;
    let image = image(&cache, progress)?;
    let helper = workspace::build_static("forebay-guest-helper", "forebay-guest-helper")?;
    let helper_layer = layer(&cache, "/bin/forebay-guest-helper", &helper)?;
    Ok(Guest {
        image,
        helper_layer,
        named: Vec::new(),
    })
}

/// The default image alone.
pub(crate) fn image(cache: &Cache, progress: &dyn Progress) -> Result<Image> {
    let kernel = kernel(cache, &Fragment::microvm(), progress)?;
    let init = workspace::build_static("forebay-init", "forebay-init")?;
    let busybox = default_image::busybox(cache, progress)?;
    Ok(default_image::get_or_build(
        cache, &kernel, &init, &busybox, progress,
    )?)
}

/// The rig's emulator and assets.
pub(crate) fn rig(progress: &dyn Progress) -> Result<Assets> {
    apt::ensure(forebay_rig::PACKAGES, progress)?;
    let init = rig_init()?;
    Ok(Assets::get_or_fetch(&Cache::of_user()?, &init, progress)?)
}

/// PID 1 of the rig's L1.
pub(crate) fn rig_init() -> Result<PathBuf> {
    workspace::build_static("forebay-rig", "forebay-rig-init")
}

fn kernel(cache: &Cache, fragment: &Fragment, progress: &dyn Progress) -> Result<Kernel> {
    if let Some(kernel) = kernel::cached(cache, fragment)? {
        return Ok(kernel);
    }
    apt::ensure(kernel::BUILD_PACKAGES, progress)?;
    Ok(kernel::get_or_build(cache, fragment, progress)?)
}

/// The distribution's own kernel.
fn cloud_kernel(progress: &dyn Progress) -> Result<CloudKernel> {
    let cache = Cache::of_user()?;
    if let Some(kernel) = cloud::cached(&cache)? {
        return Ok(kernel);
    }
    apt::ensure(cloud::PACKAGES, progress)?;
    Ok(cloud::get_or_fetch(&cache, progress)?)
}

/// An initramfs layer with one program.
fn layer(cache: &Cache, path: &str, program: &Path) -> Result<PathBuf> {
    let key = ContentKey::new("layer")
        .text(LAYER_RECIPE)
        .text(path)
        .file(program)?
        .short();
    let entry = cache.get_or_publish("layers", &key, |target| {
        InitramfsBuilder::new()
            .host_file(path, 0o755, program)
            .write_file(&target.join("layer.cpio"))
    })?;
    Ok(entry.join("layer.cpio"))
}
