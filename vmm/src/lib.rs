//! Run Linux microVMs on KVM, inside your own process.
//!
//! No daemon, no helper process, no global state but for one signal handler (below); many VMs per
//! process; only `/dev/kvm` is needed, not root.
//!
//! | module | owns |
//! |---|---|
//! | [`vm`](Vm) | a VM that runs commands: a machine with the executions' hub at the agent's port |
//! | [`builder`](VmBuilder), [`cpu_template`](CpuTemplate), `exec_spec` | what a VM is to be, checked before anything is created |
//! | [`machine`](Machine), `reaper` | a VM without commands, from start to end: assembly, stop, drop |
//! | [`agent_port`], `agent`, `hub_side` | who stands at the host's end of the agent's port |
//! | `kvm`, [`probe()`], [`doctor`], `remedy` | is there a KVM, does it run guests, what to do if not |
//! | `memory`, `layout`, `boot` | the guest's RAM and what lies in it before the first instruction |
//! | `vcpu`, `vcpus` | virtual processors and their threads |
//! | [`pause`](PausedMachine) | a machine that stands still |
//! | [`snapshot`](SnapshotError) | a machine's state outside its memory, in a file and back |
//! | [`template`](Template), [`restore`](Restore) | a VM at one moment, and the VMs that start from it |
//! | `bus`, `devices`, `power` | who answers the guest's accesses |
//! | `event_loop`, `deadline` | the VM's own thread |
//! | [`console_log`](ConsoleLog), [`stop`](StopReason), [`boot_report`](BootReport), `diagnosis`, `guest_text` | what happened |
//!
//! # Commands
//! [`Vm::exec`] and [`Vm::shell`] make an [`Exec`]: there stands what a command can be asked for and
//! what is different from `std::process`. Awaiting it gives an [`ExecOutput`], where each way in which
//! a command can end has an example; [`Exec::spawn`] gives an [`ExecHandle`] to talk to it while it
//! runs.
//!
//! # Threads
//! Each VM has one thread per vCPU and one event loop. They block all signals, and a panic in one of
//! them ends that VM, never the process. An attach socket has one thread more, of which a panic ends
//! the socket alone. vCPUs are interrupted by `SIGSTKFLT`, which Linux itself never
//! sends. It is sent to one thread only and is open only while that thread is inside the guest, so
//! the program's signal handlers are not touched. But while a VM lives the number is ours: one that
//! is sent to the process may be taken by a vCPU and is then lost.
//!
//! # Copies
//! [`Vm::template`] and [`Vm::snapshot`] make what any number of VMs can start from, with the commands
//! that were running: see [`Template`], [`Restore`] and `docs/snapshot.md`.
//!
//! The first VM that starts from a snapshot's *file* installs a handler for `SIGBUS`, which the kernel
//! raises where a mapped file was cut. It answers only for the memory of such VMs, ends the one that it
//! happened to, and passes every other fault on to the handler that was there. Nothing else in the
//! library is the whole process's.
//!
//! # In a program that forks
//! All descriptors are close-on-exec. Guest memory is not inherited by a child and not part of a
//! core dump. A child that goes on without exec must leave its parent's VMs alone.

#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic
    )
)]

mod agent;
mod boot;
mod boot_report;
mod builder;
mod bus;
mod console_log;
mod cpu_template;
mod deadline;
mod devices;
mod diagnosis;
pub mod doctor;
mod error;
mod event_loop;
mod exec_spec;
mod guest_text;
mod hub_side;
mod inspect;
mod kvm;
mod layout;
mod machine;
mod memory;
mod pause;
mod power;
mod probe;
mod random;
mod reaper;
mod remedy;
mod restore;
mod snapshot;
mod stop;
mod template;
#[cfg(feature = "test-support")]
#[doc(hidden)]
pub mod test_support;
#[cfg(test)]
mod testing;
mod threads;
mod vcpu;
mod vcpus;
mod vm;

pub use boot_report::BootReport;
pub use builder::{
    BOOT_DEADLINE_MAX, CONSOLE_CAPACITY_MAX, CONSOLE_CAPACITY_MIN, CPUS_MAX, MEMORY_MIB_MAX,
    MEMORY_MIB_MIN, VmBuilder,
};
pub use console_log::{ConsoleLog, Tap};
pub use cpu_template::{CpuTemplate, CpuidRegister};
pub use error::{BootFailure, BootPhase, HostError, KernelProblem, StartError, UsageError};
pub use inspect::{ExecutionView, ExecutionsView, StallsView, VmView};
pub use kvm::KvmError;
pub use machine::{Machine, MachineView};
pub use memory::{MemoryFileError, MemoryUsage};
pub use pause::{PauseError, PausedMachine};
pub use probe::probe;
pub use restore::{Restore, Survivors};
pub use snapshot::{RecordProblem, RestoreError, SnapshotError, SnapshotReport};
pub use stop::StopReason;
pub use template::Template;
pub use vcpu::look::{Activity, VcpuView};
pub use vcpu::registers::Registers;
pub use vm::{Paused, Quiesced, Vm};

#[doc(no_inline)]
pub use forebay_exec::{
    AdoptError, Adopted, AttachError, AttachInspector, Client, ConnectError, ControlError, Exec,
    ExecControl, ExecError, ExecEvent, ExecExit, ExecHandle, ExecId, ExecOutput, ExecParts,
    ExecReader, ExecSink, Exit, ExitStatus, Failure, FailureKind, LeaveError, Limits, Progress,
    QuiesceError, Ready, RenewError, Renewal, Resource, Secret, Signal, Stdin, StdinError, Stream,
    TerminalSize, UnknownResource, Usage, WriteError,
};
#[doc(no_inline)]
pub use forebay_images::{Image, ImageConfig, MemoryNeed};

/// The agent's port, for a program that puts something else than executions behind it: see
/// [`VmBuilder::start_machine_with`].
pub mod agent_port {
    #[doc(no_inline)]
    pub use forebay_virtio_console::{Closed, Gate, HEADER_LEN, Outgoing, Verdict};
}

/// The README's examples, so that they keep compiling.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
mod readme {}

/// As the README's.
#[cfg(doctest)]
#[doc = include_str!("../../docs/snapshot.md")]
mod snapshots {}
