//! A saved connection, changed anywhere, against the way back; and any frames of a guest to what
//! was taken for one.
#![no_main]

use arbitrary::{Result, Unstructured};
use forebay_exec_proto::host::{Conn, RestoreError, RestoreOptions, SaveError, SavedConn};
use forebay_exec_proto::model::World;
use forebay_exec_proto::{FRAME_MAX, HEADER_LEN};
use forebay_fuzz::{KINDS_FROM_GUEST, change, check_host, deliver, frame, limits, op};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    // An input that ends within a step is shorter by that one.
    let _ = run(&mut Unstructured::new(data));
});

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let mut world = World::new(limits(u)?);
    for _ in 0..u.int_in_range(0..=40u8)? {
        world.apply(&op(u)?);
    }
    let saved = match world.host().save() {
        Err(SaveError::Quiescing) => return Ok(()),
        saved => saved.expect("both ends are honest"),
    };
    let mut bytes = saved.encode();
    for _ in 0..u.int_in_range(0..=16u8)? {
        if !bytes.is_empty() {
            change(u, &mut bytes)?;
        }
    }
    if let Ok(conn) = SavedConn::decode(&bytes).and_then(restore) {
        go_on(u, conn)?;
    }
    Ok(())
}

fn restore(saved: SavedConn) -> std::result::Result<Conn, RestoreError> {
    Conn::restore(saved, RestoreOptions::default())
}

/// What was taken for a connection behaves as one, to its end.
fn go_on(u: &mut Unstructured<'_>, mut conn: Conn) -> Result<()> {
    let saved = conn.save().expect("a restored connection is ready");
    let again = restore(saved.clone()).expect("it can be restored again");
    assert_eq!(again.save(), Ok(saved), "restoring it changed it");
    let held: Vec<_> = conn.executions().collect();
    check_host(&conn, held.len());
    while !u.is_empty() {
        match u.int_in_range(0..=3u8)? {
            0 if !held.is_empty() => drop(conn.next_event(*u.choose(&held)?)),
            0 | 1 => drop(conn.poll_transmit()),
            _ => {
                if let Some(reason) = deliver(&mut conn, &frame(u, &KINDS_FROM_GUEST)?) {
                    conn.handle_closed(reason);
                }
            }
        }
        check_host(&conn, held.len());
    }
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
    Ok(())
}
