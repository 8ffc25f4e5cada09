//! Bodies of the frames that carry more than a number: CBOR maps with integer keys.
//!
//! An unknown key is skipped and a missing optional one is `None`, so that a newer peer can add
//! fields. Not so in a [`Request`]: what it asks for is done whole or refused. Byte strings are bytes: argv, environment and paths of a Linux program need not be
//! UTF-8.

mod adoption;
mod rest;

use alloc::string::String;
use alloc::vec::Vec;

pub use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

use crate::limits::Limits;
use crate::{REQUEST_MAX, TEXT_MAX, WORD_CHARGE};

pub use adoption::{Adopted, Leave, TimedOut, Timeout};
pub use rest::{Answer, Quiesce, Renew, Renewal, Secret};

/// One environment variable.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct EnvVar {
    /// Name: not empty, without `=` and NUL.
    #[n(0)]
    pub key: ByteVec,
    /// Value, without NUL.
    #[n(1)]
    pub value: ByteVec,
}

/// First message of a connection, host to guest.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Bootstrap {
    /// Protocol generation of the host.
    #[n(0)]
    pub generation: u32,
    /// Number of this connection in the VM's life; Ready repeats it.
    #[n(1)]
    pub connection: u64,
    /// Limits that hold for every execution.
    #[n(2)]
    pub limits: Limits,
    /// Hostname to set, if any.
    #[n(3)]
    pub hostname: Option<String>,
    /// Environment that every execution starts from.
    #[n(4)]
    pub env: Vec<EnvVar>,
    /// Working directory of executions that name none.
    #[n(5)]
    pub cwd: Option<ByteVec>,
    /// What each execution may take at most, where its request does not say.
    #[n(6)]
    pub resources: Option<Resources>,
}

/// The agent's answer to the bootstrap, guest to host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
#[cbor(map)]
pub struct Ready {
    /// Protocol generation of the agent.
    #[n(0)]
    pub generation: u32,
    /// Number of the connection that this answers.
    #[n(1)]
    pub connection: u64,
    /// The limits that the agent obeys; must equal the bootstrap's. An agent that leaves the
    /// field out promises nothing and is refused.
    #[n(2)]
    pub exec_limits: Option<Limits>,
    /// Version of the agent.
    #[n(3)]
    pub version: String,
    /// Kernel start to the agent's first instruction, microseconds of guest time.
    #[n(4)]
    pub pid1_us: Option<u64>,
    /// Kernel start to this message, microseconds of guest time.
    #[n(5)]
    pub ready_us: Option<u64>,
    /// What the agent can do that not every one can, by name; see [`CAPABILITIES`]. A name that
    /// this end does not know is a newer agent's, and no matter.
    #[n(6)]
    #[cbor(decode_with = "decode_capabilities")]
    pub capabilities: Option<Vec<String>>,
}

impl Ready {
    /// Whether the agent announced this capability.
    #[must_use]
    pub fn can(&self, capability: &str) -> bool {
        let announced = self.capabilities.iter().flatten();
        announced.into_iter().any(|name| name == capability)
    }
}

/// The capability of an agent that takes [`Quiesce`] and [`Renew`].
pub const QUIESCE: &str = "quiesce";

/// Every capability that this library knows, by the names that agents announce.
pub const CAPABILITIES: [&str; 1] = [QUIESCE];

/// Capabilities that one agent may announce.
const CAPABILITIES_MAX: usize = 64;

/// Decodes as many names as an agent may announce.
pub(crate) fn decode_names<C>(
    decoder: &mut minicbor::Decoder<'_>,
    ctx: &mut C,
) -> Result<Vec<String>, minicbor::decode::Error> {
    let mut names = Vec::new();
    for name in decoder.array_iter_with(ctx)? {
        if names.len() == CAPABILITIES_MAX {
            return Err(minicbor::decode::Error::message("too many capabilities"));
        }
        names.push(name?);
    }
    Ok(names)
}

fn decode_capabilities<C>(
    decoder: &mut minicbor::Decoder<'_>,
    ctx: &mut C,
) -> Result<Option<Vec<String>>, minicbor::decode::Error> {
    if decoder.datatype()? == minicbor::data::Type::Null {
        decoder.skip()?;
        return Ok(None);
    }
    decode_names(decoder, ctx).map(Some)
}

/// What a command's stdin is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
#[cbor(index_only)]
pub enum StdinMode {
    /// `/dev/null`: end of file at once.
    #[default]
    #[n(0)]
    Null,
    /// A pipe fed by the host.
    #[n(1)]
    Pipe,
}

/// Decodes as many words as a request can pay for.
fn words<'b, C, T: Decode<'b, C>>(
    decoder: &mut minicbor::Decoder<'b>,
    ctx: &mut C,
) -> Result<Vec<T>, minicbor::decode::Error> {
    const MOST: usize = REQUEST_MAX / WORD_CHARGE;
    let mut words = Vec::new();
    for word in decoder.array_iter_with(ctx)? {
        if words.len() == MOST {
            return Err(minicbor::decode::Error::message("too many words"));
        }
        words.push(word?);
    }
    Ok(words)
}

/// A terminal's size in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct TerminalSize {
    /// Lines.
    #[n(0)]
    pub rows: u16,
    /// Characters in a line.
    #[n(1)]
    pub cols: u16,
}

/// One limit of `setrlimit(2)`. `u64::MAX` is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Rlimit {
    /// Number of the resource in Linux's generic ABI (`asm-generic/resource.h`).
    #[n(0)]
    pub resource: u32,
    /// What the kernel enforces; at most `hard`.
    #[n(1)]
    pub soft: u64,
    /// How far the command may raise `soft` itself.
    #[n(2)]
    pub hard: u64,
}

/// How many resources there are to limit; a request names each at most once.
pub const RLIMITS_MAX: usize = 16;

/// What an execution's control group may take; `None` is no limit of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
#[cbor(map)]
pub struct Resources {
    /// Bytes of memory, page cache included (`memory.max`).
    #[n(0)]
    pub memory: Option<u64>,
    /// Processes and threads (`pids.max`).
    #[n(1)]
    pub pids: Option<u32>,
    /// Share of a contended CPU, 1 to 10 000, 100 being that of every other (`cpu.weight`).
    #[n(2)]
    pub cpu_weight: Option<u16>,
    /// Microseconds of CPU time in each 100 000 (`cpu.max`); 200 000 is two CPUs.
    #[n(3)]
    pub cpu_quota: Option<u32>,
}

/// Decodes as many limits as there are resources.
fn decode_rlimits<'b, C>(
    decoder: &mut minicbor::Decoder<'b>,
    ctx: &mut C,
) -> Result<Vec<Rlimit>, minicbor::decode::Error> {
    let mut limits = Vec::new();
    for limit in decoder.array_iter_with(ctx)? {
        if limits.len() == RLIMITS_MAX {
            return Err(minicbor::decode::Error::message("too many limits"));
        }
        limits.push(limit?);
    }
    Ok(limits)
}

/// Asks the guest to run a command.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
#[cbor(map)]
pub struct Request {
    /// Program and arguments; the first is looked up in the request's own `PATH`. Never empty.
    #[n(0)]
    #[cbor(decode_with = "words")]
    pub argv: Vec<ByteVec>,
    /// Variables on top of the VM's; a later key wins.
    #[n(1)]
    #[cbor(decode_with = "words")]
    pub env: Vec<EnvVar>,
    /// Working directory; the VM's default if `None`.
    #[n(2)]
    pub cwd: Option<ByteVec>,
    /// What the command's stdin is.
    #[n(3)]
    pub stdin: StdinMode,
    /// Who runs it: `user`, `uid`, `user:group` or `uid:gid`, names looked up in the guest; root
    /// if `None`.
    #[n(4)]
    pub user: Option<ByteVec>,
    /// Runs it on a terminal of this size, with both its outputs on stdout.
    #[n(5)]
    pub terminal: Option<TerminalSize>,
    /// Limits of its processes, each resource at most once.
    #[n(6)]
    #[cbor(decode_with = "decode_rlimits")]
    pub rlimits: Vec<Rlimit>,
    /// Limits of its control group, each in place of the VM's.
    #[n(7)]
    pub resources: Option<Resources>,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
#[cbor(map)]
pub struct ExitStatus {
    /// Exit code, if it exited by itself.
    #[n(0)]
    pub code: Option<i32>,
    /// Signal number, if a signal ended it.
    #[n(1)]
    pub signal: Option<u32>,
    /// Start of the program to its end, microseconds of guest time.
    #[n(2)]
    pub duration_us: u64,
    /// What it used, as far as the agent could find out.
    #[n(3)]
    pub usage: Option<Usage>,
    /// Whether the kernel killed a process of the execution for want of memory; `None` if that is
    /// not known.
    #[n(4)]
    pub oom_killed: Option<bool>,
}

/// What an execution used until its first process ended. `None` is not known, never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
#[cbor(map)]
pub struct Usage {
    /// CPU time in user mode, microseconds; of everything in its control group.
    #[n(0)]
    pub user_us: Option<u64>,
    /// CPU time in the kernel, likewise.
    #[n(1)]
    pub system_us: Option<u64>,
    /// The most memory held at a time, bytes, page cache included; of its control group.
    #[n(2)]
    pub peak_memory: Option<u64>,
    /// Page faults that needed I/O, of the first process and the children that it waited for.
    #[n(3)]
    pub major_faults: Option<u64>,
    /// How often the scheduler took the CPU away, likewise.
    #[n(4)]
    pub involuntary_switches: Option<u64>,
    /// Bytes that it read with system calls, the first process and the children that it waited for.
    #[n(5)]
    pub read_bytes: Option<u64>,
    /// Bytes that it wrote with system calls, likewise.
    #[n(6)]
    pub written_bytes: Option<u64>,
}

/// Why a program never ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(index_only)]
#[non_exhaustive]
pub enum FailureKind {
    /// Anything that the other kinds do not name.
    #[n(0)]
    Other,
    /// No such program, or the interpreter that its first line names is missing.
    #[n(1)]
    NotFound,
    /// It may not be executed, or a directory on the way may not be searched.
    #[n(2)]
    PermissionDenied,
    /// A directory, or a file that is no program.
    #[n(3)]
    NotExecutable,
    /// The working directory cannot be entered.
    #[n(4)]
    BadCwd,
    /// Arguments that no program can be given: NUL, too long, a loop of links.
    #[n(5)]
    BadArgs,
    /// The request, or arguments and environment together, exceed a limit.
    #[n(6)]
    TooLarge,
    /// A resource limit could not be set, or was hit.
    #[n(7)]
    ResourceLimit,
    /// The user or its groups could not be set.
    #[n(8)]
    UserSetup,
    /// The guest had no memory for the process.
    #[n(9)]
    OutOfMemory,
    /// The terminal could not be set up.
    #[n(10)]
    PtySetup,
    /// The guest already runs as many executions as the limits allow. Said to an attached client:
    /// also that more of its requests wait for the guest than may.
    #[n(11)]
    AtCapacity,
    /// The protocol was broken; whether the program ran is not known.
    #[n(12)]
    Protocol,
    /// The VM, or the connection to it, ended first; whether the program ran is not known. Only
    /// a relay says this; an agent that does breaks the protocol.
    #[n(13)]
    Lost,
}

/// A program that never ran, or an execution that broke the protocol.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Failure {
    /// What kind of fault; [`FailureKind::Other`] for one that a newer peer knows.
    #[cbor(n(0), decode_with = "decode_kind")]
    pub kind: FailureKind,
    /// The guest kernel's error number, if one was the cause.
    #[n(1)]
    pub errno: Option<i32>,
    /// The step that failed, such as `execve`, `chdir` or `protocol`.
    #[n(2)]
    pub stage: String,
    /// A sentence for people, at most [`TEXT_MAX`] bytes.
    #[n(3)]
    pub message: String,
}

/// The command no longer reads its stdin. Not an end: the execution goes on.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct StdinError {
    /// The guest kernel's error number, usually `EPIPE`.
    #[n(0)]
    pub errno: i32,
    /// Its name.
    #[n(1)]
    pub name: String,
    /// A sentence for people, at most [`TEXT_MAX`] bytes.
    #[n(2)]
    pub message: String,
}

/// Encodes a body. The buffer grows as needed, so encoding cannot fail.
pub(crate) fn encode<T: Encode<()>>(body: &T) -> Vec<u8> {
    let mut out = Vec::new();
    // Infallible: the writer is a growing vector and the types have no failing encoder.
    let _: Result<(), _> = minicbor::encode(body, &mut out);
    out
}

/// Decodes a body that must fill `bytes` to the end.
pub(crate) fn decode<'b, T: Decode<'b, ()>>(bytes: &'b [u8]) -> Option<T> {
    let mut decoder = minicbor::Decoder::new(bytes);
    let body = decoder.decode().ok()?;
    (decoder.position() == bytes.len()).then_some(body)
}

/// Reads a failure kind; one that this end does not know is `Other`.
fn decode_kind<Ctx>(
    decoder: &mut minicbor::Decoder<'_>,
    ctx: &mut Ctx,
) -> Result<FailureKind, minicbor::decode::Error> {
    match FailureKind::decode(&mut decoder.probe(), ctx) {
        Err(error) if !error.is_unknown_variant() => Err(error),
        known => {
            decoder.skip()?;
            Ok(known.unwrap_or(FailureKind::Other))
        }
    }
}

/// Cuts a text to what an event may carry, at a character boundary.
pub(crate) fn cut(text: &mut String) {
    cut_to(text, TEXT_MAX);
}

/// Cuts a text to at most `max` bytes, at a character boundary.
pub(crate) fn cut_to(text: &mut String, max: usize) {
    if text.len() > max {
        let mut end = max;
        while !text.is_char_boundary(end) {
            end = end.saturating_sub(1);
        }
        text.truncate(end);
    }
}

/// Reads the one `u64` that is an acknowledgement's or ping's whole payload.
pub(crate) fn decode_u64(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

/// Reads the two `u16` that are a terminal's size.
pub(crate) fn decode_size(bytes: &[u8]) -> Option<TerminalSize> {
    let [a, b, c, d] = *bytes else {
        return None;
    };
    Some(TerminalSize {
        rows: u16::from_le_bytes([a, b]),
        cols: u16::from_le_bytes([c, d]),
    })
}

/// Reads the one `u32` that is a pid's or signal's whole payload.
pub(crate) fn decode_u32(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}
