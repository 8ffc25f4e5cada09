//! Sets of pages, as runs in ascending order that neither overlap nor touch.
//!
//! Offsets are those of an image: the bytes of a VM's RAM counted from its first, without the hole
//! below 4 GiB.

use std::ops::Range;

/// A set of pages, by the bytes they cover.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Runs(Vec<Range<u64>>);

impl Runs {
    /// Adds a run that begins no earlier than the last one did.
    pub(super) fn push(&mut self, run: Range<u64>) {
        if run.is_empty() {
            return;
        }
        match self.0.last_mut() {
            Some(last) if run.start <= last.end => last.end = last.end.max(run.end),
            _ => self.0.push(run),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.0.iter().cloned()
    }

    /// How many runs there are.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// How many bytes they cover.
    pub(super) fn bytes(&self) -> u64 {
        self.0.iter().map(|run| run.end - run.start).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is in one or in both.
    pub(super) fn union(&self, other: &Self) -> Self {
        let mut every: Vec<_> = self.iter().chain(other.iter()).collect();
        every.sort_unstable_by_key(|run| run.start);
        let mut union = Self::default();
        for run in every {
            union.push(run);
        }
        union
    }

    /// What is in this one alone.
    pub(super) fn without(&self, other: &Self) -> Self {
        let mut rest = Self::default();
        let mut holes = other.0.iter().peekable();
        for run in self.iter() {
            let mut start = run.start;
            while holes.next_if(|hole| hole.end <= start).is_some() {}
            // The last hole of this run may reach into the next one: it is looked at, not taken.
            let mut ahead = holes.clone();
            while let Some(hole) = ahead.next_if(|hole| hole.start < run.end) {
                rest.push(start..hole.start.max(start));
                start = hole.end.min(run.end).max(start);
            }
            rest.push(start..run.end);
        }
        rest
    }

    /// What is in both.
    pub(super) fn common(&self, other: &Self) -> Self {
        self.without(&self.without(other))
    }

    /// The `most` largest runs.
    pub(super) fn largest(&self, most: usize) -> Self {
        let mut large = self.0.clone();
        large.sort_unstable_by_key(|run| std::cmp::Reverse(run.end - run.start));
        large.truncate(most);
        large.sort_unstable_by_key(|run| run.start);
        Self(large)
    }

    /// At most `most` runs, by closing the smallest gaps.
    pub(super) fn bridged(self, most: usize) -> Self {
        let Some(excess) = self.count().checked_sub(most.max(1)).filter(|n| *n > 0) else {
            return self;
        };
        let gap = |before: &Range<u64>, after: &Range<u64>| after.start - before.end;
        let pairs = || self.0.iter().zip(self.0.iter().skip(1));
        let mut gaps: Vec<_> = pairs().map(|(a, b)| gap(a, b)).collect();
        let (_, widest, _) = gaps.select_nth_unstable(excess - 1);
        let mut bridged = Self::default();
        for run in self.iter() {
            match bridged.0.last_mut() {
                Some(last) if gap(last, &run) <= *widest => last.end = run.end,
                _ => bridged.0.push(run),
            }
        }
        bridged
    }
}

#[cfg(test)]
#[path = "runs_test.rs"]
mod tests;
