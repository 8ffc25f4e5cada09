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
    likely_cause(BootPhase::KernelToAgent, Drivers::Both, &panic(), console).unwrap()
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
    .map(|phase| {
        let drivers = match phase {
            BootPhase::KernelStart => Drivers::Neither,
            _ => Drivers::Both,
        };
        likely_cause(phase, drivers, &overdue(), "").unwrap()
    })
    .collect();
    assert_eq!(causes.len(), 3);
}

#[test]
fn the_option_that_a_silent_kernel_lacks_follows_from_what_it_did_with_the_device() {
    let cause = |drivers, reason: &StopReason| {
        likely_cause(BootPhase::KernelStart, drivers, reason, "").unwrap()
    };
    let halted = StopReason::BootDeadline {
        limit_ms: 1,
        halted: true,
    };
    for stuck in [overdue(), StopReason::PowerOff] {
        let neither = cause(Drivers::Neither, &stuck);
        assert!(neither.contains("CONFIG_VIRTIO_MMIO=y"), "{neither}");
        assert!(neither.contains("modules"), "{neither}");
        let console = cause(Drivers::TransportOnly, &stuck);
        assert!(console.contains("CONFIG_VIRTIO_CONSOLE=y"), "{console}");
    }
    // Only without ACPI can a guest that wants to be off do no more than halt.
    let without_acpi = cause(Drivers::Neither, &halted);
    assert!(without_acpi.contains("CONFIG_ACPI=y"), "{without_acpi}");
    assert!(!without_acpi.contains("CONFIG_VIRTIO_MMIO"));
}

#[test]
fn the_option_that_the_console_speaks_of_is_named() {
    for (console, option) in [
        (
            "ACPI Error: AE_BAD_PARAMETER, During Region initialization (20240827/tbxfload-52)\n\
             ACPI: Unable to load the System Description Tables\n",
            "CONFIG_PCI=y",
        ),
        (
            "Initramfs unpacking failed: compression method zstd not configured\n",
            "CONFIG_RD_",
        ),
        (
            "Failed to execute /init (error -8)\nRun /sbin/init as init process\n",
            "CONFIG_BINFMT_ELF=y",
        ),
        (
            "VFS: Cannot open root device \"\" or unknown-block(0,0): error -6\n\
             Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)\n",
            "CONFIG_BLK_DEV_INITRD=y",
        ),
        (
            "forebay-init: cannot mount devtmpfs on /dev: No such device (os error 19)\n\
             forebay-init: fatal: no agent port: timed out\n",
            "CONFIG_DEVTMPFS=y",
        ),
    ] {
        assert!(
            cause(console).contains(option),
            "{option}: {}",
            cause(console)
        );
    }
}

#[test]
fn nothing_is_invented() {
    assert_eq!(
        likely_cause(
            BootPhase::KernelStart,
            Drivers::Neither,
            &StopReason::Requested,
            ""
        ),
        None
    );
    assert_eq!(
        likely_cause(
            BootPhase::KernelToAgent,
            Drivers::Both,
            &panic(),
            "something new"
        ),
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
