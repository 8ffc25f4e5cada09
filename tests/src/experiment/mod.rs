//! Experiments: every combination of the levels of some factors, measured again and again in a random
//! order that a seed repeats.
//!
//! ```no_run
//! # use anyhow::Result;
//! use forebay_tests::{builder, experiment::{Experiment, Options}};
//!
//! # async fn example() -> Result<()> {
//! Experiment::new("boot-vs-memory", Options::from_arguments())
//!     .factor("memory_mib", [64, 128, 256])
//!     .repeat(10)
//!     .run(async |point, sample| {
//!         let vm = builder().memory_mib(point.get("memory_mib")?);
//!         let vm = sample.time("boot", vm.start()).await?;
//!         vm.close().await;
//!         Ok(())
//!     })
//!     .await
//! # }
//! ```
//!
//! An experiment is a program below `tests/examples/`, named as the experiment.
//! `cargo xtask experiment NAME` runs it where there is real KVM and has `forebay-report` write what
//! came of it; docs/experiments.md describes both and the files.
//!
//! | module | owns |
//! |---|---|
//! | `options` | what all experiments are told on their command line |
//! | `plan` | the points, and the order in which they are visited |
//! | `run` | taking samples; what failed, panicked or hung is kept as such |
//! | `sample` | what the experiment records of one visit |
//! | `apart` | a sample in a process of its own |
//! | [`outcome`] | all that was measured, as it is stored, and its figures |
//! | [`report`] | table, CSV, page |
//!
//! **Interleaving.** A repetition visits every point once, in an order of its own, so that whatever else
//! the host does hits all points alike. One visit more comes first and counts in no figure: it finds
//! files not yet read and memory not yet given.

mod apart;
mod options;
pub mod outcome;
mod plan;
pub mod report;
mod run;
mod sample;

pub use options::Options;
pub use plan::Point;
pub use run::Experiment;
pub use sample::Sample;
