//! What tests, demo and benchmarks on real VMs have in common.
//!
//! ```no_run
//! # async fn example() -> Result<(), forebay::ExecError> {
//! use forebay_tests::{TestVm, Within, CEILING};
//!
//! let vm = TestVm::boot().await;
//! let out = vm.shell("echo hello").within(CEILING).await?;
//! assert_eq!(out.stdout(), b"hello\n");
//! # Ok(())
//! # }
//! ```
//!
//! | module | owns |
//! |---|---|
//! | `command` | the `forebay` command under test |
//! | `counter` | a command whose every byte is known |
//! | `child` | programs of this machine that do not outlive their test |
//! | `vm` | booting a guest from the test image; its console when a test fails |
//! | `pace` | ceilings of waits and numbers of rounds, scaled for slow places by one factor |
//! | `seed` | random numbers that a printed seed repeats |
//! | `digest` | SHA-256 of streams |
//! | `turn` | one test at a time, whatever the test runner's options |
//! | `memory_watch` | the most memory that this process held over a time |
//! | `executions` | following a command to its exit, and whether the VM is as before |
//! | `held` | what PID 1 of a guest holds: memory, descriptors, threads, control groups |
//! | [`measure`] | samples, tables and guests' work of benchmarks and experiments |
//! | [`experiment`] | experiments: levels of factors, samples in random order, the report |
//! | `host_use` | what this process holds: memory, descriptors, threads, mappings |
//!
//! | environment variable | says |
//! |---|---|
//! | `FOREBAY_IMAGE` | directory of the image to test; else this machine's default image |
//! | `FOREBAY_HELPER_LAYER` | initramfs layer with [`HELPER`], put on top of it |
//! | `FOREBAY_TIME_SCALE` | the factor of `pace`; else 1, or 20 in the rig |
//! | `FOREBAY_ROUNDS` | `all`: as many rounds in the rig as on hardware |
//! | `FOREBAY_SEED` | the seed of random tests; else a new one, printed |
//!
//! A test here fails where no VM can run; it is never skipped. `cargo xtask test` runs them where
//! one can.

#![forbid(unsafe_code)]

mod child;
mod command;
mod counter;
mod digest;
mod executions;
pub mod experiment;
mod held;
mod host_use;
pub mod measure;
mod memory_watch;
mod pace;
mod seed;
mod turn;
mod vm;

pub use child::Running;
pub use command::command;
pub use counter::{COUNT, Counters, assert_counts, counted};
pub use digest::{Sha256, sha256};
pub use executions::{assert_answers, assert_slots_come_free, assert_slots_in_use, to_its_exit};
pub use held::Held;
pub use host_use::{
    HostUse, guest_mappings, private_in_guests, resident_beyond_guests, resident_in_guests,
};
pub use memory_watch::MemoryWatch;
pub use pace::{CEILING, Within, in_rig, rounds, scaled};
pub use seed::Seed;
pub use turn::{Turn, turn};
pub use vm::{HELPER, SharedVm, TestVm, builder, helper_layer, image, tell_of_interrupts};
