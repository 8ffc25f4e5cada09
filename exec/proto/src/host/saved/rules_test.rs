//! Every rule that a saved state must keep, each broken once.

use alloc::vec;
use alloc::vec::Vec;

use bytes::Bytes;

use super::format::{ConnV1, ControlV1, ExecV1, KillV1, PhaseV1, UnreadV1};
use super::hostile_tests::saved;
use super::tests::{restored, small};
use super::*;
use crate::frame::FromGuest;
use crate::host::execution::{InputState, Terminal};
use crate::message::{ExitStatus, Failure, FailureKind, StdinError};
use crate::pair::{exit_code, raw};
use crate::{CONTROL_QUEUE, FRAME_MAX, REQUEST_MAX, TEXT_MAX};

fn config_of(saved: SavedConn) -> Option<ConfigError> {
    match restored(saved) {
        Err(RestoreError::Config(error)) => Some(error),
        _ => None,
    }
}

#[test]
fn limits_that_cannot_work_are_refused_with_their_bounds() {
    let mut changed = saved();
    changed.0.bootstrap.limits.output_limit = 0;
    changed.0.ready.exec_limits = Some(changed.0.bootstrap.limits);
    let error = config_of(changed).unwrap();
    assert!(matches!(error, ConfigError::Limits(e) if e.field == "output_limit"));
    let mut changed = saved();
    changed.0.bootstrap.cwd = Some(vec![b'/'; FRAME_MAX].into());
    assert!(matches!(
        config_of(changed),
        Some(ConfigError::TooLarge { .. })
    ));
}

#[test]
fn a_guest_without_limits_is_refused_unless_it_is_allowed() {
    let mut legacy = saved();
    legacy.0.ready.exec_limits = None;
    let restore = |options| Conn::restore(legacy.clone(), options).map(|_| ());
    let refused = RestoreError::LegacyGuest;
    assert_eq!(restore(RestoreOptions::default()), Err(refused));
    let allowed = RestoreOptions {
        allow_legacy_guest: true,
        ..RestoreOptions::default()
    };
    assert_eq!(restore(allowed), Ok(()));
}

#[test]
fn whoever_restores_decides_on_the_guests_to_come() {
    for allow_legacy_guest in [false, true] {
        let options = RestoreOptions {
            allow_legacy_guest,
            ..RestoreOptions::default()
        };
        let mut conn = Conn::restore(saved(), options).unwrap();
        conn.handle_opened();
        while conn.poll_transmit().is_some() {}
        let ready = crate::message::encode(&Ready {
            generation: GENERATION,
            connection: conn.inspect().connection,
            ..Ready::default()
        });
        let head = raw(FromGuest::Ready.to_wire(), 0, &ready);
        conn.judge(head.first_chunk().unwrap(), ready.len());
        assert_eq!(conn.deliver(ready).is_ok(), allow_legacy_guest);
    }
}

#[test]
fn a_guest_that_relies_on_what_this_library_lacks_is_refused_by_name() {
    let mut newer = saved();
    newer.0.relies_on.push("teleport".into());
    let error = restored(newer).map(|_| ()).unwrap_err();
    let name = String::from("teleport");
    assert_eq!(error, RestoreError::Capability { name });
    assert!(alloc::format!("{error}").contains("teleport"));
}

type Change<T> = (&'static str, fn(&mut T));

#[test]
fn each_rule_of_the_connection_is_checked() {
    let changes: [Change<ConnV1>; 13] = [
        ("no connection", |conn| conn.bootstrap.connection = 0),
        ("Ready is no answer", |conn| conn.ready.connection += 1),
        ("Ready is no answer", |conn| {
            conn.bootstrap.limits.max_executions += 1;
        }),
        ("max_executions", |conn| {
            conn.bootstrap.limits.max_executions = 3;
            conn.ready.exec_limits = Some(conn.bootstrap.limits);
        }),
        ("never handed out", |conn| conn.last_id = 4),
        ("does not come after", |conn| conn.execs.swap(0, 1)),
        ("does not come after", |conn| {
            let again = conn.execs[0].clone();
            conn.execs.insert(0, again);
        }),
        ("stands in line that there is not", |conn| {
            conn.execs.retain(|exec| !requesting(exec));
        }),
        ("controls are in line", |conn| {
            let control = conn.controls[0].clone();
            conn.controls = vec![control; CONTROL_QUEUE + 1];
        }),
        ("an execution that never was", |conn| {
            conn.controls.push(ControlV1::Signal {
                id: ExecId::new(99).unwrap(),
                signal: 9,
            });
        }),
        ("does not announce", |conn| conn.ready.capabilities = None),
        ("cannot freeze", |conn| {
            conn.ready.capabilities = None;
            conn.relies_on.clear();
            conn.frozen = true;
        }),
        ("pings", |conn| conn.pings = CONTROL_QUEUE as u64),
    ];
    for (rule, change) in changes {
        let mut changed = saved();
        change(&mut changed.0);
        let error = restored(changed).map(|_| ()).expect_err(rule);
        assert!(alloc::format!("{error}").contains(rule), "{error}");
    }
}

#[test]
fn requests_are_restored_in_their_turn_or_refused() {
    let requesting = |begun| PhaseV1::Requesting {
        rest: Bytes::from_static(b"request"),
        begun,
    };
    let last = |conn: &mut ConnV1| conn.execs.len() - 1;
    let mut changed = saved();
    let at = last(&mut changed.0);
    changed.0.execs[at].phase = requesting(true);
    let error = restored(changed).map(|_| ()).unwrap_err();
    assert!(alloc::format!("{error}").contains("not sent whole"));
    for phase in [PhaseV1::Starting, PhaseV1::Started] {
        let mut changed = saved();
        changed.0.execs[at].phase = phase;
        let error = restored(changed).map(|_| ()).unwrap_err();
        assert!(
            alloc::format!("{error}").contains("was not sent"),
            "{error}"
        );
    }
    // The same line, with another first in it.
    let mut changed = saved();
    let half = changed.0.execs[at - 1].clone();
    assert!(matches!(
        half.phase,
        PhaseV1::Requesting { begun: true, .. }
    ));
    assert!(changed.0.order.slots().contains(&half.id));
    for exec in &mut changed.0.execs {
        if matches!(exec.phase, PhaseV1::Starting) {
            exec.phase = requesting(false);
        }
    }
    changed.0.execs[at - 1].phase = requesting(false);
    let error = restored(changed).map(|_| ()).unwrap_err();
    assert!(
        alloc::format!("{error}").contains("before its turn"),
        "{error}"
    );
}

/// The first execution of that kind, and how the rule that is broken is called.
pub(super) fn refused(pick: impl Fn(&ExecV1) -> bool, rule: &str, change: impl Fn(&mut ExecV1)) {
    let mut changed = saved();
    let exec = changed.0.execs.iter_mut().find(|exec| pick(exec));
    let exec = exec.expect("the busy state has one of each kind");
    let id = exec.id;
    change(exec);
    match restored(changed).map(|_| ()) {
        Err(RestoreError::Execution {
            id: named,
            rule: text,
        }) => {
            assert!(text.contains(rule), "{text}, not {rule}");
            assert_eq!(named, id);
        }
        other => panic!("{other:?}, not {rule}"),
    }
}

pub(super) fn streaming(exec: &ExecV1) -> bool {
    matches!(exec.phase, PhaseV1::Started) && exec.unread.len() > 1 && !broken(exec)
}

fn broken(exec: &ExecV1) -> bool {
    matches!(exec.stdin.state, InputState::Broken(_))
}

pub(super) fn condemned(exec: &ExecV1) -> bool {
    exec.condemned
}

fn requesting(exec: &ExecV1) -> bool {
    matches!(exec.phase, PhaseV1::Requesting { .. })
}

pub(super) fn unheard_of(exec: &ExecV1) -> bool {
    matches!(exec.phase, PhaseV1::Requesting { begun: false, .. })
}

pub(super) fn ended(exec: &ExecV1) -> bool {
    matches!(exec.terminal, Some(Terminal::Exited(_)))
}

pub(super) fn failed(exec: &ExecV1) -> bool {
    matches!(exec.phase, PhaseV1::Ended) && exec.pid.is_none()
}

pub(super) fn exit_status(code: Option<i32>, signal: Option<u32>) -> ExitStatus {
    ExitStatus {
        code,
        signal,
        ..ExitStatus::default()
    }
}

fn discarding(exec: &ExecV1) -> bool {
    exec.stderr.discard && !exec.forgotten
}

fn forgotten(exec: &ExecV1) -> bool {
    exec.forgotten
}

#[test]
fn each_rule_of_how_far_an_execution_got_is_checked() {
    let long = || "x".repeat(TEXT_MAX + 1);
    let failure = |kind, message| {
        Some(Terminal::Failed(Failure {
            kind,
            errno: None,
            stage: "protocol".into(),
            message,
        }))
    };
    let protocol = || failure(FailureKind::Protocol, "".into());
    refused(requesting, "empty or too large", |exec| {
        exec.phase = PhaseV1::Requesting {
            rest: Bytes::new(),
            begun: false,
        };
    });
    refused(requesting, "empty or too large", |exec| {
        exec.phase = PhaseV1::Requesting {
            rest: vec![0; REQUEST_MAX + 1].into(),
            begun: false,
        };
    });
    refused(streaming, "name of its program", |exec| {
        exec.program = "x".repeat(65);
    });
    refused(streaming, "process id", |exec| exec.pid = None);
    refused(requesting, "process id", |exec| exec.pid = Some(1));
    refused(requesting, "start is still to be told", |exec| {
        exec.started_unread = true;
    });
    refused(ended, "kill is due", |exec| exec.kill = KillV1::Due);
    refused(unheard_of, "never heard of", |exec| exec.kill = KillV1::Due);
    refused(condemned, "is not killed", |exec| exec.kill = KillV1::No);
    refused(unheard_of, "is not killed", |exec| {
        exec.condemned = true;
        exec.terminal = protocol();
    });
    refused(requesting, "kill overtook", |exec| exec.kill = KillV1::Sent);
    refused(ended, "nothing says how", |exec| exec.terminal = None);
    refused(streaming, "does not say so", |exec| exec.condemned = true);
    refused(streaming, "told that never was", |exec| {
        exec.terminal_read = true;
    });
    refused(streaming, "has not", |exec| {
        exec.terminal = Some(Terminal::Exited(exit_code(0)));
    });
    refused(condemned, "exited all the same", |exec| {
        exec.terminal = Some(Terminal::Exited(exit_code(0)));
    });
    refused(failed, "exited and never started", |exec| {
        exec.terminal = Some(Terminal::Exited(exit_code(0)));
    });
    for (code, signal) in [
        (None, None),
        (Some(256), None),
        (Some(1), Some(1)),
        (None, Some(65)),
    ] {
        refused(ended, "neither a code nor a signal", |exec| {
            exec.terminal = Some(Terminal::Exited(exit_status(code, signal)));
        });
    }
    refused(condemned, "text of its failure", |exec| {
        exec.terminal = failure(FailureKind::Protocol, long());
    });
    refused(condemned, "something else", |exec| {
        exec.terminal = failure(FailureKind::NotFound, "".into());
    });
    refused(condemned, "said to be lost", |exec| {
        exec.terminal = Some(Terminal::Lost("".into()));
    });
    refused(ended, "failed to start and has started", |exec| {
        exec.terminal = protocol();
    });
    refused(ended, "told before what came before", |exec| {
        exec.terminal_read = true;
    });
    refused(failed, "ended and nobody holds it", |exec| {
        exec.forgotten = true;
        exec.stdout.discard = true;
        exec.stderr.discard = true;
    });
}

#[test]
fn each_rule_of_stdin_is_checked() {
    let broken_by = |name, message| {
        InputState::Broken(StdinError {
            errno: 32,
            name,
            message,
        })
    };
    let long = || "x".repeat(TEXT_MAX + 1);
    refused(requesting, "sent before it started", |exec| {
        exec.stdin.credit.sent = 1;
    });
    refused(requesting, "broke before it started", |exec| {
        exec.stdin.state = broken_by("".into(), "".into());
    });
    refused(broken, "text of its stdin error", |exec| {
        exec.stdin.state = broken_by(long(), "".into());
    });
    refused(broken, "text of its stdin error", |exec| {
        exec.stdin.state = broken_by("".into(), long());
    });
    for pick in [broken, ended, condemned] {
        refused(pick, "nobody will read", |exec| {
            exec.stdin.pending = Bytes::from_static(b"more");
        });
    }
    refused(streaming, "stdin counters", |exec| {
        exec.stdin.credit.acked = exec.stdin.credit.sent + 1;
    });
    refused(streaming, "stdin counters", |exec| {
        exec.stdin.credit.sent = exec.stdin.credit.acked + u64::from(small().input_limit) + 1;
    });
}

#[test]
fn each_rule_of_output_is_checked() {
    let chunk = |data: Vec<u8>| UnreadV1::Stdout(data.into());
    let output_limit = u64::from(small().output_limit);
    refused(streaming, "output counters", |exec| {
        exec.window.released = exec.window.received + 1;
    });
    refused(streaming, "output counters", |exec| {
        exec.window.said = exec.window.released + 1;
    });
    refused(streaming, "output counters", |exec| {
        exec.window.received = exec.window.released + output_limit + 1;
    });
    refused(streaming, "never was", |exec| {
        exec.unread.push(UnreadV1::StdinError);
    });
    refused(broken, "two stdin errors", |exec| {
        exec.unread.push(UnreadV1::StdinError);
    });
    refused(forgotten, "told to nobody", |exec| {
        exec.stdin.state = InputState::Broken(StdinError {
            errno: 32,
            name: "".into(),
            message: "".into(),
        });
        exec.unread.push(UnreadV1::StdinError);
    });
    for size in [0, small().output_chunk_size as usize + 1] {
        refused(streaming, "chunk of output", |exec| {
            exec.unread.push(chunk(vec![0; size]));
        });
    }
    refused(discarding, "stream that is discarded", |exec| {
        exec.unread.push(UnreadV1::Stderr(Bytes::from_static(b"x")));
    });
    refused(streaming, "is held than came", |exec| {
        exec.stdout.received = 1
    });
    refused(streaming, "came than was charged", |exec| {
        exec.stdout.received = exec.window.received + 1;
    });
    refused(requesting, "came before it started", |exec| {
        exec.stdout.received = 1;
        exec.window.received = 1;
    });
    refused(requesting, "charged before it started", |exec| {
        exec.window.received = 1;
        exec.window.released = 1;
    });
    refused(condemned, "held back", |exec| exec.window.received += 1);
    refused(condemned, "held than output_limit", |exec| {
        exec.unread.extend(vec![chunk(vec![0; 128]); 3]);
        exec.stdout.received += 384;
        exec.window.received += output_limit;
        exec.window.released += output_limit;
    });
    refused(ended, "held than is charged", |exec| {
        exec.unread.push(chunk(vec![0]));
        exec.stdout.received += 1;
    });
    // A unit too many would be the guest's for good, one too few would be nobody's.
    refused(streaming, "charged differently", |exec| {
        exec.window.received += 1;
    });
    refused(streaming, "charged differently", |exec| {
        exec.window.released += 1;
    });
    refused(forgotten, "its output is kept", |exec| {
        exec.stdout.discard = false;
    });
}
