//! `forebay run` and `forebay shell`: boot, run, end as the command ended.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use forebay::{Image, Vm};

use crate::command;
use crate::invocation::{Circumstances, EXIT_CODES, Invocation};
use crate::status;

#[derive(Args)]
#[command(after_help = format!("\
Stdin, stdout and stderr are the command's. {EXIT_CODES}

{SIGNALS}

With -t: {TERMINAL}"))]
pub(crate) struct Options {
    #[command(flatten)]
    machine: Machine,
    #[command(flatten)]
    invocation: Invocation,
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

const SIGNALS: &str = "\
SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 and SIGALRM are passed on to the command; five \
seconds later, or at the second one, the VM is ended. One that was ignored when this program began \
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
struct Machine {
    /// Virtual CPUs of the VM [default: 1].
    #[arg(long, value_name = "N", help_heading = "VM")]
    cpus: Option<u8>,
    /// Memory of the VM [default: 256].
    #[arg(long, value_name = "MIB", help_heading = "VM")]
    memory: Option<u32>,
    /// Directory of the guest image [default: the one in the cache].
    #[arg(long, value_name = "DIR", help_heading = "VM")]
    image: Option<PathBuf>,
    /// Kernel, an uncompressed vmlinux [default: the image's].
    #[arg(long, value_name = "FILE", help_heading = "VM")]
    kernel: Option<PathBuf>,
    /// A socket to be made, by which `forebay exec --attach` runs further commands in the VM.
    #[arg(long, value_name = "PATH", help_heading = "VM")]
    attach_socket: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    boot_and_run(&options.machine, &options.invocation)
}

pub(crate) fn shell(options: &ShellOptions) -> Result<ExitCode> {
    boot_and_run(&options.machine, &Invocation::shell(&options.circumstances))
}

fn boot_and_run(machine: &Machine, invocation: &Invocation) -> Result<ExitCode> {
    command::within(invocation, async |process| {
        let vm = tokio::select! {
            vm = machine.boot() => vm?,
            signal = process.signals.next() => return Ok(status::of_signal(signal.number())),
        };
        let code = command::run(invocation, vm.client(), process).await;
        vm.close().await;
        code
    })
}

impl Machine {
    async fn boot(&self) -> Result<Vm> {
        let image = match &self.image {
            Some(directory) => Image::open(directory)?,
            None => Image::default_cached()?,
        };
        let mut builder = Vm::builder().image(image);
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
