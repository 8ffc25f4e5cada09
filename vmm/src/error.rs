//! Why a VM could not be started, by fault: the caller's values, the host's KVM, the host's other
//! resources, or what the guest did while booting.
//!
//! What ends a VM that was running is not an error but a [`StopReason`].

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::guest_text::Escaped;
use crate::kvm::KvmError;
use crate::remedy;
use crate::stop::StopReason;

/// Why a VM could not be started. Nothing of the VM is left behind.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A value given to the builder is out of its bounds. Nothing was created.
    #[error(transparent)]
    Usage(#[from] UsageError),
    /// The host's KVM is missing, out of reach, or not able to run guests.
    #[error(transparent)]
    Kvm(#[from] KvmError),
    /// A system call of the host failed.
    #[error("the VM could not be started: {0}")]
    Host(#[from] HostError),
    /// The attach socket could not be set up.
    #[error(transparent)]
    Attach(#[from] forebay_exec::AttachError),
    /// The guest image could not be found or read.
    #[error(transparent)]
    Image(#[from] forebay_images::Error),
    /// The kernel file cannot be booted.
    #[error("kernel {}: {problem}", path.display())]
    Kernel {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: KernelProblem,
    },
    /// Kernel and initramfs do not fit into the guest's memory.
    #[error(
        "the initramfs needs {needed} bytes below 3 GiB but only {available} are free beside the \
         kernel: {}",
        if needed <= possible {
            "give the guest more memory or make the initramfs smaller"
        } else {
            "no guest has that much there, whatever memory it is given: make the initramfs smaller"
        }
    )]
    InitramfsTooLarge {
        /// Size of all layers together, in bytes.
        needed: u64,
        /// What is left above the kernel, in bytes.
        available: u64,
        /// What would be left in a guest of 3 GiB or more, in bytes.
        possible: u64,
    },
    /// The guest ran but did not get as far as it had to.
    #[error(transparent)]
    Boot(#[from] Box<BootFailure>),
}

/// A value out of its bounds: which, what it was, and what would do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} = {value}: {bound}")]
#[non_exhaustive]
pub struct UsageError {
    /// The builder's method.
    pub field: &'static str,
    /// The value as it was given, cut to a readable length.
    pub value: String,
    /// What is allowed.
    pub bound: String,
}

impl UsageError {
    /// Longest piece of a refused value that is worth printing, in characters.
    const VALUE_SHOWN: usize = 80;

    pub(crate) fn new(
        field: &'static str,
        value: impl fmt::Display,
        bound: impl Into<String>,
    ) -> Self {
        let mut value = value.to_string();
        if let Some((cut, _)) = value.char_indices().nth(Self::VALUE_SHOWN) {
            value.truncate(cut);
            value.push('…');
        }
        Self {
            field,
            value,
            bound: bound.into(),
        }
    }
}

/// A system call that failed, on what, and what to do about it where that is known.
#[derive(Debug, thiserror::Error)]
#[error(
    "{operation}{}: {}",
    on.as_deref().map(|on| format!(" ({on})")).unwrap_or_default(),
    remedy::explained(source)
)]
#[non_exhaustive]
pub struct HostError {
    /// What was being done, by the name of the call or of its purpose.
    pub operation: &'static str,
    /// The file, size or address it was done to, where there is one.
    pub on: Option<String>,
    /// The system's answer.
    pub source: io::Error,
}

impl HostError {
    pub(crate) fn new(operation: &'static str, source: impl Into<io::Error>) -> Self {
        Self {
            operation,
            on: None,
            source: source.into(),
        }
    }

    pub(crate) fn on(
        operation: &'static str,
        on: impl fmt::Display,
        source: impl Into<io::Error>,
    ) -> Self {
        Self {
            operation,
            on: Some(on.to_string()),
            source: source.into(),
        }
    }
}

/// Why a kernel file cannot be booted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelProblem {
    /// Neither an ELF file nor a bzImage; says what it looks like.
    #[error("not a kernel: {0}; an x86-64 `vmlinux` or `bzImage` (`vmlinuz`) is needed")]
    NotAKernel(&'static str),
    /// A kernel or program for another machine.
    #[error(
        "not a kernel for this machine: one for 64-bit x86 is needed (CONFIG_64BIT=y, not \
         another architecture)"
    )]
    WrongMachine,
    /// A bzImage that cannot be entered in 64-bit mode.
    #[error(
        "a bzImage with boot protocol {}.{:02}, where 2.12 is the oldest that can be entered in \
         64-bit mode: give a kernel of Linux 3.8 or newer",
        version >> 8,
        version & 0xff
    )]
    OldProtocol {
        /// Major number in the upper byte, minor in the lower.
        version: u16,
    },
    /// The file is shorter than its header says.
    #[error(
        "cut short: it has {len} bytes, and its header says {expected}; copy or build it again"
    )]
    CutShort {
        /// Its length, in bytes.
        len: u64,
        /// What its header says, in bytes.
        expected: u64,
    },
    /// The kernel does not fit into the guest's memory.
    #[error(
        "it needs {} MiB of guest memory to start in and there are {}: give the guest more with \
         `memory_mib`",
        needed.div_ceil(1 << 20),
        available >> 20
    )]
    NeedsMemory {
        /// End of what it needs below 3 GiB, in bytes.
        needed: u64,
        /// What the guest has there, in bytes.
        available: u64,
    },
    /// An ELF file without the PVH entry point.
    #[error(
        "an ELF file without a PVH entry point: if it is a kernel, build it with CONFIG_PVH=y; \
         if not, give an x86-64 `vmlinux` or `bzImage`"
    )]
    NoPvhEntry,
    /// A segment cannot be put where it belongs.
    #[error(
        "a segment lies outside the guest's memory, or the file is cut short: give the guest more \
         memory, or check the file"
    )]
    Segment,
    /// The headers make no sense.
    #[error("damaged: {0}")]
    Damaged(String),
    /// It could not be read.
    #[error("{}", remedy::explained(.0))]
    Unreadable(#[source] io::Error),
}

/// The guest ran, and ended or stood still before it was of use.
#[derive(Debug, thiserror::Error)]
#[error(
    "boot failed after {elapsed:.1?} while {phase}: {reason}{}\nconsole, last lines:\n{}",
    cause.map(|c| format!("\nlikely cause: {c}")).unwrap_or_default(),
    if console.is_empty() { Escaped("  (nothing)") } else { Escaped(console) }
)]
#[non_exhaustive]
pub struct BootFailure {
    /// How far it came.
    pub phase: BootPhase,
    /// Time since the start of the VM.
    pub elapsed: std::time::Duration,
    /// How it ended.
    pub reason: StopReason,
    /// The end of what the guest printed, a few kilobytes at most. It is shown with control
    /// characters escaped, and kept here as it is.
    pub console: String,
    /// What usually lies behind this, and what to do; `None` if nothing familiar was seen.
    pub cause: Option<&'static str>,
}

/// Stretch of a boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
pub enum BootPhase {
    /// No byte of console output yet, no device found.
    KernelStart,
    /// The kernel runs; the agent's port is not open.
    KernelToAgent,
    /// The agent opened its port; the handshake is not through.
    AgentHandshake,
}

impl fmt::Display for BootPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::KernelStart => "the kernel was starting (it has not found the console device)",
            Self::KernelToAgent => {
                "the kernel was running, before the agent in the guest opened its port"
            }
            Self::AgentHandshake => "the agent in the guest and the host were shaking hands",
        })
    }
}
