//! Who a command runs as: `user`, `uid`, `user:group` or `uid:gid`, looked up in the guest's own
//! `/etc/passwd` and `/etc/group`, anew for each command.
//!
//! The child looks it up, not the agent: those files belong to the image, and whatever they are (on
//! a file system that does not answer, endless, a FIFO) can hold up no execution but the one that
//! asked for them. What the child needs for it exists before the child does; it allocates nothing.
//!
//! | asked for | group | other groups | `HOME`, `SHELL`, `USER` and `LOGNAME` |
//! |---|---|---|---|
//! | a name, or a number with an entry | the entry's | all those that list the name | the entry's |
//! | a number without an entry | the same number | none | `/` (`/root` for 0), the others unset |
//! | either with `:group` | the one given | none | as without |
//!
//! * What consists of digits is a number, whatever the files call it; a number needs no entry. A file
//!   that is missing has none; one that cannot be used fails every request that names a user.
//! * The first entry of several counts; a line that is no entry is passed over.
//! * An explicit group stands in place of all others, as with `docker run --user`. Unlike there, a
//!   number without an entry does not get group 0: nobody who is not root is in root's group unless
//!   the image or the request says so.
//! * The four variables are set where neither the request nor the VM sets them, and only if the
//!   request names a user.
//! * The command's pipes, or its terminal, become the user's, so that it can open `/dev/stdout`.

use std::ffi::{CStr, CString};
use std::fmt;
use std::os::fd::AsFd;

use forebay_exec_proto::Failure;
use rustix::fs::{FileType, Gid, Mode, OFlags, Uid};
use rustix::io::{Errno, retry_on_intr};

use crate::command::shown;
use crate::failure::{self, Stage};

/// Largest file of users or groups that is read.
const FILE_MAX: usize = 1 << 20;

/// Longest entry of a user that is taken, as a home or a shell beyond it is no path.
pub(crate) const ENTRY_MAX: usize = libc::PATH_MAX as usize;

/// Groups that a process can be in (`NGROUPS_MAX` of `linux/limits.h`).
const GROUPS_MAX: usize = 65_536;

/// The shell of an entry that names none, as passwd(5) says.
const DEFAULT_SHELL: &[u8] = b"/bin/sh";

/// A user or group as a request names it.
#[derive(Debug, PartialEq, Eq)]
enum Id {
    Number(u32),
    Name(Vec<u8>),
}

impl Id {
    fn parse(text: &[u8]) -> Option<Self> {
        match number(text) {
            Some(number) => Some(Self::Number(number)),
            // A number that nobody can have, or nothing at all.
            None if text.iter().all(u8::is_ascii_digit) => None,
            None => Some(Self::Name(text.to_vec())),
        }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Name(name) => f.write_str(&shown(name)),
        }
    }
}

/// Whom a request asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Who {
    user: Id,
    group: Option<Id>,
}

impl Who {
    /// Takes `user`, `uid`, `user:group` or `uid:gid` apart.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, Failure> {
        let mut parts = text.split(|byte| *byte == b':');
        let user = parts.next().and_then(Id::parse);
        let group = parts.next().map(Id::parse);
        match (user, group, parts.next()) {
            (Some(user), None, None) => Ok(Self { user, group: None }),
            (Some(user), Some(Some(group)), None) => Ok(Self {
                user,
                group: Some(group),
            }),
            _ => Err(failure::bad_user(&shown(text))),
        }
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.user)?;
        match &self.group {
            Some(group) => write!(f, ":{group}"),
            None => Ok(()),
        }
    }
}

/// Where users and groups are looked up.
pub(crate) struct Files {
    pub(crate) passwd: CString,
    pub(crate) group: CString,
}

impl Files {
    /// The guest's own.
    pub(crate) fn system() -> Self {
        Self {
            passwd: c"/etc/passwd".to_owned(),
            group: c"/etc/group".to_owned(),
        }
    }
}

/// Why nobody was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Fault {
    /// No user has that name.
    UnknownUser,
    /// No group has that name.
    UnknownGroup,
    /// `/etc/passwd` cannot be used.
    Passwd,
    /// `/etc/group` cannot be used.
    Group,
}

impl Fault {
    const ALL: [Self; 4] = [
        Self::UnknownUser,
        Self::UnknownGroup,
        Self::Passwd,
        Self::Group,
    ];

    /// Reads what the child wrote.
    pub(crate) fn from_wire(value: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|fault| *fault as u8 == value)
    }
}

/// Who was found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Identity<'a> {
    pub(crate) uid: Uid,
    pub(crate) gid: Gid,
    /// All groups, [`Self::gid`] first.
    pub(crate) groups: &'a [Gid],
    pub(crate) home: &'a [u8],
    /// `None` without an entry.
    pub(crate) name: Option<&'a [u8]>,
    /// `None` without an entry.
    pub(crate) shell: Option<&'a [u8]>,
}

impl Identity<'_> {
    /// Makes the calling thread this user. Of root's groups and privileges nothing is left.
    pub(crate) fn assume(&self) -> Result<(), (Stage, Errno)> {
        use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
        let (uid, gid) = (self.uid, self.gid);
        set_thread_groups(self.groups).map_err(|errno| (Stage::Groups, errno))?;
        set_thread_res_gid(gid, gid, gid).map_err(|errno| (Stage::Gid, errno))?;
        set_thread_res_uid(uid, uid, uid).map_err(|errno| (Stage::Uid, errno))
    }
}

/// A search for a user, and the room that it takes.
pub(crate) struct Lookup<'a> {
    who: &'a Who,
    files: &'a Files,
    passwd: Vec<u8>,
    group: Vec<u8>,
    groups: Vec<Gid>,
}

impl<'a> Lookup<'a> {
    /// Reserves the room, of which the caller itself touches nothing. `None` without the memory.
    pub(crate) fn prepare(who: &'a Who, files: &'a Files) -> Option<Self> {
        Some(Self {
            who,
            files,
            // One byte more tells a file that is too large from one that just fits.
            passwd: reserve(FILE_MAX.saturating_add(1))?,
            group: reserve(FILE_MAX.saturating_add(1))?,
            groups: reserve(GROUPS_MAX)?,
        })
    }

    /// Searches. Allocates nothing, but waits for the files: for the child only.
    pub(crate) fn find(&mut self) -> Result<Identity<'_>, (Fault, Errno)> {
        read(&self.files.passwd, &mut self.passwd).map_err(|errno| (Fault::Passwd, errno))?;
        let entry = User::all(&self.passwd).find(|user| match &self.who.user {
            Id::Number(number) => user.uid == *number,
            Id::Name(name) => user.name == name,
        });
        let (uid, mut gid) = match (&entry, &self.who.user) {
            (Some(user), _) if user.line > ENTRY_MAX => {
                return Err((Fault::Passwd, Errno::RANGE));
            }
            (Some(user), _) => (user.uid, user.gid),
            (None, Id::Number(number)) => (*number, *number),
            (None, Id::Name(_)) => return Err((Fault::UnknownUser, Errno::NOENT)),
        };
        let others = match (&self.who.group, &entry) {
            (Some(Id::Number(number)), _) => {
                gid = *number;
                None
            }
            (Some(Id::Name(name)), _) => {
                read(&self.files.group, &mut self.group).map_err(|errno| (Fault::Group, errno))?;
                gid = Group::all(&self.group)
                    .find(|group| group.name == name)
                    .ok_or((Fault::UnknownGroup, Errno::NOENT))?
                    .gid;
                None
            }
            (None, Some(user)) => {
                read(&self.files.group, &mut self.group).map_err(|errno| (Fault::Group, errno))?;
                Some(user.name)
            }
            (None, None) => None,
        };
        let listed = Group::all(&self.group)
            .filter(|group| others.is_some_and(|name| group.has(name)) && group.gid != gid)
            .map(|group| group.gid);
        for gid in std::iter::once(gid).chain(listed) {
            // Never beyond what was reserved.
            if self.groups.len() == GROUPS_MAX {
                return Err((Fault::Group, Errno::TOOBIG));
            }
            self.groups.push(Gid::from_raw(gid));
        }
        let home = match &entry {
            Some(user) => or(user.home, b"/"),
            None if uid == 0 => b"/root",
            None => b"/",
        };
        Ok(Identity {
            uid: Uid::from_raw(uid),
            gid: Gid::from_raw(gid),
            groups: &self.groups,
            home,
            name: entry.as_ref().map(|user| user.name),
            shell: entry.as_ref().map(|user| or(user.shell, DEFAULT_SHELL)),
        })
    }
}

/// A line of `/etc/passwd`.
struct User<'a> {
    name: &'a [u8],
    uid: u32,
    gid: u32,
    home: &'a [u8],
    shell: &'a [u8],
    /// Its length.
    line: usize,
}

impl<'a> User<'a> {
    fn all(file: &'a [u8]) -> impl Iterator<Item = Self> {
        lines(file).filter_map(|line| {
            let mut fields = line.split(|byte| *byte == b':');
            let (name, _password) = (fields.next()?, fields.next()?);
            let (uid, gid) = (number(fields.next()?)?, number(fields.next()?)?);
            let _real_name = fields.next();
            Some(Self {
                name,
                uid,
                gid,
                home: fields.next().unwrap_or_default(),
                shell: fields.next().unwrap_or_default(),
                line: line.len(),
            })
        })
    }
}

/// A line of `/etc/group`.
struct Group<'a> {
    name: &'a [u8],
    gid: u32,
    members: &'a [u8],
}

impl<'a> Group<'a> {
    fn all(file: &'a [u8]) -> impl Iterator<Item = Self> {
        lines(file).filter_map(|line| {
            let mut fields = line.split(|byte| *byte == b':');
            let (name, _password) = (fields.next()?, fields.next()?);
            let gid = number(fields.next()?)?;
            let members = fields.next().unwrap_or_default();
            Some(Self { name, gid, members })
        })
    }

    fn has(&self, name: &[u8]) -> bool {
        self.members
            .split(|byte| *byte == b',')
            .any(|member| member == name)
    }
}

/// The lines that can be entries: a name comes first, and nothing ends a string early.
fn lines(file: &[u8]) -> impl Iterator<Item = &[u8]> {
    file.split(|byte| *byte == b'\n')
        .filter(|line| !matches!(line.first(), None | Some(b':')) && !line.contains(&0))
}

/// A user's or group's number: digits only, and not the one that stands for "no change".
fn number(text: &[u8]) -> Option<u32> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = std::str::from_utf8(text).ok()?.parse().ok()?;
    (number != u32::MAX).then_some(number)
}

fn or<'a>(field: &'a [u8], default: &'static [u8]) -> &'a [u8] {
    if field.is_empty() { default } else { field }
}

/// An empty vector with room for `n`.
fn reserve<T>(n: usize) -> Option<Vec<T>> {
    let mut room = Vec::new();
    room.try_reserve_exact(n).ok()?;
    Some(room)
}

/// Reads a whole file into the room of `text`. One that is missing is empty; what is no regular
/// file (`EINVAL`) or larger than [`FILE_MAX`] (`EFBIG`) is not read.
fn read(path: &CStr, text: &mut Vec<u8>) -> Result<(), Errno> {
    // Opening a FIFO must not wait for its writer, nor a terminal become the session's.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = match retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty())) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
        file => file?,
    };
    let stat = rustix::fs::fstat(&file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Errno::INVAL);
    }
    while retry_on_intr(|| rustix::io::read(file.as_fd(), rustix::buffer::spare_capacity(text)))?
        > 0
    {
        if text.len() > FILE_MAX {
            return Err(Errno::FBIG);
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "user_test.rs"]
mod tests;
