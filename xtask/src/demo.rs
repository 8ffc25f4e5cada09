//! `cargo xtask demo`: set-up, then the demonstration program where guests can run.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use forebay_images::progress::Progress;

use crate::place::Place;
use crate::{rig, setup, workspace};

/// Far more than it needs; a hang ends with a message.
const DEADLINE: Duration = Duration::from_secs(900);

pub(crate) fn task(progress: &dyn Progress) -> Result<ExitCode> {
    let guest = setup::guest(progress)?;
    let place = Place::find(progress)?;
    let demo = workspace::build_program("forebay-tests", "forebay-demo", place.profile())?;
    progress.note(&format!("the demo runs {}", place.name()));
    let status = place.run(&demo, &[], &guest, DEADLINE, &mut |_| ())?;
    Ok(rig::exit_code(status))
}
