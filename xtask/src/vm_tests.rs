//! One program of VM tests, run to a verdict.
//!
//! In the rig a run can be void: the emulator now and then mixes up a guest's state with L1's, or
//! breaks L1 itself ([`Ended::void`](crate::place::Ended)). What did not pass in such a run is run
//! again in a new L1, and that is said; what passed stays passed. A failure in a run that the rig
//! has nothing to say against is a failure, whatever it looks like.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use forebay_rig::Status;

use crate::place::{Ended, Place};
use crate::setup::Guest;
use crate::verdict::{self, Verdict};

/// For one run of a program with all its tests.
const DEADLINE: Duration = Duration::from_secs(2400);
/// Runs of one program at most, void ones included.
const RUNS: u32 = 6;

/// Runs `program` with libtest's `arguments`, again where a run was void.
pub(crate) fn run(
    name: &str,
    program: &Path,
    arguments: &[String],
    guest: &Guest,
    place: &Place,
) -> Verdict {
    println!("\nVM tests: {name} {}", place.name());
    let mut tally = Tally::new(arguments);
    for run in 1.. {
        let mut output = Vec::new();
        let ended = place.run(program, &tally.arguments(), guest, DEADLINE, &mut |bytes| {
            output.extend_from_slice(bytes);
        });
        let output = String::from_utf8_lossy(&output);
        let ended = match ended {
            Ok(ended) => ended,
            Err(error) => {
                // The other programs still say what they can.
                eprintln!("error: {name}: {error:#}");
                tally.take(&output, &Ended::without_verdict());
                tally.verdict.fail(format!("{error:#}"));
                break;
            }
        };
        match tally.take(&output, &ended) {
            Step::Again(why) if run < RUNS => {
                println!(
                    "\nnote: {name}: {why}; what did not pass runs again ({})",
                    run + 1
                );
            }
            Step::Again(why) => {
                eprintln!("error: {name}: {why}, {RUNS} times in a row");
                tally.verdict.fail(format!("{why}, {RUNS} times in a row"));
                break;
            }
            Step::Done => break,
        }
    }
    if tally.verdict == Verdict::default() {
        // A filter that matches nothing, or a program that lost its tests, is no success.
        eprintln!("error: {name}: no test ran");
        tally.verdict.fail("no test ran".to_owned());
    }
    tally.verdict
}

/// What to do after a run.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Done,
    /// The run was void, for this reason, and not everything passed.
    Again(String),
}

/// What is known after some runs.
struct Tally {
    /// As given: a filter, or libtest's options.
    arguments: Vec<String>,
    /// Tests that passed in a void run, by their whole names.
    passed: BTreeSet<String>,
    /// Of all runs together.
    verdict: Verdict,
}

impl Tally {
    fn new(arguments: &[String]) -> Self {
        Self {
            arguments: arguments.to_vec(),
            passed: BTreeSet::new(),
            verdict: Verdict::default(),
        }
    }

    /// libtest's arguments for the next run: what was given, without what has passed.
    fn arguments(&self) -> Vec<String> {
        // Guests get the processors one test at a time; several would only disturb each other.
        let mut arguments = vec!["--test-threads=1".to_owned()];
        arguments.extend(self.arguments.iter().cloned());
        if !self.passed.is_empty() {
            // Whole names: a part of one may be a part of another.
            arguments.push("--exact".to_owned());
            for test in &self.passed {
                arguments.extend(["--skip".to_owned(), test.clone()]);
            }
        }
        arguments
    }

    fn take(&mut self, output: &str, ended: &Ended) -> Step {
        let mut verdict = Verdict::read(output, ended.success());
        if let (Some(Status::Signal(signal)), true) = (ended.status, verdict.failed > 0) {
            verdict
                .failures
                .push(format!("signal {signal} ended the program"));
        }
        let step = match &ended.void {
            Some(why) if verdict.failed > 0 => Step::Again(why.clone()),
            _ => Step::Done,
        };
        // `--exact` would also hold for a filter that was given: then all of it runs again.
        if step != Step::Done && self.arguments.is_empty() {
            self.passed.extend(verdict::passed(output));
            verdict.passed = 0;
        }
        verdict.passed += self.passed.len() as u64;
        self.verdict = verdict;
        step
    }
}

#[cfg(test)]
#[path = "vm_tests_test.rs"]
mod tests;
