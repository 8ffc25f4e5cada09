//! Who waits for an execution: one waker for each half that can be waited for, and how far the
//! callers of its sink are. Lives in the hub, under its lock.

use std::mem;
use std::task::Waker;

use forebay_exec_proto::host::what;

/// A half of an execution that at most one task waits for at a time: the handles' `&mut self`,
/// and for stdin the sink's turns, see to that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Half {
    /// The handle: started, output of both streams, stdin error, end.
    Events,
    /// The reader of stdout.
    Stdout,
    /// The reader of stderr.
    Stderr,
    /// Whoever waits for the end alone.
    Exit,
    /// The sink: its pending write was handed over, or will not be.
    Stdin,
    /// A relay: the request has left, or the guest acknowledged stdin bytes.
    Relay,
}

impl Half {
    const ALL: [Self; 6] = [
        Self::Events,
        Self::Stdout,
        Self::Stderr,
        Self::Exit,
        Self::Stdin,
        Self::Relay,
    ];

    /// The notices that can end this half's wait.
    const fn interest(self) -> u16 {
        match self {
            Self::Events => {
                what::STARTED
                    | what::STDOUT
                    | what::STDERR
                    | what::STDIN_ERROR
                    | what::TERMINAL
                    | what::UNCONFIRMED
                    | what::KILLED
            }
            Self::Stdout => what::STDOUT | what::TERMINAL,
            Self::Stderr => what::STDERR | what::TERMINAL,
            Self::Exit => what::TERMINAL | what::UNCONFIRMED,
            Self::Stdin => what::WRITABLE | what::TERMINAL,
            Self::Relay => what::REQUESTED | what::STDIN_ACKED | what::TERMINAL,
        }
    }
}

/// The waiting tasks of one execution.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    events: Option<Waker>,
    stdout: Option<Waker>,
    stderr: Option<Waker>,
    exit: Option<Waker>,
    stdin: Option<Waker>,
    relay: Option<Waker>,
    pub(crate) sink: SinkState,
}

impl Waiting {
    fn waker(&mut self, half: Half) -> &mut Option<Waker> {
        match half {
            Half::Events => &mut self.events,
            Half::Stdout => &mut self.stdout,
            Half::Stderr => &mut self.stderr,
            Half::Exit => &mut self.exit,
            Half::Stdin => &mut self.stdin,
            Half::Relay => &mut self.relay,
        }
    }

    /// Remembers to wake `waker` for `half`. What it replaces, or itself if it is known already,
    /// is left in its place, for the caller to drop outside the lock.
    pub(crate) fn register(&mut self, half: Half, waker: &mut Option<Waker>) {
        let place = self.waker(half);
        let known = match (&*place, &*waker) {
            (Some(known), Some(waker)) => known.will_wake(waker),
            _ => false,
        };
        if !known {
            mem::swap(place, waker);
        }
    }

    /// Moves the wakers that `bits` concerns to `into`.
    pub(crate) fn collect(&mut self, bits: u16, into: &mut Vec<Waker>) {
        for half in Half::ALL {
            if half.interest() & bits != 0 {
                into.extend(self.waker(half).take());
            }
        }
    }
}

/// What the callers of one sink have asked for.
///
/// A close is committed the moment it is asked for, but its EOF goes behind the writes that
/// were called before it. They count themselves in and out here, and the last one out commits
/// the EOF, so that it needs no help from the closing caller, who may be gone by then.
#[derive(Debug, Default)]
pub(crate) struct SinkState {
    /// Writes called and not finished.
    pub(crate) writes: usize,
    /// No further write is taken.
    pub(crate) closing: bool,
    /// The last submitted write was handed to the channel to its last byte.
    pub(crate) handed_over: bool,
}
