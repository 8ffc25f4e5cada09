//! One run from start to end: what arrives from L1 becomes events, deadlines are kept, and when
//! something breaks the console's last lines say what.

use std::collections::VecDeque;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::ends::{Arrival, feed, spread, thread};
use crate::error::Phase;
use crate::order::{Ending, Report, Sent};
use crate::qemu::Emulator;
use crate::scratch::Scratch;
use crate::{Assets, Clock, Error, Result, RigCommand, pack};

/// How much of each stream an outcome keeps, from its beginning. The events have all of it.
const CAPTURE_LIMIT: usize = 16 << 20;
/// Console lines kept for an error.
const CONSOLE_LINES: usize = 40;
/// What L1's kernel prints first when it breaks. A panic also ends the emulator.
const TROUBLE: [&str; 4] = ["Kernel panic", "Oops:", "BUG:", "rig init:"];
/// What the emulator says at every start: the processor model asks for more than it emulates.
const NOISE: [&str; 1] = ["TCG doesn't support requested feature"];
/// How long after the emulator's end its last words may take to arrive.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// How long L1 may not say that it is alive; a loaded host runs it slowly.
const SILENCE: Duration = Duration::from_secs(120);
/// How often to look whether it has, while nothing arrives.
const LOOK: Duration = Duration::from_secs(10);
/// How long nothing may arrive of output that L1 says it has sent.
const OUTPUT_DEADLINE: Duration = Duration::from_secs(60);
/// How often L1 is booted at most. The emulator breaks it now and then, and before the program runs
/// a new try is as good as the first.
const BOOTS: u32 = 3;

/// Something that happened during a run, as it happens.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// L1 did not come up, for this reason, and is booted once more.
    BootAgain(&'a Error),
    /// L1 is up and the program starts.
    Up {
        /// Real time since the run began.
        after: Duration,
    },
    /// The program wrote to its standard output.
    Stdout(&'a [u8]),
    /// The program wrote to its standard error.
    Stderr(&'a [u8]),
    /// L1's kernel or init printed a line on the console.
    Console(&'a str),
}

/// How the program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// By itself, with this exit code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

impl Status {
    /// Whether it ended with 0.
    pub fn success(self) -> bool {
        self == Self::Code(0)
    }

    /// As a shell would give it: a signal is 128 and its number.
    pub fn shell_code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
        }
    }
}

/// What a run gave.
#[derive(Debug)]
pub struct RigOutcome {
    /// How the program ended.
    pub status: Status,
    /// What it wrote to standard output; the first 16 MiB.
    pub stdout: Vec<u8>,
    /// What it wrote to standard error; the first 16 MiB.
    pub stderr: Vec<u8>,
    /// Real time until L1 was up.
    pub boot: Duration,
    /// Real time of the whole run.
    pub elapsed: Duration,
    mixed_up: Vec<String>,
    files: Scratch,
}

impl RigOutcome {
    /// Whether the emulator may have broken a guest of this run: it stored L1's own registers as the
    /// guest's, or the guest died of a triple fault. [Several
    /// processors](RigCommand::processors) bring both out now and then, and a failure of such a run
    /// says nothing about the program unless it repeats. L1's kernel is the witness: the first few
    /// such exits of guests, as it traced them.
    #[must_use]
    pub fn emulator_at_fault(&self) -> &[String] {
        &self.mixed_up
    }

    /// Where a file or directory that was asked for lies on the host, if the program left it. It is
    /// removed with this value.
    pub fn file(&self, l1: &str) -> Option<PathBuf> {
        Some(self.files.path().join(l1.trim_start_matches('/'))).filter(|path| path.exists())
    }
}

/// Runs one program in L1 and waits for its end. `watch` is called with everything that happens, in
/// the order in which it arrives, on this thread.
///
/// # Errors
/// Any [`Error`]; a program that ran and failed is none. On an error nothing of the run is left.
pub fn run(
    command: &RigCommand,
    assets: &Assets,
    watch: &mut dyn FnMut(Event<'_>),
) -> Result<RigOutcome> {
    let started = Instant::now();
    let scratch = Scratch::new()?;
    let initramfs = scratch.path().join("l1.cpio");
    pack::pack(command, assets)?.write_file(&initramfs)?;
    let mut boots = 1;
    loop {
        match boot_and_run(command, assets, &initramfs, started, watch) {
            Err(error) if error.is_of_the_boot() && boots < BOOTS => {
                watch(Event::BootAgain(&error));
                boots += 1;
            }
            done => return done,
        }
    }
}

/// One L1 from its boot to its end.
fn boot_and_run(
    command: &RigCommand,
    assets: &Assets,
    initramfs: &Path,
    started: Instant,
    watch: &mut dyn FnMut(Event<'_>),
) -> Result<RigOutcome> {
    let sockets = Scratch::new()?;
    let (emulator, ends) = Emulator::start(command, assets, initramfs, sockets.path())?;
    let files = Scratch::new()?;
    let (arrivals, stdin) = spread(ends, files.path())?;
    let now = Instant::now();
    Run {
        command,
        emulator,
        arrivals,
        started,
        booted: now,
        up: None,
        alive: now,
        console: VecDeque::new(),
        trouble: None,
        stdin: Arc::new(stdin),
        stdout: Capture::default(),
        stderr: Capture::default(),
        files: None,
        watch,
    }
    .drive(files)
}

#[derive(Default)]
struct Capture {
    kept: Vec<u8>,
    seen: u64,
}

impl Capture {
    fn add(&mut self, bytes: &[u8]) {
        self.seen += bytes.len() as u64;
        let room = CAPTURE_LIMIT - self.kept.len();
        self.kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}

struct Run<'a> {
    command: &'a RigCommand,
    emulator: Emulator,
    arrivals: Receiver<Arrival>,
    started: Instant,
    /// When this L1 began to boot.
    booted: Instant,
    up: Option<Instant>,
    /// When L1 last said that it is.
    alive: Instant,
    console: VecDeque<String>,
    /// The first console line that says L1's kernel broke.
    trouble: Option<String>,
    /// The port of the program's standard input, fed once L1 is up.
    stdin: Arc<UnixStream>,
    stdout: Capture,
    stderr: Capture,
    files: Option<io::Result<u64>>,
    watch: &'a mut dyn FnMut(Event<'_>),
}

impl Run<'_> {
    fn drive(mut self, files: Scratch) -> Result<RigOutcome> {
        let (how, sent, mixed_up) = loop {
            let arrival = match self.arrivals.recv_timeout(self.left()?) {
                Ok(arrival) => arrival,
                // Nothing lies unread, as it might after whoever watches stood still.
                Err(RecvTimeoutError::Timeout) if self.is_silent() => {
                    return Err(Error::Hung {
                        silence: SILENCE,
                        console: self.last_lines(),
                    });
                }
                // `left` says whether a deadline has passed.
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return Err(self.ended()),
            };
            match self.take(arrival)? {
                Some(Report::Alive) => self.alive = Instant::now(),
                Some(Report::Ready) => {
                    self.alive = Instant::now();
                    self.up = Some(self.alive);
                    let after = self.started.elapsed();
                    (self.watch)(Event::Up { after });
                    if self.command.stdin {
                        let port = Arc::clone(&self.stdin);
                        thread("rig stdin", move || feed(&port))?;
                    }
                }
                Some(Report::Ended {
                    how,
                    sent,
                    mixed_up,
                }) => break (how, sent, mixed_up),
                Some(Report::Failed { reason }) => return Err(Error::NotRun { reason }),
                None => {}
            }
        };
        self.collect(sent)?;
        let up = self.up.unwrap_or(self.started);
        Ok(RigOutcome {
            status: match how {
                Ending::Code(code) => Status::Code(code),
                Ending::Signal(signal) => Status::Signal(signal),
            },
            stdout: self.stdout.kept,
            stderr: self.stderr.kept,
            mixed_up,
            boot: up - self.started,
            elapsed: self.started.elapsed(),
            files,
        })
    }

    /// How long to wait for the next arrival: not beyond the deadline of what is under way.
    fn left(&self) -> Result<Duration> {
        let (phase, since, deadline) = match self.up {
            None => (Phase::Booting, self.booted, self.command.boot_deadline),
            Some(up) => (Phase::Running, up, self.command.deadline),
        };
        deadline
            .checked_sub(since.elapsed())
            .filter(|left| !left.is_zero())
            .map(|left| left.min(LOOK))
            .ok_or_else(|| Error::Deadline {
                phase,
                deadline,
                console: self.last_lines(),
            })
    }

    /// Whether L1 is up and has not shown life for too long.
    fn is_silent(&self) -> bool {
        let watched = self.command.clock == Clock::Wall;
        watched && self.up.is_some() && self.alive.elapsed() > SILENCE
    }

    /// Takes one arrival; a report is returned, everything else is passed on.
    fn take(&mut self, arrival: Arrival) -> Result<Option<Report>> {
        match arrival {
            Arrival::Control(line) => {
                let report = serde_json::from_str(&line);
                return report.map(Some).map_err(|_| Error::Protocol { said: line });
            }
            Arrival::Stdout(bytes) => {
                self.stdout.add(&bytes);
                (self.watch)(Event::Stdout(&bytes));
            }
            Arrival::Stderr(bytes) => {
                self.stderr.add(&bytes);
                (self.watch)(Event::Stderr(&bytes));
            }
            Arrival::Console(line) => {
                if NOISE.iter().any(|noise| line.contains(noise)) {
                    return Ok(None);
                }
                (self.watch)(Event::Console(&line));
                if self.trouble.is_none() && TROUBLE.iter().any(|word| line.contains(word)) {
                    self.trouble = Some(line.clone());
                }
                if self.console.len() == CONSOLE_LINES {
                    self.console.pop_front();
                }
                self.console.push_back(line);
            }
            Arrival::Files(length) => self.files = Some(length),
        }
        Ok(None)
    }

    /// Waits for the bytes that L1 has sent but that are still on their way.
    fn collect(&mut self, sent: Sent) -> Result<()> {
        loop {
            if let Some(Err(_)) = self.files
                && let Some(Err(source)) = self.files.take()
            {
                return Err(Error::file("unpack files of", Path::new("L1"))(source));
            }
            let files_done = matches!(self.files, Some(Ok(n)) if n >= sent.files);
            if self.stdout.seen >= sent.stdout && self.stderr.seen >= sent.stderr && files_done {
                return Ok(());
            }
            // Counted anew with each arrival: whoever watches may stand still as long as it likes.
            match self.arrivals.recv_timeout(OUTPUT_DEADLINE) {
                Ok(arrival) => drop(self.take(arrival)?),
                Err(RecvTimeoutError::Timeout) => {
                    return Err(Error::OutputLost {
                        deadline: OUTPUT_DEADLINE,
                        console: self.last_lines(),
                    });
                }
                Err(RecvTimeoutError::Disconnected) => return Err(self.ended()),
            }
        }
    }

    /// All readers have come to their end: the emulator is gone.
    fn ended(&mut self) -> Error {
        let waiting = Instant::now();
        let cause = loop {
            match self.emulator.ended() {
                Some(status) => break status,
                None if waiting.elapsed() > LAST_WORDS => {
                    break "it closed its console and still runs".to_owned();
                }
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        Error::Ended {
            phase: match self.up {
                None => Phase::Booting,
                Some(_) => Phase::Running,
            },
            cause: self.trouble.take().unwrap_or(cause),
            after: self.started.elapsed(),
            console: self.last_lines(),
        }
    }

    fn last_lines(&self) -> String {
        if self.console.is_empty() {
            return "(nothing)".to_owned();
        }
        self.console.iter().cloned().collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
#[path = "run_test.rs"]
mod tests;
