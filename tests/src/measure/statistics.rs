//! Samples of one quantity and what is said of them.

use anyhow::{Result, bail};
use serde::Serialize;

/// One or more finite samples, in the order in which they were taken.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// Takes samples; `of` names the quantity should there be nothing to take.
    pub fn new(of: &str, values: Vec<f64>) -> Result<Self> {
        if values.is_empty() {
            bail!("{of}: no samples were taken");
        }
        if let Some(bad) = values.iter().find(|value| !value.is_finite()) {
            bail!("{of}: {bad} is no sample");
        }
        Ok(Self(values))
    }

    /// How many; never zero.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The least.
    pub fn min(&self) -> f64 {
        self.0.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// The greatest.
    pub fn max(&self) -> f64 {
        self.0.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }

    /// The least sample that `percent` of 100 of them do not exceed.
    pub fn percentile(&self, percent: usize) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let rank = (percent * sorted.len()).div_ceil(100);
        sorted[rank.clamp(1, sorted.len()) - 1]
    }

    /// The one in the middle, or the mean of the two there.
    pub fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        }
    }
}

/// Three significant digits or more, without an exponent.
pub fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
#[path = "statistics_test.rs"]
mod tests;
