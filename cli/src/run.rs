//! `forebay run` and `forebay shell`: boot, run, end as the command ended.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use forebay::{Image, ImageConfig, Vm};
use forebay_images::Cache;

use crate::command;
use crate::image;
use crate::invocation::{Circumstances, EXIT_CODES, Invocation, Seat};
use crate::status;

#[derive(Args)]
#[command(after_help = format!("\
Stdin, stdout and stderr are the command's. {EXIT_CODES}

{SIGNALS}

With -t: {TERMINAL}"))]
pub(crate) struct Options {
    #[command(flatten)]
    machine: Machine,
    /// What the command line begins with, in place of what the image says.
    #[arg(long, value_name = "PROGRAM")]
    entrypoint: Option<OsString>,
    #[command(flatten)]
    seat: Seat,
    /// The command, looked up in the guest, and its arguments; where the image has an entry point,
    /// arguments of that [default: the image's].
    #[arg(trailing_var_arg = true)]
    command: Vec<OsString>,
}

#[derive(Args)]
#[command(after_help = format!("\
As `forebay run -it -- sh`. {EXIT_CODES}

{SIGNALS}

{TERMINAL}"))]
pub(crate) struct ShellOptions {
    #[command(flatten)]
    machine: Machine,
    #[command(flatten)]
    circumstances: Circumstances,
}

pub(crate) const SIGNALS: &str = "\
SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 and SIGALRM are passed on to the command; five \
seconds after one of the first four, or at the next of them, the VM is ended. One that was ignored when this program began \
(nohup) stays ignored.";

/// What having a terminal means, for the help.
pub(crate) const TERMINAL: &str = "\
^C, ^Z, ^\\ and ^D are the command's. The detach keys (^P ^Q) give the terminal back and let the \
command run on; what it writes is then discarded, and this program stays until it ends (^Z and bg \
give the prompt back). One of them alone reaches the command with the key after it. The terminal's \
modes are restored when this program ends, also by the signals above; after SIGKILL, any other \
signal that ends a program, or a crash, `reset` does that.";

/// The VM that a command runs in.
#[derive(Args)]
pub(crate) struct Machine {
    /// Virtual CPUs of the VM [default: 1].
    #[arg(long, value_name = "N", help_heading = "VM")]
    cpus: Option<u8>,
    /// Memory of the VM [default: 256].
    #[arg(long, value_name = "MIB", help_heading = "VM")]
    memory: Option<u32>,
    /// The guest image: a name or a digest, as `forebay image ls` shows them, or a directory
    /// [default: the image `default`].
    #[arg(long, value_name = "IMAGE", help_heading = "VM")]
    image: Option<OsString>,
    /// Kernel, a vmlinux or a bzImage [default: the image's].
    #[arg(long, value_name = "FILE", help_heading = "VM")]
    kernel: Option<PathBuf>,
    /// A socket to be made, by which `forebay exec --attach` runs further commands in the VM.
    #[arg(long, value_name = "PATH", help_heading = "VM")]
    attach_socket: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let image = options.machine.image()?;
    let command = options.command(image.config());
    if command.is_empty() {
        bail!("no command was given, and the image has none of its own");
    }
    let invocation = Invocation::of(&options.seat, command);
    boot_and_run(&options.machine, image, &invocation)
}

impl Options {
    /// The command line: the entry point and its arguments. Those of the image go with its entry
    /// point only, as with container tools.
    fn command(&self, image: &ImageConfig) -> Vec<OsString> {
        let words = |words: &[String]| words.iter().map(OsString::from).collect::<Vec<_>>();
        let (entrypoint, own) = match &self.entrypoint {
            Some(program) => (vec![program.clone()], Vec::new()),
            None => (words(&image.entrypoint), words(&image.cmd)),
        };
        let arguments = match self.command.is_empty() {
            true => own,
            false => self.command.clone(),
        };
        [entrypoint, arguments].concat()
    }
}

pub(crate) fn shell(options: &ShellOptions) -> Result<ExitCode> {
    let shell = Invocation::shell(&options.circumstances);
    boot_and_run(&options.machine, options.machine.image()?, &shell)
}

fn boot_and_run(machine: &Machine, image: Image, invocation: &Invocation) -> Result<ExitCode> {
    command::within(invocation, async |process| {
        let vm = tokio::select! {
            vm = machine.boot(image, false) => vm?,
            signal = process.signals.next() => return Ok(status::of_signal(signal.number())),
        };
        let code = command::run(invocation, vm.client(), process).await;
        vm.close().await;
        code
    })
}

impl Machine {
    pub(crate) fn image(&self) -> Result<Image> {
        let Some(given) = &self.image else {
            return Ok(Image::default_cached()?);
        };
        match given.to_str().filter(|text| !text.contains('/')) {
            Some(reference) => image::open(&Cache::of_user()?, reference),
            None => Ok(Image::open(given)?),
        }
    }

    /// Boots it; `forkable` if it is to be copied.
    pub(crate) async fn boot(&self, image: Image, forkable: bool) -> Result<Vm> {
        let mut builder = Vm::builder().image(image).forkable(forkable);
        if let Some(cpus) = self.cpus {
            builder = builder.cpus(cpus);
        }
        if let Some(memory) = self.memory {
            builder = builder.memory_mib(memory);
        }
        if let Some(kernel) = &self.kernel {
            builder = builder.kernel(kernel);
        }
        if let Some(path) = &self.attach_socket {
            builder = builder.attach_socket(path);
        }
        Ok(builder.start().await?)
    }
}

#[cfg(test)]
#[path = "run_test.rs"]
mod tests;
