//! What all executions together may take of a guest, so that the agent and the kernel keep enough
//! to answer, to kill and to start anew.

use std::fs;

const MIB: u64 = 1 << 20;

/// Smallest memory left to the agent and the kernel: eight times what the agent has with all
/// executions running.
const RESERVE_MIN: u64 = 8 * MIB;

/// Bytes that the executions may hold of the guest's memory; `None` if that cannot be learned.
pub(super) fn memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    Some(memory_limit(
        meminfo(&text, "MemTotal:")?,
        meminfo(&text, "MemAvailable:")?,
    ))
}

/// Processes and threads that the executions may have of the kernel's numbers.
pub(super) fn processes() -> Option<u64> {
    let read = |path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let threads = read("/proc/sys/kernel/threads-max")?;
    let numbers = read("/proc/sys/kernel/pid_max")?;
    Some(leave_room(threads.min(numbers)))
}

/// One figure of `/proc/meminfo`, in bytes.
fn meminfo(text: &str, field: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// What the executions may take of the memory that is `available` before the first one: all but
/// the larger of 8 MiB and a twentieth of the total, and never less than half. What the kernel and
/// the initramfs hold already is nobody's to limit.
fn memory_limit(total: u64, available: u64) -> u64 {
    let reserve = (total / 20).max(RESERVE_MIN);
    available.saturating_sub(reserve).max(available / 2)
}

/// All but the larger of 32 and an eighth, and never less than half.
fn leave_room(processes: u64) -> u64 {
    let reserve = (processes / 8).max(32);
    processes.saturating_sub(reserve).max(processes / 2)
}

#[cfg(test)]
#[path = "reserve_test.rs"]
mod tests;
