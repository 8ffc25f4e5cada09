//! A failing set is shrunk and printed by proptest; to replay a seed, set `PROPTEST_RNG_SEED`.

use super::*;
use proptest::prelude::*;

/// The runs of the marked bytes.
fn of(marked: &[bool]) -> Runs {
    let mut runs = Runs::default();
    for (at, _) in marked.iter().enumerate().filter(|(_, marked)| **marked) {
        runs.push(at as u64..at as u64 + 1);
    }
    runs
}

fn marks(runs: &Runs, len: usize) -> Vec<bool> {
    let mut marks = vec![false; len];
    for run in runs.iter() {
        marks[run.start as usize..run.end as usize].fill(true);
    }
    marks
}

fn sets() -> impl Strategy<Value = (Vec<bool>, Vec<bool>)> {
    (1_usize..80).prop_flat_map(|len| {
        let set = || prop::collection::vec(any::<bool>(), len);
        (set(), set())
    })
}

proptest! {
    #[test]
    fn union_and_difference_are_those_of_the_sets((a, b) in sets()) {
        let pairs = || a.iter().zip(&b);
        let either: Vec<_> = pairs().map(|(a, b)| *a || *b).collect();
        let first: Vec<_> = pairs().map(|(a, b)| *a && !*b).collect();
        prop_assert_eq!(of(&a).union(&of(&b)), of(&either));
        let both: Vec<_> = pairs().map(|(a, b)| *a && *b).collect();
        prop_assert_eq!(of(&a).without(&of(&b)), of(&first));
        prop_assert_eq!(of(&a).common(&of(&b)), of(&both));
        prop_assert_eq!(of(&a).bytes(), a.iter().filter(|a| **a).count() as u64);
    }

    #[test]
    fn bridging_keeps_every_page_and_adds_no_more_than_the_smallest_gaps(
        (a, _) in sets(),
        most in 1_usize..10,
    ) {
        let runs = of(&a);
        let bridged = runs.clone().bridged(most);
        prop_assert!(bridged.count() <= most);
        prop_assert!(runs.without(&bridged).is_empty());
        if runs.count() <= most {
            prop_assert_eq!(&bridged, &runs);
        }
        // No gap that was closed is wider than one that was left.
        let gaps = |runs: &Runs| -> Vec<u64> {
            runs.0.windows(2).map(|pair| pair[1].start - pair[0].end).collect()
        };
        let closed = bridged.without(&runs);
        let widest = closed.iter().map(|run| run.end - run.start).max().unwrap_or(0);
        prop_assert!(gaps(&bridged).iter().all(|gap| *gap >= widest));
        prop_assert_eq!(marks(&bridged, a.len()).len(), a.len());
    }

    #[test]
    fn the_largest_runs_are_the_largest((a, _) in sets(), most in 0_usize..5) {
        let runs = of(&a);
        let largest = runs.largest(most);
        prop_assert_eq!(largest.count(), most.min(runs.count()));
        prop_assert!(largest.without(&runs).is_empty());
        let len = |run: Range<u64>| run.end - run.start;
        let least = largest.iter().map(len).min().unwrap_or(u64::MAX);
        prop_assert!(runs.without(&largest).iter().all(|run| len(run) <= least));
    }
}
