//! Why a machine's state was not saved, or not restored.

use std::path::PathBuf;

use forebay_exec::{AttachError, QUIESCE, QuiesceError, RenewError, SaveError};

use crate::error::{HostError, UsageError};
use crate::guest_text;
use crate::kvm::KvmError;
use crate::memory::MemoryFileError;
use crate::pause::PauseError;
use crate::stop::StopReason;

/// Why there is no snapshot. Nothing that could be taken for one is left behind.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The VM ended before all of it was saved.
    #[error("there is no snapshot, the VM has ended: {reason}")]
    Ended {
        /// How.
        reason: StopReason,
    },
    /// The thread of a vCPU did not say what it holds.
    #[error("there is no snapshot: vCPU {vcpu} did not answer in time; the host is overloaded")]
    Silent {
        /// The vCPU.
        vcpu: usize,
    },
    /// There is one already, or a part of one. VMs may be running from it, so it was left alone.
    #[error(
        "there is no new snapshot: {} is there already; take another directory, or remove what is in \
         it once no VM runs from it",
        path.display()
    )]
    Exists {
        /// The file that is in the way.
        path: PathBuf,
    },
    /// The agent did not freeze what runs in the guest.
    #[error("there is no snapshot: {0}")]
    Quiesce(#[from] QuiesceError),
    /// The guest's agent is one that could not make a copy another guest.
    #[error(
        "there is no snapshot: the guest's agent does not have the capability {QUIESCE:?}, by which a \
         copy gets entropy, time and identity of its own; rebuild the guest image"
    )]
    Agent,
    /// Somebody let the guest go on before it stood still.
    #[error("there is no snapshot: the guest was let go on meanwhile; take it again")]
    Thawed,
    /// The guest has just reset its console device, and the executions' side does not know yet.
    #[error("there is no snapshot: the guest is resetting the agent's port; take it again")]
    Resetting,
    /// The guest did not come to stand still.
    #[error("there is no snapshot: {0}")]
    Pause(#[from] PauseError),
    /// The agent's connection is not such that it could be gone on with.
    #[error("there is no snapshot: {0}")]
    Executions(#[from] SaveError),
    /// The state is larger than what is ever read back.
    #[error(
        "there is no snapshot: the state would have {bytes} bytes, of which at most {most} are read \
         back; have the output of executions read and their stdin written in smaller pieces"
    )]
    TooLarge {
        /// What there is to save.
        bytes: u64,
        /// The most there may be.
        most: u64,
    },
    /// The host's KVM is out of reach by now.
    #[error("there is no snapshot: {0}")]
    Kvm(#[from] KvmError),
    /// A system call of the host failed.
    #[error("there is no snapshot: {0}")]
    Host(#[from] HostError),
}

/// Why a snapshot was not restored. Nothing of the VM is left, and no vCPU has run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// Something else than a state file.
    #[error("this is no snapshot of a VM: its state file does not begin like one")]
    NotASnapshot,
    /// Another version of the file.
    #[error(
        "the snapshot's state file has version {found}, this library reads {supported}; restore it \
         with the library that saved it"
    )]
    Version {
        /// What was found.
        found: u32,
        /// What is read.
        supported: u32,
    },
    /// Saved on another kind of machine.
    #[error("the snapshot was saved on `{found}`, and this host is `{host}`; restore it there")]
    Architecture {
        /// What was found.
        found: String,
        /// What this host is.
        host: &'static str,
    },
    /// The file is not as long as it says.
    #[error(
        "the snapshot's state file has {found} bytes and not the {expected} that it should have: it \
         was cut or written to; take the snapshot again"
    )]
    Length {
        /// What there is.
        found: u64,
        /// What its header says.
        expected: u64,
    },
    /// The file says that it is larger than any.
    #[error("the snapshot's state file has {bytes} bytes, of which at most {most} are read")]
    TooLarge {
        /// Its length.
        bytes: u64,
        /// The most there may be.
        most: u64,
    },
    /// The checksum does not match.
    #[error("the snapshot's state file is damaged (checksum); take the snapshot again")]
    Damaged,
    /// A part of the file that this library does not know, or expected and did not find.
    #[error("the snapshot's record `{record}` {problem}")]
    Record {
        /// Its name.
        record: String,
        /// What is wrong with it.
        problem: RecordProblem,
    },
    /// A VM like the one that was saved cannot be booted: what that one was booted from is not what
    /// it was.
    #[error(
        "the VM was booted from {}, which {why}; to boot one from other files name them to a builder",
        path.display()
    )]
    Origin {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The guest uses what this host's processor, or its KVM, does not have.
    #[error(
        "the guest was given a processor feature that this host's KVM does not offer: CPUID leaf \
         {leaf:#x}.{subleaf}, {register} bits {bits:#010x}; restore it on a host like the one that \
         saved it, or start VMs that are to move with these features masked"
    )]
    CpuFeature {
        /// The leaf.
        leaf: u32,
        /// The subleaf.
        subleaf: u32,
        /// The register.
        register: &'static str,
        /// The bits that are missing here.
        bits: u32,
    },
    /// Another maker's processor.
    #[error(
        "the guest was saved on a processor of `{found}`, and this host's is of `{host}`; restore it \
         on one of the same maker"
    )]
    CpuVendor {
        /// The guest's.
        found: String,
        /// This host's.
        host: String,
    },
    /// The guest's processor addresses more memory.
    #[error(
        "the guest was given {found} bits of physical address, and this host has {host}; restore it \
         on a host with as many"
    )]
    AddressBits {
        /// The guest's.
        found: u32,
        /// This host's.
        host: u32,
    },
    /// The guest's time stamp counter counts at another speed, which this host cannot imitate.
    #[error(
        "the guest's time stamp counter counts at {saved} kHz, this host's at {host} kHz, and its \
         processor does not scale; restore it on a host of the same speed"
    )]
    TscFrequency {
        /// The guest's.
        saved: u32,
        /// This host's.
        host: u32,
    },
    /// KVM does not take a register's value.
    #[error(
        "this host's KVM does not take the value {value:#x} for the guest's MSR {index:#x}; restore \
         it on a host with the same processor and kernel"
    )]
    Msr {
        /// The register.
        index: u32,
        /// What was saved of it.
        value: u64,
    },
    /// The guest's agent is one that could not make a copy another guest.
    #[error(
        "the snapshot's guest has an agent without the capability {QUIESCE:?}, by which a copy gets \
         entropy, time and identity of its own; take a snapshot of a guest with a newer image"
    )]
    Agent,
    /// The executions' state cannot be gone on with.
    #[error(transparent)]
    Executions(#[from] forebay_exec::RestoreError),
    /// A value given for the new VM is out of its bounds.
    #[error(transparent)]
    Usage(#[from] UsageError),
    /// The attach socket could not be set up.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The guest ran, and its agent did not make it another one in time.
    #[error("the VM was restored, but {0}")]
    Renew(#[from] RenewError),
    /// The guest ran, and ended before its agent had made it another one.
    #[error(
        "the VM was restored, but its guest ended before it was ready: {reason}{}",
        guest_text::console(console)
    )]
    Ended {
        /// How.
        reason: StopReason,
        /// The last lines that it printed since.
        console: String,
    },
    /// The machine's shape is none that a VM can have.
    #[error("the snapshot is of a machine that there cannot be: {rule}")]
    Machine {
        /// What is wrong.
        rule: &'static str,
    },
    /// The console device's state is none that a device could have.
    #[error(transparent)]
    Device(#[from] forebay_virtio::RestoreError),
    /// The memory's file is not that of the snapshot, or cannot be read.
    #[error(transparent)]
    Memory(#[from] MemoryFileError),
    /// The host's KVM is missing, out of reach, or not able to run guests.
    #[error(transparent)]
    Kvm(#[from] KvmError),
    /// A system call of the host failed, or KVM refused a value.
    #[error("the snapshot could not be restored: {0}")]
    Host(#[from] HostError),
}

/// What is wrong with a record of a state file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordProblem {
    /// This library does not know it, or nothing of this VM takes it.
    #[error(
        "is unknown to this library, which would forget it; restore the snapshot with the library \
         that saved it"
    )]
    Unknown,
    /// There is none.
    #[error("is missing; take the snapshot again")]
    Missing,
    /// There are two.
    #[error("is there twice; take the snapshot again")]
    Duplicate,
    /// Another version of it.
    #[error(
        "has version {found}, this library reads {supported}; restore the snapshot with the library \
         that saved it"
    )]
    Version {
        /// What was found.
        found: u32,
        /// What is read.
        supported: u32,
    },
    /// Its bytes are not what was written.
    #[error("cannot be read: {0}; take the snapshot again")]
    Malformed(String),
    /// It says what cannot be.
    #[error("contradicts itself: {0}; take the snapshot again")]
    Rule(&'static str),
}

impl RestoreError {
    pub(crate) fn record(record: &str, problem: RecordProblem) -> Self {
        Self::Record {
            record: record.to_owned(),
            problem,
        }
    }

    /// A record breaks a rule.
    pub(crate) fn rule(record: &str, rule: &'static str) -> Self {
        Self::record(record, RecordProblem::Rule(rule))
    }

    pub(crate) fn malformed(record: &str, reason: impl Into<String>) -> Self {
        Self::record(record, RecordProblem::Malformed(reason.into()))
    }
}
