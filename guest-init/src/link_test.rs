use std::fs::File;
use std::io::Read as _;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};

use super::*;

/// A port whose every write is seen as one.
fn port() -> (Link, OwnedFd) {
    let (ours, theirs) = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::NONBLOCK,
        None,
    )
    .unwrap();
    (Link::new(ours), theirs)
}

fn put(link: &mut Link, which: Which, bytes: &[u8]) {
    link.room(which)[..bytes.len()].copy_from_slice(bytes);
    link.commit(which, bytes.len());
}

/// The next write.
fn written(port: &OwnedFd) -> Option<Vec<u8>> {
    let mut bytes = vec![0; 2 * FRAME_MAX];
    let got = read(port, &mut *bytes).ok()?;
    bytes.truncate(got);
    Some(bytes)
}

#[test]
fn each_of_both_goes_out_whole_by_a_write_of_its_own() {
    let (mut link, port) = port();
    assert!(link.is_empty());
    put(&mut link, Which::First, b"ab");
    put(&mut link, Which::First, b"c");
    put(&mut link, Which::Second, b"def");
    assert!(!link.is_empty());
    assert_eq!(link.flush().unwrap(), Flushed::All);
    assert!(link.is_empty());
    assert_eq!(written(&port).unwrap(), b"abc");
    assert_eq!(written(&port).unwrap(), b"def");
    assert_eq!(written(&port), None);
    // And anew.
    put(&mut link, Which::First, &[7; FRAME_MAX]);
    assert_eq!(link.flush().unwrap(), Flushed::All);
    assert_eq!(written(&port).unwrap(), [7; FRAME_MAX]);
    assert_eq!(written(&port), None);
}

#[test]
fn the_first_has_no_room_once_the_second_has_something() {
    let (mut link, _port) = port();
    put(&mut link, Which::First, b"abc");
    assert_eq!(link.room(Which::First).len(), FRAME_MAX - 3);
    assert_eq!(link.room(Which::Second).len(), FRAME_MAX);
    put(&mut link, Which::Second, b"d");
    assert_eq!(link.room(Which::First).len(), 0);
    assert_eq!(link.room(Which::Second).len(), FRAME_MAX - 1);
    link.flush().unwrap();
    assert_eq!(link.room(Which::First).len(), FRAME_MAX);
}

#[test]
fn what_a_full_port_did_not_take_goes_on_where_it_stopped() {
    // A pipe takes a part of what is written to it, in pages.
    let (theirs, ours) = pipe_with(PipeFlags::NONBLOCK).unwrap();
    let mut theirs = File::from(theirs);
    let mut link = Link::new(ours);
    let mut sent: Vec<u8> = Vec::new();
    let mut got = Vec::new();
    let mut blocked = 0;
    for round in 0..40 {
        for which in [Which::First, Which::Second] {
            let bytes: Vec<u8> = (0..FRAME_MAX).map(|at| (at / 7 + round) as u8).collect();
            put(&mut link, which, &bytes);
            sent.extend(bytes);
        }
        while link.flush().unwrap() == Flushed::Blocked {
            assert!(!link.is_empty());
            blocked += 1;
            // Little enough for it to stop in either write and between them.
            let mut some = [0; 12 << 10];
            let n = theirs.read(&mut some).unwrap();
            got.extend_from_slice(&some[..n]);
        }
    }
    assert!(blocked > 160, "{blocked}");
    drop(link);
    theirs.read_to_end(&mut got).unwrap();
    assert!(got == sent, "bytes were lost, repeated or moved");
}

#[test]
fn a_port_that_is_closed_is_lost() {
    let (mut link, port) = port();
    drop(port);
    put(&mut link, Which::First, b"abc");
    assert!(matches!(link.flush(), Err(Lost::Closed)));
}
