//! The signals that would end this program, and are passed on to the command instead.
//!
//! Some are requests to end; the others are messages, with which a command does what it likes.
//!
//! One that was ignored when this program began stays ignored, as `nohup` and a shell's `&` mean it.

use std::future::poll_fn;
use std::task::Poll;
use std::{fs, io};

use forebay::Signal;
use tokio::signal::unix::{self, SignalKind};

const PASSED_ON: [(Signal, SignalKind); 7] = [
    (Signal::INT, SignalKind::interrupt()),
    (Signal::TERM, SignalKind::terminate()),
    (Signal::HUP, SignalKind::hangup()),
    (Signal::QUIT, SignalKind::quit()),
    (Signal::USR1, SignalKind::user_defined1()),
    (Signal::USR2, SignalKind::user_defined2()),
    (Signal::ALRM, SignalKind::alarm()),
];

pub(crate) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    /// From now on none of them ends this process.
    pub(crate) fn listen() -> io::Result<Self> {
        // Where there is no /proc, nothing is known to be ignored.
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self::listen_beside(ignored(&status))
    }

    /// All but the ignored ones, of which signal `n` has bit `n - 1`.
    fn listen_beside(ignored: u64) -> io::Result<Self> {
        let heeded = PASSED_ON.into_iter();
        let heeded = heeded.filter(|(signal, _)| ignored >> (signal.number() - 1) & 1 == 0);
        heeded
            .map(|(signal, kind)| Ok((signal, unix::signal(kind)?)))
            .collect::<io::Result<_>>()
            .map(Self)
    }

    /// Whether a command that heeds this signal need not end by it.
    pub(crate) fn is_a_message(signal: Signal) -> bool {
        [Signal::USR1, Signal::USR2, Signal::ALRM].contains(&signal)
    }

    /// The next of them; none ever, if all are ignored.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|cx| {
            let came = |(signal, heard): &mut (Signal, unix::Signal)| {
                heard.poll_recv(cx).is_ready().then_some(*signal)
            };
            self.0
                .iter_mut()
                .find_map(came)
                .map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

/// The mask of ignored signals in a `/proc/PID/status`.
fn ignored(status: &str) -> u64 {
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.unwrap_or(0)
}

#[cfg(test)]
#[path = "signals_test.rs"]
mod tests;
