//! Run commands in a forebay guest: admission, routing, and the async handles.
//!
//! ```text
//!  Client ── exec ──► Exec ── spawn ──► ExecHandle ── split ──► ExecSink, 2 × ExecReader, ExecExit
//!                       └─ .await ──► ExecOutput       └─ control ──► ExecControl
//!  ─────────────────────────────── Hub ───────────────────────────────
//!                  one lock around one protocol connection
//!  ───────── Link::transmit, next_to_guest │ judge, deliver ──────────
//!                              the VMM's device
//! ```
//!
//! This crate knows neither KVM nor virtio: the VMM gives frames to the [`Hub`] and pulls frames
//! from it. It does no protocol either: frames, credit, scheduling and the table of executions
//! are `forebay-exec-proto`'s. What is here is what needs a lock, a waker or a future.
//!
//! | module | owns |
//! |---|---|
//! | `hub` | the connection under its lock, wake-ups, the VMM's side |
//! | `sync` | the threading primitives: std's and tokio's, or loom's in the model tests |
//! | `waiting` | who waits for which half of an execution |
//! | `lease` | what keeps an execution alive, and what its end means |
//! | `adopt` | leaving an execution running, and taking one over |
//! | `attach` | the socket by which other processes run commands in the VM; both its ends |
//! | `client`, `exec` | the application's door; building, checking and starting a request |
//! | `resource`, `group_limits`, `terminal` | what a request may ask for beside words |
//! | `handle`, `reader`, `sink`, `control` | the handle and its parts |
//! | `output`, `status`, `usage`, `event`, `failure`, `signal`, `error` | results |
//! | `clock` | the time by which deadlines are kept and waits are measured |
//!
//! What to read first: [`Exec`] for what a request can say and what is different from
//! `std::process`, [`ExecOutput`] for how a command may end, with an example of each,
//! [`ExecHandle`] for talking to one while it runs.
//!
//! Memory is bounded by the VM's limits ([`Limits`]), whatever the guest sends and however long
//! the application does not read: unread output by `output_limit` per execution, stdin by what
//! the caller handed in. Nothing is queued here, but for the clients of an attach socket, where
//! `attach` says how much.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic
    )
)]

mod adopt;
mod attach;
mod chunks;
mod client;
mod clock;
mod control;
mod error;
mod event;
mod exec;
mod failure;
mod group_limits;
mod handle;
mod hub;
mod lease;
mod output;
mod reader;
mod resource;
mod signal;
mod sink;
mod status;
mod sync;
mod terminal;
mod usage;
mod waiting;

#[cfg(test)]
mod fake_guest;
#[cfg(all(test, feature = "loom"))]
mod loom_test;
#[cfg(test)]
mod runtime_test;
#[cfg(test)]
mod sink_model_test;
#[cfg(test)]
mod timeout_test;

#[cfg(feature = "test-support")]
#[doc(hidden)]
pub use attach::ClientsByHand;
pub use attach::{
    AttachError, AttachInspector, AttachServer, AttachSocket, CLIENTS_MAX, ConnectError,
};
pub use client::Client;
pub use control::ExecControl;
pub use error::{
    AdoptError, ControlError, ExecError, LeaveError, QuiesceError, RenewError, WriteError,
};
pub use event::ExecEvent;
pub use exec::{Exec, Stdin};
pub use failure::{Failure, FailureKind, StdinError};
pub use forebay_exec_proto::host::{
    Config, ConfigError, ExecView, Frame, Progress, RestoreError, RestoreOptions, SaveError,
    SavedConn, Stalls, Verdict, View,
};
pub use forebay_exec_proto::{
    ByteVec, EnvVar, ExecId, FRAME_MAX, HEADER_LEN, LimitError, Limits, QUIESCE, Ready, Renewal,
    Secret, Stream,
};
pub use group_limits::{GroupLimitError, GroupLimits};
pub use handle::{ExecExit, ExecHandle, ExecParts};
pub use hub::{Adopted, Hub, Link, QuiesceTicket};
pub use output::ExecOutput;
pub use reader::ExecReader;
pub use resource::{Resource, UnknownResource};
pub use signal::Signal;
pub use sink::ExecSink;
pub use status::{Exit, ExitStatus};
pub use terminal::TerminalSize;
pub use usage::Usage;
