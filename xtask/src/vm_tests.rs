//! Programs of VM tests, each run to a verdict, side by side where the [place](Place::room) has room
//! for several: each then says what it has to say when it is through.
//!
//! In the rig a run can be void: the emulator now and then mixes up a guest's state with L1's, or
//! breaks L1 itself, or the program does not come to its end ([`Ended::void`](crate::place::Ended)), or a
//! test that fails finds a guest whose processor keeps its interrupts off ([`INTERRUPTS_OFF`]).
//! What did not pass in such a run is run again in a new L1, and that is said; what passed stays
//! passed. A failure in a run that the rig has nothing to say against is a failure, whatever it looks
//! like, and so is a hang that comes again.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use forebay_rig::{Event, Status};

use crate::place::{Ended, Place};
use crate::rig;
use crate::setup::Guest;
use crate::verdict::{self, Verdict};

/// For one run of a program with all its tests; the longest takes a quarter of it.
const DEADLINE: Duration = Duration::from_secs(1200);
/// Runs of one program at most, void ones included.
const RUNS: u32 = 6;
/// When no further run of a program is begun.
const PATIENCE: Duration = Duration::from_secs(1800);

/// What a test that fails says of a processor of its guest whose interrupts were off at many looks. The
/// emulator can leave one so for good, by giving it an interrupt a second time while it handles the
/// first. The words are those of the tests' `tell_of_interrupts`.
const INTERRUPTS_OFF: &str = "a processor of the guest keeps its interrupts off";

/// A program of VM tests.
pub(crate) struct Program {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) guest: Guest,
}

/// Runs `programs` with libtest's `arguments`. The verdicts are in their order.
pub(crate) fn all(programs: &[Program], arguments: &[String], place: &Place) -> Vec<Verdict> {
    let room = place.room().min(programs.len());
    if room <= 1 {
        let each = programs.iter();
        return each
            .map(|program| run(program, arguments, place, &mut std::io::stdout()))
            .collect();
    }
    let verdicts: Vec<_> = programs.iter().map(|_| Mutex::default()).collect();
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..room {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let (Some(program), Some(verdict)) = (programs.get(at), verdicts.get(at))
                    else {
                        break;
                    };
                    println!("VM tests: {} begins {}", program.name, place.name());
                    let mut said = Vec::new();
                    let found = run(program, arguments, place, &mut said);
                    // At once, or what others say would stand in between.
                    let _ = std::io::stdout().lock().write_all(&said);
                    *verdict.lock().unwrap_or_else(PoisonError::into_inner) = found;
                }
            });
        }
    });
    let found = verdicts.into_iter().map(Mutex::into_inner);
    found
        .map(|verdict| verdict.unwrap_or_else(PoisonError::into_inner))
        .collect()
}

/// Runs one program, again where a run was void, and has `out` told what it says.
fn run(program: &Program, arguments: &[String], place: &Place, out: &mut dyn Write) -> Verdict {
    let name = &program.name;
    let begun = Instant::now();
    tell(out, &format!("\nVM tests: {name} {}", place.name()));
    let mut tally = Tally::new(arguments);
    for run in 1.. {
        let mut output = Vec::new();
        let ended = place.run(
            &program.path,
            &tally.arguments(),
            &program.guest,
            DEADLINE,
            &mut |event| {
                if let Event::Stdout(bytes) = event {
                    output.extend_from_slice(bytes);
                }
                rig::show_in(out, event);
            },
        );
        let output = String::from_utf8_lossy(&output);
        let ended = match ended {
            Ok(ended) if matches!(place, Place::Rig { .. }) => doubted(ended, &output),
            Ok(ended) => ended,
            Err(error) => {
                // The other programs still say what they can.
                tell(out, &format!("error: {name}: {error:#}"));
                tally.take(&output, &Ended::without_verdict());
                tally.verdict.fail(format!("{error:#}"));
                break;
            }
        };
        match tally.take(&output, &ended) {
            Step::Again(why) if run < RUNS && begun.elapsed() < PATIENCE => {
                let again = run + 1;
                let note = format!("\nnote: {name}: {why}; what did not pass runs again ({again})");
                tell(out, &note);
            }
            Step::Again(why) => {
                let why = format!("{why}, {run} times in a row");
                tell(out, &format!("error: {name}: {why}"));
                tally.verdict.fail(why);
                break;
            }
            Step::Done => break,
        }
    }
    if tally.verdict == Verdict::default() {
        // A filter that matches nothing, or a program that lost its tests, is no success.
        tell(out, &format!("error: {name}: no test ran"));
        tally.verdict.fail("no test ran".to_owned());
    }
    tally.verdict
}

/// How a run in the rig ended, after a look at what the failed tests show of their guests.
fn doubted(ended: Ended, output: &str) -> Ended {
    const WHY: &str =
        "in the rig a processor of a guest kept its interrupts off, as the emulator can leave one";
    let off = output.contains(INTERRUPTS_OFF).then(|| WHY.to_owned());
    Ended {
        void: ended.void.or(off),
        ..ended
    }
}

/// A line of our own. What cannot be written is no reason to stop.
fn tell(out: &mut dyn Write, line: &str) {
    let _ = writeln!(out, "{line}");
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
        verdict.repeated = std::mem::take(&mut self.verdict.repeated);
        if let Step::Again(why) = &step {
            let failed = verdict.failures.join(", ");
            verdict
                .repeated
                .push(format!("{why}; until then: {failed}"));
        }
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
