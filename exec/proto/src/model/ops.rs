//! What can be done to a [`World`](super::World).

/// One step of somebody. `exec` picks an execution by the order of their starts, modulo how many
/// there are; `stream` is set for stderr; sizes are bytes.
#[derive(Debug, Clone)]
pub enum Op {
    Start {
        piped: bool,
        size: usize,
    },
    /// One whose stdin is `n` bytes and then ends.
    StartWithBytes {
        n: usize,
    },
    /// One that has `ms` milliseconds, and one more, to run.
    StartWithin {
        ms: usize,
    },
    /// So many milliseconds pass.
    Pass {
        ms: usize,
    },
    /// The next request that reaches the guest fails there.
    FailNextStart,
    Write {
        exec: usize,
        n: usize,
    },
    CancelWrite {
        exec: usize,
    },
    Close {
        exec: usize,
    },
    Signal {
        exec: usize,
    },
    Kill {
        exec: usize,
    },
    Take {
        exec: usize,
        stream: bool,
    },
    Read {
        exec: usize,
        stream: bool,
        n: usize,
    },
    /// A relay passes a chunk on.
    PassOn {
        exec: usize,
        stream: bool,
    },
    /// The reader behind it consumes so many bytes of what was passed on.
    Consume {
        exec: usize,
        stream: bool,
        n: usize,
    },
    /// It says so of one stream, and of the other that it consumed more than was passed on.
    ConsumeTooMuch {
        exec: usize,
        stream: bool,
        n: usize,
    },
    /// Nobody holds it, until it is taken up.
    Leave {
        exec: usize,
    },
    TakeUp {
        exec: usize,
    },
    Discard {
        exec: usize,
        stream: bool,
    },
    Forget {
        exec: usize,
    },
    Produce {
        exec: usize,
        stream: bool,
        n: usize,
    },
    Eat {
        exec: usize,
        n: usize,
    },
    /// The command closes its stdin.
    BreakStdin {
        exec: usize,
    },
    Exit {
        exec: usize,
    },
    Ping,
    HostSends {
        frames: usize,
    },
    GuestReceives {
        n: usize,
    },
    GuestWrites {
        size: usize,
    },
    HostReceives {
        frames: usize,
    },
    /// The host wants the guest quiesced.
    Quiesce,
    /// The agent has frozen the commands, or could not.
    Freeze {
        done: bool,
    },
    /// The host renews the guest, which may be out of entropy.
    Renew {
        dull: bool,
    },
    /// The host lets the guest go on.
    Thaw,
    /// Both ends are saved and restored, unless the guest owes an answer.
    Restore,
}
