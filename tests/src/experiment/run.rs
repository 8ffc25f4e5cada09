//! Taking the samples of an experiment. Whatever a sample ends with (an error, a panic, no end at all)
//! is kept as that sample's failure, and the next one is taken.

use std::any::Any;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use serde_json::Value;

use crate::experiment::apart::{self, Visited};
use crate::experiment::options::Options;
use crate::experiment::outcome::{Factor, Machine, Measure, Outcome, Taken};
use crate::experiment::plan::{Point, points, visits};
use crate::experiment::sample::{Recorded, Sample};
use crate::measure::PATIENCE;
use crate::measure::statistics::{Samples, number};
use crate::seed::Seed;

/// Repetitions unless said, and the most with `--quick`.
const USUALLY: u32 = 10;
const QUICKLY: u32 = 3;

/// What is varied, how often, and what it is about.
#[derive(Debug)]
#[must_use = "nothing is measured before `run`"]
pub struct Experiment {
    name: String,
    about: String,
    options: Options,
    factors: Vec<Factor>,
    only: fn(&Point) -> Result<bool>,
    repetitions: u32,
    patience: Duration,
    apart: bool,
}

impl Experiment {
    /// One without factors, ten repetitions. Its name is that of its program.
    pub fn new(name: impl Into<String>, options: Options) -> Self {
        Self {
            name: name.into(),
            about: String::new(),
            options,
            factors: Vec::new(),
            only: |_| Ok(true),
            repetitions: USUALLY,
            patience: PATIENCE,
            apart: false,
        }
    }

    /// What is measured, from where to where: a sentence for whoever reads the report.
    pub fn about(mut self, about: impl Into<String>) -> Self {
        self.about = about.into();
        self
    }

    /// Something that is varied, and the levels it takes on. The first factor is the plots' x axis, the
    /// others make their series.
    pub fn factor<L: Into<Value>>(
        mut self,
        name: impl Into<String>,
        levels: impl IntoIterator<Item = L>,
    ) -> Self {
        self.factors.push(Factor {
            name: name.into(),
            levels: levels.into_iter().map(Into::into).collect(),
        });
        self
    }

    /// Leaves out the points of which `which` says no: combinations that cannot be.
    pub fn only(mut self, which: fn(&Point) -> Result<bool>) -> Self {
        self.only = which;
        self
    }

    /// How often each point is visited; with `--quick` three times at most.
    pub fn repeat(mut self, times: u32) -> Self {
        self.repetitions = times;
        self
    }

    /// How long a sample may take before it has failed; two minutes unless said.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Takes each sample in a process of its own, for what depends on what this process did before:
    /// memory that an earlier sample gave back to the allocator hides what a later one takes. The
    /// program up to [`run`](Self::run) is run for each sample.
    pub fn apart(mut self) -> Self {
        self.apart = true;
        self
    }

    /// Visits every point of the experiment, has `body` take a sample there, and writes the outcome.
    ///
    /// A sample that ends with an error, panics, takes too long or records nothing has failed. That is
    /// said at once and in the outcome, and is no error of this function.
    ///
    /// # Errors
    /// If there is nothing to measure, or the outcome cannot be written.
    pub async fn run(
        self,
        mut body: impl AsyncFnMut(&Point, &mut Sample) -> Result<()>,
    ) -> Result<()> {
        if let Some(point) = &self.options.visit {
            apart::end_with_parent()?;
            let point = serde_json::from_str(point).context("understand the point to visit")?;
            return apart::tell(&self.visit(&point, &mut body).await);
        }
        let mut visited = Vec::new();
        for point in points(&self.factors)? {
            if (self.only)(&point)? {
                visited.push(point);
            }
        }
        ensure!(!visited.is_empty(), "an experiment without points");
        let repetitions = if self.options.quick {
            self.repetitions.min(QUICKLY)
        } else {
            self.repetitions
        };
        ensure!(repetitions > 0, "an experiment of no repetitions");
        let mut seed = self.options.seed.map_or_else(Seed::chosen, Seed::new);
        let mut outcome = self.outcome(repetitions, &seed);
        let visits = visits(visited.len(), repetitions, &mut seed);
        eprintln!(
            "{}: {} points, {repetitions} repetitions, in the order of seed {seed}; --seed {seed} \
             repeats it",
            self.name,
            visited.len()
        );
        let (last, width) = (visits.len() - 1, visits.len().to_string().len());
        for (number, visit) in visits.iter().enumerate() {
            let point = &visited[visit.point];
            let came = if self.apart {
                apart::visit(point).unwrap_or_else(|error| Visited {
                    recorded: Vec::new(),
                    failure: Some(format!("{error:#}")),
                })
            } else {
                self.visit(point, &mut body).await
            };
            let taken = outcome.take(visit.round, point, came);
            eprintln!(
                "[{number:width$}/{last}] {}: {}",
                outcome.shown(point),
                said(&taken, &outcome.measures)
            );
            outcome.samples.push(taken);
        }
        let path = self.path();
        outcome.write(&path)?;
        eprintln!("{}: measured; {}", self.name, path.display());
        Ok(())
    }

    /// Takes a sample in this process.
    async fn visit(
        &self,
        point: &Point,
        body: &mut impl AsyncFnMut(&Point, &mut Sample) -> Result<()>,
    ) -> Visited {
        let mut sample = Sample::new(self.options.clock);
        let ended = within(self.patience, body(point, &mut sample)).await;
        Visited {
            recorded: sample.into_recorded(),
            failure: ended.err().map(|error| format!("{error:#}")),
        }
    }

    fn outcome(&self, repetitions: u32, seed: &Seed) -> Outcome {
        Outcome {
            experiment: self.name.clone(),
            about: self.about.clone(),
            forebay: env!("CARGO_PKG_VERSION").to_owned(),
            image: crate::vm::find_image()
                .ok()
                .map(|image| image.digest().to_owned()),
            clock: self.options.clock,
            quick: self.options.quick,
            seed: seed.to_string(),
            repetitions,
            machine: Machine::here(),
            factors: self.factors.clone(),
            measures: Vec::new(),
            samples: Vec::new(),
        }
    }

    fn path(&self) -> PathBuf {
        let usual = || format!("target/experiments/{}/measured.json", self.name).into();
        self.options.out.clone().unwrap_or_else(usual)
    }
}

impl Outcome {
    /// What is kept of a sample.
    fn take(&mut self, round: u32, point: &Point, visited: Visited) -> Taken {
        let mut values: BTreeMap<_, Vec<_>> = BTreeMap::new();
        let mut failure = visited.failure;
        if visited.recorded.is_empty() {
            failure.get_or_insert_with(|| "it recorded nothing".to_owned());
        }
        for recorded in visited.recorded {
            match self.admit(&recorded) {
                Ok(()) => values
                    .entry(recorded.measure)
                    .or_default()
                    .push(recorded.value),
                Err(why) => {
                    failure.get_or_insert_with(|| format!("{why:#}"));
                }
            }
        }
        Taken {
            round,
            point: point.clone(),
            values,
            failure,
        }
    }

    /// A value is finite, and in the unit in which its measure was first recorded.
    fn admit(&mut self, recorded: &Recorded) -> Result<()> {
        let Recorded {
            measure,
            unit,
            value,
        } = recorded;
        ensure!(value.is_finite(), "{measure} is {value}");
        match self.measures.iter().find(|known| known.name == *measure) {
            Some(known) if known.unit != *unit => {
                bail!("{measure} was in {} and is now in {unit}", known.unit)
            }
            Some(_) => {}
            None => self.measures.push(Measure {
                name: measure.clone(),
                unit: unit.clone(),
            }),
        }
        Ok(())
    }
}

/// Runs a sample to its end, whichever way it ends.
async fn within(patience: Duration, sample: impl Future<Output = Result<()>>) -> Result<()> {
    let mut sample = pin!(sample);
    let caught = poll_fn(|context| {
        // It is not polled again after a panic.
        let polled = AssertUnwindSafe(|| sample.as_mut().poll(context));
        catch_unwind(polled).unwrap_or_else(|panic| Poll::Ready(Err(reason(&*panic))))
    });
    match tokio::time::timeout(patience, caught).await {
        Ok(ended) => ended,
        Err(_) => bail!("no end within {patience:?}"),
    }
}

fn reason(panic: &(dyn Any + Send)) -> anyhow::Error {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    anyhow!(
        "it panicked: {}",
        text.unwrap_or("with something else than text")
    )
}

/// A sample in a line: its failure, or the median of each of its measures.
fn said(taken: &Taken, measures: &[Measure]) -> String {
    if let Some(why) = &taken.failure {
        return format!("FAILED: {why}");
    }
    let medians = measures.iter().filter_map(|Measure { name, unit }| {
        let values = Samples::new(name, taken.values.get(name)?.clone()).ok()?;
        Some(format!("{name} {} {unit}", number(values.median())))
    });
    let text = medians.collect::<Vec<_>>().join(", ");
    if taken.round == 0 {
        text + " (counts in no figure)"
    } else {
        text
    }
}

#[cfg(test)]
#[path = "run_test.rs"]
mod tests;
