//! What to run in the rig. A plain value: nothing happens before [`run`](crate::run).

use std::path::{Path, PathBuf};
use std::time::Duration;

/// How time passes in L1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Clock {
    /// Wall-clock time, on as many emulated [processors](RigCommand::processors) as are asked for, each
    /// a thread. Code runs 10 to 30 times slower than on hardware and figures vary by a factor of two
    /// with the host's load.
    #[default]
    Wall,
    /// One nanosecond per instruction executed in L1 and L2 together, plus idle waits, on one
    /// processor. Figures of one-vCPU guests repeat to 0.1 % whatever the host does. About half as
    /// fast as [`Wall`](Self::Wall).
    Instructions,
}

/// Enough for a guest of 3 GiB and what else a test holds.
const MEMORY_MIB: u64 = 6144;

/// What of the host's memory may go to machines, in MiB.
fn memory_for_machines() -> u64 {
    let host = rustix::system::sysinfo();
    let bytes = host.totalram * u64::from(host.mem_unit);
    (bytes >> 20) * 3 / 4
}

fn default_memory_mib() -> u64 {
    MEMORY_MIB.min(memory_for_machines())
}

/// How many machines of default [memory](RigCommand::memory_mib) the host's memory is enough for.
#[must_use]
pub fn machines_in_memory() -> usize {
    usize::try_from(memory_for_machines() / MEMORY_MIB).map_or(1, |machines| machines.max(1))
}

/// One program to run in L1.
#[derive(Debug, Clone)]
pub struct RigCommand {
    pub(crate) argv: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) cwd: String,
    pub(crate) files: Vec<(PathBuf, String)>,
    pub(crate) outputs: Vec<String>,
    pub(crate) stdin: bool,
    pub(crate) clock: Clock,
    pub(crate) processors: u8,
    pub(crate) memory_mib: u64,
    pub(crate) boot_deadline: Duration,
    pub(crate) deadline: Duration,
}

impl RigCommand {
    /// Runs `program`. If that is a path (it has a slash), the file is packed from the host at the
    /// same absolute path with the libraries it needs; otherwise it is a command of L1's busybox or
    /// of a packed file on the path.
    pub fn new(program: impl Into<String>) -> Self {
        Self {
            argv: vec![program.into()],
            env: Vec::new(),
            cwd: "/".into(),
            files: Vec::new(),
            outputs: Vec::new(),
            stdin: false,
            clock: Clock::Wall,
            processors: 1,
            memory_mib: default_memory_mib(),
            boot_deadline: Duration::from_secs(180),
            deadline: Duration::from_secs(1800),
        }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<S: Into<String>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.argv.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets an environment variable. L1 has only `PATH`, `HOME`, `TMPDIR` and `FOREBAY_IN_RIG=1`
    /// otherwise.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Sets the working directory, which is created in L1 if it is not there. `/` by default.
    #[must_use]
    pub fn cwd(mut self, path: impl Into<String>) -> Self {
        self.cwd = path.into();
        self
    }

    /// Packs a file of the host, or a directory with all in it, at a path of L1. Dynamic programs
    /// bring their libraries.
    #[must_use]
    pub fn file(mut self, host: impl AsRef<Path>, l1: impl Into<String>) -> Self {
        self.files.push((host.as_ref().to_path_buf(), l1.into()));
        self
    }

    /// Brings a file or directory of L1 back when the program has ended, whatever its status. It is
    /// no error if it does not exist then.
    #[must_use]
    pub fn output(mut self, l1: impl Into<String>) -> Self {
        self.outputs.push(l1.into());
        self
    }

    /// Connects the program's standard input to this process's. Otherwise it reads nothing.
    #[must_use]
    pub fn inherit_stdin(mut self) -> Self {
        self.stdin = true;
        self
    }

    /// How time passes; [`Clock::Wall`] by default.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// How many processors L1 has under [`Clock::Wall`]; 1 by default, and at least 1.
    ///
    /// What runs side by side takes less time on two, and on two the emulator now and then breaks a
    /// guest: it notes the interrupt that a hypervisor injects as an exception under way, and delivers
    /// it a second time, masked or not, if another of its threads asks the processor to stop before
    /// the guest's next exit. Each processor's requests are another one's.
    #[must_use]
    pub fn processors(mut self, processors: u8) -> Self {
        self.processors = processors.max(1);
        self
    }

    /// L1's memory in MiB. By default 6144, or three quarters of the host's where that is less. The
    /// host gives what is touched, no more.
    #[must_use]
    pub fn memory_mib(mut self, mib: u64) -> Self {
        self.memory_mib = mib;
        self
    }

    /// How long the program may run, in real time, boot not counted; 30 minutes by default.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// How long L1 may take to boot, in real time; 3 minutes by default.
    #[must_use]
    pub fn boot_deadline(mut self, deadline: Duration) -> Self {
        self.boot_deadline = deadline;
        self
    }
}
