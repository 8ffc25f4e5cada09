//! Paths of a tree, as bytes: what archives mean by them, and which no tree takes.

use super::Refused;

/// Longest path, in bytes: the kernel takes none that is longer.
const PATH_MAX: usize = 4095;
/// Longest name in a directory, in bytes.
const NAME_MAX: usize = 255;

/// A path relative to the root, without `.` and double slashes: what archives mean by a name. The
/// root itself is empty.
pub(super) fn clean(path: &[u8]) -> Result<Vec<u8>, Refused> {
    let refuse = |reason: &str| Err(Refused::new(path, reason));
    if path.starts_with(b"/") {
        return refuse("the path is absolute");
    }
    if path.contains(&0) {
        return refuse("the path has a NUL byte in it");
    }
    let mut clean = Vec::with_capacity(path.len());
    for part in parts(path) {
        if part == b".." {
            return refuse("the path has `..` in it");
        }
        if part.len() > NAME_MAX {
            let reason = format!("a name in it is longer than {NAME_MAX} bytes");
            return Err(Refused::new(path, reason));
        }
        clean = join(&clean, part);
    }
    check_len(path, &clean)?;
    Ok(clean)
}

pub(super) fn check_len(given: &[u8], path: &[u8]) -> Result<(), Refused> {
    if path.len() <= PATH_MAX {
        return Ok(());
    }
    // All of it would say no more.
    let shown = given.get(..64).unwrap_or(given);
    let reason = format!("the path is longer than {PATH_MAX} bytes");
    Err(Refused::new(shown, reason))
}

/// A target is only looked up in the guest, where it cannot leave the root; but one that climbs out
/// of it means something that is not in the tree, and was not written by whoever made it with care.
pub(super) fn check_target(path: &[u8], target: &[u8]) -> Result<(), Refused> {
    let refuse = |reason: &str| {
        let shown = String::from_utf8_lossy(target.get(..64).unwrap_or(target));
        Err(Refused::new(path, format!("link to {shown:?}: {reason}")))
    };
    if target.is_empty() || target.len() > PATH_MAX || target.contains(&0) {
        return refuse("a target has 1 to 4095 bytes and no NUL");
    }
    let mut depth = match target.starts_with(b"/") {
        true => 0,
        false => parts(parent(path)).count(),
    };
    for part in parts(target) {
        depth = match part {
            b".." if depth == 0 => return refuse("it leaves the root"),
            b".." => depth - 1,
            _ => depth + 1,
        };
    }
    Ok(())
}

pub(super) fn parts(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/')
        .filter(|part| !matches!(*part, b"" | b"."))
}

pub(super) fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    match directory {
        b"" => name.to_vec(),
        _ => [directory, b"/", name].concat(),
    }
}

/// The directory that a clean path is in.
pub(super) fn parent(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    path.get(..end).unwrap_or_default()
}
