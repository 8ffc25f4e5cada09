//! What a build left out or replaced, for the person who asked for the image.

use crate::MemoryNeed;
use crate::foreign_text::shown;

/// How many paths of one kind are named.
const NAMED: usize = 5;

/// What was left out or replaced; see [`lines`](Self::lines).
#[derive(Debug, Clone, Default)]
pub(crate) struct Notes {
    attributes: Paths,
    sockets: Paths,
    times: Paths,
    init: Option<&'static str>,
    too_large: Option<&'static str>,
}

#[derive(Debug, Clone, Default)]
struct Paths {
    count: u64,
    first: Vec<String>,
}

impl Notes {
    pub(crate) fn attributes_lost(&mut self, path: &[u8]) {
        self.attributes.add(path);
    }

    pub(crate) fn socket_left_out(&mut self, path: &[u8]) {
        self.sockets.add(path);
    }

    /// The time of a file that its source gives this one: the nearest that an initramfs can say, and
    /// none after `newest`, all in seconds since 1970. The first is noted, the second was asked for.
    pub(crate) fn time(&mut self, path: &[u8], seconds: i64, newest: Option<u32>) -> u32 {
        let wanted = newest.map_or(seconds, |newest| seconds.min(newest.into()));
        let nearest = wanted.clamp(0, u32::MAX.into());
        if nearest != wanted {
            self.times.add(path);
        }
        nearest as u32
    }

    pub(crate) fn init_replaced(&mut self) {
        self.init = Some("its own /init is not in the image: the agent has that place");
    }

    pub(crate) fn memory_need(&mut self, need: MemoryNeed) {
        if !need.can_be_met() {
            self.too_large = Some(
                "no guest can boot it: its kernel and archives must lie below 3 GiB, whatever memory \
                 the guest has; leave something out",
            );
        }
    }

    /// One line each, ready to be shown.
    pub(crate) fn lines(&self) -> Vec<String> {
        let attributes = self.attributes.line(
            "extended attributes are lost, file capabilities among them: an initramfs has none",
        );
        let sockets = self.sockets.line("sockets are left out");
        let times = self
            .times
            .line("times before 1970 or after 2106 are the nearest in between: an initramfs has no others");
        let init = self.init.map(str::to_owned);
        let too_large = self.too_large.map(str::to_owned);
        let lines = [attributes, sockets, times, init, too_large];
        lines.into_iter().flatten().collect()
    }
}

impl Paths {
    fn add(&mut self, path: &[u8]) {
        self.count += 1;
        if self.first.len() < NAMED {
            self.first.push(shown(&String::from_utf8_lossy(path)));
        }
    }

    fn line(&self, what: &str) -> Option<String> {
        let named = self.first.join(", ");
        let more = self.count.checked_sub(self.first.len() as u64)?;
        match (self.count, more) {
            (0, _) => None,
            (_, 0) => Some(format!("{what} ({named})")),
            _ => Some(format!("{what} ({named} and {more} more)")),
        }
    }
}

#[cfg(test)]
#[path = "notes_test.rs"]
mod tests;
