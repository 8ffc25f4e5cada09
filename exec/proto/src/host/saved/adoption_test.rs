//! Whose the restored executions are: adopted, discarded, killed, or passed on to a client that is
//! gone.

use alloc::vec;

use super::tests::{busy, restored, small};
use super::*;
use crate::Stream;
use crate::frame::FromGuest;
use crate::host::{StartError, Stdin, WriteError};
use crate::pair::{Pair, bytes, exit_code, raw};

#[test]
fn admission_counts_the_restored_executions() {
    let limits = Limits {
        max_executions: 2,
        ..small()
    };
    let mut pair = Pair::new(limits);
    let unread = pair.running(Stdin::Null);
    pair.produce(unread, Stream::Stdout, b"unread");
    pair.exit(unread, exit_code(0));
    pair.running(Stdin::Null);
    pair.settle();
    let mut pair = pair.restored();
    assert_eq!(pair.host.active(), 2);
    let refused = StartError::AtCapacity {
        limit: 2,
        active: 2,
    };
    assert_eq!(pair.try_start(&["one more"], Stdin::Null), Err(refused));
    assert_eq!(pair.read_all(unread, Stream::Stdout), b"unread");
    assert_eq!(pair.host.active(), 1);
    pair.running(Stdin::Null);
}

#[test]
fn an_adopted_execution_goes_on_where_its_streams_stood() {
    let mut pair = Pair::new(small());
    let id = pair.running(Stdin::Pipe);
    let stdin = bytes(300);
    let (stdout, stderr) = (bytes(400), bytes(90));
    pair.host.write_stdin(id, stdin.slice(..100)).unwrap();
    pair.produce(id, Stream::Stdout, &stdout);
    pair.produce(id, Stream::Stderr, &stderr);
    pair.settle();
    let mut seen = vec![0; 150];
    assert_eq!(
        pair.host.read(id, Stream::Stdout, &mut seen),
        crate::host::Read::Data(150)
    );
    let mut pair = pair.restored();
    let progress = pair.host.progress(id).unwrap();
    assert_eq!(
        progress,
        Progress {
            stdin_accepted: 100,
            stdout_consumed: 150,
            stderr_consumed: 0,
        }
    );
    // The write that was under way is finished first, and not by whoever adopts.
    assert_eq!(
        pair.host.write_stdin(id, stdin.slice(100..)),
        Err(WriteError::Busy)
    );
    let mut at = usize::try_from(progress.stdin_accepted).unwrap();
    let mut errors = Vec::new();
    for _ in 0..100 {
        pair.settle();
        pair.eat(id, usize::MAX);
        if at < stdin.len() && pair.host.write_stdin(id, stdin.slice(at..)).is_ok() {
            at = stdin.len();
        }
        seen.extend(pair.read_all(id, Stream::Stdout));
        errors.extend(pair.read_all(id, Stream::Stderr));
    }
    assert_eq!(seen, stdout);
    assert_eq!(errors, stderr);
    assert_eq!(pair.commands[&id].eaten, stdin);
}

#[test]
fn an_execution_that_nobody_adopts_is_drained_or_killed() {
    let mut pair = Pair::new(small());
    let discarded = pair.running(Stdin::Pipe);
    let killed = pair.running(Stdin::Pipe);
    for id in [discarded, killed] {
        pair.produce(id, Stream::Stdout, &[1; 5000]);
    }
    pair.settle();
    let mut pair = pair.restored();
    assert_eq!(
        pair.host.executions().collect::<Vec<_>>(),
        [discarded, killed]
    );
    pair.host.kill(killed).unwrap();
    pair.host.forget(killed);
    pair.host.forget(discarded);
    assert_eq!(pair.host.executions().count(), 0);
    pair.settle();
    assert_eq!(pair.commands[&killed].kills, 1);
    assert!(pair.commands[&discarded].pipes[&Stream::Stdout].is_empty());
    assert!(pair.commands[&discarded].stdin_eof);
    assert_eq!(pair.host.active(), 1);
    pair.exit(discarded, exit_code(0));
    pair.settle();
    assert_eq!(pair.host.active(), 0);
}

#[test]
fn forks_of_one_snapshot_know_nothing_of_each_other() {
    let pair = busy();
    let saved = pair.host.save().unwrap();
    let mut forks: Vec<Conn> = (0..2).map(|_| restored(saved.clone()).unwrap()).collect();
    let id = forks[0].executions().next().unwrap();
    while forks[0].next_event(id).is_some() {}
    forks[0].forget(id);
    assert_eq!(forks[1].save(), Ok(saved));
}

#[test]
fn a_command_whose_output_was_passed_on_goes_on_for_whoever_adopts_it() {
    let mut pair = Pair::new(small());
    let id = pair.running(Stdin::Null);
    let (stdout, stderr) = (bytes(2000), bytes(500));
    pair.produce(id, Stream::Stdout, &stdout);
    pair.produce(id, Stream::Stderr, &stderr);
    pair.settle();
    let mut passed_on = 0;
    while let Some(chunk) = pair.host.take_forwarded(id, Stream::Stdout) {
        passed_on += chunk.len();
    }
    assert!(passed_on > 100);
    pair.settle();
    assert!(!pair.host.has_output(id, Stream::Stdout), "it has stalled");
    // What the client has read it says; what it may have read beside that, nobody knows.
    let units = pair.host.release_forwarded(id, [70, 0]).unwrap();
    assert!(units >= 70);
    let mut pair = pair.restored();
    assert_eq!(pair.host.progress(id).unwrap().stdout_consumed, 70);
    assert_eq!(pair.view(id).output_forwarded, 0);
    let (mut out, mut err) = (Vec::new(), Vec::new());
    for _ in 0..100 {
        out.extend(pair.read_all(id, Stream::Stdout));
        err.extend(pair.read_all(id, Stream::Stderr));
        pair.settle();
    }
    assert_eq!(out, stdout[70..]);
    assert_eq!(err, stderr);
}

#[test]
fn output_that_was_passed_on_holds_its_slot_after_the_restore_until_it_is_read() {
    let mut pair = Pair::new(small());
    let mut condemned = None;
    for _ in 0..2 {
        let id = pair.running(Stdin::Null);
        pair.produce(id, Stream::Stdout, &[1; 100]);
        pair.settle();
        pair.host.take_forwarded(id, Stream::Stdout).unwrap();
        condemned = Some(id);
    }
    let first = pair.host.executions().next().unwrap();
    pair.exit(first, exit_code(0));
    pair.settle();
    // Of this one all credit went back when it broke the rule.
    let empty = raw(FromGuest::Stdout.to_wire(), condemned.unwrap().get(), b"");
    pair.host_receives(&empty, 0);
    assert_eq!(pair.host.active(), 2);
    let mut conn = restored(pair.host.save().unwrap()).unwrap();
    assert_eq!(conn.active(), 2);
    for id in [first, condemned.unwrap()] {
        let chunk = conn.take_chunk(id, Stream::Stdout);
        assert_eq!(chunk.map(|chunk| chunk.len()), Some(100));
    }
    assert_eq!(conn.active(), 1);
}
