//! A figure: what was measured, what it stands beside, where it should be; as JSON and as a row of
//! the table.

use std::fmt::Write;

use serde::Serialize;

use crate::bench::statistics::{Samples, number};

/// One measured quantity.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Figure {
    /// Its name, stable over versions.
    pub(crate) name: &'static str,
    /// The samples' unit.
    pub(crate) unit: &'static str,
    /// What exactly is measured, from where to where.
    pub(crate) what: String,
    #[serde(flatten)]
    ours: Series,
    #[serde(flatten)]
    beside: Option<Beside>,
    /// Our median over the other's median.
    ratio: Option<f64>,
    aim: Option<AimReport>,
    /// What keeps it from being better.
    bound_by: &'static str,
}

/// Samples with what is said of them.
#[derive(Debug, Clone, Serialize)]
struct Series {
    samples: Samples,
    min: f64,
    median: f64,
    max: f64,
}

impl From<Samples> for Series {
    fn from(samples: Samples) -> Self {
        Self {
            min: samples.min(),
            median: samples.median(),
            max: samples.max(),
            samples,
        }
    }
}

/// What a figure stands beside.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "snake_case")]
enum Beside {
    /// Another program doing the same.
    Peer(Reference),
    /// The same work with nothing of ours around it: what we cannot be better than.
    Floor(Reference),
}

#[derive(Debug, Clone, Serialize)]
struct Reference {
    /// What was measured.
    what: &'static str,
    #[serde(flatten)]
    series: Series,
}

/// Where a figure should be. Missing it is no failure.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Aim {
    /// Our median over the other's is at most this.
    RatioAtMost(f64),
    /// Our median over the other's is at least this.
    RatioAtLeast(f64),
    /// Our median is at most this, in the figure's unit.
    AtMost(f64),
}

#[derive(Debug, Clone, Serialize)]
struct AimReport {
    aim: String,
    met: bool,
}

impl Figure {
    /// A figure by itself.
    pub(crate) fn new(
        name: &'static str,
        unit: &'static str,
        what: impl Into<String>,
        samples: Samples,
        bound_by: &'static str,
    ) -> Self {
        Self {
            name,
            unit,
            what: what.into(),
            ours: samples.into(),
            beside: None,
            ratio: None,
            aim: None,
            bound_by,
        }
    }

    /// Puts it beside another program's.
    pub(crate) fn peer(self, what: &'static str, samples: &Samples) -> Self {
        self.beside(Beside::Peer, what, samples)
    }

    /// Puts it beside what it cannot be better than.
    pub(crate) fn floor(self, what: &'static str, samples: &Samples) -> Self {
        self.beside(Beside::Floor, what, samples)
    }

    fn beside(
        mut self,
        kind: impl FnOnce(Reference) -> Beside,
        what: &'static str,
        samples: &Samples,
    ) -> Self {
        let series = Series::from(samples.clone());
        self.ratio = Some(self.ours.median / series.median);
        self.beside = Some(kind(Reference { what, series }));
        self
    }

    /// Says where it should be.
    pub(crate) fn aim(mut self, aim: Aim) -> Self {
        let ratio = self.ratio.unwrap_or(f64::NAN);
        let (aim, met) = match aim {
            Aim::RatioAtMost(most) => (format!("<= {most} x"), ratio <= most),
            Aim::RatioAtLeast(least) => (format!(">= {least} x"), ratio >= least),
            Aim::AtMost(most) => (format!("<= {most} {}", self.unit), self.ours.median <= most),
        };
        self.aim = Some(AimReport { aim, met });
        self
    }

    fn row(&self) -> [String; 10] {
        let (other, min, median) = match &self.beside {
            Some(Beside::Peer(other) | Beside::Floor(other)) => (
                other.what.to_owned(),
                number(other.series.min),
                number(other.series.median),
            ),
            None => <(String, String, String)>::default(),
        };
        let (aim, met) = match &self.aim {
            Some(AimReport { aim, met }) => {
                (aim.clone(), if *met { "met" } else { "not met" }.to_owned())
            }
            None => <(String, String)>::default(),
        };
        [
            format!("{} [{}]", self.name, self.unit),
            self.ours.samples.count().to_string(),
            number(self.ours.min),
            number(self.ours.median),
            other,
            min,
            median,
            self.ratio
                .map_or_else(String::new, |ratio| format!("{ratio:.3}")),
            aim,
            met,
        ]
    }
}

const HEADINGS: [&str; 10] = [
    "figure", "n", "min", "median", "beside", "min", "median", "ratio", "aim", "",
];

/// All figures as a table for people, one row each, with a line under it per figure that says what
/// was measured and what bounds it.
pub(crate) fn table(figures: &[Figure]) -> String {
    let rows: Vec<_> = std::iter::once(HEADINGS.map(str::to_owned))
        .chain(figures.iter().map(Figure::row))
        .collect();
    let widths: Vec<_> = (0..HEADINGS.len())
        .map(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for ((cell, width), heading) in row.iter().zip(&widths).zip(HEADINGS) {
            // Words to the left, numbers to the right.
            let _ = if matches!(heading, "figure" | "beside" | "aim" | "") {
                write!(line, "{cell:<width$}  ")
            } else {
                write!(line, "{cell:>width$}  ")
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text.push('\n');
    for figure in figures {
        let _ = writeln!(
            text,
            "{}: {}. Bound by: {}.",
            figure.name, figure.what, figure.bound_by
        );
    }
    text
}

#[cfg(test)]
#[path = "report_test.rs"]
mod tests;
