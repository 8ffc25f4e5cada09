//! A request made ready for execve: everything the child needs, laid out before it exists.
//!
//! The environment is declared, never inherited from the agent: [`DEFAULT_PATH`] and, for a request
//! that names no user, `HOME=/root`; then the VM's, then the request's; a later key wins. What of
//! [`USER_ENV`] is then missing for a request that does name one comes from the user's entry, which
//! the child looks up ([`crate::user`]). Only a command
//! on a terminal has a `TERM` that nobody set, [`DEFAULT_TERM`].
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
use crate::rlimit::Rlimits;
use crate::user::{ENTRY_MAX, Identity, Who};

/// Where programs are looked for when nobody sets `PATH`.
pub(crate) const DEFAULT_PATH: &str =
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What programs ask who runs them, set for the user that a request names.
const USER_ENV: [&[u8]; 4] = [b"HOME", b"USER", b"LOGNAME", b"SHELL"];

/// What commands on a terminal are told it is, unless the VM or the request says otherwise. Images
/// that know terminals at all know this one, and so do the terminals that people sit at.
pub(crate) const DEFAULT_TERM: &[u8] = b"xterm-256color";

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
    program: Program,
    /// Who runs it; the agent's own user, root, if the request names none.
    user: Option<Who>,
    /// Which of [`USER_ENV`] nobody sets.
    unset: [bool; USER_ENV.len()],
    rlimits: Rlimits,
}

/// Where the program is.
enum Program {
    /// Here: it was given with a slash.
    File(CString),
    /// In one of these directories, as `PATH` names them.
    Searched(Vec<u8>),
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
        let user = match &request.user {
            Some(user) => Some(Who::parse(user)?),
            None => None,
        };
        let mut env = merge(&defaults.env, request)?;
        if request.terminal.is_some() {
            env.entry(b"TERM").or_insert(DEFAULT_TERM);
        }
        let program = if program.contains(&b'/') {
            Program::File(
                CString::new(program.to_vec()).map_err(|_| bad("the program contains a NUL"))?,
            )
        } else {
            let path = env.get(&b"PATH"[..]);
            Program::Searched(path.map_or_else(Vec::new, |path| path.to_vec()))
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
            program,
            user,
            unset: USER_ENV.map(|key| !env.contains_key(key)),
            rlimits: Rlimits::new(&request.rlimits)?,
        })
    }

    /// Arguments for execve.
    pub(crate) fn argv(&self) -> *const *const c_char {
        self.argv.pointers.as_ptr()
    }

    /// Who runs it; `None` is root, as the agent is.
    pub(crate) fn user(&self) -> Option<&Who> {
        self.user.as_ref()
    }

    /// The limits of its processes.
    pub(crate) fn rlimits(&self) -> &Rlimits {
        &self.rlimits
    }

    /// Environment for execve, of a command without a user.
    pub(crate) fn env(&self) -> *const *const c_char {
        self.env.pointers.as_ptr()
    }

    /// Environment of a command with a user, to be completed. `None` without the memory.
    pub(crate) fn prepare_env(&self) -> Option<UserEnv> {
        let (mut pointers, mut bytes) = (Vec::new(), Vec::new());
        let declared = self
            .env
            .pointers
            .split_last()
            .map_or(&[][..], |(_, all)| all);
        let most = declared.len().saturating_add(USER_ENV.len() + 1);
        pointers.try_reserve_exact(most).ok()?;
        bytes
            .try_reserve_exact(USER_ENV.len() * VARIABLE_MAX)
            .ok()?;
        pointers.extend_from_slice(declared);
        Some(UserEnv {
            unset: self.unset,
            pointers,
            bytes,
        })
    }

    /// Working directory.
    pub(crate) fn cwd(&self) -> &CStr {
        &self.cwd
    }

    /// The program's file; `None` if it has to be looked for.
    pub(crate) fn file(&self) -> Option<&CStr> {
        match &self.program {
            Program::File(file) => Some(file),
            Program::Searched(_) => None,
        }
    }

    /// The files to try in order for a program that has to be looked for, each laid out in `room`.
    /// Allocates nothing: it runs in the child.
    pub(crate) fn for_each_candidate(
        &self,
        room: &mut [u8; PATH_MAX],
        mut attempt: impl FnMut(Candidate<'_>) -> Next,
    ) {
        let name = self.argv.first();
        let Program::Searched(path) = &self.program else {
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

    /// The user for a message.
    pub(crate) fn shown_user(&self) -> String {
        self.user
            .as_ref()
            .map_or_else(|| "root".to_owned(), Who::to_string)
    }

    /// The working directory for a message.
    pub(crate) fn shown_cwd(&self) -> String {
        shown(self.cwd.to_bytes())
    }

    /// The directories for a message.
    pub(crate) fn shown_path(&self) -> Option<String> {
        match &self.program {
            Program::File(_) => None,
            Program::Searched(path) => Some(shown(path)),
        }
    }
}

/// Most that one of [`USER_ENV`] takes, with its name, `=` and NUL.
const VARIABLE_MAX: usize = ENTRY_MAX + 16;

/// The environment of a command whose user is known to the child only.
pub(crate) struct UserEnv {
    unset: [bool; USER_ENV.len()],
    /// To the declared variables, which the [`Command`] owns.
    pointers: Vec<*const c_char>,
    /// The variables that come from the user.
    bytes: Vec<u8>,
}

impl UserEnv {
    /// Adds what nobody else sets, and returns what execve takes, which lives as long as this and
    /// the command do. Call it once. Allocates nothing: it runs in the child.
    pub(crate) fn complete(&mut self, user: &Identity<'_>) -> *const *const c_char {
        let values = [Some(user.home), user.name, user.name, user.shell];
        let mut starts = [None; USER_ENV.len()];
        for (((key, value), unset), start) in
            USER_ENV.iter().zip(values).zip(self.unset).zip(&mut starts)
        {
            // An entry is no longer than the room for it.
            if let Some(value) = value.filter(|value| unset && value.len() <= ENTRY_MAX) {
                *start = Some(self.bytes.len());
                for part in [key, &b"="[..], value, b"\0"] {
                    self.bytes.extend_from_slice(part);
                }
            }
        }
        let base = self.bytes.as_ptr();
        for start in starts.into_iter().flatten() {
            self.pointers.push(base.wrapping_add(start).cast());
        }
        self.pointers.push(ptr::null());
        self.pointers.as_ptr()
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

/// `dir/name`.
fn candidate<'a>(room: &'a mut [u8; PATH_MAX], dir: &[u8], name: &[u8]) -> Candidate<'a> {
    let mut used = 0usize;
    for part in [dir, b"/", name, b"\0"] {
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
    request: &'a Request,
) -> Result<BTreeMap<&'a [u8], &'a [u8]>, Failure> {
    let mut merged: BTreeMap<&[u8], &[u8]> = BTreeMap::new();
    merged.insert(b"PATH", DEFAULT_PATH.as_bytes());
    if request.user.is_none() {
        merged.insert(b"HOME", b"/root");
    }
    for EnvVar { key, value } in vm.iter().chain(&request.env) {
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
pub(crate) fn shown(bytes: &[u8]) -> String {
    match bytes.get(..SHOWN) {
        Some(cut) => format!("{}…", String::from_utf8_lossy(cut)),
        None => String::from_utf8_lossy(bytes).into_owned(),
    }
}

#[cfg(test)]
#[path = "command_test.rs"]
mod tests;
