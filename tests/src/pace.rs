//! How long to wait and how often to repeat, here and in slower places.
//!
//! Figures in tests are for real hardware. In the rig, where everything is 10 to 30 times slower,
//! one factor stretches every ceiling and divides every number of rounds by at most ten. Counts of
//! bytes and the order of events never change.

use std::future::{Future, IntoFuture};
use std::panic::Location;
use std::sync::OnceLock;
use std::time::Duration;

/// Sets the factor; a positive whole number.
const VARIABLE: &str = "FOREBAY_TIME_SCALE";

/// Set to `all`, has as many rounds run here as on hardware.
const ROUNDS: &str = "FOREBAY_ROUNDS";

/// Set by the rig for all that runs in it.
const IN_RIG: &str = "FOREBAY_IN_RIG";

/// The rig's factor unless [`VARIABLE`] is set.
const RIG_SCALE: u32 = 20;

/// Least part of the rounds that is run anywhere.
const MOST_DIVIDED: u32 = 10;

/// For anything that ends by itself on a sound system: passing it is a hang.
pub const CEILING: Duration = Duration::from_secs(10);

/// Whether this is the rig.
#[must_use]
pub fn in_rig() -> bool {
    std::env::var_os(IN_RIG).is_some()
}

fn scale() -> u32 {
    static SCALE: OnceLock<u32> = OnceLock::new();
    *SCALE.get_or_init(|| match std::env::var(VARIABLE) {
        Ok(text) => match text.parse() {
            Ok(scale) if scale > 0 => scale,
            _ => panic!("{VARIABLE} is {text:?}; it has to be a positive whole number"),
        },
        Err(_) if in_rig() => RIG_SCALE,
        Err(_) => 1,
    })
}

/// A ceiling for hardware, stretched for this place.
#[must_use]
pub fn scaled(ceiling: Duration) -> Duration {
    ceiling * scale()
}

/// A number of rounds for hardware, cut for this place to a tenth at most; never zero. Not cut where
/// `FOREBAY_ROUNDS` is `all`.
///
/// # Panics
/// If that variable is anything else.
#[must_use]
pub fn rounds(on_hardware: u32) -> u32 {
    match std::env::var(ROUNDS).as_deref() {
        Ok("all") => on_hardware,
        Ok(other) => panic!("{ROUNDS} is {other:?}; it can be `all`"),
        Err(_) => (on_hardware / scale().min(MOST_DIVIDED)).max(1),
    }
}

/// Waiting with a ceiling.
pub trait Within: IntoFuture + Sized {
    /// The future's value, if it comes within `ceiling` (as on hardware; it is [`scaled`]).
    ///
    /// # Panics
    /// When it does not: a hang. The message names the caller's line.
    #[track_caller]
    fn within(self, ceiling: Duration) -> impl Future<Output = Self::Output> {
        let caller = Location::caller();
        let ceiling = scaled(ceiling);
        async move {
            match tokio::time::timeout(ceiling, self).await {
                Ok(value) => value,
                Err(_) => panic!("hang: nothing within {ceiling:?}, waited for at {caller}"),
            }
        }
    }
}

impl<F: IntoFuture> Within for F {}
