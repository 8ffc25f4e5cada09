//! What is to be run and how, as given on the command line: the same options for `run`, `exec` and
//! `shell`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser as _};
use forebay::{Client, Exec, Stdin, TerminalSize};

use crate::detach_keys::{DetachKeys, Watch};
use crate::values::{self, Ulimit};

/// For the help of every subcommand that runs a command.
pub(crate) const EXIT_CODES: &str = "\
The exit code is the command's; 128 and the signal's number if a signal ended it. 124: --timeout \
ended it; 125: forebay failed; 126: it cannot be executed; 127: it was not found; 141: the reader \
of our output went away.";

/// A command and how it runs.
#[derive(Args)]
pub(crate) struct Invocation {
    #[command(flatten)]
    seat: Seat,
    /// The command, looked up in the guest, and its arguments.
    #[arg(required = true, trailing_var_arg = true)]
    command: Vec<OsString>,
}

/// The terminal of a command, and what it runs under.
#[derive(Args, Clone)]
pub(crate) struct Seat {
    /// For habit, as in -it: stdin is always passed on.
    #[arg(short, long)]
    interactive: bool,
    /// Gives the command a terminal, which is this one: every key goes to it, its size follows the
    /// window's, and all its output comes on stdout. Stdin must be a terminal.
    #[arg(short, long)]
    tty: bool,
    #[command(flatten)]
    circumstances: Circumstances,
}

/// What a command runs under.
#[derive(Args, Clone)]
pub(crate) struct Circumstances {
    /// Sets an environment variable of the command; may be repeated. With a terminal, TERM is
    /// passed on if it is not given here.
    #[arg(short, long = "env", value_name = "KEY=VALUE", value_parser = OsStringValueParser::new().try_map(values::variable))]
    env: Vec<(OsString, OsString)>,
    /// Working directory of the command [default: the image's or the
    /// guest's].
    #[arg(short = 'w', long = "workdir", value_name = "DIR")]
    workdir: Option<PathBuf>,
    /// Who runs it, by the guest's /etc/passwd and /etc/group or by numbers [default: the
    /// image's, else root].
    #[arg(short, long, value_name = "USER[:GROUP]")]
    user: Option<OsString>,
    /// Kills the command, with all it started, when it has run so long: seconds, or with ms, s, m
    /// or h behind the number [default: never].
    #[arg(long, value_name = "TIME", value_parser = values::time)]
    timeout: Option<Duration>,
    /// The keys that leave the command running and give the terminal back: characters or ctrl-
    /// with a letter, with commas; none if empty. They need -t.
    #[arg(long, value_name = "KEYS", default_value = "ctrl-p,ctrl-q")]
    detach_keys: DetachKeys,
    /// Limits each process of the command, as setrlimit does, by the resource's name, such as
    /// nofile=1024:4096; "unlimited" for no limit; may be repeated.
    #[arg(long = "ulimit", value_name = "NAME=SOFT[:HARD]", value_parser = values::ulimit, help_heading = "Limits")]
    ulimits: Vec<Ulimit>,
    /// Memory of the command and all it started: bytes, or with k, m or g behind the number that
    /// power of 1024. Beyond it the guest's kernel kills [default: the guest's memory].
    #[arg(long, value_name = "SIZE", value_parser = values::size, help_heading = "Limits")]
    memory_limit: Option<u64>,
    /// Processes and threads of the command and all it started, at a time [default: the guest's
    /// limit].
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pids_limit: Option<u32>,
    /// CPU time of the command and all it started, in CPUs, such as 0.5 [default: all of the
    /// guest's].
    #[arg(long, value_name = "CPUS", help_heading = "Limits")]
    cpu_limit: Option<f64>,
    /// Share of CPU time beside other commands of the guest, 1 to 10000 [default: 100].
    #[arg(long, value_name = "WEIGHT", help_heading = "Limits")]
    cpu_weight: Option<u16>,
}

impl Invocation {
    /// A command that is known.
    pub(crate) fn of(seat: &Seat, command: Vec<OsString>) -> Self {
        let seat = seat.clone();
        Self { seat, command }
    }

    /// The image's shell at this terminal.
    pub(crate) fn shell(circumstances: &Circumstances) -> Self {
        let seat = Seat {
            interactive: true,
            tty: true,
            circumstances: circumstances.clone(),
        };
        let command = vec!["sh".into()];
        Self { seat, command }
    }

    pub(crate) fn wants_terminal(&self) -> bool {
        self.seat.tty
    }

    /// Whether stdin was asked for by name.
    pub(crate) fn is_interactive(&self) -> bool {
        self.seat.interactive
    }

    /// What watches for the keys that leave the command.
    pub(crate) fn detach_keys(&self) -> Watch {
        Watch::new(self.seat.circumstances.detach_keys.clone())
    }

    /// The request of it, at a terminal of this size if there is one.
    pub(crate) fn request(&self, client: &Client, terminal: Option<TerminalSize>) -> Result<Exec> {
        let Some((program, arguments)) = self.command.split_first() else {
            bail!("no command given");
        };
        let how = &self.seat.circumstances;
        let mut exec = client.exec(program, arguments).stdin(Stdin::piped());
        if let Some(size) = terminal {
            exec = exec.terminal(size);
            if let Some(kind) = std::env::var_os("TERM") {
                exec = exec.env("TERM", kind);
            }
        }
        // After TERM: the later one of a name wins.
        exec = exec.envs(how.env.iter().map(|(key, value)| (key, value)));
        if let Some(directory) = &how.workdir {
            exec = exec.current_dir(directory);
        }
        if let Some(user) = &how.user {
            exec = exec.user(user);
        }
        if let Some(limit) = how.timeout {
            exec = exec.timeout(limit);
        }
        for &Ulimit {
            resource,
            soft,
            hard,
        } in &how.ulimits
        {
            exec = exec.rlimit(resource, soft, hard);
        }
        if let Some(bytes) = how.memory_limit {
            exec = exec.memory_limit(bytes);
        }
        if let Some(most) = how.pids_limit {
            exec = exec.process_limit(most);
        }
        if let Some(cpus) = how.cpu_limit {
            exec = exec.cpu_limit(cpus);
        }
        if let Some(weight) = how.cpu_weight {
            exec = exec.cpu_weight(weight);
        }
        Ok(exec)
    }
}
