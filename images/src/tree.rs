//! A root file system in memory: names, what they stand for, and where the contents of files are.
//!
//! Owns the rules of what a tree may hold and how one layer changes what those below it left. It is
//! filled from archives, from directories and by hand, and is written out as an initramfs: nothing
//! of it is ever made in a file system of the host, so that it takes no privileges and nothing in it
//! can reach a host file.
//!
//! ```text
//! names:  "bin/sh" ─┐        nodes:  mode, owner, time
//!         "bin/ash" ┴──────▶         directory │ file ─▶ bytes, a host file, or a stretch of the spool
//! ```
//!
//! Names are sorted by their bytes, which puts a directory before what is in it. Two names of one
//! node are hard links. A name remembers its layer: a whiteout removes only what is of lower layers,
//! and only links of lower layers are followed.

mod path;
mod write;

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::ops::Bound;
use std::path::PathBuf;

use crate::spool::Stretch;
use path::{check_len, check_target, clean, join, parent};

/// Links followed on the way to one name, as in the kernel.
const HOPS_MAX: u32 = 40;
/// What all names that a tree is given and the targets of its links may take together, in bytes.
const NAMES_TOTAL_MAX: usize = 256 << 20;
/// How often a tree may be changed: entries added, directories above them, whiteouts.
const CHANGES_MAX: usize = 1 << 20;

/// Why something cannot be in a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    /// The path as it was given, for people.
    pub(crate) path: String,
    pub(crate) reason: String,
}

impl Refused {
    pub(crate) fn new(path: &[u8], reason: impl Into<String>) -> Self {
        Self {
            path: String::from_utf8_lossy(path).into_owned(),
            reason: reason.into(),
        }
    }
}

/// Permissions, owner and time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Meta {
    /// Permission bits, set-user-id, set-group-id and sticky included.
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Seconds since 1970.
    pub(crate) mtime: u32,
}

impl Meta {
    /// Root's, of time 0.
    pub(crate) fn of_root(mode: u32) -> Self {
        Self {
            mode,
            ..Self::default()
        }
    }
}

/// What a name stands for.
#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Directory,
    File(Contents),
    Symlink(Vec<u8>),
    CharDevice { major: u32, minor: u32 },
    BlockDevice { major: u32, minor: u32 },
    Fifo,
}

/// Where the contents of a file are until they are written.
#[derive(Debug, Clone)]
pub(crate) enum Contents {
    Bytes(Vec<u8>),
    /// A file of the host; its size is looked at when it is written.
    Host(PathBuf),
    Spooled(Stretch),
}

#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) meta: Meta,
    pub(crate) kind: Kind,
}

#[derive(Debug, Clone, Copy)]
struct Name {
    node: usize,
    layer: u32,
}

/// A root file system; see the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tree {
    names: BTreeMap<Vec<u8>, Name>,
    /// Those without a name any more stay until the tree goes.
    nodes: Vec<Node>,
    layer: u32,
    /// Directories in which this layer hid all that lower ones have: nothing of theirs comes back, so
    /// looking again would only cost time.
    hidden: HashSet<Vec<u8>>,
    /// How often something was added or taken away.
    changes: usize,
    /// Bytes of names and targets that were ever given, and of targets that were followed.
    names_total: usize,
}

impl Tree {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// What is added from now on lies over what is there.
    pub(crate) fn begin_layer(&mut self) {
        self.layer += 1;
        self.hidden.clear();
    }

    /// What a name stands for. Links on the way are not followed.
    pub(crate) fn get(&self, path: &[u8]) -> Option<&Node> {
        self.nodes.get(self.names.get(path)?.node)
    }

    /// Adds an entry, with the directories above it that are missing: root's, of mode 0755. A
    /// directory over a directory changes its metadata; anything else takes the place of what was
    /// there, with all below it.
    pub(crate) fn insert(&mut self, path: &[u8], node: Node) -> Result<(), Refused> {
        let clean = clean(path)?;
        if let Kind::Symlink(target) = &node.kind {
            check_target(&clean, target)?;
        }
        let directory = matches!(node.kind, Kind::Directory);
        if clean.is_empty() && !directory {
            return Err(Refused::new(path, "the root is a directory"));
        }
        let Some(place) = self.walk(path, &clean, true)? else {
            return Ok(());
        };
        let over_directory = self.is_directory(&place);
        if over_directory && !directory {
            self.remove(&place);
        }
        self.put(path, place, node)
    }

    /// Makes a directory where there is none: root's, of mode 0755, as the missing ones above it. One
    /// that is there stays as it is. Links of lower layers are followed, the last part's too.
    pub(crate) fn ensure_directory(&mut self, path: &[u8]) -> Result<(), Refused> {
        let inside = join(&clean(path)?, b"x");
        self.walk(path, &inside, true).map(drop)
    }

    /// Adds a hard link: another name of what `target` stands for, which is there already.
    pub(crate) fn link(&mut self, path: &[u8], target: &[u8]) -> Result<(), Refused> {
        let refuse = |reason: &str| {
            let target = String::from_utf8_lossy(target);
            Refused::new(path, format!("hard link to {target:?}: {reason}"))
        };
        let clean_target = clean(target).map_err(|refused| refuse(&refused.reason))?;
        let found = self
            .walk(target, &clean_target, false)
            .map_err(|refused| refuse(&refused.reason))?;
        let name = found.and_then(|found| self.names.get(&found).copied());
        let Some(name) = name else {
            return Err(refuse("there is no such file before it"));
        };
        if matches!(
            self.nodes.get(name.node),
            Some(Node {
                kind: Kind::Directory,
                ..
            })
        ) {
            return Err(refuse("it is a directory"));
        }
        let clean = clean(path)?;
        let Some(place) = self.walk(path, &clean, true)? else {
            return Ok(());
        };
        if place.is_empty() {
            return Err(Refused::new(path, "the root is a directory"));
        }
        // Of itself: nothing to do, and removing it first would lose it.
        if self
            .names
            .get(&place)
            .is_some_and(|own| own.node == name.node)
        {
            return Ok(());
        }
        if self.is_directory(&place) {
            self.remove(&place);
        }
        self.charge(path, place.len())?;
        let layer = self.layer;
        self.names.insert(place, Name { layer, ..name });
        Ok(())
    }

    /// Removes what lower layers have at a path, with all that they have below it.
    pub(crate) fn whiteout(&mut self, path: &[u8]) -> Result<(), Refused> {
        let clean = clean(path)?;
        if clean.is_empty() {
            return Err(Refused::new(path, "the root cannot be removed"));
        }
        self.charge(path, clean.len())?;
        if let Some(place) = self.walk(path, &clean, false)? {
            self.remove_lower(&place);
            let lower = self
                .names
                .get(&place)
                .is_some_and(|name| name.layer < self.layer);
            if lower && self.below(&place).next().is_none() {
                self.names.remove(&place);
            }
        }
        Ok(())
    }

    /// Removes what lower layers have in a directory, which stays.
    pub(crate) fn opaque(&mut self, path: &[u8]) -> Result<(), Refused> {
        let clean = clean(path)?;
        self.charge(path, clean.len())?;
        // As a parent of something: so a link of a lower layer is followed.
        let inside = join(&clean, b"x");
        if let Some(mut place) = self.walk(path, &inside, false)? {
            place.truncate(parent(&place).len());
            self.remove_lower(&place);
        }
        Ok(())
    }

    /// Removes a name and all below it; whether it was there.
    pub(crate) fn remove(&mut self, path: &[u8]) -> bool {
        let below: Vec<_> = self.below(path).cloned().collect();
        for name in &below {
            self.names.remove(name);
        }
        self.names.remove(path).is_some()
    }

    /// Removes the files below a directory that `unwanted` says so of; directories and links stay.
    pub(crate) fn remove_files(&mut self, directory: &[u8], unwanted: impl Fn(&[u8]) -> bool) {
        let is_file = |name: &[u8]| {
            matches!(
                self.get(name),
                Some(Node {
                    kind: Kind::File(_),
                    ..
                })
            )
        };
        let below = self.below(directory);
        let gone: Vec<_> = below
            .filter(|name| is_file(name) && unwanted(name))
            .cloned()
            .collect();
        for name in gone {
            self.names.remove(&name);
        }
    }

    /// Whether a directory is there.
    pub(crate) fn is_directory(&self, path: &[u8]) -> bool {
        path.is_empty()
            || matches!(
                self.get(path),
                Some(Node {
                    kind: Kind::Directory,
                    ..
                })
            )
    }

    /// Removes what lower layers have below a directory. Their directories stay that something of
    /// this layer is in.
    fn remove_lower(&mut self, directory: &[u8]) {
        if !self.hidden.insert(directory.to_vec()) {
            return;
        }
        let is_own = |name: &[u8]| {
            let name = self.names.get(name);
            name.is_some_and(|name| name.layer == self.layer)
        };
        // Not by their neighbours: between `a` and `a/x` there may be `a-b`.
        let mut needed: HashSet<&[u8]> = HashSet::new();
        for own in self.below(directory).filter(|name| is_own(name)) {
            let mut above = parent(own);
            while above.len() > directory.len() && needed.insert(above) {
                above = parent(above);
            }
        }
        let gone: Vec<_> = self
            .below(directory)
            .filter(|name| !is_own(name) && !needed.contains(name.as_slice()))
            .cloned()
            .collect();
        for name in gone {
            self.names.remove(&name);
        }
    }

    /// The names below a directory, in order.
    fn below(&self, directory: &[u8]) -> impl Iterator<Item = &Vec<u8>> {
        let bounds = if directory.is_empty() {
            (Bound::Excluded(Vec::new()), Bound::Unbounded)
        } else {
            // '0' follows '/' in ASCII.
            (
                Bound::Excluded([directory, b"/"].concat()),
                Bound::Excluded([directory, b"0"].concat()),
            )
        };
        self.names.range(bounds).map(|(name, _)| name)
    }

    fn put(&mut self, path: &[u8], place: Vec<u8>, node: Node) -> Result<(), Refused> {
        let target = match &node.kind {
            Kind::Symlink(target) => target.len(),
            _ => 0,
        };
        self.charge(path, place.len() + target)?;
        let name = Name {
            node: self.nodes.len(),
            layer: self.layer,
        };
        self.nodes.push(node);
        self.names.insert(place, name);
        Ok(())
    }

    /// Counts a change, and the bytes that it names: what a source asks for costs what it may.
    fn charge(&mut self, path: &[u8], bytes: usize) -> Result<(), Refused> {
        self.changes += 1;
        self.names_total += bytes;
        if self.changes > CHANGES_MAX {
            return Err(Refused::new(
                path,
                format!("more than {CHANGES_MAX} entries"),
            ));
        }
        if self.names_total > NAMES_TOTAL_MAX {
            let bound = format!("paths and link targets take more than {NAMES_TOTAL_MAX} bytes");
            return Err(Refused::new(path, bound));
        }
        Ok(())
    }

    /// Where a path leads: its last part is not followed, links of lower layers before it are. With
    /// `create`, missing directories on the way are made; without it, `None` if one is missing.
    fn walk(
        &mut self,
        given: &[u8],
        clean: &[u8],
        create: bool,
    ) -> Result<Option<Vec<u8>>, Refused> {
        let mut parts: VecDeque<Vec<u8>> = path::parts(clean).map(<[u8]>::to_vec).collect();
        let Some(last) = parts.pop_back() else {
            return Ok(Some(Vec::new()));
        };
        let mut at = Vec::new();
        let mut hops = 0;
        while let Some(part) = parts.pop_front() {
            if part == b".." {
                // Of a link's target, which was checked not to leave the root where it lay; from a
                // directory that a link led to it still could.
                if at.is_empty() {
                    return Err(Refused::new(given, "a link on its way leaves the root"));
                }
                at.truncate(parent(&at).len());
                continue;
            }
            let next = join(&at, &part);
            check_len(given, &next)?;
            let Some(&name) = self.names.get(&next) else {
                if !create {
                    return Ok(None);
                }
                let made = Node {
                    meta: Meta::of_root(0o755),
                    kind: Kind::Directory,
                };
                self.put(given, next.clone(), made)?;
                at = next;
                continue;
            };
            let shown = || String::from_utf8_lossy(&next).into_owned();
            match self.nodes.get(name.node).map(|node| &node.kind) {
                Some(Kind::Directory) => at = next,
                Some(Kind::Symlink(target)) if name.layer < self.layer => {
                    hops += 1;
                    if hops > HOPS_MAX {
                        let reason = format!("more than {HOPS_MAX} links on its way");
                        return Err(Refused::new(given, reason));
                    }
                    // To be looked up as if it had been given.
                    self.names_total += target.len();
                    if target.starts_with(b"/") {
                        at.clear();
                    }
                    for part in path::parts(target).rev() {
                        parts.push_front(part.to_vec());
                    }
                }
                Some(Kind::Symlink(_)) => {
                    let reason = format!("it would be written through the link {:?}", shown());
                    return Err(Refused::new(given, reason));
                }
                _ => {
                    let reason = format!("{:?} above it is not a directory", shown());
                    return Err(Refused::new(given, reason));
                }
            }
        }
        let place = join(&at, &last);
        check_len(given, &place)?;
        Ok(Some(place))
    }
}

#[cfg(test)]
#[path = "tree_test.rs"]
mod tests;
