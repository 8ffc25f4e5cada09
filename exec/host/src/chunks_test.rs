use super::*;

const WHOLE: usize = 1024;

/// Where the bytes of a chunk lie: the same place again is the same allocation.
fn place(bytes: &Bytes) -> *const u8 {
    bytes.as_ptr()
}

fn chunk(chunks: &Arc<Chunks>, len: usize) -> Bytes {
    let mut room = chunks.room_for(len);
    room.resize(len, 7);
    chunks.shared(room)
}

#[test]
fn a_whole_chunks_allocation_is_used_again_and_its_bytes_are_not() {
    let chunks = Chunks::new(WHOLE);
    let first = chunk(&chunks, WHOLE);
    let at = place(&first);
    drop(first);
    let room = chunks.room_for(WHOLE - 16);
    assert_eq!((room.as_ptr(), room.len(), room.capacity()), (at, 0, WHOLE));
}

#[test]
fn what_somebody_still_holds_is_not_used_again() {
    let chunks = Chunks::new(WHOLE);
    let held = chunk(&chunks, WHOLE);
    let piece = held.slice(3..4);
    let at = place(&held);
    drop(held);
    let next = chunk(&chunks, WHOLE);
    assert_ne!(place(&next), at);
    assert_eq!(piece.as_ref(), [7]);
}

#[test]
fn a_chunk_that_is_not_whole_has_an_allocation_of_its_own_size() {
    let chunks = Chunks::new(WHOLE);
    drop(chunk(&chunks, WHOLE));
    for len in [0, 1, WHOLE / 2, WHOLE - 65] {
        assert_eq!(chunks.room_for(len).capacity(), len);
    }
    for len in [WHOLE - 64, WHOLE] {
        assert_eq!(chunks.room_for(len).capacity(), WHOLE);
    }
    assert_eq!(chunks.room_for(WHOLE + 1).capacity(), WHOLE + 1);
}

#[test]
fn spare_room_of_somebody_elses_buffer_is_given_back() {
    let chunks = Chunks::new(WHOLE);
    let mut large = Vec::with_capacity(WHOLE * 4);
    large.push(1);
    let shared = chunks.shared(large);
    assert_eq!(shared.try_into_mut().unwrap().capacity(), 1);
}

#[test]
fn no_more_are_kept_than_a_bound() {
    let chunks = Chunks::new(WHOLE);
    let all: Vec<_> = (0..KEPT + 10).map(|_| chunk(&chunks, WHOLE)).collect();
    drop(all);
    assert_eq!(chunks.kept().free.len(), KEPT);
}

#[test]
fn what_is_dropped_after_the_hub_is_freed() {
    let chunks = Chunks::new(WHOLE);
    let late = chunk(&chunks, WHOLE);
    let home = Arc::downgrade(&chunks);
    drop(chunks);
    drop(late);
    assert!(home.upgrade().is_none());
}

#[test]
fn nothing_is_kept_while_nothing_goes_on() {
    let chunks = Chunks::new(WHOLE);
    let late = chunk(&chunks, WHOLE);
    drop(chunk(&chunks, WHOLE));
    chunks.release();
    assert_eq!(chunks.kept().free.len(), 0);
    drop(late);
    assert_eq!(chunks.kept().free.len(), 0, "nor what comes back later");
    drop(chunk(&chunks, WHOLE));
    assert_eq!(chunks.kept().free.len(), 1);
}
