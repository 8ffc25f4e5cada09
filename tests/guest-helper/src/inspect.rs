//! Commands that show what a process was started with.

use std::fs;

use crate::Outcome;

/// Lists the open descriptors and where they lead, one a line, without the one of the listing.
pub(crate) fn fds() -> Outcome {
    let mut lines = Vec::new();
    for entry in fs::read_dir("/proc/self/fd")? {
        let entry = entry?;
        let number: u32 = entry.file_name().to_string_lossy().parse()?;
        // Two kinds of entry are the listing's own: its directory, and what is gone by now.
        let Ok(target) = fs::read_link(entry.path()) else {
            continue;
        };
        let target = target.to_string_lossy().into_owned();
        let own = format!("/proc/{}/fd", std::process::id());
        if target != own {
            lines.push((number, target));
        }
    }
    lines.sort();
    for (number, target) in lines {
        println!("{number} {target}");
    }
    Ok(0)
}

/// Prints which signals are blocked and ignored: as they were inherited, since `main` runs without
/// the start-up of std, which would ignore SIGPIPE.
pub(crate) fn sigmask() -> Outcome {
    let status = fs::read_to_string("/proc/self/status")?;
    for line in status.lines().filter(|line| {
        ["SigBlk:", "SigIgn:"]
            .iter()
            .any(|field| line.starts_with(field))
    }) {
        println!("{line}");
    }
    Ok(0)
}

/// Counts the processes that ended and were not collected.
pub(crate) fn zombies() -> Outcome {
    let mut count = 0;
    for entry in fs::read_dir("/proc")?.flatten() {
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        // The name may contain anything; the state follows its last bracket.
        if stat
            .rsplit(')')
            .next()
            .is_some_and(|rest| rest.trim_start().starts_with('Z'))
        {
            count += 1;
        }
    }
    println!("{count}");
    Ok(0)
}
