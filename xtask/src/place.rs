//! Where programs that run guests run: on this machine, or in the rig.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use forebay_images::progress::Progress;
use forebay_rig::{Assets, Clock, Event, RigCommand, Status};

use crate::setup::{self, Guest};
use crate::{rig, workspace};

/// Set to `always` or `never`, decides without asking.
const OVERRIDE: &str = "FOREBAY_RIG";

/// See [`passed_on`].
const PASSED_ON: [&str; 6] = [
    "RUST_BACKTRACE",
    "RUST_LOG",
    "PROPTEST_CASES",
    "FOREBAY_LOG",
    "FOREBAY_SEED",
    "FOREBAY_TIME_SCALE",
];

/// Names the image's directory to programs that run guests.
pub(crate) const IMAGE_VARIABLE: &str = "FOREBAY_IMAGE";
/// Names the tests' layer.
pub(crate) const HELPER_VARIABLE: &str = "FOREBAY_HELPER_LAYER";
/// Names the `forebay` command to the tests of it.
pub(crate) const COMMAND_VARIABLE: &str = "FOREBAY_COMMAND";
/// The image in L1: where the library looks for the default one, so that both ways find it.
pub(crate) const IMAGE_IN_L1: &str = "/root/.cache/forebay/images/default";
const HELPER_IN_L1: &str = "/forebay/guest-helper.cpio";

/// Whether unmodified guests run on this machine's `/dev/kvm`. The `forebay` command finds out with
/// a throw-away VM of a few instructions.
pub(crate) fn host_can_run_guests() -> Result<bool> {
    match std::env::var(OVERRIDE).as_deref() {
        Ok("always") => return Ok(false),
        Ok("never") => return Ok(true),
        Ok("") | Err(_) => {}
        Ok(other) => bail!("{OVERRIDE} is {other:?}; it can be `always` or `never`"),
    }
    if !Path::new("/dev/kvm").exists() {
        return Ok(false);
    }
    let forebay = workspace::build_program("forebay-cli", "forebay", "dev")?;
    let probe = Command::new(forebay)
        .args(["doctor", "--probe"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .context("run forebay doctor --probe")?;
    Ok(probe.success())
}

/// Where to run, with what that needs.
pub(crate) enum Place {
    /// On this machine.
    Here,
    /// In the rig.
    Rig(Box<Assets>),
}

impl Place {
    /// Finds out, and sets the rig up if it is needed.
    pub(crate) fn find(progress: &dyn Progress) -> Result<Self> {
        if host_can_run_guests()? {
            return Ok(Self::Here);
        }
        progress.note("this machine's /dev/kvm cannot run guests, using the rig");
        Ok(Self::Rig(Box::new(setup::rig(progress)?)))
    }

    /// For people.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Here => "on this machine",
            Self::Rig(_) => "in the rig",
        }
    }

    /// The cargo profile for programs that run there: the rig's is quick to build and fast enough
    /// for an emulated processor.
    pub(crate) fn profile(&self) -> &'static str {
        match self {
            Self::Here => "release",
            Self::Rig(_) => "rig",
        }
    }

    /// Runs a program that boots guests, its output passed through and given to `watch`.
    pub(crate) fn run(
        &self,
        program: &Path,
        arguments: &[String],
        guest: &Guest,
        deadline: Duration,
        watch: &mut dyn FnMut(&[u8]),
    ) -> Result<Status> {
        match self {
            Self::Here => here(program, arguments, guest, watch),
            Self::Rig(assets) => {
                let command = with_guest(RigCommand::new(program.to_string_lossy()), guest)
                    .args(arguments)
                    .deadline(deadline);
                let outcome = forebay_rig::run(&command, assets, &mut |event| {
                    if let Event::Stdout(bytes) = event {
                        watch(bytes);
                    }
                    rig::show(event);
                })?;
                Ok(outcome.status)
            }
        }
    }
}

/// Packs the image and the tests' layer, and says where they are.
pub(crate) fn with_guest(command: RigCommand, guest: &Guest) -> RigCommand {
    let mut command = passed_on(command);
    for (variable, path) in &guest.named {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let l1 = format!("/forebay/{name}");
        command = command.file(path, &l1).env(*variable, l1);
    }
    command
        .file(guest.image.directory(), IMAGE_IN_L1)
        .env(IMAGE_VARIABLE, IMAGE_IN_L1)
        .file(&guest.helper_layer, HELPER_IN_L1)
        .env(HELPER_VARIABLE, HELPER_IN_L1)
}

/// Gives the rig those of our variables that a person sets to change how a program runs.
pub(crate) fn passed_on(command: RigCommand) -> RigCommand {
    PASSED_ON
        .iter()
        .filter_map(|name| Some((name, std::env::var(name).ok()?)))
        .fold(command, |command, (name, value)| command.env(*name, value))
}

/// The rig's command for a program under instruction counting.
pub(crate) fn counted(program: &Path, guest: &Guest) -> RigCommand {
    with_guest(RigCommand::new(program.to_string_lossy()), guest).clock(Clock::Instructions)
}

fn here(
    program: &Path,
    arguments: &[String],
    guest: &Guest,
    watch: &mut dyn FnMut(&[u8]),
) -> Result<Status> {
    use std::io::{Read, Write};
    use std::os::unix::process::ExitStatusExt;

    let mut child = Command::new(program)
        .args(arguments)
        .current_dir(workspace::root())
        .env(IMAGE_VARIABLE, guest.image.directory())
        .env(HELPER_VARIABLE, &guest.helper_layer)
        .envs(guest.named.iter().map(|(variable, path)| (variable, path)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("run {}", program.display()))?;
    if let Some(mut stdout) = child.stdout.take() {
        let mut block = [0; 8192];
        loop {
            let n = stdout.read(&mut block).context("read its output")?;
            if n == 0 {
                break;
            }
            watch(&block[..n]);
            std::io::stdout().write_all(&block[..n])?;
            std::io::stdout().flush()?;
        }
    }
    let status = child.wait()?;
    Ok(match (status.code(), status.signal()) {
        (Some(code), _) => Status::Code(code),
        (None, signal) => Status::Signal(signal.unwrap_or_default()),
    })
}
