//! The host's end as it is saved in a snapshot, and the way back.
//!
//! ```text
//!  Conn ── save ──► SavedConn ── encode ──► bytes of the state file
//!       ◄─ restore ─          ◄─ decode ──
//! ```
//!
//! A restored connection goes on exactly as the original would have from the cut on: the limits
//! and the agent's Ready as they were, every byte that was accepted and not delivered, every
//! counter, what stands in line and where the round stands, and the last id used, so that none is
//! ever used again. `Conn::save` is the cut: whoever guards the connection by a lock takes it for
//! this one call, in which no payload is copied. A fork restores from clones of the value itself.
//!
//! What is not here:
//!
//! * **The guest's end.** It lives in guest memory, which has to be captured at the same moment:
//!   the guest stands still, and no frame is under way from one to the other except in
//! * **the device**, whose state includes its rings and the frame that it has placed in part. A
//!   frame counts as sent once [`Conn::poll_transmit`] gave it; one that the guest wrote counts as
//!   received once it was delivered. Between [`Conn::judge`] and [`Conn::deliver`] nothing can be
//!   saved.
//! * **Whoever waits**: handles, wakers, and notices, which are drained after each call anyway.
//!   The first notice of a restored connection is [`Notice::Ready`](super::Notice::Ready) with the
//!   Ready that was captured.
//! * **The clock.** Of a deadline there is what is left, which goes on by the clock of the new
//!   process from the restore on. How long executions have waited is counted anew, but for the
//!   wait on which such a rest depends.
//! * **The other sockets.** A client of a relay does not survive, so the end that
//!   [faces one](Conn::facing_relay) cannot be saved.
//!
//! # How executions come back
//!
//! All are there, with nobody holding them, and count against `max_executions` as before.
//! [`Conn::executions`] names them. Whoever restores decides on each, before the guest runs:
//!
//! * **adopt**: make a handle for it; [`Conn::progress`] says where its streams stand;
//! * **discard**: [`Conn::forget`], after a kill of what the guest [has not heard
//!   of](Conn::is_unheard_of). Output is thrown away and acknowledged, stdin ends, the slot
//!   comes back at the command's end;
//! * **kill**: [`Conn::kill`], then `forget`.
//!
//! Output that a relay had passed on and its client had not acknowledged is unread again: the client
//! does not survive, and whoever adopts the execution goes on at the byte behind the last one that
//! the client is known to have consumed.
//!
//! # The bytes
//!
//! CBOR: a version, then one array whose order the structs of `format` give. A version is
//! never changed, only followed by another. The bytes are input like any other: `decode` reads
//! the form, `restore` checks every number against every rule that a live connection keeps, and
//! neither allocates more than a small multiple of what it was given.

mod execution;
mod format;
mod restore;
mod save;

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use crate::GENERATION;
use crate::host::{Clock, ConfigError, Conn};
use crate::id::ExecId;
use crate::limits::Limits;
use crate::message::Ready;

/// The version of the saved form that this library writes, and the only one that it reads.
const VERSION: u32 = 1;

/// The host's end of a connection at one moment; see the [module](self).
///
/// Clones share the payloads. Among them may be the application's own buffers of stdin: dropping
/// the last clone may run its code, so not under a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedConn(format::ConnV1);

impl SavedConn {
    /// The limits that hold after the restore, whatever the library's defaults are by then.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.0.bootstrap.limits
    }

    /// The executions that may be adopted after a restore, in the order of their ids. They may have
    /// ended.
    pub fn executions(&self) -> impl Iterator<Item = ExecId> + '_ {
        let held = self.0.execs.iter().filter(|exec| !exec.forgotten);
        held.map(|exec| exec.id)
    }

    /// Whether every execution was frozen, so that nothing of it runs before a
    /// [renewal](Conn::renew).
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.0.frozen
    }

    /// What the agent said of itself.
    #[must_use]
    pub fn ready(&self) -> &Ready {
        &self.0.ready
    }

    /// The bytes for the state file: every payload, copied once, and what describes it. An
    /// execution brings its unread output, within `output_limit`, what has
    /// not left of its request, within [`REQUEST_MAX`](crate::REQUEST_MAX), and what has not left
    /// of the stdin write under way, which is as large as its writer made it.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        crate::message::encode(&(VERSION, &self.0))
    }

    /// Reads what [`encode`](Self::encode) wrote, to the last byte: nothing in it may be unknown
    /// to this library, which would forget it. Checks the form alone; the rules are checked by
    /// [`Conn::restore`].
    ///
    /// # Errors
    /// [`RestoreError::Version`] or [`RestoreError::Malformed`].
    pub fn decode(bytes: &[u8]) -> Result<Self, RestoreError> {
        let malformed = |error: minicbor::decode::Error| RestoreError::Malformed {
            reason: alloc::format!("{error}"),
        };
        let mut decoder = minicbor::Decoder::new(bytes);
        if decoder.array().map_err(malformed)? != Some(2) {
            return Err(RestoreError::Malformed {
                reason: String::from("it is not a version and a state"),
            });
        }
        let found = decoder.u32().map_err(malformed)?;
        if found != VERSION {
            return Err(RestoreError::Version {
                found,
                supported: VERSION,
            });
        }
        let conn = decoder.decode().map_err(malformed)?;
        let more = bytes.len().saturating_sub(decoder.position());
        if more > 0 {
            return Err(RestoreError::Malformed {
                reason: alloc::format!("{more} bytes follow it"),
            });
        }
        // The decoder skips fields that it does not know, and takes other forms of the same.
        minicbor::encode((VERSION, &conn), Same { rest: bytes }).map_err(|_| {
            RestoreError::Malformed {
                reason: String::from(
                    "it holds what this library does not know, or would not write",
                ),
            }
        })?;
        Ok(Self(conn))
    }
}

/// Takes what is equal to `rest`, piece by piece.
struct Same<'a> {
    rest: &'a [u8],
}

impl minicbor::encode::Write for Same<'_> {
    type Error = ();

    fn write_all(&mut self, bytes: &[u8]) -> Result<(), ()> {
        self.rest = self.rest.strip_prefix(bytes).ok_or(())?;
        Ok(())
    }
}

/// What whoever restores a connection decides, whatever the saved form says.
#[derive(Debug, Clone, Copy)]
pub struct RestoreOptions {
    /// As [`Config::allow_legacy_guest`](super::Config): a saved state that says that its agent
    /// keeps no limits is refused without.
    pub allow_legacy_guest: bool,
    /// As [`Config::clock`](super::Config): what is left of deadlines, and how long executions wait,
    /// is counted from the restore.
    pub clock: Clock,
    /// As [`Config::wall`](super::Config).
    pub wall: Clock,
}

impl Default for RestoreOptions {
    /// No legacy guest, and clocks that stand still.
    fn default() -> Self {
        Self {
            allow_legacy_guest: false,
            clock: || Duration::ZERO,
            wall: || Duration::ZERO,
        }
    }
}

/// How far the streams of an execution have got. Positions are bytes since its start, so that
/// whoever adopts it can go on exactly where the last one stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Stdin accepted: handed to the channel, or pending and sure to be unless the command stops
    /// reading. The next byte to write is this one.
    pub stdin_accepted: u64,
    /// Stdout taken by a reader, here or behind a relay that has been told, or discarded. The next
    /// byte read is this one.
    pub stdout_consumed: u64,
    /// The same of stderr.
    pub stderr_consumed: u64,
}

impl Conn {
    /// The executions that somebody holds or, after a restore, may adopt, in the order of their
    /// ids. They may have ended.
    pub fn executions(&self) -> impl Iterator<Item = ExecId> + '_ {
        let held = self.execs.iter().filter(|(_, exec)| !exec.forgotten);
        held.map(|(id, _)| *id)
    }

    /// Whether an execution was started on a terminal.
    #[must_use]
    pub fn on_terminal(&self, id: ExecId) -> bool {
        self.execs.get(&id).is_some_and(|exec| exec.on_terminal)
    }

    /// How far the streams of an execution have got, `None` if it is not known.
    #[must_use]
    pub fn progress(&self, id: ExecId) -> Option<Progress> {
        let exec = self.execs.get(&id)?;
        let input = &exec.input;
        Some(Progress {
            stdin_accepted: exec
                .stdin_base
                .saturating_add(input.credit.sent())
                .saturating_add(input.pending.len() as u64),
            stdout_consumed: exec.stdout.consumed(),
            stderr_consumed: exec.stderr.consumed(),
        })
    }
}

/// Why there is nothing to save.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SaveError {
    /// The agent has not said Ready, or its connection ended: there are no two ends to go on.
    NotReady,
    /// A frame was judged and is being copied. Stop the device between two chains first.
    MidFrame,
    /// The other end is a relay; its client's connection does not survive.
    Relayed,
    /// The agent has not answered a quiesce or a renewal; whoever asked would not be there in a
    /// copy.
    Quiescing,
}

impl fmt::Display for SaveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotReady => {
                "the agent in the guest is not ready, so its connection cannot be saved; wait \
                 until it is"
            }
            Self::MidFrame => {
                "a frame from the guest is being delivered; stop the device before saving the \
                 connection"
            }
            Self::Relayed => "an attached client's connection is not part of a snapshot",
            Self::Quiescing => {
                "the guest is being quiesced or let go on; wait until it has said that it is done"
            }
        })
    }
}

impl core::error::Error for SaveError {}

/// A saved connection that cannot be restored.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RestoreError {
    /// Another version of the saved form.
    Version {
        /// What was found.
        found: u32,
        /// What this library reads.
        supported: u32,
    },
    /// The agent speaks another generation of the protocol.
    Generation {
        /// The agent's.
        found: u32,
    },
    /// The agent is one that keeps no limits, and [`RestoreOptions::allow_legacy_guest`] is not
    /// set.
    LegacyGuest,
    /// The guest relies on a capability that this library does not have.
    Capability {
        /// Its name.
        name: String,
    },
    /// Cut off, or not what was written.
    Malformed {
        /// What is wrong, for people.
        reason: String,
    },
    /// Limits, hostname, environment or working directory cannot work.
    Config(ConfigError),
    /// A rule of the connection is broken.
    Connection {
        /// What is wrong, for people.
        rule: &'static str,
    },
    /// A rule of an execution is broken.
    Execution {
        /// Which one.
        id: ExecId,
        /// What is wrong, for people.
        rule: &'static str,
    },
}

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version { found, supported } => write!(
                f,
                "the saved connection has version {found}, this library reads {supported}; \
                 restore it with the library that saved it"
            ),
            Self::Generation { found } => write!(
                f,
                "the saved agent speaks generation {found} of the exec protocol, this library \
                 {GENERATION}; restore it with the library that saved it"
            ),
            Self::LegacyGuest => f.write_str(
                "the saved agent's Ready names no exec_limits: an agent that old keeps no bound and \
                 is refused; boot a rebuilt guest image, or allow_legacy_guest",
            ),
            Self::Capability { name } => write!(
                f,
                "the saved guest relies on the capability {name:?}, which this library does not \
                 have; restore it with the library that saved it"
            ),
            Self::Malformed { reason } => {
                write!(f, "the saved connection cannot be read: {reason}")
            }
            Self::Config(error) => write!(f, "the saved connection cannot work: {error}"),
            Self::Connection { rule } => {
                write!(f, "the saved connection contradicts itself: {rule}")
            }
            Self::Execution { id, rule } => {
                write!(f, "the saved execution {id} contradicts itself: {rule}")
            }
        }
    }
}

impl core::error::Error for RestoreError {}

#[cfg(test)]
#[path = "saved_test.rs"]
mod tests;

#[cfg(test)]
#[path = "adoption_test.rs"]
mod adoption_tests;

#[cfg(test)]
#[path = "hostile_test.rs"]
mod hostile_tests;

#[cfg(test)]
#[path = "golden_test.rs"]
mod golden_tests;

#[cfg(test)]
#[path = "rules_test.rs"]
mod rules_tests;

#[cfg(test)]
#[path = "deadline_rules_test.rs"]
mod deadline_rules_tests;
