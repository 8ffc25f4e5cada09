use std::io::Read as _;

use rustix::fs::{OFlags, fcntl_setfl};

use super::*;

#[test]
fn output_to_a_full_non_blocking_pipe_waits_and_loses_nothing() {
    let (mut reader, writer) = io::pipe().unwrap();
    fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
    let data: Vec<u8> = (0..1_000_000_u32).map(|n| (n % 251) as u8).collect();
    let sent = data.clone();
    let copy = thread::spawn(move || write_all(writer.as_fd(), &sent));
    let mut received = Vec::new();
    reader.read_to_end(&mut received).unwrap();
    copy.join().unwrap().unwrap();
    assert!(
        received == data,
        "{} of {} bytes, or other ones",
        received.len(),
        data.len()
    );
}

#[test]
fn output_without_a_reader_is_a_broken_pipe() {
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    let error = write_all(writer.as_fd(), b"x").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
}

#[test]
fn an_empty_non_blocking_input_is_waited_for() {
    let (reader, writer) = io::pipe().unwrap();
    fcntl_setfl(&reader, OFlags::NONBLOCK).unwrap();
    let read = thread::spawn(move || {
        let mut chunk = [0; 16];
        super::read(reader.as_fd(), &mut chunk)
    });
    write_all(writer.as_fd(), b"abc").unwrap();
    assert_eq!(read.join().unwrap().unwrap(), 3);
}
