//! A state file is input: cut off, made up, or changed in any place.

use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::format::PhaseV1;
use super::tests::{busy, restored};
use super::*;
use crate::host::{Event, Notice, what};
use crate::{CHUNK_CHARGE, FRAME_MAX, HEADER_LEN};

pub(super) fn saved() -> SavedConn {
    busy().host.save().unwrap()
}

#[test]
fn a_state_that_is_cut_off_anywhere_or_goes_on_is_refused() {
    let bytes = saved().encode();
    for len in 0..bytes.len() {
        assert!(
            matches!(
                SavedConn::decode(&bytes[..len]),
                Err(RestoreError::Malformed { .. })
            ),
            "{len} of {}",
            bytes.len()
        );
    }
    let mut more = bytes;
    more.push(0);
    let error = SavedConn::decode(&more).unwrap_err();
    assert!(alloc::format!("{error}").contains("1 bytes follow it"));
}

#[test]
fn what_would_be_forgotten_is_refused() {
    let bytes = saved().encode();
    let refused = |bytes: &[u8]| {
        let error = SavedConn::decode(bytes).unwrap_err();
        assert!(
            alloc::format!("{error}").contains("does not know"),
            "{error}"
        );
    };
    // One field more in the connection's array, in an execution's, and in the bootstrap's map.
    let mut more = bytes.clone();
    assert_eq!(more[2], 0x8e, "an array of fourteen");
    more[2] += 1;
    more.push(0);
    refused(&more);

    let exec = crate::message::encode(&saved().0.execs[0]);
    assert_eq!(exec[0], 0x91, "an array of seventeen");
    let at = bytes.windows(exec.len()).position(|part| part == exec);
    let at = at.unwrap();
    let mut more = bytes.clone();
    more.insert(at + exec.len(), 0xf6);
    more.splice(at..=at, [0x92]);
    refused(&more);

    let bootstrap = crate::message::encode(&saved().0.bootstrap);
    assert_eq!((bytes[3], bootstrap[0]), (0xa4, 0xa4), "a map of four");
    let mut more = bytes.clone();
    more.splice(3 + bootstrap.len()..3 + bootstrap.len(), [0x18, 99, 0]);
    more[3] += 1;
    refused(&more);

    // The same said longer: a number in two bytes, an array without its length.
    let mut longer = bytes.clone();
    assert_eq!(longer[1], 1);
    longer.splice(1..2, [0x18, 1]);
    refused(&longer);
    let mut open = bytes;
    open[2] = 0x9f;
    open.push(0xff);
    refused(&open);
}

#[test]
fn another_version_and_another_generation_are_refused_by_name() {
    let mut bytes = saved().encode();
    assert_eq!(bytes[..2], [0x82, 1], "an array of two, version 1");
    bytes[1] = 2;
    let refused = RestoreError::Version {
        found: 2,
        supported: 1,
    };
    assert_eq!(SavedConn::decode(&bytes), Err(refused));
    let mut saved = saved();
    saved.0.bootstrap.generation += 1;
    let found = saved.0.bootstrap.generation;
    assert_eq!(
        restored(saved).map(|_| ()),
        Err(RestoreError::Generation { found })
    );
}

#[test]
fn a_length_that_is_only_announced_allocates_nothing() {
    // An array, a byte string and a text of 2⁶⁴ − 1 elements; allocating any would abort.
    for head in [0x9b, 0x5b, 0x7b, 0xbb] {
        for at in 0..saved().encode().len().min(300) {
            let mut bytes = saved().encode();
            bytes.truncate(at);
            bytes.push(head);
            bytes.extend([0xff; 8]);
            bytes.extend([0; 100]);
            assert!(SavedConn::decode(&bytes).is_err());
        }
    }
}

/// What must hold of a connection that was restored from anything at all.
fn sound(mut conn: Conn) {
    let saved = conn.save().expect("a restored connection is ready");
    let again = restored(saved.clone()).expect("it can be restored again");
    assert_eq!(again.save(), Ok(saved));

    let view = conn.inspect();
    let admitted = view.executions.iter().filter(|exec| exec.admitted).count();
    assert_eq!(admitted, view.active as usize);
    assert!(view.active <= conn.limits().max_executions);
    for exec in &view.executions {
        let held = exec.output_held as u64 + exec.chunks_held as u64 * u64::from(CHUNK_CHARGE);
        let limit = u64::from(conn.limits().output_limit);
        assert!(held + exec.output_forwarded <= limit, "{exec:?}");
    }
    // It comes to rest, and everything can be read, and ended.
    for _ in 0..2 {
        let mut frames = 0;
        while let Some(frame) = conn.poll_transmit() {
            assert!(frame.body.len() + HEADER_LEN <= FRAME_MAX);
            frames += 1;
            assert!(frames < 100_000, "it sends for ever");
        }
        for exec in &view.executions {
            let mut last = None;
            while let Some(event) = conn.next_event(exec.id) {
                assert!(!matches!(last, Some(Event::End(_))), "the end is the last");
                last = Some(event);
            }
        }
    }
    conn.handle_closed("the end");
    while let Some(notice) = conn.poll_notice() {
        if let Notice::Exec { what, .. } = notice {
            assert_ne!(what & what::TERMINAL, 0, "all end now");
        }
    }
    for exec in view.executions {
        conn.forget(exec.id);
    }
    assert_eq!(conn.active(), 0, "every slot came back");
    assert!(conn.inspect().executions.is_empty());
}

/// One change to the bytes of a state, at a place that is a fraction of its length.
#[derive(Debug, Clone)]
enum Mutation {
    Set(prop::sample::Index, u8),
    Add(prop::sample::Index, i8),
    Insert(prop::sample::Index, Vec<u8>),
    Remove(prop::sample::Index, usize),
    Copy(prop::sample::Index, prop::sample::Index, usize),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let at = || any::<prop::sample::Index>();
    prop_oneof![
        3 => (at(), any::<u8>()).prop_map(|(at, byte)| Mutation::Set(at, byte)),
        4 => (at(), -2..=2i8).prop_map(|(at, n)| Mutation::Add(at, n)),
        1 => (at(), prop::collection::vec(any::<u8>(), 1..9))
            .prop_map(|(at, bytes)| Mutation::Insert(at, bytes)),
        1 => (at(), 1..20usize).prop_map(|(at, n)| Mutation::Remove(at, n)),
        1 => (at(), at(), 1..40usize).prop_map(|(from, to, n)| Mutation::Copy(from, to, n)),
    ]
}

fn mutate(bytes: &mut Vec<u8>, mutation: &Mutation) {
    if bytes.is_empty() {
        return;
    }
    let place = |at: &prop::sample::Index| at.index(bytes.len());
    match mutation {
        Mutation::Set(at, byte) => {
            let at = place(at);
            bytes[at] = *byte;
        }
        Mutation::Add(at, n) => {
            let at = place(at);
            bytes[at] = bytes[at].wrapping_add_signed(*n);
        }
        Mutation::Insert(at, new) => {
            let at = place(at);
            bytes.splice(at..at, new.iter().copied());
        }
        Mutation::Remove(at, n) => {
            let at = place(at);
            let end = bytes.len().min(at + n);
            bytes.drain(at..end);
        }
        Mutation::Copy(from, to, n) => {
            let (from, to) = (place(from), place(to));
            let piece = bytes[from..bytes.len().min(from + n)].to_vec();
            bytes.splice(to..to, piece);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn a_state_changed_anywhere_is_refused_or_breaks_no_rule(
        mutations in prop::collection::vec(mutation(), 1..4),
    ) {
        let mut saved = saved();
        // The long request is the same letter over and over; without it more changes hit.
        for exec in &mut saved.0.execs {
            if let PhaseV1::Requesting { rest, .. } = &mut exec.phase {
                rest.truncate(20);
            }
        }
        let mut bytes = saved.encode();
        for mutation in &mutations {
            mutate(&mut bytes, mutation);
        }
        if let Ok(conn) = SavedConn::decode(&bytes).and_then(restored) {
            sound(conn);
        }
    }

    #[test]
    fn bytes_that_are_no_state_are_refused(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        prop_assert!(SavedConn::decode(&bytes).is_err());
        let mut begun = vec![0x82, 1, 0x8b];
        begun.extend(bytes);
        prop_assert!(SavedConn::decode(&begun).is_err());
    }
}

#[test]
fn a_state_that_was_not_changed_breaks_no_rule() {
    sound(restored(saved()).unwrap());
}
