use super::*;

#[test]
fn a_capture_keeps_the_beginning_and_counts_everything() {
    let mut capture = Capture::default();
    capture.add(b"start");
    capture.add(&vec![b'x'; CAPTURE_LIMIT]);
    capture.add(b"end");
    assert_eq!(capture.kept.len(), CAPTURE_LIMIT);
    assert!(capture.kept.starts_with(b"startx"));
    assert_eq!(capture.seen, (CAPTURE_LIMIT + 8) as u64);
}

#[test]
fn a_signal_is_a_shells_exit_code_above_128() {
    assert_eq!(Status::Signal(15).shell_code(), 143);
    assert_eq!(Status::Code(3).shell_code(), 3);
    assert!(Status::Code(0).success());
    assert!(!Status::Signal(9).success());
}
