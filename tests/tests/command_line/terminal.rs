//! `forebay run -it`, `forebay exec -it` and `forebay shell`, at a terminal.

use std::fs::File;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;

use forebay_tests::{CEILING as VM_CEILING, TestVm, Within as _, builder};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::seat::Seat;
use super::{CEILING, forebay, output, wait_for};

/// What the shell prints when it waits for a line.
const PROMPT: &str = "ready>";

/// A VM that `forebay exec` attaches to.
struct Attached {
    vm: TestVm,
    directory: TempDir,
}

impl Attached {
    async fn boot() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let builder = builder().attach_socket(directory.path().join("vm.sock"));
        Self {
            vm: TestVm::start(builder).await,
            directory,
        }
    }

    /// `forebay exec` with these words behind the socket.
    fn exec(&self, words: &[&str]) -> Command {
        let mut exec = forebay(&["exec", "--attach"]);
        exec.arg(self.directory.path().join("vm.sock")).args(words);
        exec
    }

    /// What a shell in the VM says.
    async fn says(&self, line: &str) -> String {
        let out = self.vm.shell(line).within(VM_CEILING).await.unwrap();
        out.stdout_str().unwrap().to_owned()
    }
}

/// `forebay run` or `forebay shell` with the test image and these options.
fn booting(subcommand: &str, options: &[&str]) -> Command {
    let mut command = forebay(&[subcommand, "--image"]);
    command
        .arg(forebay_tests::image().directory())
        .args(options);
    command
}

fn signal(seat: &Seat, signal: Signal) {
    let pid = Pid::from_raw(seat.program.id().cast_signed()).unwrap();
    kill_process(pid, signal).unwrap();
}

#[test]
fn a_command_has_a_terminal_like_ours_and_ours_is_as_it_was_afterwards() {
    let options = ["-it", "-e", "PS1=ready>", "--", "sh"];
    let mut command = booting("run", &options);
    command.env("TERM", "dumb");
    let mut seat = Seat::take(command);
    seat.expect(PROMPT);
    assert!(seat.is_raw());
    seat.type_in("tty; stty size; echo $TERM; echo to-stderr >&2; echo end$((40 + 2))\r");
    let seen = seat.expect("end42\r\n");
    for part in [
        "/dev/pts/",
        "\r\n40 100\r\n",
        "\r\ndumb\r\n",
        "\r\nto-stderr\r\n",
    ] {
        assert!(seen.contains(part), "{part:?} is not in {seen:?}");
    }
    // Each size replaces the last, and the newest arrives.
    for rows in 50..70 {
        seat.resize(rows, 132);
    }
    seat.type_in("until [ \"$(stty size)\" = '69 132' ]; do sleep .1; done; echo now$((40 + 2))\r");
    seat.expect("now42\r\n");
    seat.type_in("exit 7\r");
    assert_eq!(seat.end().code(), Some(7));
}

#[test]
fn the_keys_of_a_shells_user_are_the_guests() {
    let mut seat = Seat::take(booting("shell", &["-e", "PS1=ready>"]));
    seat.expect(PROMPT);
    // The shell edits a line with the terminal's signals off, so a job says when it has it.
    // ^C ends the foreground job and not the shell.
    seat.type_in("sh -c 'echo job$((40 + 2)); exec sleep 1000'; echo not-$((40 + 2))\r");
    seat.expect("job42\r\n");
    seat.type_in(b"\x03");
    assert!(!seat.expect(PROMPT).contains("not-42"));
    seat.type_in("echo code$?\r");
    seat.expect("code130\r\n");
    // ^Z stops it, and it goes on in the foreground again.
    seat.expect(PROMPT);
    seat.type_in("sh -c 'echo job$((40 + 2)); exec cat'\r");
    seat.expect("job42\r\n");
    seat.type_in("one\r");
    seat.expect("one\r\none\r\n");
    seat.type_in(b"\x1a");
    seat.expect("Stopped");
    seat.expect(PROMPT);
    seat.type_in("fg\r");
    seat.expect("sh -c");
    seat.expect("\r\n");
    seat.type_in("two\r");
    seat.expect("two\r\ntwo\r\n");
    // ^D is the end of input: of cat's, then of the shell's.
    seat.type_in(b"\x04");
    seat.expect(PROMPT);
    seat.type_in("(exit 5)\r");
    seat.expect(PROMPT);
    seat.type_in(b"\x04");
    assert_eq!(seat.end().code(), Some(5));
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_that_draw_on_the_whole_screen_work() {
    let attached = Attached::boot().await;
    let at = |command: &[&str]| {
        let words = ["-it", "-e", "TERM=xterm", "--"];
        Seat::take(attached.exec(&[&words, command].concat()))
    };
    let mut vi = at(&["vi", "/tmp/text"]);
    vi.expect("~");
    vi.type_in("ihello\x1b");
    vi.expect("hello");
    vi.type_in(":wq\r");
    assert_eq!(vi.end().code(), Some(0));
    assert_eq!(attached.says("cat /tmp/text").await, "hello\n");
    attached.says("seq 1000 1999 > /tmp/numbers").await;
    let mut less = at(&["less", "/tmp/numbers"]);
    less.expect("1038");
    less.type_in("G");
    less.expect("1999");
    assert!(
        !less.screen().contains("1500"),
        "it went to the end by pages"
    );
    less.type_in("q");
    assert_eq!(less.end().code(), Some(0));
    let mut top = at(&["top"]);
    top.expect("Mem:");
    top.expect("PID");
    top.type_in("q");
    assert_eq!(top.end().code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_megabyte_that_is_pasted_arrives_whole() {
    let attached = Attached::boot().await;
    let script = "stty raw -echo; echo set; head -c 1048576 | sha256sum";
    let mut seat =
        Seat::take(attached.exec(&["-it", "--detach-keys", "", "--", "sh", "-c", script]));
    seat.expect("set");
    // Every byte, those of keys that mean something elsewhere too.
    let data: Vec<u8> = (0..1_048_576_u32).map(|n| (n % 256) as u8).collect();
    seat.paste(data.clone());
    let digest = forebay_tests::sha256(&data);
    seat.expect(&digest);
    assert_eq!(seat.end().code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_terminal_is_restored_however_it_ends() {
    let attached = Attached::boot().await;
    // The command heeds the signal that is passed on.
    for signal_of_ours in [
        Signal::TERM,
        Signal::HUP,
        Signal::INT,
        Signal::QUIT,
        Signal::USR1,
        Signal::USR2,
        Signal::ALARM,
    ] {
        let mut seat =
            Seat::take(attached.exec(&["-it", "--", "sh", "-c", "echo set; sleep 1000"]));
        seat.expect("set");
        assert!(seat.is_raw());
        signal(&seat, signal_of_ours);
        let code = seat.end().code();
        assert_eq!(
            code,
            Some(128 + signal_of_ours.as_raw()),
            "{signal_of_ours:?}"
        );
    }
    // It does not, and the second one ends it; or its patience of five seconds, as the first one,
    // where those pass before the second gets there.
    let ended_by_the_second = || {
        let script = "trap 'echo caught' INT; echo set; while :; do sleep .1; done";
        let mut seat = Seat::take(attached.exec(&["-it", "--", "sh", "-c", script]));
        seat.expect("set");
        signal(&seat, Signal::INT);
        seat.expect("caught");
        signal(&seat, Signal::TERM);
        match seat.end().code() {
            Some(143) => true,
            Some(130) => false,
            other => panic!("{other:?}"),
        }
    };
    assert!((0..5).any(|_| ended_by_the_second()));
    // Its time is up.
    let mut seat = Seat::take(attached.exec(&["-it", "--timeout", "1s", "--", "sleep", "1000"]));
    assert_eq!(seat.end().code(), Some(124));
    // It does not start.
    let mut seat = Seat::take(attached.exec(&["-it", "--", "nosuch"]));
    assert_eq!(seat.end().code(), Some(127));
    seat.expect("nosuch");
    // It stood still meanwhile, and a shell had the terminal.
    let mut seat = Seat::take(attached.exec(&["-it", "--", "cat"]));
    wait_for("the terminal", || seat.is_raw());
    signal(&seat, Signal::STOP);
    seat.cook();
    signal(&seat, Signal::CONT);
    wait_for("the terminal", || seat.is_raw());
    seat.type_in("\x04");
    assert_eq!(seat.end().code(), Some(0));
    // Nobody could: told here so that it is known.
    let mut seat = Seat::take(attached.exec(&["-it", "--", "sh", "-c", "echo set; sleep 1000"]));
    seat.expect("set");
    signal(&seat, Signal::KILL);
    assert_eq!(seat.program.wait().unwrap().signal(), Some(9));
    assert!(seat.is_raw());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_that_is_closed_is_a_hang_up_that_the_command_may_heed() {
    let attached = Attached::boot().await;
    // It writes to the terminal that is gone, and goes on.
    let script = "trap 'echo bye; sleep 1; echo saved > /tmp/file; exit 4' HUP; \
         echo set; while :; do sleep .1; done";
    let mut seat = Seat::take(attached.exec(&["-it", "--", "sh", "-c", script]));
    seat.expect("set");
    let program = seat.close_window();
    assert_eq!(program.end(CEILING).status.code(), Some(4));
    assert_eq!(attached.says("cat /tmp/file").await, "saved\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_detach_keys_give_the_terminal_back_and_the_command_runs_on() {
    let attached = Attached::boot().await;
    // It writes far more than anybody may leave unread, so it would stand still if that were kept;
    // and that its input has not ended is seen by a read that only the time ends.
    let script = "echo set; read line; \
         until [ -e /tmp/go ]; do head -c 1000000 /dev/zero; sleep .1; done; \
         head -c 5000000 /dev/zero; timeout 1 cat && exit 8; exit 9";
    let mut seat = Seat::take(attached.exec(&["-it", "--", "sh", "-c", script]));
    seat.expect("set");
    // One of the keys alone is input like any other.
    seat.type_in(b"\x10\r");
    seat.type_in(b"\x10\x11");
    wait_for("the terminal", || {
        // Whoever has a terminal that nobody reads cannot leave it.
        seat.look();
        seat.is_as_before()
    });
    seat.expect("detached");
    // The window is closed.
    signal(&seat, Signal::HUP);
    assert!(seat.program.try_wait().unwrap().is_none());
    assert_eq!(attached.says("touch /tmp/go; echo gone").await, "gone\n");
    assert_eq!(seat.end().code(), Some(9));
    assert!(!seat.screen().contains('\0'), "output came after the end");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_is_heeded_while_nobody_reads_that_the_command_was_left() {
    let attached = Attached::boot().await;
    let script = "echo set; exec cat /dev/zero";
    let mut seat = Seat::take(attached.exec(&["-it", "--", "sh", "-c", script]));
    seat.expect("set");
    // From here on nobody looks at the screen, which is soon full.
    wait_for("a full terminal", || seat.is_full());
    seat.type_in(b"\x10\x11");
    wait_for("the terminal", || seat.is_as_before());
    signal(&seat, Signal::TERM);
    wait_for("the end", || seat.program.try_wait().unwrap().is_some());
    assert_eq!(seat.end().code(), Some(143));
}

#[tokio::test(flavor = "multi_thread")]
async fn output_that_is_lost_is_an_error_where_it_goes_to_a_file() {
    let attached = Attached::boot().await;
    // Nothing is mapped at its beginning, so writing there fails with EIO, as to a terminal that is
    // gone.
    let lost = File::options().write(true).open("/proc/self/mem").unwrap();
    let exec = attached.exec(&["-it", "--", "sh", "-c", "echo lost; sleep 1000"]);
    let mut seat = Seat::take_with_stdout(exec, lost);
    assert_eq!(seat.end().code(), Some(125));
    seat.expect("cannot write the command's output");
}

#[test]
fn a_terminal_that_is_none_is_refused_before_anything_is_booted() {
    let out = output(booting("run", &["-it", "--kernel", "/nowhere", "--", "sh"]));
    assert_eq!(out.status.code(), Some(125));
    let told = String::from_utf8_lossy(&out.stderr);
    assert!(
        told.starts_with("forebay: stdin is not a terminal"),
        "{told}"
    );
}
