//! What an experiment records of one visit of a point.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::measure::Clock;

/// Values of named measures. A measure has one unit in the whole experiment, and may be recorded
/// several times in a sample.
#[derive(Debug)]
pub struct Sample {
    clock: Clock,
    recorded: Vec<Recorded>,
}

/// One value.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Recorded {
    pub(super) measure: String,
    pub(super) unit: String,
    pub(super) value: f64,
}

impl Sample {
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            clock,
            recorded: Vec::new(),
        }
    }

    pub(super) fn into_recorded(self) -> Vec<Recorded> {
        self.recorded
    }

    /// How time passes where the sample is taken.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Records a value. One that is no finite number, or has another unit than before, makes the
    /// sample a failed one.
    pub fn record(&mut self, measure: &str, unit: &str, value: f64) {
        self.recorded.push(Recorded {
            measure: measure.to_owned(),
            unit: unit.to_owned(),
            value,
        });
    }

    /// Records a time, in milliseconds of the experiment's clock.
    pub fn duration(&mut self, measure: &str, duration: Duration) {
        let unit = self.clock.milliseconds();
        self.record(measure, unit, duration.as_secs_f64() * 1e3);
    }

    /// Waits for something and records how long that took.
    pub async fn time<T>(&mut self, measure: &str, what: impl IntoFuture<Output = T>) -> T {
        let started = Instant::now();
        let done = what.await;
        self.duration(measure, started.elapsed());
        done
    }
}
