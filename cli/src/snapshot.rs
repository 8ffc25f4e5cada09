//! `forebay snapshot` and `forebay restore`: a VM that is saved when it is warm, and a command in a
//! copy of it.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use std::{fs, io};

use anyhow::{Context, Result, bail};
use clap::Args;
use forebay::{SnapshotReport, Template, Vm};
use rustix::termios::isatty;

use crate::command;
use crate::invocation::{EXIT_CODES, Invocation, Seat};
use crate::run::{Machine, SIGNALS};
use crate::status::{self, complain};

/// How often it is said how far a save is, and looked whether its leftovers are gone.
const SAID_EVERY: Duration = Duration::from_millis(100);
const MIB: f64 = (1 << 20) as f64;

#[derive(Args)]
#[command(after_help = format!("\
The files `memory` and `state` in DIR hold all that the guest has in memory. They are made for this \
user alone, and must stay as they are while VMs run from them.

A command that fails leaves no snapshot. {EXIT_CODES}

{SIGNALS}"))]
pub(crate) struct SnapshotOptions {
    #[command(flatten)]
    machine: Machine,
    #[command(flatten)]
    seat: Seat,
    /// Where the snapshot goes: an empty directory, or one that is made.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// What is run in the VM before it is saved, and its arguments. What it leaves running is saved
    /// too, and goes on in every copy [default: nothing].
    #[arg(last = true)]
    command: Vec<OsString>,
}

#[derive(Args)]
#[command(after_help = format!("\
Stdin, stdout and stderr are the command's. {EXIT_CODES}

{SIGNALS}"))]
pub(crate) struct RestoreOptions {
    #[command(flatten)]
    copy: Copy,
    /// Boots a VM like the one that was saved, with nothing of its memory: from the same kernel and
    /// image, which must be where they were.
    #[arg(long, help_heading = "VM")]
    disk_only: bool,
    #[command(flatten)]
    seat: Seat,
    /// The snapshot, as `forebay snapshot` made it.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// The command, looked up in the guest, and its arguments.
    #[arg(required = true, last = true)]
    command: Vec<OsString>,
}

/// What of a copy may differ from what was saved.
#[derive(Args)]
struct Copy {
    /// Hostname of the copy [default: as it was].
    #[arg(long, value_name = "NAME", help_heading = "VM")]
    hostname: Option<String>,
    /// A socket to be made, by which `forebay exec --attach` runs further commands in the copy.
    #[arg(long, value_name = "PATH", help_heading = "VM")]
    attach_socket: Option<PathBuf>,
}

pub(crate) fn snapshot(options: &SnapshotOptions) -> Result<ExitCode> {
    // Before a boot and a warm-up that would be for nothing.
    check_empty(&options.directory)?;
    let image = options.machine.image()?;
    let invocation = Invocation::of(&options.seat, options.command.clone());
    command::within(&invocation, async |process| {
        let vm = tokio::select! {
            vm = options.machine.boot(image, true) => vm?,
            signal = process.signals.next() => return Ok(status::of_signal(signal.number())),
        };
        let code = match options.command.is_empty() {
            true => 0,
            false => command::run(&invocation, vm.client(), process).await?,
        };
        if code == 0 {
            let saved = tokio::select! {
                saved = save(&vm, options) => saved?,
                signal = process.signals.next() => {
                    removed(&options.directory).await;
                    return Ok(status::of_signal(signal.number()));
                }
            };
            complain(&format!(
                "saved in {}: {:.1} MiB of memory, {:.2} MiB of state, {:.1?}",
                options.directory.display(),
                saved.memory_bytes as f64 / MIB,
                saved.state_bytes as f64 / MIB,
                saved.took
            ));
        }
        vm.close().await;
        Ok(code)
    })
}

fn check_empty(directory: &Path) -> Result<()> {
    match fs::read_dir(directory).map(|mut entries| entries.next()) {
        Ok(None) => Ok(()),
        Ok(Some(_)) => bail!("{} is not empty", directory.display()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", directory.display())),
    }
}

/// Saves it, and says on a terminal how far that is.
async fn save(vm: &Vm, options: &SnapshotOptions) -> Result<SnapshotReport> {
    let template = vm.template().await?;
    let shown = isatty(io::stderr());
    let mut said = None;
    let progress = move |done: u64, all: u64| {
        if shown && (done == all || said.is_none_or(|at: Instant| at.elapsed() > SAID_EVERY)) {
            said = Some(Instant::now());
            let end = if done == all { "\n" } else { "" };
            // Of no interest to whoever closed it.
            let _ = write!(
                io::stderr(),
                "\rsaving: {:.0} of {:.0} MiB{end}",
                done as f64 / MIB,
                all as f64 / MIB
            );
        }
    };
    Ok(template.save_with(&options.directory, progress).await?)
}

/// Waits until what there was of a snapshot that nobody waits for any more is gone.
async fn removed(directory: &Path) {
    for _ in 0..50 {
        match fs::read_dir(directory).map(|mut entries| entries.next()) {
            Ok(Some(_)) => tokio::time::sleep(SAID_EVERY).await,
            Ok(None) | Err(_) => return,
        }
    }
}

/// Says so of a snapshot that was taken of a guest that ran.
pub(crate) fn warn_unless_clone_safe(template: &Template) {
    if !template.is_clone_safe() {
        complain(
            "this snapshot was taken without bringing the guest to rest: what runs in it may draw the \
             random numbers that other copies draw",
        );
    }
}

impl RestoreOptions {
    async fn start(&self) -> Result<Vm> {
        let template = Template::open(&self.directory)?;
        let Copy {
            hostname,
            attach_socket,
        } = &self.copy;
        if self.disk_only {
            let mut builder = template.boot()?;
            if let Some(name) = hostname {
                builder = builder.hostname(name);
            }
            if let Some(path) = attach_socket {
                builder = builder.attach_socket(path);
            }
            return Ok(builder.start().await?);
        }
        warn_unless_clone_safe(&template);
        let mut restore = template.fork();
        if let Some(name) = hostname {
            restore = restore.hostname(name);
        }
        if let Some(path) = attach_socket {
            restore = restore.attach_socket(path);
        }
        Ok(restore.start().await?)
    }
}

pub(crate) fn restore(options: &RestoreOptions) -> Result<ExitCode> {
    let invocation = Invocation::of(&options.seat, options.command.clone());
    command::within(&invocation, async |process| {
        let vm = tokio::select! {
            vm = options.start() => vm?,
            signal = process.signals.next() => return Ok(status::of_signal(signal.number())),
        };
        let code = command::run(&invocation, vm.client(), process).await;
        vm.close().await;
        code
    })
}
