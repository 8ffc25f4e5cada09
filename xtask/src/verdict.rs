//! Counting tests from what test programs print.

/// How many tests passed and failed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    /// The failed tests' names, and what else went wrong: for the end of a long output, where a
    /// person looks first.
    pub(crate) failures: Vec<String>,
    /// Why something ran again, and what had failed before that: it counts no more, and nobody is to
    /// overlook it.
    pub(crate) repeated: Vec<String>,
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
        verdict.failures = named(output, "FAILED").collect();
        if !success && verdict.failed == 0 {
            verdict.failed = 1;
            let last = output.lines().rfind(|line| !line.trim().is_empty());
            verdict.failures.push(format!(
                "a program failed without a summary; its last line: {:?}",
                last.unwrap_or_default()
            ));
        }
        verdict
    }

    /// One failure beside what a program says.
    pub(crate) fn fail(&mut self, why: String) {
        self.failed = self.failed.max(1);
        self.failures.push(why);
    }
}

/// The names of the tests that passed.
pub(crate) fn passed(output: &str) -> impl Iterator<Item = String> {
    named(output, "ok")
}

/// The names of the tests with one result: libtest's lines `test some::name ... ok`. A test that
/// prints between its name and its result is not recognised.
fn named(output: &str, result: &str) -> impl Iterator<Item = String> {
    let lines = output.lines().map(str::trim);
    lines.filter_map(move |line| {
        let (name, said) = line.strip_prefix("test ")?.split_once(" ... ")?;
        (said == result).then(|| name.to_owned())
    })
}

impl std::ops::AddAssign for Verdict {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.failures.extend(other.failures);
        self.repeated.extend(other.repeated);
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
