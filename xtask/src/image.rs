//! `cargo xtask image`: the default guest image.

use std::process::ExitCode;

use anyhow::Result;
use forebay_images::Cache;
use forebay_images::progress::Progress;

use crate::setup;

pub(crate) fn task(progress: &dyn Progress) -> Result<ExitCode> {
    let image = setup::image(&Cache::of_user()?, progress)?;
    println!("image:  {}", image.directory().display());
    println!("digest: {}", image.digest());
    for (name, value) in image.origin() {
        println!("{name}: {value}");
    }
    Ok(ExitCode::SUCCESS)
}
