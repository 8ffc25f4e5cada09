//! What an execution used.

use std::time::Duration;

use forebay_exec_proto as proto;
use serde::{Deserialize, Serialize};

/// What an execution used until its first process ended, as far as the guest could find out.
/// `None` is not known, never zero.
///
/// CPU time and peak memory are those of the execution's control group: every process in it, also
/// those that nobody waited for. The others are those of the first process and the children that
/// it waited for, as `getrusage(2)` counts them.
///
/// Serialized by the names of its fields, the times as `user_time_us` and `system_time_us` in
/// microseconds; what is not known is null, and may be missing when it is read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Usage {
    /// CPU time in user mode, in steps of a microsecond.
    #[serde(rename = "user_time_us", with = "micros")]
    pub user_time: Option<Duration>,
    /// CPU time in the kernel, likewise.
    #[serde(rename = "system_time_us", with = "micros")]
    pub system_time: Option<Duration>,
    /// The most memory held at a time, in bytes. Counts the page cache that it filled, which the
    /// kernel would have given up under pressure, and what is charged in advance: up to 256 KiB
    /// for each CPU, and 1 MiB where the execution has no limits of its own.
    pub peak_memory: Option<u64>,
    /// Page faults that needed I/O.
    pub major_faults: Option<u64>,
    /// How often the scheduler took the CPU away.
    pub involuntary_switches: Option<u64>,
    /// Bytes that it read with system calls, from wherever.
    pub read_bytes: Option<u64>,
    /// Bytes that it wrote with system calls, to wherever.
    pub written_bytes: Option<u64>,
}

impl From<&proto::Usage> for Usage {
    fn from(usage: &proto::Usage) -> Self {
        Self {
            user_time: usage.user_us.map(Duration::from_micros),
            system_time: usage.system_us.map(Duration::from_micros),
            peak_memory: usage.peak_memory,
            major_faults: usage.major_faults,
            involuntary_switches: usage.involuntary_switches,
            read_bytes: usage.read_bytes,
            written_bytes: usage.written_bytes,
        }
    }
}

/// A time as whole microseconds.
mod micros {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(
        time: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let micros = time.map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
        micros.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        Ok(Option::deserialize(deserializer)?.map(Duration::from_micros))
    }
}
