//! `drain`: reads standard input to its end as fast as it comes, and throws it away.

use std::io::{self, Read};

use crate::Outcome;

/// A pipe's whole usual capacity at a time.
const BLOCK: usize = 64 * 1024;

pub(crate) fn run() -> Outcome {
    let mut stdin = io::stdin().lock();
    let mut block = vec![0; BLOCK];
    while stdin.read(&mut block)? > 0 {}
    Ok(0)
}
