//! Counting tests from what test programs print.

/// How many tests passed and failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
}

impl Verdict {
    /// Reads the summary lines of libtest: `test result: ok. 3 passed; 0 failed; …`.
    ///
    /// A program that failed without saying so (a crash, a build error) counts as one failure.
    pub(crate) fn read(output: &str, success: bool) -> Self {
        let mut verdict = Self::default();
        for line in output.lines() {
            let Some(summary) = line.trim().strip_prefix("test result: ") else {
                continue;
            };
            verdict.passed += count(summary, "passed");
            verdict.failed += count(summary, "failed");
        }
        if !success && verdict.failed == 0 {
            verdict.failed = 1;
        }
        verdict
    }
}

/// The names of the tests that passed: libtest's lines `test some::name ... ok`. A test that prints
/// between its name and its result is not recognised.
pub(crate) fn passed(output: &str) -> impl Iterator<Item = String> + '_ {
    let lines = output.lines().map(str::trim);
    lines
        .filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... ok"))
        .map(str::to_owned)
}

impl std::ops::AddAssign for Verdict {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

/// The number before a word: of `ok. 3 passed; 0 failed`, 3 for `passed`.
fn count(summary: &str, word: &str) -> u64 {
    summary
        .split([';', '.'])
        .find_map(|part| part.trim().strip_suffix(word)?.trim().parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
#[path = "verdict_test.rs"]
mod tests;
