use super::*;
use proptest::prelude::*;

#[test]
fn what_fits_is_kept_as_it_is() {
    let log = ConsoleLog::new(64);
    log.append(b"one\ntwo\n");
    log.append(b"thr");
    log.append(b"ee\n");
    assert_eq!(log.text(), "one\ntwo\nthree\n");
    assert_eq!(log.last_lines(2), "two\nthree");
    assert_eq!(log.last_lines(99), "one\ntwo\nthree");
    assert_eq!(log.written(), 14);
}

#[test]
fn the_oldest_lines_fall_out_whole_and_the_gap_is_marked() {
    let log = ConsoleLog::new(10);
    log.append(b"aaaa\nbbbb\n");
    log.append(b"cc\n");
    assert_eq!(log.text(), "[5 earlier bytes dropped]\nbbbb\ncc\n");
    log.append(b"0123456789abcdef");
    assert_eq!(log.text(), "[19 earlier bytes dropped]\n6789abcdef");
}

#[test]
fn a_line_longer_than_the_ring_is_cut_not_lost() {
    let log = ConsoleLog::new(4);
    for byte in b"abcdefgh" {
        log.append(&[*byte]);
    }
    assert_eq!(log.text(), "[4 earlier bytes dropped]\nefgh");
}

#[test]
fn bytes_that_are_no_text_do_no_harm() {
    let log = ConsoleLog::new(16);
    log.append(b"\xff\x00\r\n\n  \n");
    assert_eq!(log.last_lines(5), "\u{fffd}\0");
}

#[test]
fn the_tap_sees_everything_in_order_also_what_the_ring_dropped() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = {
        let seen = Arc::clone(&seen);
        let tap: Tap = Box::new(move |bytes| seen.lock().unwrap().extend_from_slice(bytes));
        ConsoleLog::with_tap(2, Some(tap))
    };
    log.append(b"abc");
    log.append(b"def");
    assert_eq!(*seen.lock().unwrap(), b"abcdef");
}

proptest! {
    #[test]
    fn it_never_outgrows_its_capacity_and_keeps_a_suffix(
        capacity in 1usize..40,
        pieces in prop::collection::vec(prop::collection::vec(prop::sample::select(&b"ab\n"[..]), 0..60), 0..20),
    ) {
        let log = ConsoleLog::new(capacity);
        let mut all = Vec::new();
        for piece in &pieces {
            log.append(piece);
            all.extend_from_slice(piece);
            let ring = log.lock();
            prop_assert!(ring.bytes.len() <= capacity);
            prop_assert!(all.ends_with(ring.kept().as_bytes()));
            prop_assert_eq!(ring.dropped as usize + ring.bytes.len(), all.len());
        }
    }
}
