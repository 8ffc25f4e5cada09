//! `forebay top`: who is slow in the VM of another program, live.
//!
//! Here is what is asked of the VM and when, and where the answer goes. How it looks is
//! [`table`]'s.

mod table;

use std::io::{self, IsTerminal as _, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use forebay::{AttachInspector, ExecutionsView};

use crate::status;
use table::Table;

/// Between two looks.
const REFRESH: Duration = Duration::from_secs(1);

/// To the upper left corner, and everything gone.
const CLEAR: &str = "\x1b[H\x1b[2J";

#[derive(Args)]
#[command(after_help = "\
One line per execution, whoever started it; those that somebody keeps waiting come first. SLOW is \
who, and for how much of the time: the last second, or with --once the execution's life so far.

  reader    output is not read: the command must wait
  link      the guest does not take, or is not told, what is ready for it
  command   stdin is not read: its writer must wait

Output waits for READER, LINK and CMD, and stdin for WRITER, LINK and CMD, for that share of the \
time; each three add up to all of it while the stream lives. An output that waits for its command, and a \
stdin that waits for its writer, are nobody's fault. Bytes of output count 256 more per chunk.

One that is adoptable is held by nobody, and nobody reads it until `forebay adopt` takes it over.

Whoever may connect to the socket may run anything in the VM, and so may see what runs.")]
pub(crate) struct Options {
    /// The socket of the VM, as given to `forebay run --attach-socket` or to the library.
    #[arg(long, value_name = "PATH")]
    attach: PathBuf,
    /// Prints once and ends.
    #[arg(long)]
    once: bool,
    /// Prints each look as one line of JSON, with all there is to know.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let mut inspector = AttachInspector::connect(&options.attach)?;
    let mut table = Table::default();
    loop {
        let due = Instant::now() + REFRESH;
        let view = ExecutionsView::from(inspector.look()?);
        let text = if options.json {
            serde_json::to_string(&view).context("cannot write the look as JSON")?
        } else {
            table.draw(&view)
        };
        match show(&text, !options.json && !options.once) {
            // As quiet as a program that SIGPIPE ends.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                return Ok(status::BROKEN_PIPE.into());
            }
            shown => shown.context("cannot write to stdout")?,
        }
        if options.once {
            return Ok(ExitCode::SUCCESS);
        }
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
}

/// Prints a look: on a terminal in place of the last one, if it is one of many, else below it.
fn show(text: &str, in_place: bool) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    if in_place && stdout.is_terminal() {
        let size = rustix::termios::tcgetwinsize(&stdout)?;
        let fitting = fit(text, size.ws_col.into(), size.ws_row.into());
        stdout.write_all(CLEAR.as_bytes())?;
        stdout.write_all(fitting.as_bytes())?;
    } else {
        writeln!(stdout, "{text}")?;
    }
    stdout.flush()
}

/// The part of `text` that a terminal of this size can show. One of no size shows all.
fn fit(text: &str, columns: usize, rows: usize) -> String {
    let bound = |size| if size == 0 { usize::MAX } else { size };
    let lines = text.lines().take(bound(rows));
    let cut = |line: &str| line.chars().take(bound(columns)).collect();
    lines.map(cut).collect::<Vec<String>>().join("\n")
}

#[cfg(test)]
#[path = "top_test.rs"]
mod tests;
