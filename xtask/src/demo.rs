//! `cargo xtask demo`: set-up, then the demonstration program where guests can run.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use forebay_images::progress::Progress;

use crate::place::Place;
use crate::{rig, setup, workspace};

/// Far more than it needs; a hang ends with a message.
const DEADLINE: Duration = Duration::from_secs(900);
/// Repetitions where the rig's emulator is at fault.
const AGAIN: u32 = 2;

pub(crate) fn task(progress: &dyn Progress) -> Result<ExitCode> {
    let guest = setup::guest(progress)?;
    let place = Place::find(progress)?;
    let demo = workspace::build_program("forebay-tests", "forebay-demo", place.profile())?;
    progress.note(&format!("the demo runs {}", place.name()));
    let mut again = AGAIN;
    loop {
        let ended = place.run(&demo, &[], &guest, DEADLINE, &mut rig::show)?;
        let succeeded = ended.success();
        match ended.void {
            Some(why) if !succeeded && again > 0 => {
                progress.note(&format!("{why}; the demo runs again"));
                again -= 1;
            }
            Some(why) if !succeeded => bail!("{why}, also when tried again"),
            _ => return Ok(ended.status.map_or(ExitCode::FAILURE, rig::exit_code)),
        }
    }
}
