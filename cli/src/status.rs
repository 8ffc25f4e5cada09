//! Exit codes: the command's own, and those that container tools use for what is not the
//! command's.

use std::io::Write as _;

use forebay::{ExecError, ExitStatus, FailureKind};

/// The command's time was up, and that ended it.
const TIMED_OUT: u8 = 124;
/// Forebay itself failed: usage, boot, a VM that went away.
pub(crate) const OUR_FAILURE: u8 = 125;
/// The command was found and cannot be executed.
const NOT_EXECUTABLE: u8 = 126;
/// The command was not found.
const NOT_FOUND: u8 = 127;
/// Added to the number of the signal that ended the command.
const SIGNALLED: u8 = 128;
/// SIGPIPE's number.
const PIPE: u8 = 13;

/// The end of a program whose reader has gone away.
pub(crate) const BROKEN_PIPE: u8 = SIGNALLED + PIPE;

/// The code for a command that ran to its end.
pub(crate) fn of_command(status: &ExitStatus) -> u8 {
    match status.signal() {
        Some(signal) => of_signal(signal.number()),
        // An exit code has eight bits.
        None => status
            .code()
            .and_then(|code| u8::try_from(code).ok())
            .unwrap_or(OUR_FAILURE),
    }
}

/// The code for an end by a signal, as a shell gives it.
pub(crate) fn of_signal(number: u32) -> u8 {
    u8::try_from(number).map_or(OUR_FAILURE, |number| SIGNALLED.saturating_add(number))
}

/// The code for a command of which no end is known.
pub(crate) fn of_error(error: &ExecError) -> u8 {
    let failure = match error {
        // Its time was up before it had started.
        ExecError::NotStarted(failure) if failure.is_timeout() => return TIMED_OUT,
        ExecError::NotStarted(failure) => failure,
        ExecError::TimedOut { .. } => return TIMED_OUT,
        _ => return OUR_FAILURE,
    };
    match failure.kind {
        FailureKind::NotFound => NOT_FOUND,
        FailureKind::PermissionDenied
        | FailureKind::NotExecutable
        | FailureKind::BadArgs
        | FailureKind::TooLarge => NOT_EXECUTABLE,
        _ => OUR_FAILURE,
    }
}

/// Prints a message of ours to stderr. With that closed there is nobody to tell.
pub(crate) fn complain(message: &str) {
    let _ = writeln!(std::io::stderr(), "forebay: {message}");
}

/// An error with its causes, each said once: the library's errors say their cause themselves.
pub(crate) fn told(error: &anyhow::Error) -> String {
    error
        .chain()
        .skip(1)
        .fold(error.to_string(), |told, cause| {
            let cause = cause.to_string();
            match told.contains(&cause) {
                true => told,
                false => told + ": " + &cause,
            }
        })
}

#[cfg(test)]
#[path = "status_test.rs"]
mod tests;
