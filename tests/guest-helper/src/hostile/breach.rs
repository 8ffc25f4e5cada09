//! The rules that can be broken once, by name.

use forebay_exec_proto::frame::FromGuest;
use forebay_exec_proto::{
    CHUNK_CHARGE, ExitStatus, FRAME_MAX, Failure, FailureKind, HEADER_LEN, Header, StdinError,
    TEXT_MAX,
};
use forebay_guest_helper::pattern::Pattern;

use super::{Agent, Stop, honest_ready, wire};

/// How an execution's program came to its end.
pub(super) enum Over {
    /// It is to be reported as exited with this code.
    With(i32),
    /// It is to be reported as killed.
    Killed,
    /// The host has been told, rightly or wrongly.
    Said,
}

/// An execution that no host will have started when it is named.
const NEVER_STARTED: u64 = 1 << 40;
/// A kind that nobody knows.
const UNKNOWN_KIND: u8 = 0xee;
/// More answers than a host leaves open at once.
const PONGS: u64 = 17;

impl Agent {
    /// Breaks `rule` of the execution `id`, then waits to be killed for it.
    pub(super) fn break_rule(&self, id: u64, rule: &str, defiant: bool) -> Result<Over, Stop> {
        let send = |kind, payload: &[u8]| self.send(&wire::frame(kind, id, payload));
        let stdin_error = |text: usize| {
            wire::body(&StdinError {
                errno: 32,
                name: "EPIPE".to_owned(),
                message: "x".repeat(text),
            })
        };
        if rule != "output-before-started" {
            self.started(id)?;
        }
        match rule {
            "output-before-started" => send(FromGuest::Stdout, b"early")?,
            "second-started" => self.started(id)?,
            "beyond-the-window" => {
                // All that fits, and one chunk that does not.
                let chunk = vec![b'x'; self.chunk_size()];
                let limit = u64::from(self.bootstrap.limits.output_limit);
                let cost = chunk.len() as u64 + u64::from(CHUNK_CHARGE);
                for _ in 0..=limit / cost {
                    send(FromGuest::Stdout, &chunk)?;
                }
            }
            "chunk-too-large" => send(FromGuest::Stdout, &vec![b'x'; self.chunk_size() + 1])?,
            "empty-chunk" => send(FromGuest::Stderr, &[])?,
            "ack-of-what-was-not-sent" => self.send(&wire::stdin_ack(id, 1))?,
            "ack-that-goes-back" => {
                let taken = self.input(id)?.map_or(0, |bytes| bytes.len() as u64);
                self.send(&wire::stdin_ack(id, taken.saturating_sub(1)))?;
            }
            "ack-of-half-a-number" => send(FromGuest::StdinAck, &[0; 4])?,
            "second-stdin-error" => {
                send(FromGuest::StdinError, &stdin_error(1))?;
                send(FromGuest::StdinError, &stdin_error(1))?;
            }
            "event-too-long" => send(FromGuest::StdinError, &stdin_error(3 * TEXT_MAX))?,
            "failed-after-started" => {
                let failure = Failure {
                    kind: FailureKind::NotFound,
                    errno: None,
                    stage: "execve".to_owned(),
                    message: "too late to say".to_owned(),
                };
                send(FromGuest::Failed, &wire::body(&failure))?;
                return Ok(Over::Said);
            }
            "exit-that-no-process-has" => {
                let status = ExitStatus {
                    code: Some(300),
                    ..ExitStatus::default()
                };
                send(FromGuest::Exited, &wire::body(&status))?;
                return Ok(Over::Said);
            }
            "exit-in-no-encoding" => {
                send(FromGuest::Exited, b"exited, more or less")?;
                return Ok(Over::Said);
            }
            "output-after-the-end" => {
                self.exited(id, Some(0))?;
                send(FromGuest::Stdout, b"late")?;
                return Ok(Over::Said);
            }
            "second-end" => {
                self.exited(id, Some(0))?;
                self.exited(id, Some(7))?;
                return Ok(Over::Said);
            }
            _ => return Ok(Over::With(2)),
        }
        self.until_killed(id, defiant);
        Ok(Over::Killed)
    }

    /// One write that has no place before a Ready.
    pub(super) fn early_breach(&self, rule: &str) -> Option<Vec<u8>> {
        let ready = wire::body(&honest_ready(&self.bootstrap));
        Some(match rule {
            "output-first" => wire::frame(FromGuest::Stdout, 1, b"early"),
            "pong-first" => wire::frame(FromGuest::Pong, 0, &1_u64.to_le_bytes()),
            "half-a-ready" => {
                let header = wire::header(FromGuest::Ready.to_wire(), 0, ready.len());
                wire::raw(header, ready.get(..ready.len() / 2)?)
            }
            _ => return None,
        })
    }

    /// One write that breaks framing, or a rule of the connection.
    pub(super) fn framing_breach(&self, rule: &str) -> Option<Vec<u8>> {
        let stdout = FromGuest::Stdout.to_wire();
        let pong = |number: u64| wire::frame(FromGuest::Pong, 0, &number.to_le_bytes());
        let ready = wire::body(&honest_ready(&self.bootstrap));
        Some(match rule {
            "unknown-execution" => wire::frame(FromGuest::Stdout, NEVER_STARTED, b"whose?"),
            "no-execution" => wire::frame(FromGuest::Stdout, 0, b"nobody's"),
            "frame-beyond-its-chain" => wire::raw(wire::header(stdout, 1, 100), &[b'x'; 50]),
            "length-of-gigabytes" => wire::raw(
                wire::header(stdout, 1, usize::MAX),
                &[b'x'; FRAME_MAX - HEADER_LEN],
            ),
            "half-a-header" => vec![0; HEADER_LEN / 2],
            "garbage" => Pattern::new(1).take(4096),
            "reserved-bytes" => {
                let header = wire::header(stdout, 1, 0);
                wire::raw(
                    Header {
                        reserved: 1,
                        ..header
                    },
                    &[],
                )
            }
            "unknown-kind" => wire::raw(wire::header(UNKNOWN_KIND, 0, 0), &[]),
            "unasked-pongs" => (0..PONGS).flat_map(pong).collect(),
            "unasked-inspection" => wire::frame(FromGuest::Inspection, 0, &[0x80]),
            "second-ready" => wire::frame(FromGuest::Ready, 0, &ready),
            "ready-of-an-execution" => wire::frame(FromGuest::Ready, 1, &ready),
            _ => return None,
        })
    }
}
