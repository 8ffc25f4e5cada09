//! The attach socket: other processes run commands in the VM, by the same API.
//!
//! ```text
//!  other process                              the program that has the VM
//!  Client ─ Hub ─ Conn ═══ Unix socket ═══ Peer ──► Relayed ── Lease ── Hub ─ Conn ─ guest
//!          forebay-client                  forebay-attach
//! ```
//!
//! A connection begins with the server's 64-byte preamble, which names the VM's limits, and then
//! speaks the protocol of `forebay-exec-proto` exactly as a VM's port does: the client is the
//! host's end, the server the guest's. So a client is judged by the code that judges in an agent,
//! and everything that may wait has its place in that code's bounds.
//!
//! Nothing is queued in between. Output stays in the VM's connection until the client's socket
//! can take it, and stays charged, and kept for whoever adopts the execution, until the client's
//! application consumed it. Stdin stays in the client's ring here until the guest's command has
//! read it. Each end of that is told the totals of the other, so the allowances hold end to end.
//!
//! What a client does wrong ends its own connection and kills its own executions; those that it has
//! left are not its own any more. No client can stop the server from reading another, and none from
//! writing. A client costs the VM's program:
//!
//! | what | at most |
//! |---|---|
//! | write buffer | 32 KiB |
//! | a request that comes in | 1 MiB, and its words while it is decoded |
//! | requests that the guest has not read | 1 MiB; what goes beyond is refused |
//! | stdin that a command has not read | `input_limit` per execution, and the one chunk of it that is on its way |
//! | output that was not read | the `output_limit` of each execution, which is the VM's own |
//! | signals without room in the VM's control queue | sixteen, and those of the last receive of 32 KiB; with sixteen it is not read on |
//! | sizes of terminals without room there | the newest of each execution |
//!
//! | module | owns |
//! |---|---|
//! | `socket`, `lock` | the file: its permissions, who may replace it, who removes it |
//! | `preamble`, `last_words` | the first 64 bytes; the frame that says why a connection ends |
//! | `refusal` | a refused start or adoption as a message and back |
//! | `server` | the thread: who is accepted, and the end |
//! | `clients` | whoever is attached: greeting, fair turns, parting |
//! | `complaints` | how often that may be logged |
//! | `peer` | one client at the server: its bytes, its executions, its faults |
//! | `relayed` | one execution between the two connections |
//! | `bell` | what wakes the server's thread |
//! | `by_hand` | the same without thread and socket file, for tests and fuzzing |
//! | `connection` | the client's end: its thread, and [`Client::connect`](crate::Client::connect) |
//! | `inspect` | a look at the VM for a client: the answer, and who asks for it |
//! | `inbox` | the client's reading of the stream, frame by frame |
//! | `stream`, `thread` | sending and receiving without blocking; a thread without signals |

mod bell;
#[cfg(any(test, feature = "test-support"))]
#[cfg_attr(not(feature = "test-support"), allow(unreachable_pub))]
mod by_hand;
mod clients;
mod complaints;
mod connection;
mod error;
mod inbox;
mod inspect;
mod last_words;
mod lock;
mod peer;
mod preamble;
mod refusal;
mod relayed;
mod server;
mod socket;
mod stream;
mod thread;

#[cfg(feature = "test-support")]
pub use by_hand::ClientsByHand;
pub use clients::CLIENTS_MAX;
pub use error::{AttachError, ConnectError};
pub use inspect::AttachInspector;
pub use server::AttachServer;
pub use socket::AttachSocket;

pub(crate) use inspect::EXECUTIONS_MAX;
pub(crate) use refusal::{capacity, not_adopted};

#[cfg(test)]
mod tests;
