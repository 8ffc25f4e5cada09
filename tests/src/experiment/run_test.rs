use std::cell::Cell;
use std::future::pending;

use anyhow::Context as _;
use tempfile::TempDir;

use super::*;
use crate::measure::Clock;

/// An experiment of three repetitions at `how` being `a` and `b`, and where its outcome will be.
fn experiment() -> (Experiment, PathBuf, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("measured.json");
    let options = Options {
        quick: false,
        seed: Some(5),
        clock: Clock::Wall,
        out: Some(path.clone()),
        visit: None,
    };
    let experiment = Experiment::new("made-up", options)
        .factor("how", ["a", "b"])
        .repeat(3)
        .patience(Duration::from_millis(10));
    (experiment, path, directory)
}

/// Runs it with samples that fail at `b` as `fail` has it.
async fn failing_at_b(fail: impl AsyncFn(&mut Sample) -> Result<()>) -> Outcome {
    let (experiment, path, _directory) = experiment();
    let body = async |point: &Point, sample: &mut Sample| {
        if point.get::<String>("how")? == "b" {
            return fail(sample).await;
        }
        sample.record("size", "MiB", 1.0);
        Ok(())
    };
    experiment.run(body).await.unwrap();
    Outcome::read(&path).unwrap()
}

/// Why all samples at `b` failed, which is the same for each, while those at `a` did not.
fn failure(outcome: &Outcome) -> String {
    let mut reasons = Vec::new();
    for sample in &outcome.samples {
        let at_b = sample.point.get::<String>("how").unwrap() == "b";
        assert_eq!(sample.failure.is_some(), at_b, "{sample:?}");
        reasons.extend(sample.failure.clone());
    }
    assert!(reasons.len() >= 3, "{reasons:?}");
    reasons.dedup();
    assert_eq!(reasons.len(), 1, "{reasons:?}");
    reasons.remove(0)
}

#[tokio::test]
async fn every_point_is_sampled_so_often_after_one_sample_that_does_not_count() {
    let (experiment, path, _directory) = experiment();
    let visits = Cell::new(0);
    let body = async |_: &Point, sample: &mut Sample| {
        visits.set(visits.get() + 1);
        sample.record("size", "MiB", f64::from(visits.get()));
        Ok(())
    };
    experiment.run(body).await.unwrap();
    let outcome = Outcome::read(&path).unwrap();
    let rounds: Vec<_> = outcome.samples.iter().map(|sample| sample.round).collect();
    assert_eq!(rounds, [0, 1, 1, 2, 2, 3, 3]);
    let last = outcome.samples.last().unwrap();
    assert_eq!(last.values["size"], [7.0]);
    assert_eq!(outcome.seed, "0x5");
}

#[tokio::test]
async fn a_quick_run_repeats_three_times_at_most() {
    let (mut experiment, path, _directory) = experiment();
    experiment.options.quick = true;
    let body = async |_: &Point, sample: &mut Sample| {
        sample.record("size", "MiB", 1.0);
        Ok(())
    };
    experiment.repeat(100).run(body).await.unwrap();
    assert_eq!(Outcome::read(&path).unwrap().samples.len(), 1 + 3 * 2);
}

#[tokio::test]
async fn a_sample_that_ends_with_an_error_is_kept_with_what_it_recorded() {
    let outcome = failing_at_b(async |sample| {
        sample.record("size", "MiB", 9.0);
        let end: Result<()> = Err(anyhow!("the guest is gone"));
        end.context("cannot sample")
    })
    .await;
    assert_eq!(failure(&outcome), "cannot sample: the guest is gone");
    let failed = outcome
        .samples
        .iter()
        .find(|sample| sample.failure.is_some());
    assert_eq!(failed.unwrap().values["size"], [9.0]);
}

#[tokio::test]
async fn a_sample_that_panics_fails_and_the_next_is_taken() {
    let outcome = failing_at_b(async |_| panic!("no VM {}", "here")).await;
    assert_eq!(failure(&outcome), "it panicked: no VM here");
}

#[tokio::test]
async fn a_sample_without_an_end_fails_and_the_next_is_taken() {
    let outcome = failing_at_b(async |_| pending().await).await;
    assert_eq!(failure(&outcome), "no end within 10ms");
}

#[tokio::test]
async fn a_sample_that_records_nothing_has_failed() {
    let outcome = failing_at_b(async |_| Ok(())).await;
    assert_eq!(failure(&outcome), "it recorded nothing");
}

#[tokio::test]
async fn a_value_that_is_no_number_fails_its_sample_and_is_left_out() {
    let outcome = failing_at_b(async |sample| {
        sample.record("ratio", "", f64::NAN);
        Ok(())
    })
    .await;
    assert_eq!(failure(&outcome), "ratio is NaN");
}

#[tokio::test]
async fn a_measure_keeps_the_unit_that_it_was_first_recorded_in() {
    let (experiment, path, _directory) = experiment();
    let first = Cell::new(true);
    let body = async |_: &Point, sample: &mut Sample| {
        let unit = if first.take() { "MiB" } else { "KiB" };
        sample.record("size", unit, 1.0);
        Ok(())
    };
    experiment.run(body).await.unwrap();
    let outcome = Outcome::read(&path).unwrap();
    let failures: Vec<_> = outcome.failures().map(|(_, why)| why).collect();
    assert_eq!(failures, ["size was in MiB and is now in KiB"; 6]);
    assert_eq!(outcome.measures[0].unit, "MiB");
}

#[tokio::test]
async fn times_are_in_milliseconds_of_the_clock() {
    let (mut experiment, path, _directory) = experiment();
    experiment.options.clock = Clock::Instructions;
    let body = async |_: &Point, sample: &mut Sample| {
        sample.duration("wait", Duration::from_micros(1500));
        sample.time("nothing", async {}).await;
        Ok(())
    };
    experiment.run(body).await.unwrap();
    let outcome = Outcome::read(&path).unwrap();
    assert_eq!(outcome.samples[0].values["wait"], [1.5]);
    let units: Vec<_> = outcome
        .measures
        .iter()
        .map(|measure| &measure.unit)
        .collect();
    assert_eq!(units, ["virtual ms", "virtual ms"]);
}

#[tokio::test]
async fn a_point_that_cannot_be_is_not_visited_and_has_no_figure() {
    let (experiment, path, _directory) = experiment();
    let body = async |_: &Point, sample: &mut Sample| {
        sample.record("size", "MiB", 1.0);
        Ok(())
    };
    let only = experiment.only(|point| Ok(point.get::<String>("how")? == "b"));
    only.run(body).await.unwrap();
    let outcome = Outcome::read(&path).unwrap();
    assert_eq!(outcome.samples.len(), 1 + 3);
    let figures = outcome.figures();
    let [figure] = figures.as_slice() else {
        panic!("one point, {figures:?}");
    };
    assert_eq!(outcome.shown(&figure.point), "how b");
}

#[tokio::test]
async fn a_process_that_says_nothing_is_a_sample_that_failed() {
    let (experiment, path, _directory) = experiment();
    let body = async |_: &Point, _: &mut Sample| panic!("not in this process");
    // That process is this test's program, which does not know the option.
    experiment.apart().run(body).await.unwrap();
    let outcome = Outcome::read(&path).unwrap();
    assert_eq!(outcome.failures().count(), 1 + 3 * 2);
    for (_, why) in outcome.failures() {
        assert!(why.starts_with("the sample's process ended with"), "{why}");
    }
}

#[tokio::test]
async fn an_experiment_without_factors_or_repetitions_is_refused() {
    let body = async |_: &Point, _: &mut Sample| Ok(());
    let (experiment, _path, _directory) = experiment();
    assert!(experiment.repeat(0).run(body).await.is_err());
    let (mut experiment, _path, _directory) = self::experiment();
    experiment.factors.clear();
    assert!(experiment.run(body).await.is_err());
}
