//! Who waits for an execution: one waker for each half that can be waited for, and how far the
//! callers of its sink are. Lives in the hub, under its lock.

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
}

impl Half {
    const ALL: [Self; 5] = [
        Self::Events,
        Self::Stdout,
        Self::Stderr,
        Self::Exit,
        Self::Stdin,
    ];

    /// The notices that can end this half's wait.
    const fn interest(self) -> u8 {
        match self {
            Self::Events => what::READABLE | what::STARTED | what::TERMINAL,
            Self::Stdout | Self::Stderr => what::READABLE | what::TERMINAL,
            Self::Exit => what::TERMINAL,
            Self::Stdin => what::WRITABLE | what::TERMINAL,
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
        }
    }

    /// Remembers whom to wake for `half`. Gives the waker that this replaces, to be dropped
    /// outside the lock.
    #[must_use]
    pub(crate) fn register(&mut self, half: Half, waker: &Waker) -> Option<Waker> {
        let place = self.waker(half);
        match place {
            Some(known) if known.will_wake(waker) => None,
            _ => place.replace(waker.clone()),
        }
    }

    /// Moves the wakers that `bits` concerns to `into`.
    pub(crate) fn collect(&mut self, bits: u8, into: &mut Vec<Waker>) {
        for half in Half::ALL {
            if half.interest() & bits != 0 {
                into.extend(self.waker(half).take());
            }
        }
    }

    /// All wakers, when nobody can wait any more.
    pub(crate) fn into_wakers(self) -> impl Iterator<Item = Waker> {
        [self.events, self.stdout, self.stderr, self.exit, self.stdin]
            .into_iter()
            .flatten()
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
