use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

use forebay_exec_proto::TerminalSize;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::pipe::{PipeFlags, pipe_with};

use super::{LINGERING_MAX, Lingering, Output, Then};
use crate::pty::{HOLDS, Terminals};

/// The writing end of a pipe, or a terminal's slave, and a second reading end to watch it by.
struct Writer {
    pipe: File,
    watch: OwnedFd,
}

impl Writer {
    fn write(&mut self, bytes: &[u8]) {
        self.pipe.write_all(bytes).unwrap();
    }

    /// Closes it and waits until nobody can write.
    fn close(self) {
        drop(self.pipe);
        wait_for_hang_up(&self.watch);
    }
}

/// Waits until a reading end has no writer: a process that another test is starting may hold a copy
/// for a moment.
fn wait_for_hang_up(watch: &OwnedFd) {
    let mut fds = [PollFd::new(watch, PollFlags::empty())];
    poll(&mut fds, None).unwrap();
    assert!(fds[0].revents().contains(PollFlags::HUP));
}

fn pipe() -> (Writer, OwnedFd) {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    fcntl_setfl(&reader, OFlags::NONBLOCK).unwrap();
    let watch = reader.try_clone().unwrap();
    (
        Writer {
            pipe: File::from(writer),
            watch,
        },
        reader,
    )
}

fn output() -> (Writer, Output) {
    let (writer, reader) = pipe();
    (writer, Output::of_pipe(reader))
}

/// Reads at most `max` bytes.
fn read(output: &mut Output, max: usize) -> (Vec<u8>, Then) {
    let mut room = vec![0; max];
    let (got, then) = output.read([&mut room, &mut [], &mut [], &mut []]);
    room.truncate(got);
    (room, then)
}

#[test]
fn a_stream_is_readable_until_its_pipe_says_that_it_is_empty() {
    let (mut writer, mut output) = output();
    writer.write(b"abc");
    let (bytes, then) = read(&mut output, 2);
    assert_eq!(bytes, b"ab");
    assert!(matches!(then, Then::Readable));
    let (bytes, then) = read(&mut output, 2);
    assert_eq!(bytes, b"c");
    assert!(matches!(then, Then::Readable));
    assert!(matches!(read(&mut output, 2).1, Then::Empty));
}

#[test]
fn one_read_of_a_stream_that_flows_fills_the_first_room_and_goes_on_in_the_others() {
    let (mut writer, mut output) = output();
    writer.write(b"abcdefghijk");
    let (mut room, mut second, mut third) = ([0; 3], [0; 1], [0; 1]);
    // Whether it flows is not known before the first.
    let (got, _) = output.read([&mut room, &mut second, &mut third, &mut []]);
    assert_eq!((got, &room, &second, &third), (3, b"abc", b"\0", b"\0"));
    let (got, then) = output.read([&mut room, &mut second, &mut third, &mut []]);
    assert_eq!((got, &room, &second, &third), (5, b"def", b"g", b"h"));
    assert!(matches!(then, Then::Readable));
    // What a descendant writes after the exit is not part of the stream, in no room.
    assert!(matches!(output.leader_exited(), Then::Readable));
    writer.write(b"job");
    let (mut room, mut second, mut third) = ([0; 2], [0; 2], [0; 2]);
    let (got, then) = output.read([&mut room, &mut second, &mut third, &mut []]);
    assert_eq!((got, &room, &second), (3, b"ij", b"k\0"));
    assert_eq!(&third, b"\0\0");
    assert!(matches!(then, Then::Ended(Some(_))));
}

#[test]
fn a_pipe_of_packets_is_read_to_its_end() {
    let (mut writer, mut output) = output();
    fcntl_setfl(&writer.pipe, OFlags::DIRECT).unwrap();
    writer.write(b"one");
    writer.write(b"two");
    assert_eq!(read(&mut output, 100).0, b"one");
    let (bytes, then) = read(&mut output, 100);
    assert_eq!(bytes, b"two");
    assert!(matches!(then, Then::Readable));
    assert!(matches!(read(&mut output, 100).1, Then::Empty));
}

#[test]
fn a_stream_ends_when_its_last_writer_closes() {
    let (mut writer, mut output) = output();
    writer.write(b"abc");
    writer.close();
    assert_eq!(read(&mut output, 100).0, b"abc");
    assert!(matches!(read(&mut output, 100).1, Then::Ended(None)));
    assert!(output.has_ended());
}

#[test]
fn an_exit_without_output_or_writers_ends_the_stream_at_once() {
    let (writer, mut output) = output();
    writer.close();
    assert!(matches!(output.leader_exited(), Then::Ended(None)));
    assert!(output.has_ended());
}

#[test]
fn an_exit_leaves_what_the_pipe_holds_and_needs_no_end_of_file() {
    let (mut writer, mut output) = output();
    writer.write(b"abcd");
    writer.close();
    assert!(matches!(output.leader_exited(), Then::Readable));
    assert!(matches!(read(&mut output, 3).1, Then::Readable));
    let (bytes, then) = read(&mut output, 3);
    assert_eq!(bytes, b"d");
    assert!(matches!(then, Then::Ended(None)));
}

// B20: a background job holds the pipe.
#[test]
fn a_surviving_writer_neither_adds_to_the_stream_nor_loses_its_pipe() {
    let (mut writer, mut output) = output();
    writer.write(b"leader");
    assert!(matches!(output.leader_exited(), Then::Readable));
    writer.write(b"job");
    let (bytes, then) = read(&mut output, 100);
    assert_eq!(bytes, b"leader");
    let Then::Ended(Some(kept)) = then else {
        panic!("the pipe is kept: {then:?}")
    };

    let mut lingering = Lingering::new();
    let (number, oldest) = lingering.add(kept);
    assert!(oldest.is_none());
    // More than a pipe holds: the job is never blocked as long as the pipe is emptied.
    for _ in 0..8 {
        writer.write(&[b'x'; 32 * 1024]);
        while rustix::io::ioctl_fionread(lingering.get(number).unwrap()).unwrap() > 0 {
            assert!(lingering.discard(number).is_none());
        }
    }
    writer.close();
    assert!(
        lingering.discard(number).is_some(),
        "the last writer has closed"
    );
    assert!(lingering.get(number).is_none());
}

#[test]
fn a_writer_that_is_silent_at_the_exit_does_not_hold_the_end() {
    let (_writer, mut output) = output();
    assert!(matches!(output.leader_exited(), Then::Ended(Some(_))));
}

#[test]
fn bytes_taken_by_somebody_else_do_not_hold_the_end() {
    let (mut writer, reader) = pipe();
    let thief = reader.try_clone().unwrap();
    let mut output = Output::of_pipe(reader);
    writer.write(b"abc");
    assert!(matches!(output.leader_exited(), Then::Readable));
    rustix::io::read(thief.as_fd(), &mut [0; 10]).unwrap();
    assert!(matches!(read(&mut output, 10).1, Then::Ended(Some(_))));
}

#[test]
fn the_oldest_pipe_makes_room() {
    let mut lingering = Lingering::new();
    let pipes: Vec<_> = (0..=LINGERING_MAX).map(|_| pipe()).collect();
    let numbers: Vec<_> = pipes.iter().map(|(_, reader)| reader.as_raw_fd()).collect();
    let gone: Vec<_> = pipes
        .into_iter()
        .filter_map(|(_, reader)| lingering.add(reader).1.map(|oldest| oldest.as_raw_fd()))
        .collect();
    assert_eq!(gone, [numbers[0]]);
    assert!(lingering.get(0).is_none());
    assert!(lingering.get(1).is_some());
}

/// A terminal's slave, as a command has it, and what the agent reads of it.
fn terminal() -> (Writer, Output) {
    let pty = Terminals::open()
        .make(TerminalSize { rows: 24, cols: 80 })
        .unwrap();
    let writer = Writer {
        pipe: File::from(pty.slave.try_clone().unwrap()),
        watch: pty.master.try_clone().unwrap(),
    };
    (writer, Output::of_terminal(pty))
}

// B29: the error that ends a master is an end.
#[test]
fn a_terminal_gives_what_it_holds_and_ends_when_nobody_has_it_open() {
    let (mut slave, mut output) = terminal();
    slave.write(b"abc\n");
    assert_eq!(read(&mut output, 3).0, b"abc");
    assert_eq!(read(&mut output, 3).0, b"\r\n");
    assert!(matches!(read(&mut output, 3).1, Then::Empty));
    slave.write(b"final");
    let Writer { pipe, watch } = slave;
    drop(pipe);
    // The leader may yet open it again.
    assert_eq!(read(&mut output, 100).0, b"final");
    assert!(matches!(read(&mut output, 100).1, Then::Empty));
    assert!(matches!(output.leader_exited(), Then::Readable));
    wait_for_hang_up(&watch);
    assert!(matches!(read(&mut output, 100).1, Then::Ended(None)));
    assert!(output.has_ended());
}

// B20 on a terminal.
#[test]
fn a_surviving_writer_does_not_hold_a_terminals_end() {
    let (mut slave, mut output) = terminal();
    slave.write(b"leader");
    assert!(matches!(output.leader_exited(), Then::Readable));
    let (bytes, then) = read(&mut output, 100);
    assert_eq!(bytes, b"leader");
    assert!(matches!(then, Then::Readable));
    let Then::Ended(Some(kept)) = read(&mut output, 100).1 else {
        panic!("the terminal is kept")
    };
    let mut lingering = Lingering::new();
    let (number, _) = lingering.add(kept);
    slave.write(b"job");
    assert!(lingering.discard(number).is_none());
    slave.close();
    assert!(lingering.discard(number).is_some());
}

#[test]
fn a_terminal_that_is_never_empty_ends_after_what_it_can_have_held() {
    let (mut slave, mut output) = terminal();
    slave.write(b"x");
    assert!(matches!(output.leader_exited(), Then::Readable));
    let mut given = 0;
    let kept = loop {
        let (bytes, then) = read(&mut output, 1000);
        given += bytes.len();
        match then {
            Then::Readable => slave.write(&[b'x'; 1000]),
            Then::Ended(kept) => break kept,
            Then::Empty => panic!("an end is owed"),
        }
    };
    assert_eq!(given, HOLDS);
    assert!(kept.is_some());
}
