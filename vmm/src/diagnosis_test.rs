use super::*;

fn panic() -> StopReason {
    StopReason::Panic { message: None }
}

fn overdue() -> StopReason {
    StopReason::BootDeadline {
        limit_ms: 1,
        halted: false,
    }
}

/// What is said of a console that ends in a panic.
fn cause(console: &str) -> &'static str {
    likely_cause(BootPhase::KernelToAgent, &panic(), console).unwrap()
}

#[test]
fn an_init_that_is_missing_broken_or_over_is_told_apart() {
    let missing = "\
        check access for rdinit=/init failed: -2, ignoring\n\
        /dev/root: Can't open blockdev\n\
        VFS: Cannot open root device \"\" or unknown-block(0,0): error -6\n\
        Please append a correct \"root=\" boot option; here are the available partitions:\n\
        Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)\n";
    assert!(cause(missing).contains("no `/init`"));
    let nothing = missing.split_once('\n').unwrap().1;
    assert!(cause(nothing).contains("got no initramfs"));
    let broken = "\
        Failed to execute /init (error -8)\n\
        Kernel panic - not syncing: No working init found.  Try passing init= option to kernel. \
        See Linux Documentation/admin-guide/init.rst for guidance.\n";
    assert!(cause(broken).contains("`/init` in the initramfs cannot be executed"));
    let named = "\
        Kernel panic - not syncing: Requested init /bin/nothing failed (error -2).\n";
    assert!(cause(named).contains("`init=`"));
    let over = "\
        Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000100\n";
    assert!(cause(over).contains("init ended"));
}

#[test]
fn an_initramfs_that_could_not_be_unpacked_is_behind_what_is_missing_then() {
    let then = "\
        check access for rdinit=/init failed: -2, ignoring\n\
        Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)\n";
    let damaged = "Initramfs unpacking failed: invalid magic at start of compressed archive\n";
    assert!(cause(&format!("{damaged}{then}")).contains("damaged"));
    let full = "Initramfs unpacking failed: write error\n";
    assert!(cause(&format!("{full}{then}")).contains("`memory_mib`"));
}

#[test]
fn a_guest_without_memory_is_told_before_the_init_that_it_killed() {
    let killed = "\
        Out of memory: Killed process 71 (agent) total-vm:9000kB\n\
        Kernel panic - not syncing: System is deadlocked on memory\n\
        Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000009\n";
    assert!(cause(killed).contains("`memory_mib`"));
}

#[test]
fn silence_is_explained_by_how_far_it_came() {
    let causes: std::collections::HashSet<_> = [
        BootPhase::KernelStart,
        BootPhase::KernelToAgent,
        BootPhase::AgentHandshake,
    ]
    .into_iter()
    .map(|phase| likely_cause(phase, &overdue(), "").unwrap())
    .collect();
    assert_eq!(causes.len(), 3);
}

#[test]
fn nothing_is_invented() {
    assert_eq!(
        likely_cause(BootPhase::KernelToAgent, &StopReason::Requested, ""),
        None
    );
    assert_eq!(
        likely_cause(BootPhase::KernelToAgent, &panic(), "something new"),
        None
    );
}

#[test]
fn the_console_of_a_failed_boot_is_shown_without_effect_on_a_terminal() {
    let failure = BootFailure {
        phase: BootPhase::KernelToAgent,
        elapsed: std::time::Duration::ZERO,
        reason: panic(),
        console: "one\n\x1b[2Jtwo".into(),
        cause: None,
    };
    let text = failure.to_string();
    assert!(text.ends_with("one\n\\u{1b}[2Jtwo"), "{text}");
}
