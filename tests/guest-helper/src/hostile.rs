//! `hostile-agent`: PID 1 and agent of a guest that breaks the exec protocol when told to.
//!
//! It is an honest agent of the least kind: it greets, confirms every start and end, keeps every
//! allowance, and its "programs" are threads of its own, so that two of them show what the host
//! makes of each. What a request runs is one of these:
//!
//! | command | the agent |
//! |---|---|
//! | `random SEED BYTES` | writes the seeded pattern to stdout |
//! | `cat` | copies stdin to stdout, acknowledging as it goes |
//! | `break RULE [defiant]` | breaks one of the [`breach`] rules of this execution; dies when the host kills it, or if `defiant` only at the next `give-in` |
//! | `cut RULE [quiet]` | breaks a rule of framing or of the connection, then opens the port anew, or if `quiet` does nothing more |
//! | `flood KIND [BYTES]` | sends one of the [`flood`] kinds until so many bytes or the next `give-in` |
//! | `reopen` | begins anew as `reopening` |
//! | `stop-reading SEED BYTES` | takes nothing from the host any more, and goes on as `random` |
//! | `endure` | writes a line, and dies at the next `give-in`, not when it is killed |
//! | `shrug CODE` | exits with that code when it is killed |
//! | `dawdle` | says that it started at the next `give-in`; dies when it is killed after that, and exits with 1 if it was before |
//! | `give-in` | ends every flood and every defiant execution |
//!
//! `hostile-agent GREETING` chooses what its Ready says: `honest` (the default), `no-limits`,
//! `other-limits`, `other-generation`, `other-connection` or `nonsense`. With `no-limits` it goes on
//! as an agent that is too old to know of flow control: chunks of 4 KiB, sent without waiting for
//! room, and no acknowledgement of stdin; one of the host's ends the connection.
//!
//! Or what it does in the place of a Ready: `output-first`, `pong-first` and `half-a-ready` break a
//! rule, `silent` says nothing, `flood-first` sends frames that may be skipped without end, and
//! `hang-up` closes the port. `reopening` opens and closes the port [`REOPENED`] times, every second
//! time before it has been greeted, and then begins anew as an honest agent.
//!
//! One thread reads the port and one runs per execution; all share one lock and one condition.
//! Frames are built in [`wire`], which encodes whatever it is given.

mod breach;
mod flood;
mod program;
mod wire;

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use forebay_exec_proto::frame::{FromGuest, ToGuest};
use forebay_exec_proto::{
    Bootstrap, CHUNK_CHARGE, ExitStatus, GENERATION, Limits, Ready, Request, Stream,
};

use crate::{Outcome, port_server, system};

/// How this program is started again for the next connection.
pub(crate) const COMMAND: &str = "hostile-agent";

/// The greeting of an agent that is too old to know of limits.
const NO_LIMITS: &str = "no-limits";

/// Largest payload of data for an agent that knows no limits.
const LEGACY_CHUNK: usize = 4096;

/// See there.
const REOPENING: &str = "reopening";

/// How often the port is opened and closed before the connection that is meant.
const REOPENED: u32 = 200;

/// The signal that a kill is.
const SIGKILL: u32 = 9;

/// Why an execution's program does not go on.
enum Stop {
    /// The host had it killed.
    Killed,
    /// The port failed.
    Lost(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Lost(error)
    }
}

/// One connection, shared by its threads.
struct Agent {
    port: File,
    bootstrap: Bootstrap,
    /// It knows of no limits, and of no acknowledgements.
    legacy: bool,
    state: Mutex<State>,
    /// Anything in the state has changed.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    executions: HashMap<u64, Execution>,
    /// How often `give-in` was asked for.
    truces: u64,
    /// The host's frames are left where they are.
    deaf: bool,
}

/// What the host has said of an execution that runs.
#[derive(Default)]
struct Execution {
    /// Stdin that was not taken yet; bounded by the host's allowance, which is trusted here.
    stdin: VecDeque<u8>,
    stdin_ended: bool,
    /// Stdin bytes taken and acknowledged.
    consumed: u64,
    /// Output units sent, and given back by the host.
    sent: u64,
    acked: u64,
    killed: bool,
}

/// Serves one connection. Returns when the host asks for the end of the guest, or on an error.
pub(crate) fn serve(greeting: &str) -> Outcome {
    if greeting == REOPENING {
        for round in 0..REOPENED {
            let port = port_server::open_port()?;
            if round % 2 == 0 {
                wire::read(&port)?;
            }
        }
        return Err(begin_again("honest").into());
    }
    let port = port_server::open_port()?;
    let first = wire::read(&port)?;
    let bootstrap: Bootstrap = minicbor::decode(&first.body)?;
    eprintln!(
        "hostile agent: {greeting} greeting of connection {}",
        bootstrap.connection
    );
    let agent = Arc::new(Agent {
        port,
        bootstrap,
        legacy: greeting == NO_LIMITS,
        state: Mutex::default(),
        changed: Condvar::new(),
    });
    match greeting {
        "silent" => rest(),
        "hang-up" => {
            drop(agent);
            rest()
        }
        "flood-first" => loop {
            agent.send(&flood::to_be_skipped())?;
        },
        rule => match agent.early_breach(rule) {
            Some(breach) => agent.send(&breach)?,
            None => {
                let ready = greet(greeting, &agent.bootstrap)?;
                agent.send(&wire::frame(FromGuest::Ready, 0, &ready))?;
            }
        },
    }
    agent.read()?;
    system::power_off()
}

/// Does nothing until the host ends the guest.
fn rest() -> ! {
    loop {
        thread::park();
    }
}

/// The body of the Ready.
fn greet(greeting: &str, bootstrap: &Bootstrap) -> Result<Vec<u8>, String> {
    let honest = honest_ready(bootstrap);
    let ready = match greeting {
        "honest" => honest,
        NO_LIMITS => Ready {
            exec_limits: None,
            ..honest
        },
        "other-limits" => Ready {
            exec_limits: Some(Limits {
                output_limit: u32::MAX,
                ..bootstrap.limits
            }),
            ..honest
        },
        "other-generation" => Ready {
            generation: GENERATION + 1,
            ..honest
        },
        "other-connection" => Ready {
            connection: bootstrap.connection + 1,
            ..honest
        },
        "nonsense" => return Ok(b"ready when you are".to_vec()),
        other => return Err(format!("{other} is no greeting")),
    };
    Ok(wire::body(&ready))
}

fn honest_ready(bootstrap: &Bootstrap) -> Ready {
    Ready {
        generation: GENERATION,
        connection: bootstrap.connection,
        exec_limits: Some(bootstrap.limits),
        version: "hostile".to_owned(),
        ..Ready::default()
    }
}

impl Agent {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and tells every thread.
    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Waits until `look` finds something.
    fn wait<T>(&self, mut look: impl FnMut(&mut State) -> Option<T>) -> T {
        let mut state = self.lock();
        loop {
            if let Some(found) = look(&mut state) {
                return found;
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The same for one execution, until it is killed.
    fn wait_of<T>(
        &self,
        id: u64,
        mut look: impl FnMut(&mut Execution) -> Option<T>,
    ) -> Result<T, Stop> {
        self.wait(|state| match state.executions.get_mut(&id) {
            Some(execution) if !execution.killed => look(execution).map(Ok),
            _ => Some(Err(Stop::Killed)),
        })
    }

    /// Writes to the port at once, as one chain: 32 KiB at most.
    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        loop {
            match (&self.port).write(bytes)? {
                // Another thread took the last room in the ring between the driver's look and its
                // try.
                0 => thread::yield_now(),
                all if all == bytes.len() => return Ok(()),
                _ => return Err(io::ErrorKind::WriteZero.into()),
            }
        }
    }

    /// Follows the host until it asks for the guest's end.
    fn read(self: &Arc<Self>) -> Outcome {
        let mut request = Vec::new();
        loop {
            self.wait(|state| (!state.deaf).then_some(()));
            let frame = wire::read(&self.port)?;
            let (id, body) = (frame.header.exec, frame.body);
            match ToGuest::from_wire(frame.header.kind) {
                Some(ToGuest::Ping) => self.send(&wire::frame(FromGuest::Pong, 0, &body))?,
                Some(ToGuest::PowerOff) => return Ok(0),
                Some(ToGuest::Request) => {
                    request.extend(body);
                    if frame.header.flags & wire::LAST != 0 {
                        self.start(id, minicbor::decode(&std::mem::take(&mut request))?);
                    }
                }
                Some(ToGuest::Stdin) => self.told(id, |execution| execution.stdin.extend(body)),
                Some(ToGuest::StdinEof) => self.told(id, |execution| execution.stdin_ended = true),
                Some(ToGuest::Kill) => self.told(id, |execution| execution.killed = true),
                Some(ToGuest::OutputAck) if self.legacy => {
                    return Err("an acknowledgement, which this agent does not know".into());
                }
                Some(ToGuest::OutputAck) => {
                    let total = wire::number(&body)?;
                    self.told(id, |execution| execution.acked = total);
                }
                // There are no processes to be signalled, and nothing to be told of itself.
                _ => {}
            }
        }
    }

    /// Changes what is known of an execution that may be over.
    fn told(&self, id: u64, change: impl FnOnce(&mut Execution)) {
        self.change(|state| {
            if let Some(execution) = state.executions.get_mut(&id) {
                change(execution);
            }
        });
    }

    fn start(self: &Arc<Self>, id: u64, request: Request) {
        self.change(|state| {
            state.executions.insert(id, Execution::default());
        });
        let agent = Arc::clone(self);
        thread::spawn(move || {
            let words: Vec<_> = request
                .argv
                .iter()
                .map(|word| String::from_utf8_lossy(word).into_owned())
                .collect();
            eprintln!("hostile agent: {id} is {}", words.join(" "));
            if let Err(error) = agent.run(id, &words) {
                eprintln!("hostile agent: {id}: {error}");
            }
            agent.change(|state| {
                state.executions.remove(&id);
            });
        });
    }

    /// Says that the program runs.
    fn started(&self, id: u64) -> io::Result<()> {
        self.send(&wire::frame(FromGuest::Started, id, &wire::PID))
    }

    /// Says that it has ended.
    fn exited(&self, id: u64, code: Option<i32>) -> io::Result<()> {
        let signal = code.is_none().then_some(SIGKILL);
        // It does not measure how long that took.
        let status = ExitStatus {
            code,
            signal,
            ..ExitStatus::default()
        };
        self.send(&wire::frame(FromGuest::Exited, id, &wire::body(&status)))
    }

    /// Sends output as soon as the allowance has room for all of it; one chunk at most. An agent
    /// that knows of no allowance sends it at once.
    fn output(&self, id: u64, stream: Stream, bytes: &[u8]) -> Result<(), Stop> {
        let cost = bytes.len() as u64 + u64::from(CHUNK_CHARGE);
        let limit = u64::from(self.bootstrap.limits.output_limit);
        self.wait_of(id, |execution| {
            let fits = self.legacy || execution.sent - execution.acked + cost <= limit;
            fits.then(|| execution.sent += cost)
        })?;
        Ok(self.send(&wire::output(id, stream, bytes))?)
    }

    /// Takes all stdin that is there and acknowledges it, unless too old for that; `None` at its end.
    fn input(&self, id: u64) -> Result<Option<Vec<u8>>, Stop> {
        let (bytes, total) = self.wait_of(id, |execution| {
            let bytes = Vec::from(std::mem::take(&mut execution.stdin));
            execution.consumed += bytes.len() as u64;
            let over = bytes.is_empty() && !execution.stdin_ended;
            (!over).then_some((bytes, execution.consumed))
        })?;
        if bytes.is_empty() {
            return Ok(None);
        }
        if !self.legacy {
            self.send(&wire::stdin_ack(id, total))?;
        }
        Ok(Some(bytes))
    }

    /// Waits for the host's kill, or if `defiant` for the next `give-in` alone.
    fn until_killed(&self, id: u64, defiant: bool) {
        if defiant {
            let before = self.lock().truces;
            self.wait(|state| (state.truces != before).then_some(()));
        } else {
            let killed = self.wait_of(id, |_| None::<()>);
            debug_assert!(killed.is_err(), "nothing else ends the wait");
        }
    }

    fn chunk_size(&self) -> usize {
        let advertised = self.bootstrap.limits.output_chunk_size as usize;
        if self.legacy {
            advertised.min(LEGACY_CHUNK)
        } else {
            advertised
        }
    }
}

/// Gives this connection up for the next: the port is closed, every thread ends, and PID 1 begins
/// again as an agent of this greeting.
fn begin_again(greeting: &str) -> io::Error {
    Command::new("/proc/self/exe")
        .args([COMMAND, greeting])
        .exec()
}
