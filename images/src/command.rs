//! Running the programs that builds stand on, with errors that show the command and its last words.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::{Error, Result};

/// How many of a failed program's last lines its error shows.
const TAIL_LINES: usize = 25;

/// Runs a program to its end and returns its standard output as text.
///
/// # Errors
/// [`Error::Start`] or, if it does not end with 0, [`Error::Command`] with what it said on standard
/// error.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let text = describe(command);
    let done = command
        .stdin(Stdio::null())
        .output()
        .map_err(|source| Error::Start {
            command: text.clone(),
            source,
        })?;
    if !done.status.success() {
        return Err(failed(text, &done));
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// That a program ended so, with the last of what it said on standard error.
fn failed(command: String, done: &Output) -> Error {
    let said = String::from_utf8_lossy(&done.stderr);
    let mut tail: VecDeque<_> = said.lines().rev().take(TAIL_LINES).collect();
    tail.make_contiguous().reverse();
    Error::Command {
        command,
        status: done.status,
        tail: Vec::from(tail).join("\n"),
    }
}

/// Runs a program to its end, its standard output going into a new file.
///
/// # Errors
/// As [`output`], or [`Error::File`].
pub(crate) fn output_into(command: &mut Command, target: &Path) -> Result<()> {
    let text = describe(command);
    let file = File::create(target).map_err(Error::file("create", target))?;
    let done = command
        .stdin(Stdio::null())
        .stdout(file)
        .stderr(Stdio::piped())
        .output()
        .map_err(|source| Error::Start {
            command: text.clone(),
            source,
        })?;
    if done.status.success() {
        return Ok(());
    }
    Err(failed(text, &done))
}

/// Runs a program to its end and hands every line it prints, on either stream, to `line`.
///
/// # Errors
/// As [`output`], with the last lines of both streams.
pub(crate) fn lines(command: &mut Command, mut line: impl FnMut(&str)) -> Result<()> {
    let text = describe(command);
    let failed = |source| Error::Start {
        command: text.clone(),
        source,
    };
    // One pipe for both streams keeps their order and needs no second thread.
    let (reader, writer) = std::io::pipe().map_err(failed)?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(writer.try_clone().map_err(failed)?)
        .stderr(writer)
        .spawn()
        .map_err(failed)?;
    // The command keeps its copies of the pipe's writing end; without them the reader sees the end.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut tail = VecDeque::with_capacity(TAIL_LINES);
    let mut reader = BufReader::new(reader);
    let mut raw = Vec::new();
    while reader.read_until(b'\n', &mut raw).map_err(failed)? > 0 {
        let said = String::from_utf8_lossy(&raw);
        let said = said.trim_end();
        line(said);
        if tail.len() == TAIL_LINES {
            tail.pop_front();
        }
        tail.push_back(said.to_owned());
        raw.clear();
    }
    let status = child.wait().map_err(failed)?;
    if status.success() {
        return Ok(());
    }
    Err(Error::Command {
        command: text,
        status,
        tail: Vec::from(tail).join("\n"),
    })
}

fn describe(command: &Command) -> String {
    let mut text = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    text
}

#[cfg(test)]
#[path = "command_test.rs"]
mod tests;
