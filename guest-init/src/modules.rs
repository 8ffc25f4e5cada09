//! Loads the kernel modules that the image lists in `/etc/forebay/modules`.
//!
//! The list has one absolute path per line, in the order of loading; empty lines and lines that
//! begin with `#` are skipped. The image's builder resolves dependencies, not PID 1. Compressed
//! modules need a kernel that decompresses them itself.

use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

const LIST: &str = "/etc/forebay/modules";

/// `MODULE_INIT_COMPRESSED_FILE` of `linux/module.h`.
const COMPRESSED: i32 = 4;

/// Loads every listed module, and returns what went wrong, to be said when there is a console; `None`
/// where nothing is listed.
pub(crate) fn load_listed() -> Option<Vec<String>> {
    let list = std::fs::read_to_string(LIST).ok()?;
    let problem = |path| match load(path) {
        Ok(()) | Err(Errno::EXIST) => None,
        Err(error) => Some(format!("cannot load module {path}: {error}")),
    };
    Some(listed(&list).filter_map(problem).collect())
}

fn listed(list: &str) -> impl Iterator<Item = &str> {
    list.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
}

fn flags(path: &str) -> i32 {
    match Path::new(path).extension() {
        Some(ending) if ending == "xz" || ending == "zst" || ending == "gz" => COMPRESSED,
        _ => 0,
    }
}

fn load(path: &str) -> Result<(), Errno> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::system::finit_module(&file, c"", flags(path))
}

#[cfg(test)]
#[path = "modules_test.rs"]
mod tests;
