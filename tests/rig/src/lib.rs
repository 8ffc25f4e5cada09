//! The rig: runs host binaries inside an emulated machine that has real KVM.
//!
//! Some machines have no `/dev/kvm`, or one that cannot run an unmodified kernel. QEMU's instruction
//! emulator offers AMD's virtualisation extension with nested paging to its guest, so a distribution
//! kernel in it (level 1, *L1*) has a `/dev/kvm` that is the real thing, only slow. [`run`] boots such
//! an L1, runs one program of the host in it and gives back what it printed, how it ended and the
//! files asked for.
//!
//! ```text
//! host                          │ L1 (emulated)                        │ L2
//! run() ── initramfs ───────────┼─▶ forebay-rig-init (PID 1)           │
//!   │      program, libraries,  │     holds idle VMs open              │
//!   │      files, order.json    │     runs the program ── /dev/kvm ────┼─▶ guests under test
//!   ◀── console (serial) ───────┤                                      │
//!   ◀── control, stdout, stderr,┤ virtio-serial ports                  │
//!       stdin, files            │                                      │
//! ```
//!
//! | module | owns |
//! |---|---|
//! | [`RigCommand`] | what to run, with what, for how long |
//! | [`Assets`] | the emulator, the L1 kernel, its modules, busybox, our init: found, fetched, cached |
//! | `emulator` | which emulator it is |
//! | `pack` | the initramfs of one run: files, trees, the libraries programs need |
//! | `qemu` | the emulator's command line and process |
//! | `ends` | the threads behind the emulator's ports |
//! | `run` | one run from start to end: events, deadlines, diagnosis |
//! | `scratch` | directories of runs, removed also after a run that was killed |
//! | [`ends_with_us`] | children that do not outlive us |
//! | [`order`] | what host and L1 init say to each other |
//!
//! Time in the rig is not time: see [`Clock`].

mod assets;
mod bound;
mod command;
mod emulator;
mod ends;
mod error;
pub mod order;
mod pack;
mod qemu;
mod run;
mod scratch;

pub use assets::{Assets, PACKAGES};
pub use bound::ends_with_us;
pub use command::{Clock, RigCommand, machines_in_memory};
pub use error::{Error, Result};
pub use run::{Event, RigOutcome, Status, run};
