//! This process's standard streams to and from the command's, byte for byte.
//!
//! One thread per stream with plain blocking calls: reading a terminal or a pipe without blocking
//! would need `O_NONBLOCK` on a file description that is shared with other processes. Each thread
//! holds at most one chunk, so a slow reader of ours slows the command down, and a command that
//! does not read leaves our stdin unread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::thread;

use forebay::{ExecReader, ExecSink};
use futures_core::Stream as _;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};

use crate::detach_keys::{Typed, Watch};
use crate::status::complain;

/// Most that one read of stdin takes, in bytes.
const STDIN_CHUNK: usize = 64 * 1024;

/// How the relay of one output stream ended.
pub(crate) type Relayed = oneshot::Receiver<io::Result<()>>;

/// Copies our stdin into the command's until either ends, and then closes the command's.
///
/// When the keys that `keys` watches for are typed, it stops, and the command's stdin comes back
/// by the receiver, open. Nobody else waits for it: it may be blocked in a read when the command
/// has long ended.
pub(crate) fn stdin(
    sink: ExecSink,
    mut keys: Option<Watch>,
    runtime: Handle,
) -> io::Result<oneshot::Receiver<ExecSink>> {
    let (left, leave) = oneshot::channel();
    let copy = move || {
        let stdin = io::stdin();
        let mut chunk = vec![0; STDIN_CHUNK];
        loop {
            let read = match read(stdin.as_fd(), &mut chunk) {
                Ok(0) => break,
                Ok(n) => chunk.get(..n).unwrap_or_default(),
                Err(error) => {
                    complain(&format!(
                        "cannot read stdin: {error}; the command sees its end"
                    ));
                    break;
                }
            };
            let Typed { input, detach } = match &mut keys {
                Some(keys) => keys.typed(read),
                None => Typed::input(read),
            };
            // Refused: the command no longer reads, or is gone. How it ends is told by its exit,
            // as it is for the writer to any pipe.
            if runtime.block_on(sink.write(input)).is_err() {
                return;
            }
            if detach {
                // Nobody takes it any more when the command has ended.
                let _ = left.send(sink);
                return;
            }
        }
        let rest = keys
            .as_ref()
            .map_or_else(Vec::new, |keys| keys.rest().to_vec());
        // These fail only when the command or the VM is gone, which is told elsewhere.
        let _ = runtime.block_on(sink.write(rest));
        let _ = runtime.block_on(sink.close());
    };
    thread::Builder::new()
        .name("relay-stdin".to_owned())
        .spawn(copy)?;
    Ok(leave)
}

/// Copies the command's stdout into ours until it ends or the command was left.
pub(crate) fn stdout(
    reader: ExecReader,
    left: watch::Receiver<bool>,
    runtime: Handle,
) -> io::Result<Relayed> {
    output("relay-stdout", reader, io::stdout(), left, runtime)
}

/// Copies the command's stderr into ours until it ends or the command was left.
pub(crate) fn stderr(
    reader: ExecReader,
    left: watch::Receiver<bool>,
    runtime: Handle,
) -> io::Result<Relayed> {
    output("relay-stderr", reader, io::stderr(), left, runtime)
}

fn output(
    name: &str,
    mut reader: ExecReader,
    to: impl AsFd + Send + 'static,
    mut left: watch::Receiver<bool>,
    runtime: Handle,
) -> io::Result<Relayed> {
    let (done, relayed) = oneshot::channel();
    let copy = move || {
        let ended = loop {
            let next = std::future::poll_fn(|cx| Pin::new(&mut reader).poll_next(cx));
            let next = runtime.block_on(async {
                tokio::select! {
                    biased;
                    // Dropping the reader discards what comes. No sender any more is no leaving.
                    Ok(_) = left.wait_for(|left| *left) => None,
                    next = next => next,
                }
            });
            match next {
                None => break Ok(()),
                // The VM is gone, which the wait for the exit tells with its reason.
                Some(Err(_)) => break Ok(()),
                Some(Ok(chunk)) => {
                    if let Err(error) = write_all(to.as_fd(), &chunk) {
                        break Err(error);
                    }
                }
            }
        };
        drop(reader);
        // Nobody listens any more when a signal has ended the run.
        let _ = done.send(ended);
    };
    thread::Builder::new().name(name.to_owned()).spawn(copy)?;
    Ok(relayed)
}

fn read(from: BorrowedFd<'_>, chunk: &mut [u8]) -> io::Result<usize> {
    loop {
        match rustix::io::read(from, &mut *chunk) {
            Ok(n) => return Ok(n),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => wait(from, PollFlags::IN)?,
            Err(error) => return Err(error.into()),
        }
    }
}

fn write_all(to: BorrowedFd<'_>, mut data: &[u8]) -> io::Result<()> {
    while !data.is_empty() {
        match rustix::io::write(to, data) {
            Ok(n) => data = data.get(n..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => wait(to, PollFlags::OUT)?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Waits for a descriptor that was made non-blocking by whoever shares it.
fn wait(on: BorrowedFd<'_>, flags: PollFlags) -> io::Result<()> {
    loop {
        match poll(&mut [PollFd::from_borrowed_fd(on, flags)], None) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
#[path = "relay_test.rs"]
mod tests;
