//! The points of an experiment, and the order in which they are visited.

use anyhow::{Context as _, Result, ensure};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::experiment::outcome::Factor;
use crate::seed::Seed;

/// One level of each factor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Point(Map<String, Value>);

impl Point {
    /// The level of a factor, as whatever it can be read as: a number, a text, an enum of the
    /// experiment's own.
    ///
    /// # Errors
    /// If there is no such factor, or its level is something else.
    pub fn get<T: DeserializeOwned>(&self, factor: &str) -> Result<T> {
        let level = self.0.get(factor);
        let level = level.with_context(|| format!("the experiment has no factor {factor:?}"))?;
        serde_json::from_value(level.clone())
            .with_context(|| format!("{factor} is {level}, which is something else"))
    }

    /// The level as it was given.
    pub(super) fn level(&self, factor: &str) -> &Value {
        self.0.get(factor).unwrap_or(&Value::Null)
    }
}

/// Every combination of the levels, the last factor's changing fastest.
///
/// # Errors
/// If there is nothing to combine, or two factors cannot be told apart.
pub(super) fn points(factors: &[Factor]) -> Result<Vec<Point>> {
    ensure!(!factors.is_empty(), "an experiment needs a factor");
    let mut points = vec![Point(Map::new())];
    for (index, factor) in factors.iter().enumerate() {
        let name = &factor.name;
        ensure!(!factor.levels.is_empty(), "factor {name} has no levels");
        let twice = factors.iter().take(index).any(|other| other.name == *name);
        ensure!(!twice, "there are two factors {name}");
        points = points
            .iter()
            .flat_map(|point| {
                factor.levels.iter().map(|level| {
                    let mut point = point.clone();
                    point.0.insert(name.clone(), level.clone());
                    point
                })
            })
            .collect();
    }
    Ok(points)
}

/// One visit of a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Visit {
    /// The repetition, from 1; 0 is the visit that counts in no figure.
    pub(super) round: u32,
    /// The point's index.
    pub(super) point: usize,
}

/// All visits: one that does not count, then in each repetition every point once.
pub(super) fn visits(points: usize, repetitions: u32, seed: &mut Seed) -> Vec<Visit> {
    let mut order: Vec<usize> = (0..points).collect();
    let mut visits = Vec::new();
    for round in 1..=repetitions {
        shuffle(&mut order, seed);
        if round == 1 {
            let first = order.first().map(|&point| Visit { round: 0, point });
            visits.extend(first);
        }
        visits.extend(order.iter().map(|&point| Visit { round, point }));
    }
    visits
}

/// Every order is as likely as any other.
fn shuffle(order: &mut [usize], seed: &mut Seed) {
    for last in (1..order.len()).rev() {
        let other = seed.below(last as u64 + 1) as usize;
        order.swap(last, other);
    }
}

#[cfg(test)]
#[path = "plan_test.rs"]
mod tests;
