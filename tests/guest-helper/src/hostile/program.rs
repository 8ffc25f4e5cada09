//! What an execution runs: the honest programs, and the way to the others.

use std::io;

use forebay_exec_proto::frame::FromGuest;
use forebay_exec_proto::{Failure, FailureKind, Stream};
use forebay_guest_helper::pattern::Pattern;

use super::breach::Over;
use super::{Agent, REOPENING, Stop, begin_again, wire};

impl Agent {
    /// Runs the request and says how it ended.
    pub(super) fn run(&self, id: u64, words: &[String]) -> io::Result<()> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let ended = match *words.as_slice() {
            ["random", seed, bytes] => self.random(id, seed, bytes),
            ["cat"] => self.cat(id),
            ["give-in"] => self.give_in(id),
            ["endure"] => self.endure(id),
            ["shrug", code] => self.shrug(id, code),
            ["dawdle"] => self.dawdle(id),
            ["stop-reading", seed, bytes] => {
                self.change(|state| state.deaf = true);
                self.random(id, seed, bytes)
            }
            ["break", rule] => self.break_rule(id, rule, false),
            ["break", rule, "defiant"] => self.break_rule(id, rule, true),
            ["flood", kind] => self.flood(id, kind, u64::MAX),
            ["flood", kind, bytes] => match bytes.parse() {
                Ok(bytes) => self.flood(id, kind, bytes),
                Err(_) => return self.unknown(id, &words),
            },
            ["reopen"] => {
                self.started(id)?;
                return Err(begin_again(REOPENING));
            }
            ["cut", rule] => return self.cut(id, rule, false),
            ["cut", rule, "quiet"] => return self.cut(id, rule, true),
            _ => return self.unknown(id, &words),
        };
        match ended {
            Ok(Over::With(code)) => self.exited(id, Some(code)),
            Ok(Over::Killed) | Err(Stop::Killed) => self.exited(id, None),
            Ok(Over::Said) => Ok(()),
            Err(Stop::Lost(error)) => Err(error),
        }
    }

    fn unknown(&self, id: u64, words: &[&str]) -> io::Result<()> {
        let failure = Failure {
            kind: FailureKind::NotFound,
            errno: None,
            stage: "lookup".to_owned(),
            message: format!("{words:?} is nothing that the hostile agent does"),
        };
        self.send(&wire::frame(FromGuest::Failed, id, &wire::body(&failure)))
    }

    /// Writes the pattern in chunks of the largest size.
    fn random(&self, id: u64, seed: &str, bytes: &str) -> Result<Over, Stop> {
        self.started(id)?;
        let (Ok(seed), Ok(mut left)) = (seed.parse(), bytes.parse::<usize>()) else {
            return Ok(Over::With(2));
        };
        let mut pattern = Pattern::new(seed);
        while left > 0 {
            let chunk = pattern.take(left.min(self.chunk_size()));
            self.output(id, Stream::Stdout, &chunk)?;
            left -= chunk.len();
        }
        Ok(Over::With(0))
    }

    fn cat(&self, id: u64) -> Result<Over, Stop> {
        self.started(id)?;
        while let Some(bytes) = self.input(id)? {
            for chunk in bytes.chunks(self.chunk_size()) {
                self.output(id, Stream::Stdout, chunk)?;
            }
        }
        Ok(Over::With(0))
    }

    fn give_in(&self, id: u64) -> Result<Over, Stop> {
        self.started(id)?;
        self.change(|state| state.truces += 1);
        Ok(Over::With(0))
    }

    /// Writes a line, and does not die of being killed.
    fn endure(&self, id: u64) -> Result<Over, Stop> {
        self.started(id)?;
        self.output(id, Stream::Stdout, b"so far\n")?;
        self.until_killed(id, true);
        Ok(Over::Killed)
    }

    /// Exits by itself just when it is killed.
    fn shrug(&self, id: u64, code: &str) -> Result<Over, Stop> {
        self.started(id)?;
        self.until_killed(id, false);
        Ok(Over::With(code.parse().unwrap_or(2)))
    }

    /// Takes its time to start. It exits with 1 if it was killed before it had.
    fn dawdle(&self, id: u64) -> Result<Over, Stop> {
        self.until_killed(id, true);
        let killed = self.lock().executions[&id].killed;
        self.started(id)?;
        if killed {
            return Ok(Over::With(1));
        }
        self.until_killed(id, false);
        Ok(Over::Killed)
    }

    /// Breaks a rule of the connection. Nothing is said of the execution: with the connection it is
    /// lost.
    fn cut(&self, id: u64, rule: &str, quiet: bool) -> io::Result<()> {
        self.started(id)?;
        let Some(bytes) = self.framing_breach(rule) else {
            return self.exited(id, Some(2));
        };
        self.send(&bytes)?;
        // Closing the port comes behind what was written to it.
        if quiet {
            Ok(())
        } else {
            Err(begin_again("honest"))
        }
    }
}
