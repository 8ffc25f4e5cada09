//! One line per value, in the order in which they were taken; a failed sample without values has a
//! line of its own.

use std::fmt::Write as _;

use crate::experiment::outcome::{Outcome, Taken, level};

/// Heading and lines.
pub(super) fn text(outcome: &Outcome) -> String {
    let factors = outcome.factors.iter().map(|factor| factor.name.as_str());
    let heading = ["sample", "round"].into_iter().chain(factors);
    let heading = heading.chain(["measure", "unit", "value", "failure"]);
    let mut text = line(heading.map(str::to_owned));
    for (number, sample) in outcome.samples.iter().enumerate() {
        for [measure, unit, value] in values(outcome, sample) {
            let levels = outcome.factors.iter();
            let levels = levels.map(|factor| level(sample.point.level(&factor.name)));
            let failure = sample.failure.clone().unwrap_or_default();
            text += &line(
                [number.to_string(), sample.round.to_string()]
                    .into_iter()
                    .chain(levels)
                    .chain([measure, unit, value, failure]),
            );
        }
    }
    text
}

/// Measure, unit and value of each; of a sample without values one that is empty.
fn values(outcome: &Outcome, sample: &Taken) -> Vec<[String; 3]> {
    let mut rows = Vec::new();
    for measure in &outcome.measures {
        for value in sample.values.get(&measure.name).into_iter().flatten() {
            rows.push([
                measure.name.clone(),
                measure.unit.clone(),
                value.to_string(),
            ]);
        }
    }
    if rows.is_empty() {
        rows.push(Default::default());
    }
    rows
}

/// Cells as RFC 4180 has them, but for the line's end.
fn line(cells: impl Iterator<Item = String>) -> String {
    let mut text = String::new();
    for (index, cell) in cells.enumerate() {
        if index > 0 {
            text.push(',');
        }
        if cell.contains([',', '"', '\n', '\r']) {
            let _ = write!(text, "\"{}\"", cell.replace('"', "\"\""));
        } else {
            text.push_str(&cell);
        }
    }
    text.push('\n');
    text
}
