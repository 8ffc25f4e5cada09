//! Where programs that run guests run: on this machine, or in the rig.

use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::available_parallelism;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use forebay_images::progress::Progress;
use forebay_rig::{Assets, Clock, Event, RigCommand, RigOutcome, Status};

use crate::setup::{self, Guest};
use crate::{here, workspace};

/// Set to `always` or `never`, decides without asking.
const OVERRIDE: &str = "FOREBAY_RIG";

/// See [`passed_on`].
const PASSED_ON: [&str; 7] = [
    "RUST_BACKTRACE",
    "RUST_LOG",
    "PROPTEST_CASES",
    "FOREBAY_LOG",
    "FOREBAY_ROUNDS",
    "FOREBAY_SEED",
    "FOREBAY_TIME_SCALE",
];

/// Names the image's directory to programs that run guests.
pub(crate) const IMAGE_VARIABLE: &str = "FOREBAY_IMAGE";
/// Names the tests' layer.
pub(crate) const HELPER_VARIABLE: &str = "FOREBAY_HELPER_LAYER";
/// Names the `forebay` command to the tests of it.
pub(crate) const COMMAND_VARIABLE: &str = "FOREBAY_COMMAND";
/// Names the directory of the distribution's kernel to the tests of kernels and the benchmark.
pub(crate) const CLOUD_KERNEL_VARIABLE: &str = "FOREBAY_CLOUD_KERNEL";
/// Names our kernel for vCPUs that share processors to the benchmark.
pub(crate) const SHARED_KERNEL_VARIABLE: &str = "FOREBAY_SHARED_KERNEL";
/// The image in L1: where the library looks for the default one, so that both ways find it.
pub(crate) const IMAGE_IN_L1: &str = "/root/.cache/forebay/images/default";
const HELPER_IN_L1: &str = "/forebay/guest-helper.cpio";

/// Why unmodified guests cannot run on this machine's `/dev/kvm`, and what to do about it; `None` if
/// they can. The `forebay` command finds out with a throw-away VM of a few instructions.
pub(crate) fn obstacle() -> Result<Option<String>> {
    match std::env::var(OVERRIDE).as_deref() {
        Ok("always") => return Ok(Some(format!("{OVERRIDE} is set to `always`"))),
        Ok("never") => return Ok(None),
        Ok("") | Err(_) => {}
        Ok(other) => bail!("{OVERRIDE} is {other:?}; it can be `always` or `never`"),
    }
    let forebay = workspace::build_program("forebay-cli", "forebay", "dev")?;
    let probe = Command::new(forebay)
        .args(["doctor", "--probe"])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("run forebay doctor --probe")?;
    let said = String::from_utf8_lossy(&probe.stdout).trim().to_owned();
    Ok((!probe.status.success()).then_some(said))
}

/// How a program ended that boots guests.
pub(crate) struct Ended {
    /// `None` if nobody could tell.
    pub(crate) status: Option<Status>,
    /// Why a failure would say nothing about the program; nothing on real hardware.
    pub(crate) void: Option<String>,
}

impl Ended {
    /// Of a program that was cut off.
    pub(crate) fn without_verdict() -> Self {
        Self {
            status: None,
            void: None,
        }
    }

    pub(crate) fn success(&self) -> bool {
        self.status.is_some_and(Status::success)
    }
}

/// What a failure in this run would be worth little for.
pub(crate) fn emulator_at_fault(outcome: &RigOutcome) -> Option<String> {
    let first = outcome.emulator_at_fault().first()?;
    Some(format!(
        "in the rig a guest died of a triple fault or with the emulator's own state in it ({first})"
    ))
}

/// Where to run, with what that needs.
pub(crate) enum Place {
    /// On this machine.
    Here,
    /// In the rig.
    Rig {
        assets: Box<Assets>,
        /// Of each emulated machine.
        processors: u8,
    },
}

impl Place {
    /// Finds out, and sets the rig up if it is needed, with one processor.
    pub(crate) fn find(progress: &dyn Progress) -> Result<Self> {
        Self::with_processors(1, progress)
    }

    /// The same, with so many processors in each emulated machine.
    pub(crate) fn with_processors(processors: u8, progress: &dyn Progress) -> Result<Self> {
        let Some(obstacle) = obstacle()? else {
            return Ok(Self::Here);
        };
        progress.note(&format!("using the rig: {obstacle}"));
        Ok(Self::Rig {
            assets: Box::new(setup::rig(progress)?),
            processors,
        })
    }

    /// For people.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Here => "on this machine",
            Self::Rig { .. } => "in the rig",
        }
    }

    /// How many programs that boot guests can run here side by side. On this machine one: its
    /// processors and its memory are what they measure. In the rig as many as there are processors
    /// and memory for, each in a machine of its own.
    pub(crate) fn room(&self) -> usize {
        match self {
            Self::Here => 1,
            Self::Rig { processors, .. } => {
                let threads = available_parallelism().map_or(1, usize::from);
                let machines = forebay_rig::machines_in_memory();
                (threads / usize::from(*processors)).min(machines).max(1)
            }
        }
    }

    /// The cargo profile for programs that run there: the rig's is quick to build and fast enough
    /// for an emulated processor.
    pub(crate) fn profile(&self) -> &'static str {
        match self {
            Self::Here => "release",
            Self::Rig { .. } => "rig",
        }
    }

    /// Runs a program that boots guests; what it says is given to `watch`, but that on this machine its
    /// standard error is ours. At the deadline it is killed, with its process group or the whole rig:
    /// an error on this machine, a void run in the rig.
    pub(crate) fn run(
        &self,
        program: &Path,
        arguments: &[String],
        guest: &Guest,
        deadline: Duration,
        watch: &mut dyn FnMut(Event<'_>),
    ) -> Result<Ended> {
        match self {
            Self::Here => {
                let status = here::run(program, arguments, guest, deadline, watch)?;
                Ok(Ended {
                    status: Some(status),
                    void: None,
                })
            }
            Self::Rig { assets, processors } => {
                let command = with_guest(RigCommand::new(program.to_string_lossy()), guest)
                    .args(arguments)
                    .processors(*processors)
                    .deadline(deadline);
                match forebay_rig::run(&command, assets, watch) {
                    Ok(outcome) => Ok(Ended {
                        status: Some(outcome.status),
                        void: emulator_at_fault(&outcome),
                    }),
                    // A program of ours cannot break a kernel below it.
                    Err(error) if error.emulator_at_fault() || error.is_deadline() => Ok(Ended {
                        status: None,
                        void: Some(error.to_string()),
                    }),
                    Err(error) => Err(error.into()),
                }
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
