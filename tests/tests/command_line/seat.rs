//! A person at a terminal: what a test types, sees and resizes, and the `forebay` that has the
//! other end.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitStatus};
use std::time::Instant;

use forebay_tests::{Running, scaled};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{ioctl_tiocsctty, setsid};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{
    LocalModes, OptionalActions, Termios, Winsize, tcgetattr, tcsetattr, tcsetwinsize,
};

use super::CEILING;

/// How long one look at the terminal waits, so that a ceiling is noticed.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// A terminal of its own session, with a program in its foreground.
pub(crate) struct Seat {
    person: OwnedFd,
    /// Kept open, so that the terminal outlives the program.
    tty: OwnedFd,
    pub(crate) program: Running,
    /// What was printed and not expected yet.
    screen: Vec<u8>,
    before: Termios,
}

impl Seat {
    /// Starts `program` at a terminal of 40 × 100.
    pub(crate) fn take(program: Command) -> Self {
        Self::begin(program, None)
    }

    /// As [`take`](Self::take), with its stdout elsewhere.
    pub(crate) fn take_with_stdout(program: Command, stdout: File) -> Self {
        Self::begin(program, Some(stdout))
    }

    fn begin(mut program: Command, stdout: Option<File>) -> Self {
        // Close-on-exec, since a program that holds its person's end is never hung up on.
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let person = openpt(flags).unwrap();
        grantpt(&person).unwrap();
        unlockpt(&person).unwrap();
        let name = ptsname(&person, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let tty = open(name, flags, Mode::empty()).unwrap();
        let before = tcgetattr(&tty).unwrap();
        resize(&person, 40, 100);
        program
            .stdin(tty.try_clone().unwrap())
            .stdout(stdout.unwrap_or_else(|| tty.try_clone().unwrap().into()))
            .stderr(tty.try_clone().unwrap());
        own_terminal(&mut program);
        Self {
            person,
            tty,
            program: program.spawn().expect("forebay starts").into(),
            screen: Vec::new(),
            before,
        }
    }

    /// Types these keys.
    pub(crate) fn type_in(&self, keys: impl AsRef<[u8]>) {
        let mut keys = keys.as_ref();
        while !keys.is_empty() {
            let n = rustix::io::write(&self.person, keys).expect("the terminal is there");
            keys = &keys[n..];
        }
    }

    /// Types these keys while somebody else looks at the screen.
    pub(crate) fn paste(&self, keys: Vec<u8>) {
        let person = self.person.try_clone().unwrap();
        std::thread::spawn(move || {
            let mut keys = keys.as_slice();
            while !keys.is_empty() {
                let n = rustix::io::write(&person, keys).expect("the terminal is there");
                keys = &keys[n..];
            }
        });
    }

    /// Waits until this is on the screen; gives what came before it.
    pub(crate) fn expect(&mut self, text: &str) -> String {
        let started = Instant::now();
        loop {
            let found = self
                .screen
                .windows(text.len())
                .position(|window| window == text.as_bytes());
            if let Some(at) = found {
                let before = self.screen.drain(..at + text.len()).collect::<Vec<_>>();
                return String::from_utf8_lossy(&before[..at]).into_owned();
            }
            assert!(
                started.elapsed() < scaled(CEILING),
                "hang: {text:?} has not come; the screen since: {:?}",
                String::from_utf8_lossy(&self.screen)
            );
            self.look();
        }
    }

    /// What is on the screen and was not expected yet.
    pub(crate) fn screen(&self) -> String {
        String::from_utf8_lossy(&self.screen).into_owned()
    }

    /// Gives the window another size.
    pub(crate) fn resize(&self, rows: u16, cols: u16) {
        resize(&self.person, rows, cols);
    }

    /// Gives the terminal the modes from before the program, as a shell does when it stops.
    pub(crate) fn cook(&self) {
        tcsetattr(&self.tty, OptionalActions::Now, &self.before).unwrap();
    }

    /// Takes the terminal away from the program.
    pub(crate) fn close_window(self) -> Running {
        self.program
    }

    /// Whether the terminal passes every key on.
    pub(crate) fn is_raw(&self) -> bool {
        let modes = tcgetattr(&self.tty).unwrap().local_modes;
        !modes.intersects(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
    }

    /// Whether all modes are those from before the program.
    pub(crate) fn is_as_before(&self) -> bool {
        format!("{:?}", tcgetattr(&self.tty).unwrap()) == format!("{:?}", self.before)
    }

    /// Whether the terminal takes no more output for as long as a look.
    pub(crate) fn is_full(&self) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(self.tty.as_fd(), PollFlags::OUT)];
        poll(&mut fds, Some(&LOOK)).unwrap() == 0
    }

    /// The program's end; the screen is read on meanwhile, and the terminal must be as it was.
    pub(crate) fn end(&mut self) -> ExitStatus {
        let started = Instant::now();
        let status = loop {
            self.look();
            if let Some(status) = self.program.try_wait().unwrap() {
                break status;
            }
            assert!(
                started.elapsed() < scaled(CEILING),
                "hang: forebay has not ended; the screen: {:?}",
                self.screen()
            );
        };
        assert!(self.is_as_before(), "the terminal was not restored");
        status
    }

    /// Reads what is printed, if anything comes.
    pub(crate) fn look(&mut self) {
        let mut chunk = [0; 4096];
        let mut fds = [PollFd::from_borrowed_fd(self.person.as_fd(), PollFlags::IN)];
        if poll(&mut fds, Some(&LOOK)).unwrap() > 0 {
            let n = rustix::io::read(&self.person, &mut chunk).unwrap();
            self.screen.extend_from_slice(&chunk[..n]);
        }
    }
}

fn resize(person: &OwnedFd, rows: u16, cols: u16) {
    let size = Winsize {
        ws_row: rows,
        ws_col: cols,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(person, size).unwrap();
}

/// Lets it begin a session that its stdin controls, as a login does.
#[allow(unsafe_code)]
fn own_terminal(program: &mut Command) {
    let begin = || {
        setsid()?;
        ioctl_tiocsctty(rustix::stdio::stdin())?;
        io::Result::Ok(())
    };
    // SAFETY: between fork and exec `begin` makes two system calls and does nothing else.
    unsafe {
        program.pre_exec(begin);
    }
}
