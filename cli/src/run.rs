//! `forebay run`: boot, run, end as the command ended.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use forebay::{Image, Vm};
use tokio::runtime::Runtime;

use crate::command::{self, Invocation, Signals};
use crate::status;

#[derive(Args)]
#[command(after_help = "\
Stdin, stdout, stderr and the exit code are the command's. A command ended by a signal gives 128 \
and the signal's number. 125: forebay failed; 126: the command cannot be executed; 127: it was not \
found; 141: the reader of our output went away. SIGINT, SIGTERM and SIGHUP are passed on to the \
command; five seconds later, or at the second one, the VM is ended.")]
pub(crate) struct Options {
    /// Virtual CPUs.
    #[arg(long, value_name = "N")]
    cpus: Option<u8>,
    /// Guest memory.
    #[arg(long, value_name = "MIB")]
    memory: Option<u32>,
    /// Directory of the guest image, instead of the default one.
    #[arg(long, value_name = "DIR")]
    image: Option<PathBuf>,
    /// Kernel (an uncompressed vmlinux), instead of the image's.
    #[arg(long, value_name = "FILE")]
    kernel: Option<PathBuf>,
    /// A socket to be made, by which `forebay exec --attach` runs further commands in the VM.
    #[arg(long, value_name = "PATH")]
    attach_socket: Option<PathBuf>,
    #[command(flatten)]
    invocation: Invocation,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let runtime = command::runtime()?;
    let code = drive(options, &runtime);
    // A thread that reads our stdin may be blocked in it for ever.
    runtime.shutdown_background();
    code.map(ExitCode::from)
}

fn drive(options: &Options, runtime: &Runtime) -> Result<u8> {
    let handle = runtime.handle().clone();
    runtime.block_on(async {
        let mut signals = Signals::listen().context("cannot listen for signals")?;
        let vm = tokio::select! {
            vm = boot(options) => vm?,
            signal = signals.next() => return Ok(status::of_signal(signal.number())),
        };
        let invocation = &options.invocation;
        let code = invocation.run(vm.client(), handle, &mut signals).await;
        vm.close().await;
        code
    })
}

async fn boot(options: &Options) -> Result<Vm> {
    let image = match &options.image {
        Some(directory) => Image::open(directory)?,
        None => Image::default_cached()?,
    };
    let mut builder = Vm::builder().image(image);
    if let Some(cpus) = options.cpus {
        builder = builder.cpus(cpus);
    }
    if let Some(memory) = options.memory {
        builder = builder.memory_mib(memory);
    }
    if let Some(kernel) = &options.kernel {
        builder = builder.kernel(kernel);
    }
    if let Some(path) = &options.attach_socket {
        builder = builder.attach_socket(path);
    }
    Ok(builder.start().await?)
}
