//! Every rule that a saved deadline must keep, each broken once.

use core::time::Duration;

use super::format::{DeadlineV1, ExecV1, StageV1};
use super::hostile_tests::saved;
use super::rules_tests::{condemned, ended, exit_status, failed, refused, streaming, unheard_of};
use super::*;
use crate::host::execution::Terminal;
use crate::host::{CONFIRM_WITHIN, TIMEOUT_MAX};

fn timed_out(exec: &ExecV1) -> bool {
    matches!(exec.terminal, Some(Terminal::TimedOut { .. }))
}

fn expired(exec: &ExecV1) -> bool {
    let stage = exec.deadline.map(|deadline| deadline.stage);
    matches!(stage, Some(StageV1::Expired { .. }))
}

#[test]
fn each_rule_of_a_deadline_is_checked() {
    const INSTANT: Duration = Duration::from_nanos(1);
    let deadline = |limit, stage| {
        Some(DeadlineV1 {
            limit,
            stage,
            left: None,
            killed: false,
        })
    };
    let unconfirmed = deadline(INSTANT, StageV1::Unconfirmed);
    for pick in [ended, failed, condemned] {
        refused(pick, "has a deadline", |exec| exec.deadline = unconfirmed);
    }
    for limit in [Duration::ZERO, TIMEOUT_MAX + INSTANT] {
        let stage = StageV1::Running {
            left: Duration::ZERO,
        };
        refused(streaming, "further away", |exec| {
            exec.deadline = deadline(limit, stage);
        });
        refused(timed_out, "which was none", |exec| {
            exec.terminal = Some(Terminal::TimedOut {
                status: exit_status(None, Some(9)),
                limit,
            });
        });
    }
    for (code, signal) in [(Some(0), None), (None, Some(15))] {
        refused(timed_out, "was not killed for it", |exec| {
            exec.terminal = Some(Terminal::TimedOut {
                status: exit_status(code, signal),
                limit: INSTANT,
            });
        });
    }
    refused(failed, "exited and never started", |exec| {
        exec.terminal = Some(Terminal::TimedOut {
            status: exit_status(None, Some(9)),
            limit: INSTANT,
        });
    });
    refused(streaming, "further away", |exec| {
        let left = INSTANT * 2;
        exec.deadline = deadline(INSTANT, StageV1::Running { left });
    });
    refused(expired, "further away", |exec| {
        let left = CONFIRM_WITHIN + INSTANT;
        let stage = StageV1::Expired {
            left,
            waited: Duration::MAX,
            received: 0,
        };
        exec.deadline = deadline(INSTANT, stage);
    });
    refused(expired, "came since its deadline", |exec| {
        let stage = StageV1::Expired {
            left: INSTANT,
            waited: INSTANT,
            received: exec.stdout.received + exec.stderr.received + 1,
        };
        exec.deadline = deadline(INSTANT, stage);
    });
    // Of its start, and of a kill that was wanted before.
    let of_start = |left, at_start| {
        Some(DeadlineV1 {
            limit: INSTANT,
            stage: StageV1::Running { left },
            left: at_start,
            killed: false,
        })
    };
    refused(streaming, "does not fit", |exec| {
        exec.deadline = of_start(INSTANT, None);
    });
    refused(unheard_of, "does not fit", |exec| {
        exec.deadline = of_start(INSTANT, Some(INSTANT));
    });
    refused(streaming, "further away", |exec| {
        exec.deadline = of_start(INSTANT, Some(INSTANT * 2));
    });
    refused(streaming, "further away", |exec| {
        exec.deadline = of_start(INSTANT, Some(Duration::ZERO));
    });
    refused(streaming, "killed before its deadline", |exec| {
        exec.deadline = of_start(INSTANT, Some(INSTANT)).map(|deadline| DeadlineV1 {
            killed: true,
            ..deadline
        });
    });
    for stage in [
        StageV1::Unconfirmed,
        StageV1::Expired {
            left: INSTANT,
            waited: INSTANT,
            received: 0,
        },
    ] {
        refused(streaming, "and it goes on", |exec| {
            exec.deadline = deadline(INSTANT, stage);
        });
        refused(unheard_of, "and it goes on", |exec| {
            exec.deadline = deadline(INSTANT, stage);
        });
    }
    // By a clock that is about to end.
    let options = RestoreOptions {
        allow_legacy_guest: false,
        clock: || Duration::MAX,
        ..RestoreOptions::default()
    };
    let error = Conn::restore(saved(), options).map(|_| ()).unwrap_err();
    assert!(
        alloc::format!("{error}").contains("end of the clock"),
        "{error}"
    );
}
