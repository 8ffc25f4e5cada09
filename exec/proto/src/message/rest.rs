//! Bodies of the frames by which the guest as a whole is brought to rest and renewed.

use alloc::string::String;

use minicbor::{Decode, Encode};

/// Asks the agent to freeze everything that executions run, host to guest. Answered by
/// [`Answer`] when all of it stands still, or nothing does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Quiesce {
    /// The answer repeats it.
    #[n(0)]
    pub seq: u64,
    /// How long the agent may try, milliseconds of guest time.
    #[n(1)]
    pub limit_ms: u32,
}

/// Tells the guest the time after it may have stood still, and who it is from here on, host to
/// guest; then what was frozen goes on. Answered by [`Answer`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Renew {
    /// The answer repeats it.
    #[n(0)]
    pub seq: u64,
    /// The host's wall clock, nanoseconds since 1970.
    #[n(1)]
    pub wall_ns: u64,
    /// `None` to a guest that goes on as the one that it was.
    #[n(2)]
    pub renewal: Option<Renewal>,
}

/// What makes a copy of a guest another guest.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Renewal {
    /// Fresh randomness for the guest's kernel.
    #[n(0)]
    pub entropy: Secret,
    /// Told to programs as `/run/generation`: no two copies have the same.
    #[n(1)]
    #[cbor(with = "minicbor::bytes")]
    pub generation: [u8; 16],
    /// The hostname from here on, 1 to 64 bytes; `None` keeps it.
    #[n(2)]
    pub hostname: Option<String>,
}

/// 32 bytes that are shown to nobody.
#[derive(Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(transparent)]
pub struct Secret(
    #[n(0)]
    #[cbor(with = "minicbor::bytes")]
    pub [u8; 32],
);

impl core::fmt::Debug for Secret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// What came of a [`Quiesce`] or [`Renew`], guest to host.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Answer {
    /// The number of what it answers.
    #[n(0)]
    pub seq: u64,
    /// Why it was not done, at most [`TEXT_MAX`](crate::TEXT_MAX) bytes; `None` if it was.
    #[n(1)]
    pub error: Option<String>,
}
