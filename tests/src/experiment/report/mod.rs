//! What becomes of an experiment's outcome: `result.json` with everything, `samples.csv` with the raw
//! values, `report.html` with plots, and a table for the terminal.
//!
//! Written on the host by `forebay-report`, which alone sees the host's load: in the rig an experiment
//! sees only the emulated machine.
//!
//! | module | owns |
//! |---|---|
//! | `csv` | one line per value |
//! | `page` | the page: what was asked, what came of it, how far to trust it |
//! | `plot` | one measure over the first factor, every value visible |

mod csv;
mod page;
mod plot;

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Serialize;

use crate::experiment::outcome::{Figure, Machine, Outcome, Taken, level};
use crate::measure::table::{Cell, Table};

/// The columns of a table after a point's levels.
const FIGURES: [&str; 6] = ["n", "min", "median", "p95", "max", "failed"];

/// An outcome, and where it came about.
#[derive(Debug, Serialize)]
pub struct Report {
    /// What was measured.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Where.
    pub host: Host,
}

/// The machine on which somebody asked for the experiment, in the rig the one around it.
#[derive(Debug, Serialize)]
pub struct Host {
    /// What kind of place the experiment ran in: this machine, or the rig.
    pub place: String,
    /// The cargo profile in which the experiment was built.
    pub profile: String,
    /// When it began, in UTC.
    pub began: String,
    /// The version that was built.
    pub commit: String,
    /// Processes that wanted a processor over 1, 5 and 15 minutes, before and after.
    pub load_before: String,
    /// See there.
    pub load_after: String,
    /// What else must be known.
    pub notes: Vec<String>,
    /// The machine itself.
    pub machine: Machine,
}

/// `result.json`.
#[derive(Serialize)]
struct Everything<'a> {
    #[serde(flatten)]
    report: &'a Report,
    figures: &'a [Figure],
}

impl Report {
    /// Writes the files into a directory, which is made if it is not there.
    ///
    /// # Errors
    /// If that is refused, or a plot cannot be drawn.
    pub fn write(&self, directory: &Path) -> Result<()> {
        let figures = self.outcome.figures();
        let everything = Everything {
            report: self,
            figures: &figures,
        };
        fs::create_dir_all(directory).with_context(|| format!("make {}", directory.display()))?;
        for (name, text) in [
            ("result.json", serde_json::to_string_pretty(&everything)?),
            ("samples.csv", csv::text(&self.outcome)),
            ("report.html", page::html(self, &figures)?),
        ] {
            let path = directory.join(name);
            fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        }
        Ok(())
    }

    /// For a terminal: what must be known, a table per measure, the failures.
    #[must_use]
    pub fn text(&self) -> String {
        let outcome = &self.outcome;
        let mut text = format!("\n{}\n{}\n\n", outcome.about, self.trust());
        for table in self.tables() {
            text.push_str(&table.markdown());
            text.push('\n');
        }
        for failure in self.failures() {
            text.push_str(&failure);
            text.push('\n');
        }
        text
    }

    /// A table per measure.
    fn tables(&self) -> Vec<Table> {
        let outcome = &self.outcome;
        let names = outcome.factors.iter().map(|factor| factor.name.as_str());
        let columns: Vec<&str> = names.chain(FIGURES).collect();
        let figures = outcome.figures();
        let measures = outcome.measures.iter();
        measures
            .map(|measure| {
                let what = format!("In {}.", measure.unit);
                let mut table = Table::new(&measure.name, what, &columns);
                for figure in figures
                    .iter()
                    .filter(|figure| figure.measure == measure.name)
                {
                    table.row(self.row(figure));
                }
                table
            })
            .collect()
    }

    /// The levels of a figure's point, then [`FIGURES`].
    fn row(&self, figure: &Figure) -> Vec<Cell> {
        let factors = self.outcome.factors.iter();
        let levels = factors.map(|factor| level(figure.point.level(&factor.name)).into());
        let values = figure.values.as_ref();
        let of = |number: Option<f64>| Cell::from(number);
        levels
            .chain([
                values.map_or(0, |values| values.n).to_string().into(),
                of(values.map(|values| values.min)),
                of(values.map(|values| values.median)),
                of(values.map(|values| values.p95)),
                of(values.map(|values| values.max)),
                figure.failed.to_string().into(),
            ])
            .collect()
    }

    /// How far the figures can be trusted.
    fn trust(&self) -> String {
        let outcome = &self.outcome;
        let emulated = outcome.machine.emulated;
        let mut text = outcome.clock.explained_where(emulated).to_owned();
        if emulated {
            text += " Measured in the rig: these are not times of hardware.";
        }
        if outcome.quick {
            text += " A quick run: few samples.";
        }
        for note in &self.host.notes {
            text.push(' ');
            text += note;
        }
        text
    }

    /// A line for each sample that failed.
    fn failures(&self) -> Vec<String> {
        let outcome = &self.outcome;
        let line = |(sample, why): (&Taken, &str)| {
            let point = outcome.shown(&sample.point);
            format!("failed: {point}, repetition {}: {why}", sample.round)
        };
        outcome.failures().map(line).collect()
    }
}

#[cfg(test)]
#[path = "report_test.rs"]
mod tests;
