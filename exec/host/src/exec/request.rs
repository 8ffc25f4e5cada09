//! What a builder holds, checked and put into wire form. Nothing that no guest could do is sent;
//! what only a guest can know, such as whether it has a user, is told by the guest.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;

use forebay_exec_proto::host;
use forebay_exec_proto::{ByteVec, EnvVar, Request, Rlimit, StdinMode};

use super::Exec;
use crate::error::ExecError;
use crate::hub::Hub;
use crate::resource::Resource;
use crate::terminal::TerminalSize;

/// Longest piece of a refused value that is worth printing, in characters.
const VALUE_SHOWN: usize = 80;

/// The highest id of a user or group; the one above means "no change" to the kernel.
const ID_MAX: u32 = u32::MAX - 1;

impl Exec {
    /// Checks what no program could be given, and puts the rest in wire form.
    pub(super) fn into_request(self) -> Result<(Arc<Hub>, Request, host::Stdin), ExecError> {
        if self.program.is_empty() {
            return Err(invalid("program", "is empty"));
        }
        let mut argv = Vec::with_capacity(self.args.len().saturating_add(1));
        argv.push(word(self.program, || "program".to_owned())?);
        for (index, arg) in self.args.into_iter().enumerate() {
            argv.push(word(arg, || format!("args[{index}]"))?);
        }
        let mut env = Vec::with_capacity(self.env.len());
        for (index, (key, value)) in self.env.into_iter().enumerate() {
            env.push(variable(index, key, value)?);
        }
        let cwd = match self.cwd {
            Some(dir) if dir.is_empty() => return Err(invalid("current_dir", "is empty")),
            Some(dir) => Some(word(dir, || "current_dir".to_owned())?),
            None => None,
        };
        let resources = self.group.check().map_err(|error| {
            let why = format!("is {}, it must be {}", error.value, error.bound);
            invalid(error.field, why)
        })?;
        let request = Request {
            argv,
            env,
            cwd,
            // The connection sets the mode from the second argument of its `start`.
            stdin: StdinMode::Null,
            user: self.user.map(user).transpose()?,
            terminal: self.terminal.map(terminal).transpose()?,
            rlimits: rlimits(&self.rlimits)?,
            resources: (resources != Default::default()).then_some(resources),
        };
        Ok((self.hub, request, self.stdin.0))
    }
}

fn variable(index: usize, key: OsString, value: OsString) -> Result<EnvVar, ExecError> {
    let name = || format!("the name of env[{index}]");
    if key.is_empty() {
        return Err(invalid(name(), "is empty"));
    }
    if key.as_bytes().contains(&b'=') {
        return Err(invalid(name(), "contains '='"));
    }
    Ok(EnvVar {
        key: word(key, name)?,
        value: word(value, || format!("the value of env[{index}]"))?,
    })
}

/// `user`, `uid`, `user:group` or `uid:gid`. What is no number is a name.
fn user(text: OsString) -> Result<ByteVec, ExecError> {
    if text.is_empty() {
        return Err(invalid("user", "is empty"));
    }
    let text = word(text, || "user".to_owned())?;
    let wrong = |why: &str| Err(invalid("user", format!("is {}, {why}", shown(&text))));
    let mut parts = text.split(|byte| *byte == b':');
    let (user, group) = (parts.next().unwrap_or_default(), parts.next());
    if parts.next().is_some() {
        return wrong("it has at most one colon, between user and group");
    }
    if user.is_empty() {
        return wrong("it must begin with a user");
    }
    if group.is_some_and(<[u8]>::is_empty) {
        return wrong("a group must follow the colon");
    }
    let ids = [Some(user), group].into_iter().flatten();
    if ids.filter(|id| is_number(id)).any(|id| !is_id(id)) {
        return wrong(&format!("ids are at most {ID_MAX}"));
    }
    Ok(text)
}

fn is_number(text: &[u8]) -> bool {
    text.iter().all(u8::is_ascii_digit)
}

fn is_id(digits: &[u8]) -> bool {
    let text = std::str::from_utf8(digits).unwrap_or_default();
    text.parse::<u32>().is_ok_and(|id| id <= ID_MAX)
}

fn terminal(size: TerminalSize) -> Result<forebay_exec_proto::TerminalSize, ExecError> {
    if size.is_possible() {
        return Ok(size.into());
    }
    let TerminalSize { rows, cols } = size;
    let why = format!("is {rows} rows of {cols} columns, there must be at least one of each");
    Err(invalid("terminal", why))
}

fn rlimits(limits: &[(Resource, u64, u64)]) -> Result<Vec<Rlimit>, ExecError> {
    // A repeated one ends it, so it never grows beyond the number of resources.
    let mut wire: Vec<Rlimit> = Vec::new();
    for &(resource, soft, hard) in limits {
        let field = || format!("rlimit({resource})");
        let number = resource.number();
        if wire.iter().any(|known| known.resource == number) {
            return Err(invalid(field(), "is given twice"));
        }
        if soft > hard {
            let why =
                format!("has a soft limit of {soft}, it must be at most the hard one of {hard}");
            return Err(invalid(field(), why));
        }
        wire.push(Rlimit {
            resource: number,
            soft,
            hard,
        });
    }
    Ok(wire)
}

fn word(text: OsString, field: impl FnOnce() -> String) -> Result<ByteVec, ExecError> {
    if text.as_bytes().contains(&0) {
        return Err(invalid(field(), "contains a NUL byte"));
    }
    Ok(ByteVec::from(text.into_vec()))
}

/// A refused text in quotes, cut to a readable length.
fn shown(text: &[u8]) -> String {
    let text = OsStr::from_bytes(text).to_string_lossy();
    match text.char_indices().nth(VALUE_SHOWN) {
        Some((cut, _)) => format!("{:?}…", text.get(..cut).unwrap_or_default()),
        None => format!("{text:?}"),
    }
}

pub(super) fn invalid(field: impl Into<String>, why: impl Into<String>) -> ExecError {
    ExecError::InvalidRequest {
        field: field.into(),
        why: why.into(),
    }
}

#[cfg(test)]
#[path = "request_test.rs"]
mod tests;
