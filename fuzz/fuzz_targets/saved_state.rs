//! A saved connection, changed anywhere, against the way back.
#![no_main]

use std::time::Duration;

use arbitrary::{Result, Unstructured};
use forebay_exec_proto::host::{Conn, RestoreError, SavedConn};
use forebay_exec_proto::model::World;
use forebay_exec_proto::{FRAME_MAX, HEADER_LEN};
use forebay_fuzz::{check_host, limits, op};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    // An input that ends within a step is shorter by that one.
    let _ = run(&mut Unstructured::new(data));
});

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let mut world = World::new(limits(u)?);
    for _ in 0..u.int_in_range(0..=40u8)? {
        world.apply(&op(u)?);
    }
    let mut bytes = world.host().save().expect("both ends are honest").encode();
    while !u.is_empty() && !bytes.is_empty() {
        change(u, &mut bytes)?;
    }
    if let Ok(conn) = SavedConn::decode(&bytes).and_then(restore) {
        go_on(conn);
    }
    Ok(())
}

fn restore(saved: SavedConn) -> std::result::Result<Conn, RestoreError> {
    Conn::restore(saved, || Duration::ZERO)
}

/// One change, to one place.
fn change(u: &mut Unstructured<'_>, bytes: &mut Vec<u8>) -> Result<()> {
    let at = u.int_in_range(0..=bytes.len() - 1)?;
    match u.int_in_range(0..=3u8)? {
        0 => bytes[at] = bytes[at].wrapping_add_signed(u.int_in_range(-2..=2)?),
        1 => bytes[at] = u.arbitrary()?,
        2 => bytes.insert(at, u.arbitrary()?),
        _ => drop(bytes.remove(at)),
    }
    Ok(())
}

/// What was taken for a connection behaves as one, to its end.
fn go_on(mut conn: Conn) {
    let saved = conn.save().expect("a restored connection is ready");
    let again = restore(saved.clone()).expect("it can be restored again");
    assert_eq!(again.save(), Ok(saved), "restoring it changed it");
    let held: Vec<_> = conn.executions().collect();
    check_host(&conn, held.len());
    for frames in 0.. {
        let Some(frame) = conn.poll_transmit() else {
            break;
        };
        assert!(frame.body.len() + HEADER_LEN <= FRAME_MAX);
        assert!(frames < 100_000, "it sends for ever");
    }
    for id in &held {
        while conn.next_event(*id).is_some() {}
    }
    check_host(&conn, held.len());
    conn.handle_closed("the end");
    for id in held {
        conn.forget(id);
    }
    assert_eq!(conn.active(), 0, "a slot is lost");
    assert!(conn.inspect().executions.is_empty());
}
