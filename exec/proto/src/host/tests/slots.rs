//! Admission, and slots coming back.

use alloc::string::ToString;

use super::*;
use crate::pair::{Pair, exit_code, raw};

#[test]
fn admission_refuses_at_the_cap_and_names_the_numbers() {
    let mut pair = Pair::new(small());
    for _ in 0..4 {
        pair.start(Stdin::Null);
    }
    let refused = pair.try_start(&["x"], Stdin::Null).unwrap_err();
    assert_eq!(
        refused,
        StartError::AtCapacity {
            limit: 4,
            active: 4
        }
    );
    assert_eq!(
        refused.to_string(),
        "4 executions are active, max_executions is 4"
    );
}

#[test]
fn a_finished_unread_execution_keeps_its_slot_until_it_is_read() {
    let mut pair = pair();
    let id = pair.running(Stdin::Null);
    pair.produce(id, Stream::Stdout, b"tail");
    pair.exit(id, exit_code(0));
    pair.settle();
    assert!(pair.host.terminal(id).is_some());
    assert_eq!(pair.host.active(), 1);
    assert_eq!(pair.read_all(id, Stream::Stdout), b"tail");
    assert_eq!(pair.host.active(), 0);
}

#[test]
fn every_cleanup_path_frees_the_slot_once() {
    type Path = (&'static str, fn(&mut Pair, ExecId));
    let paths: [Path; 6] = [
        ("exit", |pair, id| pair.exit(id, exit_code(0))),
        ("kill", |pair, id| pair.host.kill(id).unwrap()),
        ("forget and exit", |pair, id| {
            pair.host.forget(id);
            pair.exit(id, exit_code(0));
        }),
        ("exit and forget", |pair, id| {
            pair.produce(id, Stream::Stderr, b"unread");
            pair.exit(id, exit_code(0));
            pair.settle();
            pair.host.forget(id);
            pair.host.forget(id);
        }),
        ("violation and kill", |pair, id| {
            pair.host_receives(&raw(0x90, id.get(), &[0; 4]), 4);
        }),
        ("closed", |pair, _| pair.host.handle_closed("test")),
    ];
    for (name, end) in paths {
        let mut pair = pair();
        let keep = pair.running(Stdin::Null);
        let id = pair.running(Stdin::Null);
        assert_eq!(pair.host.active(), 2);
        end(&mut pair, id);
        pair.settle();
        let left = if name == "closed" { 0 } else { 1 };
        assert_eq!(pair.host.active(), left, "{name}");
        pair.host.forget(id);
        pair.host.forget(keep);
        let _ = pair.host.kill(keep);
        pair.settle();
        assert_eq!(pair.host.active(), 0, "{name}");
        assert!(
            pair.host.inspect().executions.is_empty(),
            "{name}: entries stay behind"
        );
    }
}

#[test]
fn a_failed_start_frees_its_slot_and_says_why() {
    let mut pair = pair();
    pair.refuse = Some(FailureKind::NotFound);
    let id = pair.start(Stdin::Null);
    pair.settle();
    let Some(Terminal::Failed(failure)) = pair.host.terminal(id) else {
        panic!()
    };
    assert_eq!(
        (failure.kind, failure.errno),
        (FailureKind::NotFound, Some(2))
    );
    assert_eq!(pair.host.active(), 0);
}
