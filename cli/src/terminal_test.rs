use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, OutputModes, Winsize, tcsetwinsize};
use tokio::runtime::Runtime;

use super::*;

/// A terminal: the end that a person sits at, and the one that programs have.
fn pty() -> (OwnedFd, OwnedFd) {
    let person = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&person).unwrap();
    unlockpt(&person).unwrap();
    let name = ptsname(&person, Vec::new()).unwrap();
    let program = open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
    (person, program)
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

fn is_raw(tty: &OwnedFd) -> bool {
    let modes = tcgetattr(tty).unwrap();
    let cooked = LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG | LocalModes::IEXTEN;
    !modes.local_modes.intersects(cooked) && !modes.output_modes.contains(OutputModes::OPOST)
}

/// All that can be set of a terminal, to be compared.
fn modes(tty: &OwnedFd) -> String {
    format!("{:?}", tcgetattr(tty).unwrap())
}

#[test]
fn a_raw_terminal_is_as_it_was_when_it_is_dropped_and_after_a_panic() {
    let runtime = runtime();
    let _inside = runtime.enter();
    let (_person, tty) = pty();
    // Not as it was made, so that "as before" is told from "as new".
    let mut odd = tcgetattr(&tty).unwrap();
    odd.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&tty, OptionalActions::Now, &odd).unwrap();
    let before = modes(&tty);
    let raw = || {
        Terminal::new(tty.try_clone().unwrap())
            .unwrap()
            .raw()
            .unwrap()
    };
    let dropped = raw();
    assert!(is_raw(&tty));
    drop(dropped);
    assert_eq!(modes(&tty), before);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _raw = raw();
        assert!(is_raw(&tty));
        panic!("on purpose");
    }));
    assert!(panicked.is_err());
    assert_eq!(modes(&tty), before);
}

#[test]
fn a_terminal_has_its_windows_size_and_one_without_has_24_by_80() {
    let runtime = runtime();
    let _inside = runtime.enter();
    let (person, tty) = pty();
    let terminal = Terminal::new(tty).unwrap();
    assert_eq!(terminal.size(), TerminalSize::default());
    let size = |ws_row, ws_col| Winsize {
        ws_row,
        ws_col,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&person, size(50, 132)).unwrap();
    assert_eq!(
        terminal.size(),
        TerminalSize {
            rows: 50,
            cols: 132
        }
    );
    tcsetwinsize(&person, size(50, 0)).unwrap();
    assert_eq!(terminal.size(), TerminalSize::default());
}

#[test]
fn what_is_no_terminal_is_refused() {
    let runtime = runtime();
    let _inside = runtime.enter();
    let (reader, _writer) = std::io::pipe().unwrap();
    assert!(Terminal::new(reader.into()).unwrap().raw().is_err());
}
