//! `forebay fork`: many copies of one VM, a command in each, and what each of them took.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use forebay::{MemoryUsage, Template, Vm};
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::run::Machine;
use crate::snapshot::warn_unless_clone_safe;
use crate::status;

const MIB: f64 = (1 << 20) as f64;
/// More copies than that are a mistake: each has threads and descriptors.
const COPIES_MAX: u16 = 1000;

#[derive(Args)]
#[command(after_help = "\
What the commands print comes on stdout, each line with the number of its copy before it; then a table \
on stderr: `start` is from the call until the copy takes commands, `command` from there to the command's \
end, `private` the memory that only this copy has. All copies stay until the last command has ended. \
The exit code is 0 if every command's was, else 1; 125: forebay failed.")]
pub(crate) struct Options {
    /// Number of copies.
    #[arg(short, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=i64::from(COPIES_MAX)))]
    number: u16,
    /// Copies that are started at a time [default: this host's processors].
    #[arg(long, value_name = "N")]
    parallel: Option<usize>,
    /// A snapshot to copy, as `forebay snapshot` made it [default: a VM that is booted for it].
    #[arg(long, value_name = "DIR", conflicts_with_all = ["cpus", "memory", "image", "kernel", "attach_socket", "warm_up"])]
    from: Option<PathBuf>,
    /// A command line for the guest's sh, which the VM runs before it is copied.
    #[arg(long, value_name = "LINE")]
    warm_up: Option<OsString>,
    #[command(flatten)]
    machine: Machine,
    /// The command, looked up in the guest, and its arguments.
    #[arg(required = true, last = true)]
    command: Vec<OsString>,
}

/// What one copy took and came to.
struct Outcome {
    number: u16,
    start: Duration,
    command: Duration,
    code: u8,
    output: Vec<u8>,
    /// `None` if it did not start.
    vm: Option<Vm>,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    allow_descriptors();
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    let code = runtime.block_on(fork(options));
    runtime.shutdown_background();
    code
}

/// Each copy has about a dozen descriptors, and most programs begin with 1024. What the system allows
/// beyond that is for the asking; where that is not enough, a copy's error says so.
fn allow_descriptors() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}

async fn fork(options: &Options) -> Result<ExitCode> {
    let template = template(options).await?;
    let processors = || std::thread::available_parallelism().map_or(1, usize::from);
    let turns = options.parallel.unwrap_or_else(processors).max(1);
    let turns = Arc::new(Semaphore::new(turns));
    let mut copies = JoinSet::new();
    for number in 1..=options.number {
        let (template, turns) = (template.clone(), Arc::clone(&turns));
        let command = options.command.clone();
        copies.spawn(async move {
            let _turn = turns.acquire().await?;
            one(number, &template, &command).await
        });
    }
    let mut done = Vec::new();
    while let Some(copy) = copies.join_next().await {
        let copy = copy.context("a copy's task ended")??;
        show(&copy)?;
        done.push(copy);
    }
    done.sort_by_key(|copy| copy.number);
    // Of no interest to whoever closed it.
    let _ = writeln!(io::stderr(), "{}", table(&done)?);
    let failed = done.iter().any(|copy| copy.code != 0);
    for vm in done.into_iter().filter_map(|copy| copy.vm) {
        vm.close().await;
    }
    Ok(ExitCode::from(u8::from(failed)))
}

async fn template(options: &Options) -> Result<Template> {
    if let Some(directory) = &options.from {
        let template = Template::open(directory)?;
        warn_unless_clone_safe(&template);
        return Ok(template);
    }
    let vm = options.machine.boot(options.machine.image()?, true).await?;
    if let Some(line) = &options.warm_up {
        let out = vm.shell(line).await?;
        if !out.status().success() {
            let said = String::from_utf8_lossy(out.stderr()).into_owned();
            bail!("the warm-up failed, {}: {said}", out.status());
        }
    }
    let template = vm.template().await?;
    vm.close().await;
    Ok(template)
}

async fn one(number: u16, template: &Template, command: &[OsString]) -> Result<Outcome> {
    let Some((program, arguments)) = command.split_first() else {
        bail!("no command given");
    };
    let begun = Instant::now();
    let vm = template.fork().start().await;
    let start = begun.elapsed();
    let vm = match vm {
        Ok(vm) => vm,
        Err(error) => {
            return Ok(Outcome {
                number,
                start,
                command: Duration::ZERO,
                code: status::OUR_FAILURE,
                output: format!("{error}\n").into_bytes(),
                vm: None,
            });
        }
    };
    let begun = Instant::now();
    let out = vm.exec(program, arguments).await;
    let command = begun.elapsed();
    let (code, output) = match out {
        Ok(out) => {
            let output = [out.stdout(), out.stderr()].concat();
            (status::of_command(out.status()), output)
        }
        Err(error) => (status::of_error(&error), format!("{error}\n").into_bytes()),
    };
    Ok(Outcome {
        number,
        start,
        command,
        code,
        output,
        vm: Some(vm),
    })
}

/// What a copy's command printed, with its number before each line.
fn show(copy: &Outcome) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    for line in copy.output.split_inclusive(|byte| *byte == b'\n') {
        write!(stdout, "{}: ", copy.number)?;
        stdout.write_all(line)?;
        if !line.ends_with(b"\n") {
            writeln!(stdout)?;
        }
    }
    stdout.flush()
}

fn table(done: &[Outcome]) -> Result<String> {
    let ms = |time: Duration| time.as_secs_f64() * 1000.0;
    let mut text = String::from("  copy   start ms  command ms  private MiB  exit\n");
    let (mut private, mut shared) = (0, 0);
    for copy in done {
        let usage = match &copy.vm {
            Some(vm) => vm.memory_usage()?,
            None => MemoryUsage::default(),
        };
        private += usage.private;
        shared = shared.max(usage.shared);
        writeln!(
            text,
            "{:>6} {:>10.1} {:>11.1} {:>12.1} {:>5}",
            copy.number,
            ms(copy.start),
            ms(copy.command),
            usage.private as f64 / MIB,
            copy.code
        )?;
    }
    let median = |of: fn(&Outcome) -> Duration| {
        let started = done.iter().filter(|copy| copy.vm.is_some());
        let mut times: Vec<_> = started.map(of).collect();
        times.sort_unstable();
        times.get(times.len() / 2).map_or(0.0, |time| ms(*time))
    };
    write!(
        text,
        "median {:>10.1} {:>11.1}   together {:.1} MiB private, and at most {:.1} MiB that they share",
        median(|copy| copy.start),
        median(|copy| copy.command),
        private as f64 / MIB,
        shared as f64 / MIB
    )?;
    Ok(text)
}
