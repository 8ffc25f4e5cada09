//! One program of VM tests, run to a verdict.
//!
//! In the rig a run can be void: the emulator now and then mixes up a guest's state with L1's
//! ([`Ended::void`](crate::place::Ended)). What failed in such a run is run again in a new L1, and
//! that is said; what passed stays passed. A failure in a run that the rig has nothing to say
//! against is a failure, whatever it looks like.

use std::path::Path;
use std::time::Duration;

use crate::place::Place;
use crate::setup::Guest;
use crate::verdict::{self, Verdict};

/// For one run of a program with all its tests; each wait in them has a ceiling of its own.
const DEADLINE: Duration = Duration::from_secs(2400);
/// Runs of one program at most, void ones included. With one in four void, all of them are in one
/// of 250 programs.
const RUNS: u32 = 4;

/// Runs `program` with libtest's `arguments`, again where a run was void.
pub(crate) fn run(
    name: &str,
    program: &Path,
    arguments: &[String],
    guest: &Guest,
    place: &Place,
) -> Verdict {
    println!("\nVM tests: {name} {}", place.name());
    let mut passed = 0;
    let mut arguments = arguments.to_vec();
    let mut runs = 1;
    loop {
        let attempt = Attempt::make(name, program, &arguments, guest, place);
        let Some(why) = attempt
            .void
            .filter(|_| attempt.verdict.failed > 0 && runs < RUNS)
        else {
            return Verdict {
                passed: passed + attempt.verdict.passed,
                ..attempt.verdict
            };
        };
        runs += 1;
        println!("\nnote: {name}: {why}; what failed runs again ({runs} of {RUNS})");
        // One that died before it could say what failed runs all its tests once more.
        if !attempt.failures.is_empty() {
            passed += attempt.verdict.passed;
            arguments = exactly(&attempt.failures);
        }
    }
}

/// One run.
struct Attempt {
    verdict: Verdict,
    /// The tests that failed, by name.
    failures: Vec<String>,
    /// Why its failures say nothing about the program.
    void: Option<&'static str>,
}

impl Attempt {
    fn make(
        name: &str,
        program: &Path,
        arguments: &[String],
        guest: &Guest,
        place: &Place,
    ) -> Self {
        // Guests get the processors one test at a time; several would only disturb each other.
        let mut all = vec!["--test-threads=1".to_owned()];
        all.extend(arguments.iter().cloned());
        let mut output = Vec::new();
        let ended = place.run(program, &all, guest, DEADLINE, &mut |bytes| {
            output.extend_from_slice(bytes);
        });
        let (success, void) = match ended {
            Ok(ended) => (ended.status.success(), ended.void),
            Err(error) => {
                // The tests of one program are lost; the others still say what they can.
                eprintln!("error: {name}: {error:#}");
                (false, None)
            }
        };
        let output = String::from_utf8_lossy(&output);
        let mut verdict = Verdict::read(&output, success);
        if verdict == Verdict::default() {
            // A filter that matches nothing, or a program that lost its tests, is no success.
            eprintln!("error: {name}: no test ran");
            verdict.failed = 1;
        }
        Self {
            verdict,
            failures: verdict::failures(&output),
            void,
        }
    }
}

/// libtest's arguments for these tests alone.
fn exactly(tests: &[String]) -> Vec<String> {
    let mut arguments = vec!["--exact".to_owned()];
    arguments.extend(tests.iter().cloned());
    arguments
}
