//! A request made ready for execve: everything the child needs, laid out before it exists.
//!
//! The environment is declared, never inherited from the agent: `PATH` and `HOME` of
//! [`DEFAULT_ENV`], then the VM's, then the request's; a later key wins. `TERM` is not set: there
//! is no terminal.
//!
//! The program is looked up as execvp does it, with these rules where that leaves a choice:
//! * only the request's own `PATH` counts (after the merge above);
//! * an empty element of `PATH` names no directory, so an empty `PATH` finds nothing. POSIX lets
//!   it mean the current directory, which has surprised more people than it has helped;
//! * a file that the kernel cannot run is an error, not a shell script in disguise.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char};
use std::ptr;

use forebay_exec_proto::{EnvVar, Failure, FailureKind, Request};

use crate::failure::refused;

/// Where programs are looked for when nobody sets `PATH`.
pub(crate) const DEFAULT_PATH: &str =
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The environment below the VM's and the request's.
const DEFAULT_ENV: [(&[u8], &[u8]); 2] = [(b"PATH", DEFAULT_PATH.as_bytes()), (b"HOME", b"/root")];

/// Longest path that the kernel takes, with its NUL.
pub(crate) const PATH_MAX: usize = libc::PATH_MAX as usize;

/// Bytes of a name that a message repeats.
const SHOWN: usize = 256;

/// What the VM sets for all its executions.
#[derive(Debug, Default)]
pub(crate) struct Defaults {
    /// Variables.
    pub(crate) env: Vec<EnvVar>,
    /// Working directory of requests that name none; `/` if this names none either.
    pub(crate) cwd: Option<CString>,
}

/// A checked request in the form that execve takes.
pub(crate) struct Command {
    argv: Strings,
    env: Strings,
    cwd: CString,
    /// Directories to look in; `None` if the program was given with a slash.
    path: Option<Vec<u8>>,
}

impl Command {
    /// Checks a request and lays it out.
    pub(crate) fn new(request: &Request, defaults: &Defaults) -> Result<Self, Failure> {
        let program = request
            .argv
            .first()
            .ok_or_else(|| bad("there is no program to run"))?;
        if request.argv.iter().any(|word| word.contains(&0)) {
            return Err(bad("an argument contains a NUL"));
        }
        let env = merge(&defaults.env, &request.env)?;
        let path = if program.contains(&b'/') {
            None
        } else {
            Some(
                env.get(&b"PATH"[..])
                    .map_or_else(Vec::new, |path| path.to_vec()),
            )
        };
        let cwd = match &request.cwd {
            Some(cwd) => CString::new(cwd.to_vec())
                .map_err(|_| bad("the working directory contains a NUL"))?,
            None => defaults.cwd.clone().unwrap_or_else(|| c"/".to_owned()),
        };
        Ok(Self {
            argv: Strings::new(request.argv.iter().map(|word| [&word[..], b"", b""])),
            env: Strings::new(env.iter().map(|(key, value)| [*key, b"=", *value])),
            cwd,
            path,
        })
    }

    /// Arguments for execve.
    pub(crate) fn argv(&self) -> *const *const c_char {
        self.argv.pointers.as_ptr()
    }

    /// Environment for execve.
    pub(crate) fn env(&self) -> *const *const c_char {
        self.env.pointers.as_ptr()
    }

    /// Working directory.
    pub(crate) fn cwd(&self) -> &CStr {
        &self.cwd
    }

    /// The files to try in order, each laid out in `room`. Allocates nothing: it runs in the
    /// child.
    pub(crate) fn for_each_candidate(
        &self,
        room: &mut [u8; PATH_MAX],
        mut attempt: impl FnMut(Candidate<'_>) -> Next,
    ) {
        let name = self.argv.first();
        let Some(path) = &self.path else {
            attempt(candidate(room, b"", name));
            return;
        };
        if name.is_empty() {
            return;
        }
        for dir in path
            .split(|byte| *byte == b':')
            .filter(|dir| !dir.is_empty())
        {
            match attempt(candidate(room, dir, name)) {
                Next::Continue => {}
                Next::Stop => return,
            }
        }
    }

    /// The program's name for a message.
    pub(crate) fn shown_program(&self) -> String {
        shown(self.argv.first())
    }

    /// The working directory for a message.
    pub(crate) fn shown_cwd(&self) -> String {
        shown(self.cwd.to_bytes())
    }

    /// The directories for a message.
    pub(crate) fn shown_path(&self) -> Option<String> {
        self.path.as_deref().map(shown)
    }
}

/// One file to try.
pub(crate) enum Candidate<'a> {
    /// This one.
    File(&'a CStr),
    /// Longer than any path may be.
    TooLong,
}

/// Whether to try the next candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Yes.
    Continue,
    /// No.
    Stop,
}

/// `dir/name`, or `name` alone for an empty `dir`.
fn candidate<'a>(room: &'a mut [u8; PATH_MAX], dir: &[u8], name: &[u8]) -> Candidate<'a> {
    let slash: &[u8] = if dir.is_empty() { b"" } else { b"/" };
    let mut used = 0usize;
    for part in [dir, slash, name, b"\0"] {
        let end = used.saturating_add(part.len());
        match room.get_mut(used..end) {
            Some(to) => to.copy_from_slice(part),
            None => return Candidate::TooLong,
        }
        used = end;
    }
    match CStr::from_bytes_until_nul(room) {
        Ok(file) => Candidate::File(file),
        Err(_) => Candidate::TooLong,
    }
}

/// Strings with their NULs in one allocation, and the null-terminated array of pointers to them.
struct Strings {
    /// Owns what `pointers` point to: never changed after it was built.
    bytes: Vec<u8>,
    pointers: Vec<*const c_char>,
}

impl Strings {
    /// Each string is given in three parts; none contains a NUL.
    fn new<'a>(strings: impl Iterator<Item = [&'a [u8]; 3]>) -> Self {
        let mut bytes = Vec::new();
        let mut starts = Vec::new();
        for parts in strings {
            starts.push(bytes.len());
            for part in parts {
                bytes.extend_from_slice(part);
            }
            bytes.push(0);
        }
        let base = bytes.as_ptr();
        let pointers = starts
            .into_iter()
            .map(|start| base.wrapping_add(start).cast())
            .chain([ptr::null()])
            .collect();
        Self { bytes, pointers }
    }

    /// The first string without its NUL.
    fn first(&self) -> &[u8] {
        self.bytes
            .split(|byte| *byte == 0)
            .next()
            .unwrap_or_default()
    }
}

/// The environment of a command, sorted by key.
fn merge<'a>(
    vm: &'a [EnvVar],
    request: &'a [EnvVar],
) -> Result<BTreeMap<&'a [u8], &'a [u8]>, Failure> {
    let mut merged: BTreeMap<&[u8], &[u8]> = DEFAULT_ENV.into_iter().collect();
    for EnvVar { key, value } in vm.iter().chain(request) {
        if key.is_empty() || key.contains(&b'=') || key.contains(&0) {
            return Err(bad(&format!(
                "the variable name {:?} is empty or contains = or NUL",
                shown(key)
            )));
        }
        if value.contains(&0) {
            return Err(bad(&format!("the value of {} contains a NUL", shown(key))));
        }
        merged.insert(key, value);
    }
    Ok(merged)
}

fn bad(message: &str) -> Failure {
    refused(FailureKind::BadArgs, message.to_owned())
}

/// Bytes as text of bounded length.
fn shown(bytes: &[u8]) -> String {
    match bytes.get(..SHOWN) {
        Some(cut) => format!("{}…", String::from_utf8_lossy(cut)),
        None => String::from_utf8_lossy(bytes).into_owned(),
    }
}

#[cfg(test)]
#[path = "command_test.rs"]
mod tests;
