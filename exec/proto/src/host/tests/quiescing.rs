//! Quiescing a guest, and what it is told before it goes on.

use alloc::string::ToString as _;
use alloc::vec::Vec;
use core::time::Duration;

use super::deadlines::{LIMIT, running, timed};
use super::*;
use crate::frame::ToGuest;
use crate::message::{Answer, QUIESCE};
use crate::pair::{exit_code, raw, wall};
use crate::{Header, REQUEST_PART, Renewal, Secret};

const WITHIN: Duration = Duration::from_millis(700);

fn renewal(hostname: Option<&str>) -> Renewal {
    Renewal {
        entropy: Secret([7; 32]),
        generation: [9; 16],
        hostname: hostname.map(String::from),
    }
}

/// What the guest said since the last look, `Ok` for done.
fn told(pair: &mut Pair) -> Vec<(&'static str, u64, Result<(), String>)> {
    pair.drain_notices();
    let notices = core::mem::take(&mut pair.notices);
    let told = notices.into_iter().filter_map(|notice| match notice {
        Notice::Quiesced { seq, error } => Some(("quiesced", seq, error.map_or(Ok(()), Err))),
        Notice::Renewed { seq, error } => Some(("renewed", seq, error.map_or(Ok(()), Err))),
        _ => None,
    });
    told.collect()
}

/// A pair whose guest is frozen.
fn frozen() -> Pair {
    let mut pair = pair();
    freeze(&mut pair);
    pair
}

fn freeze(pair: &mut Pair) {
    let seq = pair.host.quiesce(WITHIN).unwrap();
    pair.settle();
    assert_eq!(told(pair), []);
    pair.freeze(Ok(()));
    pair.settle();
    assert_eq!(told(pair), [("quiesced", seq, Ok(()))]);
    assert!(pair.host.is_frozen());
}

/// Kinds of all frames that leave now.
fn sent(pair: &mut Pair) -> Vec<u8> {
    core::iter::from_fn(|| pair.host.poll_transmit())
        .map(|frame| Header::decode(&frame.head).kind)
        .collect()
}

#[test]
fn a_guest_is_frozen_when_it_says_so_until_it_says_that_it_goes_on() {
    let mut pair = frozen();
    assert_eq!(pair.host.quiesce(WITHIN), Err(QuiesceError::Busy));
    let seq = pair.host.thaw().unwrap();
    assert_eq!(pair.host.thaw(), None, "it is under way");
    assert!(pair.host.is_frozen());
    pair.settle();
    assert_eq!(told(&mut pair), [("renewed", seq, Ok(()))]);
    assert!(!pair.host.is_frozen());
    let renew = pair.renewed.pop().unwrap();
    assert_eq!(renew.renewal, None);
    assert_eq!(pair.host.thaw(), None, "nothing is frozen");
}

#[test]
fn requests_wait_in_order_while_the_guest_is_frozen_and_all_else_goes_on() {
    let mut pair = pair();
    let cat = pair.running(Stdin::Pipe);
    pair.produce(cat, Stream::Stdout, b"before");
    freeze(&mut pair);
    // Two parts long, and none of them leaves.
    let long = "w".repeat(REQUEST_PART + 100);
    let first = pair.try_start(&["cmd", &long], Stdin::Null).unwrap();
    let second = pair.start(Stdin::Null);
    assert_eq!(pair.host.active(), 3, "admitted all the same");
    pair.host.write_stdin(cat, crate::pair::bytes(5)).unwrap();
    pair.host.signal(cat, 10).unwrap();
    pair.host.ping(1).unwrap();
    pair.settle();
    assert_eq!(pair.read_all(cat, Stream::Stdout), b"before");
    assert_eq!(pair.host.pending_stdin(cat), 0);
    assert_eq!(pair.commands[&cat].signals, [10]);
    assert_eq!(pair.commands.len(), 1, "nothing was started");
    pair.host.kill(cat).unwrap();
    pair.settle();
    assert_eq!(pair.commands[&cat].kills, 1);
    // One that the guest has not heard of is not missed there.
    pair.host.kill(first).unwrap();
    assert!(matches!(
        pair.host.terminal(first),
        Some(Terminal::Failed(_))
    ));
    let third = pair.start(Stdin::Null);
    pair.host.thaw().unwrap();
    pair.settle();
    let started: Vec<ExecId> = pair.commands.keys().copied().collect();
    assert_eq!(started, [cat, second, third]);
}

#[test]
fn a_guest_gets_the_time_at_which_the_question_leaves() {
    let mut pair = frozen();
    pair.host.thaw().unwrap();
    pair.pass(Duration::from_secs(3600));
    let told = wall().as_nanos();
    pair.settle();
    pair.pass(Duration::from_secs(1));
    assert_eq!(u128::from(pair.renewed.pop().unwrap().wall_ns), told);
}

#[test]
fn what_was_killed_before_the_guest_goes_on_is_killed_before_it_does() {
    let mut pair = pair();
    let doomed = [(); 3].map(|()| pair.running(Stdin::Pipe));
    let kept = pair.running(Stdin::Pipe);
    freeze(&mut pair);
    let mut pair = pair.restored();
    pair.host.write_stdin(kept, "for one".into()).unwrap();
    pair.host.write_stdin(doomed[0], "for none".into()).unwrap();
    pair.host.kill(doomed[0]).unwrap();
    pair.host.renew(renewal(None)).unwrap();
    for id in &doomed[1..] {
        pair.host.kill(*id).unwrap();
    }
    let sent = sent(&mut pair);
    let position = |of: ToGuest| sent.iter().rposition(|kind| *kind == of.to_wire()).unwrap();
    assert!(
        position(ToGuest::Kill) < position(ToGuest::Renew),
        "{sent:?}"
    );
    let kills = sent.iter().filter(|kind| **kind == ToGuest::Kill.to_wire());
    assert_eq!(kills.count(), doomed.len());
}

#[test]
fn a_request_of_which_a_part_has_left_goes_on_after_the_thaw() {
    let mut pair = pair();
    let long = "w".repeat(2 * REQUEST_PART);
    let id = pair.try_start(&["cmd", &long], Stdin::Null).unwrap();
    assert!(pair.host_sends());
    freeze(&mut pair);
    assert!(pair.host.is_requesting(id));
    // A kill must not overtake the rest of it.
    pair.host.kill(id).unwrap();
    pair.settle();
    assert_eq!(pair.host.terminal(id), None);
    pair.host.thaw().unwrap();
    pair.settle();
    assert_eq!(pair.commands[&id].kills, 1);
}

#[test]
fn a_quiesce_that_failed_freezes_nothing_and_holds_nothing_back() {
    let mut pair = pair();
    let seq = pair.host.quiesce(WITHIN).unwrap();
    pair.settle();
    let id = pair.start(Stdin::Null);
    pair.settle();
    assert!(!pair.commands.contains_key(&id));
    pair.freeze(Err("4 waits for a disk"));
    pair.settle();
    assert_eq!(
        told(&mut pair),
        [("quiesced", seq, Err("4 waits for a disk".to_string()))]
    );
    assert!(!pair.host.is_frozen());
    assert!(pair.commands.contains_key(&id));
}

#[test]
fn a_quiesce_that_is_withdrawn_before_it_left_never_leaves() {
    let mut pair = pair();
    let seq = pair.host.quiesce(WITHIN).unwrap();
    assert_eq!(pair.host.thaw(), None);
    assert!(matches!(told(&mut pair)[..], [("quiesced", n, Err(_))] if n == seq));
    assert_eq!(sent(&mut pair), []);
    assert!(pair.host.save().is_ok());
}

#[test]
fn a_thaw_overtakes_the_answer_to_a_quiesce_and_the_next_quiesce_waits_for_it() {
    let mut pair = pair();
    let first = pair.host.quiesce(WITHIN).unwrap();
    assert_eq!(sent(&mut pair), [ToGuest::Quiesce.to_wire()]);
    let thaw = pair.host.thaw().unwrap();
    let second = pair.host.quiesce(WITHIN).unwrap();
    assert_eq!(
        sent(&mut pair),
        [ToGuest::Renew.to_wire()],
        "one of each is under way"
    );
    assert_eq!(pair.host.save(), Err(SaveError::Quiescing));
    let mut answer = |kind: FromGuest, seq| {
        let body = encode(&Answer { seq, error: None });
        let frame = raw(kind.to_wire(), 0, &body);
        pair.host_receives(&frame, body.len());
        (told(&mut pair), sent(&mut pair))
    };
    // The guest had frozen everything before it read on.
    let (said, left) = answer(FromGuest::Quiesced, first);
    assert!(matches!(said[..], [("quiesced", n, Err(_))] if n == first));
    assert_eq!(left, []);
    let (said, left) = answer(FromGuest::Renewed, thaw);
    assert_eq!(said, [("renewed", thaw, Ok(()))]);
    assert_eq!(left, [ToGuest::Quiesce.to_wire()]);
    let (said, _) = answer(FromGuest::Quiesced, second);
    assert_eq!(said, [("quiesced", second, Ok(()))]);
    assert!(pair.host.is_frozen());
}

#[test]
fn a_guest_that_cannot_be_renewed_stays_frozen_and_may_be_asked_again() {
    let mut pair = frozen();
    pair.dull = true;
    let seq = pair.host.renew(renewal(None)).unwrap();
    assert_eq!(pair.host.renew(renewal(None)), Err(QuiesceError::Busy));
    // It would have to wait for a thaw that does not come.
    let next = pair.host.quiesce(WITHIN).unwrap();
    pair.settle();
    let told_of = told(&mut pair);
    assert!(
        matches!(&told_of[..], [("quiesced", a, Err(_)), ("renewed", b, Err(why))]
        if (*a, *b) == (next, seq) && why == "no entropy")
    );
    assert!(pair.host.is_frozen());
    pair.dull = false;
    pair.host.renew(renewal(None)).unwrap();
    pair.settle();
    assert!(!pair.host.is_frozen());
    assert_eq!(pair.renewed.pop().unwrap().renewal, Some(renewal(None)));
}

#[test]
fn a_new_hostname_begins_every_later_connection_once_the_guest_has_it() {
    let mut pair = frozen();
    for hostname in ["", &"h".repeat(65)] {
        let refused = pair.host.renew(renewal(Some(hostname)));
        assert_eq!(refused, Err(QuiesceError::Hostname));
    }
    pair.dull = true;
    pair.host.renew(renewal(Some("copy"))).unwrap();
    pair.settle();
    assert_eq!(pair.host.hostname(), None);
    pair.dull = false;
    pair.host.renew(renewal(Some("copy"))).unwrap();
    pair.settle();
    assert_eq!(pair.host.hostname(), Some("copy"));
}

#[test]
fn a_guest_that_was_never_frozen_is_renewed_as_well() {
    let mut pair = pair();
    let seq = pair.host.renew(renewal(None)).unwrap();
    pair.settle();
    assert_eq!(told(&mut pair), [("renewed", seq, Ok(()))]);
}

#[test]
fn an_answer_that_nothing_asked_for_ends_the_connection() {
    let answer = |kind: FromGuest, seq, error: Option<&str>| {
        let error = error.map(String::from);
        raw(kind.to_wire(), 0, &encode(&Answer { seq, error }))
    };
    type Before = fn(&mut Pair);
    let cases: [(&str, Before, Vec<u8>); 8] = [
        ("out of turn", |_| (), answer(FromGuest::Quiesced, 0, None)),
        ("out of turn", |_| (), answer(FromGuest::Renewed, 0, None)),
        // It was answered before.
        ("out of turn", freeze, answer(FromGuest::Quiesced, 1, None)),
        (
            "another question",
            |pair| drop(pair.host.quiesce(WITHIN)),
            answer(FromGuest::Quiesced, 2, None),
        ),
        (
            "another question",
            |pair| drop(pair.host.renew(renewal(None))),
            answer(FromGuest::Renewed, 2, None),
        ),
        // The renewal is not next.
        (
            "out of turn",
            |pair| {
                pair.host.quiesce(WITHIN).unwrap();
                assert!(pair.host_sends());
                pair.host.thaw().unwrap();
            },
            answer(FromGuest::Renewed, 2, None),
        ),
        (
            "cannot be decoded",
            |pair| drop(pair.host.quiesce(WITHIN)),
            raw(FromGuest::Quiesced.to_wire(), 0, b"no CBOR"),
        ),
        (
            "out of turn",
            |pair| drop(pair.host.quiesce(WITHIN)),
            answer(FromGuest::Quiesced, 1, Some(&"x".repeat(9000))),
        ),
    ];
    for (rule, before, frame) in cases {
        let mut pair = pair();
        before(&mut pair);
        sent(&mut pair);
        let rest = frame.len() - crate::HEADER_LEN;
        let why = match pair.host.judge(frame.first_chunk().unwrap(), rest) {
            Verdict::Close(why) => why,
            Verdict::Accept(_) => {
                let payload = frame[crate::HEADER_LEN..].to_vec();
                pair.host.deliver(payload).unwrap_err()
            }
            verdict => panic!("{verdict:?}"),
        };
        assert!(why.contains(rule), "{why}");
    }
}

#[test]
fn what_an_agent_says_of_a_failure_is_cut_to_what_an_event_may_carry() {
    let mut pair = pair();
    pair.host.quiesce(WITHIN).unwrap();
    pair.settle();
    pair.freeze(Err(&"x".repeat(9000)));
    pair.settle();
    let told = told(&mut pair);
    assert!(matches!(&told[..], [(_, _, Err(why))] if why.len() == crate::TEXT_MAX));
}

#[test]
fn an_agent_without_the_capability_is_refused_by_its_name() {
    let mut pair = Pair::closed(Limits::default());
    assert_eq!(pair.host.quiesce(WITHIN), Err(QuiesceError::Closed));
    pair.host.handle_opened();
    pair.host.poll_transmit().unwrap();
    let ready = encode(&Ready {
        generation: crate::GENERATION,
        connection: 1,
        exec_limits: Some(Limits::default()),
        capabilities: Some(Vec::from(["something newer".into()])),
        ..Ready::default()
    });
    let frame = raw(FromGuest::Ready.to_wire(), 0, &ready);
    pair.host_receives(&frame, ready.len());
    let error = pair.host.quiesce(WITHIN).unwrap_err();
    assert_eq!(error, QuiesceError::Unsupported);
    assert!(error.to_string().contains(QUIESCE), "{error}");
    assert_eq!(pair.host.renew(renewal(None)), Err(error));
    assert_eq!(pair.host.thaw(), None);
}

#[test]
fn a_client_of_a_relay_is_sent_to_the_program_that_has_the_vm() {
    let mut pair = Pair::closed(Limits::default());
    pair.host = Conn::facing_relay(Config::default());
    pair.host.handle_opened();
    pair.settle();
    assert!(pair.host.is_ready());
    assert_eq!(pair.host.quiesce(WITHIN), Err(QuiesceError::Relayed));
    let refused = pair.host.renew(renewal(None));
    assert_eq!(refused, Err(QuiesceError::Relayed));
}

#[test]
fn a_connection_that_ends_takes_what_it_had_frozen_with_it() {
    let mut pair = frozen();
    pair.host.thaw().unwrap();
    pair.host.handle_closed("gone");
    assert!(!pair.host.is_frozen());
    assert_eq!(pair.host.quiesce(WITHIN), Err(QuiesceError::Closed));
    pair.guest = crate::guest::Conn::new();
    pair.frozen = false;
    pair.host.handle_opened();
    pair.settle();
    let id = pair.running(Stdin::Null);
    pair.exit(id, exit_code(0));
    pair.settle();
    freeze(&mut pair);
}

#[test]
fn a_frozen_guest_is_saved_as_one_and_goes_on_after_its_renewal() {
    let mut pair = frozen();
    let id = pair.start(Stdin::Null);
    // Its turn comes and goes.
    pair.settle();
    let mut copy = pair.restored();
    assert!(copy.host.is_frozen());
    copy.settle();
    assert!(!copy.commands.contains_key(&id));
    copy.host.renew(renewal(Some("copy"))).unwrap();
    copy.settle();
    assert!(copy.commands.contains_key(&id));
    assert!(!pair.restored().commands.contains_key(&id));
}

/// The guest stands still for so long.
fn stand_still(pair: &mut Pair, time: Duration) {
    pair.host.hold_time();
    pass_held(pair, time);
    pair.host.release_time();
}

/// So much passes while the guest stands still, and nothing is due.
fn pass_held(pair: &mut Pair, time: Duration) {
    // Again is as good as once.
    pair.host.hold_time();
    pair.pass(time);
    assert_eq!(pair.host.next_deadline(), None);
}

#[test]
fn time_for_which_the_guest_stood_still_is_nobodys() {
    let mut pair = timed();
    let id = running(&mut pair, LIMIT);
    pair.pass(LIMIT / 2);
    let stood = 10 * LIMIT;
    stand_still(&mut pair, stood);
    let left = crate::pair::now() + LIMIT / 2;
    assert_eq!(pair.host.next_deadline(), Some(left));
    let waited = pair.view(id).output_stalls.total();
    assert_eq!(waited, LIMIT / 2);
    pair.pass(LIMIT / 2);
    assert_eq!(sent(&mut pair), [ToGuest::Kill.to_wire()]);
    // As for the time in which the end has to be confirmed.
    stand_still(&mut pair, stood);
    assert_eq!(pair.host.unconfirmed(id), None);
    pair.pass(CONFIRM_WITHIN);
    assert_eq!(pair.host.unconfirmed(id), Some(LIMIT));
}

#[test]
fn what_is_started_while_the_guest_stands_still_has_its_whole_time_and_no_more() {
    let mut pair = timed();
    // An earlier pause is over.
    stand_still(&mut pair, LIMIT);
    pair.host.hold_time();
    pass_held(&mut pair, 50 * LIMIT);
    let id = pair.try_start_within(LIMIT).unwrap();
    pass_held(&mut pair, 10 * LIMIT);
    assert_eq!(pair.view(id).output_stalls.total(), Duration::ZERO);
    pair.host.release_time();
    assert_eq!(pair.host.next_deadline(), Some(crate::pair::now() + LIMIT));
    pair.settle();
    pair.pass(LIMIT / 4);
    assert_eq!(pair.view(id).output_stalls.total(), LIMIT / 4);
    pair.pass(LIMIT - LIMIT / 4);
    assert_eq!(sent(&mut pair), [ToGuest::Kill.to_wire()]);
}

#[test]
fn what_is_saved_while_the_guest_stands_still_has_what_it_had_when_that_began() {
    let mut pair = timed();
    running(&mut pair, LIMIT);
    pair.pass(LIMIT / 2);
    pair.host.hold_time();
    pass_held(&mut pair, 10 * LIMIT);
    let copy = pair.restored();
    let left = crate::pair::now() + LIMIT / 2;
    assert_eq!(copy.host.next_deadline(), Some(left));
}
