//! All that an experiment measured, as it is stored, and the figures that follow from it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::experiment::plan::Point;
use crate::measure::Clock;
use crate::measure::statistics::Samples;

/// An experiment that was run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    /// Its name.
    pub experiment: String,
    /// What it measures, for people.
    pub about: String,
    /// The library's version.
    pub forebay: String,
    /// The digest of the guest image, if there was one.
    pub image: Option<String>,
    /// How time passed.
    pub clock: Clock,
    /// Whether fewer samples than usual were taken.
    pub quick: bool,
    /// What decided the order, in hexadecimal.
    pub seed: String,
    /// Visits of each point that count.
    pub repetitions: u32,
    /// The machine that ran it: in the rig the emulated one.
    pub machine: Machine,
    /// What was varied, in the order in which it was named.
    pub factors: Vec<Factor>,
    /// What was measured, in the order in which it was first recorded.
    pub measures: Vec<Measure>,
    /// Every sample, in the order in which they were taken.
    pub samples: Vec<Taken>,
}

/// Something that is varied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Factor {
    /// Its name.
    pub name: String,
    /// What it takes on, in the order given.
    pub levels: Vec<Value>,
}

/// Something that is measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measure {
    /// Its name.
    pub name: String,
    /// What its values are counted in.
    pub unit: String,
}

/// A sample that was taken, or failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Taken {
    /// The repetition, from 1; 0 counts in no figure.
    pub round: u32,
    /// Where.
    pub point: Point,
    /// The values of each measure. Those of a failed sample are from before its failure, and count in
    /// no figure.
    pub values: BTreeMap<String, Vec<f64>>,
    /// Why it failed.
    pub failure: Option<String>,
}

/// Facts of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name.
    pub processor: String,
    /// How many of it.
    pub processors: usize,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// The kernel's release.
    pub kernel: String,
    /// Whether it is the rig's emulated one.
    pub emulated: bool,
}

/// What is said of one measure at one point.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// Where.
    pub point: Point,
    /// Of what.
    pub measure: String,
    /// In what.
    pub unit: String,
    /// Samples that failed there.
    pub failed: usize,
    /// What the others say; nothing if all failed or none recorded this.
    #[serde(flatten)]
    pub values: Option<Values>,
}

/// Values in brief.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Values {
    /// How many.
    pub n: usize,
    /// The least.
    pub min: f64,
    /// The one in the middle.
    pub median: f64,
    /// The least that 95 of 100 do not exceed.
    pub p95: f64,
    /// The greatest.
    pub max: f64,
}

impl Outcome {
    /// Reads one that was [written](Self::write).
    ///
    /// # Errors
    /// If the file cannot be read or understood.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read(path).with_context(|| format!("read {}", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("understand {}", path.display()))
    }

    /// Writes it as JSON, with the directory if it is not there.
    ///
    /// # Errors
    /// If that is refused.
    pub fn write(&self, path: &Path) -> Result<()> {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)
                .with_context(|| format!("make {}", directory.display()))?;
        }
        let text = serde_json::to_vec_pretty(self)?;
        fs::write(path, text).with_context(|| format!("write {}", path.display()))
    }

    /// The samples that failed.
    pub fn failures(&self) -> impl Iterator<Item = (&Taken, &str)> {
        let samples = self.samples.iter();
        samples.filter_map(|sample| Some((sample, sample.failure.as_deref()?)))
    }

    /// Each measure at each point that was visited, the measures in their order, the points in theirs.
    #[must_use]
    pub fn figures(&self) -> Vec<Figure> {
        let mut points = super::plan::points(&self.factors).unwrap_or_default();
        points.retain(|point| self.samples.iter().any(|sample| sample.point == *point));
        let at = |point, measure| self.figure(point, measure);
        let measures = self.measures.iter();
        measures
            .flat_map(|measure| points.iter().map(move |point| at(point, measure)))
            .collect()
    }

    fn figure(&self, point: &Point, measure: &Measure) -> Figure {
        let there = self.samples.iter().filter(|sample| sample.point == *point);
        let failed = there.filter(|sample| sample.failure.is_some()).count();
        let values = Samples::new(&measure.name, self.values(point, &measure.name));
        Figure {
            point: point.clone(),
            measure: measure.name.clone(),
            unit: measure.unit.clone(),
            failed,
            values: values.ok().map(|values| Values {
                n: values.count(),
                min: values.min(),
                median: values.median(),
                p95: values.percentile(95),
                max: values.max(),
            }),
        }
    }

    /// The values of a measure at a point that count, in the order in which they were taken.
    #[must_use]
    pub fn values(&self, point: &Point, measure: &str) -> Vec<f64> {
        let count = |sample: &&Taken| sample.round > 0 && sample.failure.is_none();
        let there = self.samples.iter().filter(|sample| sample.point == *point);
        let values = there
            .filter(count)
            .filter_map(|sample| sample.values.get(measure));
        values.flatten().copied().collect()
    }

    /// A point as a person would say it.
    #[must_use]
    pub fn shown(&self, point: &Point) -> String {
        let factors = self.factors.iter();
        let levels = factors.map(|factor| {
            let name = &factor.name;
            format!("{name} {}", level(point.level(name)))
        });
        levels.collect::<Vec<_>>().join(", ")
    }
}

/// A level without the quotes of a text.
pub(super) fn level(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

impl Machine {
    /// This one.
    #[must_use]
    pub fn here() -> Self {
        let info = rustix::system::sysinfo();
        let names = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let name = names.lines().find_map(|line| {
            let (field, name) = line.split_once(':')?;
            (field.trim() == "model name").then(|| name.trim().to_owned())
        });
        Self {
            processor: name.unwrap_or_else(|| "unknown".to_owned()),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            memory_mib: (info.totalram * u64::from(info.mem_unit)) >> 20,
            kernel: rustix::system::uname()
                .release()
                .to_string_lossy()
                .into_owned(),
            emulated: crate::pace::in_rig(),
        }
    }
}

#[cfg(test)]
#[path = "outcome_test.rs"]
mod tests;
