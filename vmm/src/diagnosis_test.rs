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

#[test]
fn a_missing_init_and_an_init_that_ended_are_told_apart() {
    let cause = |console| likely_cause(BootPhase::KernelToAgent, &panic(), console).unwrap();
    assert!(cause("Kernel panic - not syncing: No working init found.").contains("no `/init`"));
    assert!(
        cause("VFS: Unable to mount root fs on unknown-block(0,0)").contains("got no initramfs")
    );
    assert!(
        cause("Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000100")
            .contains("init ended")
    );
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
