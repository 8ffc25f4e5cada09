use std::io::Write as _;
use std::os::fd::AsFd as _;

use forebay_exec_proto::TerminalSize;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize,
    tcsetattr,
};

use super::{EndOfFile, HOLDS, Pty, Terminals, end_of_file, resize};

fn pty() -> Pty {
    Terminals::open()
        .make(TerminalSize { rows: 41, cols: 97 })
        .unwrap()
}

/// Changes the modes as a command does.
fn change(pty: &Pty, how: impl FnOnce(&mut Termios)) {
    let mut modes = tcgetattr(&pty.slave).unwrap();
    how(&mut modes);
    tcsetattr(&pty.slave, OptionalActions::Now, &modes).unwrap();
}

#[test]
fn the_agents_side_does_not_block_and_the_commands_does() {
    let pty = pty();
    assert!(fcntl_getfl(&pty.master).unwrap().contains(OFlags::NONBLOCK));
    assert!(!fcntl_getfl(&pty.slave).unwrap().contains(OFlags::NONBLOCK));
}

// B30.
#[test]
fn a_terminal_has_its_size_from_the_beginning() {
    let pty = pty();
    let size = tcgetwinsize(&pty.slave).unwrap();
    assert_eq!((size.ws_row, size.ws_col), (41, 97));
    for (rows, cols) in [(1, 1), (u16::MAX, u16::MAX), (0, 0)] {
        resize(&pty.master, TerminalSize { rows, cols }).unwrap();
        let size = tcgetwinsize(&pty.slave).unwrap();
        assert_eq!((size.ws_row, size.ws_col), (rows, cols));
    }
}

#[test]
fn input_ends_by_the_commands_own_character_and_in_canonical_mode_only() {
    let pty = pty();
    let end = |line_open| {
        Some(EndOfFile {
            character: 4,
            line_open,
        })
    };
    assert_eq!(end_of_file(&pty.master, None), end(false));
    change(&pty, |modes| {
        modes.special_codes[SpecialCodeIndex::VEOF] = b'q';
    });
    let character = end_of_file(&pty.master, None).map(|end| end.character);
    assert_eq!(character, Some(b'q'));
    change(&pty, |modes| {
        modes.special_codes[SpecialCodeIndex::VEOF] = 0;
    });
    assert_eq!(end_of_file(&pty.master, None), None);
    change(&pty, |modes| {
        modes.special_codes[SpecialCodeIndex::VEOF] = 4;
        modes.local_modes -= LocalModes::ICANON;
    });
    assert_eq!(end_of_file(&pty.master, None), None);
}

#[test]
fn what_was_typed_last_tells_whether_a_line_is_open() {
    let pty = pty();
    let open = |last| end_of_file(&pty.master, last).unwrap().line_open;
    let (newline, carriage_return, end, interrupt) = (Some(b'\n'), Some(b'\r'), Some(4), Some(3));
    assert_eq!(
        [None, newline, carriage_return, end, interrupt].map(open),
        [false; 5]
    );
    // A character that is turned off is no line's end, and 0 is what turns it off.
    assert!(open(Some(b'x')) && open(Some(0)));
    change(&pty, |modes| {
        modes.input_modes -= InputModes::ICRNL;
        modes.local_modes -= LocalModes::ISIG;
        modes.special_codes[SpecialCodeIndex::VEOL] = b'x';
    });
    assert!(open(carriage_return) && open(interrupt) && !open(Some(b'x')));
    change(&pty, |modes| {
        modes.local_modes |= LocalModes::ISIG | LocalModes::NOFLSH;
    });
    assert!(open(interrupt));
}

/// What is read after an exit is bounded by this number, so it must not cut off anything.
#[test]
fn a_terminal_holds_less_than_is_read_after_an_exit() {
    let pty = pty();
    fcntl_setfl(&pty.slave, OFlags::NONBLOCK).unwrap();
    let mut slave = std::fs::File::from(pty.slave.as_fd().try_clone_to_owned().unwrap());
    // In every size of write: the kernel rounds each up.
    for size in [1, 10, 255, 257, 1000, 4096] {
        let mut held = 0;
        // What is on its way becomes what is held, which makes room for more.
        for _ in 0..3 {
            while let Ok(n) = slave.write(&vec![b'x'; size]) {
                held += n;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        assert!(held > 0 && held < HOLDS, "{held}");
        let mut read = 0;
        loop {
            match rustix::io::read(&pty.master, &mut [0; 4096]) {
                Ok(n) => read += n,
                Err(errno) => {
                    assert_eq!(errno, Errno::AGAIN);
                    break;
                }
            }
        }
        assert_eq!(read, held);
    }
}
