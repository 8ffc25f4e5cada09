//! What all experiments are told on their command line.

use std::path::PathBuf;

use clap::Parser;

use crate::measure::Clock;
use crate::seed::Seed;

/// Options of an experiment's program.
#[derive(Debug, Clone, Parser)]
pub struct Options {
    /// Take fewer samples.
    #[arg(long)]
    pub quick: bool,
    /// Decides the order, in decimal or as 0x…; otherwise `FOREBAY_SEED`, else a new one.
    #[arg(long, value_name = "N", value_parser = seed)]
    pub seed: Option<u64>,
    /// How time passes here.
    #[arg(long, value_enum, default_value = "wall")]
    pub clock: Clock,
    /// Where to write what was measured, as JSON; otherwise below target/experiments.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Take one sample and tell what came of it: used by the program itself.
    #[arg(long, hide = true, value_name = "POINT")]
    pub(super) visit: Option<String>,
}

impl Options {
    /// Those that this program was started with. Ends the program if they make no sense.
    #[must_use]
    pub fn from_arguments() -> Self {
        Self::parse()
    }
}

fn seed(text: &str) -> Result<u64, String> {
    Seed::parse(text).ok_or_else(|| "a seed is a number, in decimal or as 0x…".to_owned())
}
