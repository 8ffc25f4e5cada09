//! How long steps report what they do, without knowing whether a terminal watches.
//!
//! The builders of this crate take a [`Progress`]; the command line implements it with bars, plain
//! lines or nothing.

/// Receives what a build does.
pub trait Progress: Sync {
    /// A step begins. `total` is its length in units of its own (objects, bytes, entries), where it
    /// is known or can be estimated.
    fn step(&self, title: &str, total: Option<u64>) -> Box<dyn Step>;

    /// Something a person should know that is no step: a fallback that was taken.
    fn note(&self, text: &str);
}

/// One step under way. Dropping it without [`finish`](Self::finish) means that it failed.
pub trait Step: Send {
    /// How far it is, in the units of its total. May go beyond an estimated total.
    fn advance(&mut self, done: u64);

    /// It is done; `outcome` is a few words (a size, a version).
    fn finish(self: Box<Self>, outcome: &str);
}

/// Reports nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Quiet;

impl Progress for Quiet {
    fn step(&self, _: &str, _: Option<u64>) -> Box<dyn Step> {
        Box::new(QuietStep)
    }

    fn note(&self, _: &str) {}
}

struct QuietStep;

impl Step for QuietStep {
    fn advance(&mut self, _: u64) {}
    fn finish(self: Box<Self>, _: &str) {}
}
