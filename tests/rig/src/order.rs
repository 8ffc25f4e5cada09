//! What the host and L1's init say to each other: one order in a file, and reports as lines of JSON
//! on the control port.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How often L1 says that it is alive.
pub const HEARTBEAT: Duration = Duration::from_secs(5);

/// Where the order lies in L1.
pub const ORDER_PATH: &str = "/rig/order.json";

/// Names of the virtio-serial ports, as both sides know them.
pub mod port {
    /// Reports, one JSON object per line, from L1. The host never writes; when it goes away, L1
    /// powers off.
    pub const CONTROL: &str = "rig.control";
    /// The program's standard input: blocks, each after its length in four bytes, little endian; an
    /// empty one is the end.
    pub const STDIN: &str = "rig.stdin";
    /// The program's standard output.
    pub const STDOUT: &str = "rig.stdout";
    /// The program's standard error.
    pub const STDERR: &str = "rig.stderr";
    /// A tar archive of the files asked for, after its length in eight bytes, little endian.
    pub const FILES: &str = "rig.files";
    /// All of them, in the order of the emulator's command line.
    pub const ALL: [&str; 5] = [CONTROL, STDIN, STDOUT, STDERR, FILES];
}

/// What L1's init has to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Kernel modules to load, in this order.
    pub modules: Vec<String>,
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Its whole environment.
    pub env: Vec<(String, String)>,
    /// Its working directory.
    pub cwd: String,
    /// Whether its standard input is the host's.
    pub stdin: bool,
    /// Files to send back afterwards.
    pub outputs: Vec<String>,
    /// Whether to watch for the emulator's faults and to show life. Not where instructions are
    /// counted: one emulated processor has none of the known faults, and watching counts too.
    pub watched: bool,
}

/// What L1's init reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// L1 is up, `/dev/kvm` works, the program starts now.
    Ready,
    /// L1 still runs programs: said every [`HEARTBEAT`] from [`Ready`](Self::Ready) on.
    Alive,
    /// The program has ended and everything was sent.
    Ended {
        /// How.
        how: Ending,
        /// Bytes written to each port. The host waits for them: a report may overtake output.
        sent: Sent,
        /// Guest exits that may show a fault of the emulator, the first few as L1's kernel traced
        /// them; see [`RigOutcome::emulator_at_fault`](crate::RigOutcome::emulator_at_fault).
        mixed_up: Vec<String>,
    },
    /// The program was not run.
    Failed {
        /// Why, for a person.
        reason: String,
    },
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// By itself.
    Code(i32),
    /// By a signal.
    Signal(i32),
}

/// Bytes written to each port from L1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// [`port::STDOUT`].
    pub stdout: u64,
    /// [`port::STDERR`].
    pub stderr: u64,
    /// [`port::FILES`].
    pub files: u64,
}
