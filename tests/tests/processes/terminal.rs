//! Commands on a terminal: what they see, what they show, its size and its session.

use std::time::Duration;

use forebay::{
    ControlError, Exec, ExecError, ExecEvent, ExecHandle, ExecSink, ExitStatus, FailureKind,
    Signal, Stdin, TerminalSize,
};
use forebay_tests::{CEILING, HELPER, TestVm, Within as _, rounds};
use tokio::task::JoinSet;

use super::{LONG, answer, assert_slots_come_free, shared, to_its_exit};

/// Neither the default nor square.
pub(super) const SIZE: TerminalSize = TerminalSize { rows: 41, cols: 97 };

/// What a script shows on a terminal that nobody types into. It has to succeed.
pub(super) async fn shown(exec: Exec) -> String {
    let out = exec.terminal(SIZE).within(LONG).await.unwrap();
    let text = out.stdout_str().unwrap().to_owned();
    assert!(out.status().success(), "{}: {text}", out.status());
    assert_eq!(out.stderr(), b"", "a terminal has one output: {text}");
    text
}

/// A command on a terminal, and the test at its keys.
pub(super) struct Seat {
    pub(super) command: ExecHandle,
    pub(super) keys: ExecSink,
    /// What was shown and not looked at yet.
    ahead: Vec<u8>,
}

impl Seat {
    pub(super) async fn take(exec: Exec) -> Self {
        let exec = exec.terminal(SIZE).stdin(Stdin::piped());
        let mut command = exec.spawn().within(CEILING).await.unwrap();
        let keys = command.take_stdin().unwrap();
        Self {
            command,
            keys,
            ahead: Vec::new(),
        }
    }

    pub(super) async fn press(&self, keys: impl AsRef<[u8]>) {
        let keys = keys.as_ref().to_vec();
        self.keys.write(keys).within(CEILING).await.unwrap();
    }

    /// What is shown up to `text`, and that.
    pub(super) async fn until(&mut self, text: &str) -> String {
        loop {
            let shown = String::from_utf8_lossy(&self.ahead);
            if let Some(at) = shown.find(text) {
                let (looked_at, ahead) = shown.split_at(at + text.len());
                let looked_at = looked_at.to_owned();
                self.ahead = ahead.as_bytes().to_vec();
                return looked_at;
            }
            match self.command.recv().within(CEILING).await {
                Some(ExecEvent::Stdout(chunk)) => self.ahead.extend_from_slice(&chunk),
                Some(ExecEvent::Started { .. }) => {}
                other => panic!("{other:?} instead of {text:?}, after {shown:?}"),
            }
        }
    }

    /// What is shown from now on, and the exit.
    pub(super) async fn rest(mut self) -> (String, ExitStatus) {
        let (stdout, stderr, status) = to_its_exit(&mut self.command).await;
        assert_eq!(stderr, b"");
        self.ahead.extend_from_slice(&stdout);
        (String::from_utf8_lossy(&self.ahead).into_owned(), status)
    }

    /// Closes its stdin; what is shown from then on, and the exit.
    pub(super) async fn close(self) -> (String, ExitStatus) {
        self.keys.close().within(CEILING).await.unwrap();
        self.rest().await
    }
}

/// The line of a shell's `/proc/PID/stat`, in words, behind its own number.
const STAT: &str = "read -r line < /proc/$$/stat; echo $$ $line";

#[tokio::test]
async fn a_terminal_is_all_three_streams_and_controls_the_session() {
    let vm = &*shared().await;
    let script = "tty; stty size; echo $TERM; echo error >&2; echo by name > /dev/tty; \
                  tty <&1; tty <&2";
    let text = shown(vm.shell(script)).await;
    let lines: Vec<&str> = text.split("\r\n").collect();
    let name = lines[0];
    assert!(name.starts_with("/dev/pts/"), "{text}");
    let expected = [
        name,
        "41 97",
        "xterm-256color",
        "error",
        "by name",
        name,
        name,
        "",
    ];
    assert_eq!(lines, expected);
    let text = shown(vm.shell(STAT)).await;
    let words: Vec<&str> = text.split_whitespace().collect();
    // Own number, then: number, name, state, parent, group, session, terminal, foreground group.
    let own = words[0];
    assert_eq!([words[5], words[6], words[8]], [own; 3], "{text}");
    assert_ne!(words[7], "0", "{text}");
    // The environment says what it is, and the default size is that of old.
    let out = vm.shell("stty size; echo $TERM").env("TERM", "vt52");
    let out = out.terminal(TerminalSize::default()).within(CEILING).await;
    assert_eq!(out.unwrap().stdout(), b"24 80\r\nvt52\r\n");
    assert_eq!(
        answer(vm, "echo ${TERM-none}; ! tty").await,
        "none\nnot a tty"
    );
}

// B14, B15, B16
#[tokio::test]
async fn a_command_on_a_terminal_inherits_neither_signals_nor_descriptors() {
    let vm = &*shared().await;
    // The agent holds something of each kind meanwhile.
    let other = Seat::take(vm.exec("cat", [""; 0])).await;
    let piped = vm.exec("cat", [""; 0]).stdin(Stdin::piped());
    let piped = piped.spawn().within(CEILING).await.unwrap();
    let plain = vm.exec(HELPER, ["sigmask"]).within(CEILING).await.unwrap();
    let expected = plain.stdout_str().unwrap().replace('\n', "\r\n");
    assert!(expected.contains("SigIgn:\t0000000000000000"), "{expected}");
    assert_eq!(shown(vm.exec(HELPER, ["sigmask"])).await, expected);
    let text = shown(vm.exec(HELPER, ["fds"])).await;
    let numbers: Vec<&str> = text
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert_eq!(numbers, ["0", "1", "2"], "{text}");
    assert_eq!(text.matches("/dev/pts/").count(), 3, "{text}");
    let text = shown(vm.shell("yes | head -n 3; echo $?")).await;
    assert_eq!(text, "y\r\ny\r\ny\r\n0\r\n");
    drop((other, piped));
    assert_slots_come_free(vm).await;
}

// B29
#[tokio::test]
async fn what_is_shown_last_is_never_lost() {
    let vm = &*shared().await;
    let mut running = JoinSet::new();
    for n in 0..rounds(500) {
        let exec = vm.exec("printf", [format!("final {n}")]);
        running.spawn(async move { (n, shown(exec).await) });
        if running.len() >= 16 {
            let (n, text) = running.join_next().await.unwrap().unwrap();
            assert_eq!(text, format!("final {n}"));
        }
    }
    while let Some(next) = running.join_next().await {
        let (n, text) = next.unwrap();
        assert_eq!(text, format!("final {n}"));
    }
}

// B29
#[tokio::test]
async fn a_reader_that_begins_late_gets_all_that_was_shown() {
    let vm = &*shared().await;
    let expected: String = (1..=20_000).map(|n| format!("{n}\r\n")).collect();
    for _ in 0..rounds(50) {
        let seq = vm.exec("seq", ["1", "20000"]).terminal(SIZE);
        let mut seq = seq.spawn().within(CEILING).await.unwrap();
        // All of it fits the window: nobody reads before the end has come.
        let ended = async {
            let is_ours = |one: &&forebay::ExecutionView| one.id == seq.id().get();
            let phase = || {
                let all = vm.inspect().executions.executions;
                all.iter().find(is_ours).map(|one| one.phase.to_string())
            };
            while phase().as_deref() != Some("ended") {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        ended.within(CEILING).await;
        let (stdout, _, status) = to_its_exit(&mut seq).await;
        assert!(status.success(), "{status}");
        assert_eq!(stdout.len(), expected.len());
        assert!(stdout == expected.as_bytes(), "other bytes");
    }
}

// B29, by the rule of B20
#[tokio::test]
async fn a_job_that_keeps_the_terminal_does_not_hold_the_end() {
    let vm = &*shared().await;
    // Without job control a job stands in the foreground, which the leader's end hangs up.
    let script = "trap '' HUP; rm -f /tmp/go /tmp/alive; \
                  (while [ ! -e /tmp/go ]; do sleep .1; done; \
                  head -c 300000 /dev/zero; echo alive > /tmp/alive) & echo STARTED";
    assert_eq!(shown(vm.shell(script)).await, "STARTED\r\n");
    // The job writes more than a terminal holds, and comes past it.
    let script = "touch /tmp/go; while [ ! -e /tmp/alive ]; do sleep .1; done; cat /tmp/alive";
    assert_eq!(answer(vm, script).await, "alive");
    // One that never stops adds something, and holds nothing up.
    let text = shown(vm.shell("trap '' HUP; yes & echo $!")).await;
    let job = text.split("\r\n").find(|line| line.parse::<u32>().is_ok());
    let job = job.unwrap_or_else(|| panic!("the leader's own line is missing: {text}"));
    answer(vm, &format!("kill -9 {job}")).await;
}

#[tokio::test]
async fn the_leaders_end_hangs_up_the_foreground_and_leaves_the_background() {
    let vm = &*shared().await;
    // With job control the first job has a group of its own in the background.
    let script = "set -m; sleep 1000 & echo $!; set +m; sleep 1000 & echo $!";
    let text = shown(vm.shell(script)).await;
    let jobs: Vec<&str> = text
        .split("\r\n")
        .filter(|line| line.parse::<u32>().is_ok())
        .collect();
    let [background, foreground] = jobs[..] else {
        panic!("not two jobs: {text}")
    };
    let script = format!(
        "while grep -q sleep /proc/{foreground}/cmdline 2>/dev/null; do sleep .1; done; \
         kill -0 {background} && kill -9 {background} && echo lived"
    );
    assert_eq!(answer(vm, &script).await, "lived");
}

// B30
#[tokio::test]
async fn a_resize_right_after_the_start_is_not_lost() {
    let vm = &*shared().await;
    // It may read its size before the resize can have come; it must not do so for ever.
    let script = "while [ \"$(stty size)\" = '41 97' ]; do sleep .1; done; stty size";
    let mut running = JoinSet::new();
    for n in 0..u16::try_from(rounds(200)).unwrap() {
        let exec = vm.shell(script).terminal(SIZE);
        running.spawn(async move {
            let mut command = exec.spawn().within(CEILING).await.unwrap();
            let size = TerminalSize {
                rows: 50,
                cols: 200 + n,
            };
            command.resize(size).within(CEILING).await.unwrap();
            let (stdout, _, _) = to_its_exit(&mut command).await;
            (n, String::from_utf8(stdout).unwrap())
        });
        if running.len() >= 16 {
            let (n, text) = running.join_next().await.unwrap().unwrap();
            assert_eq!(text, format!("50 {}\r\n", 200 + n));
        }
    }
    while let Some(next) = running.join_next().await {
        let (n, text) = next.unwrap();
        assert_eq!(text, format!("50 {}\r\n", 200 + n));
    }
}

// B30
#[tokio::test]
async fn the_last_of_many_resizes_holds_while_the_output_is_blocked() {
    let vm = &*shared().await;
    let script = "yes | head -c 2000000; stty size";
    let command = vm.shell(script).terminal(SIZE);
    let mut command = command.spawn().within(CEILING).await.unwrap();
    let resized = async {
        for n in 1..=1000 {
            let size = TerminalSize { rows: n, cols: n };
            command.resize(size).await.unwrap();
        }
        // The guest's own stty says 30 000 of all that is larger.
        let size = TerminalSize {
            rows: 29_999,
            cols: 20_001,
        };
        command.resize(size).await.unwrap();
    };
    resized.within(LONG).await;
    let (stdout, _, status) = to_its_exit(&mut command).await;
    assert!(status.success(), "{status}");
    assert!(stdout.ends_with(b"y\r\n29999 20001\r\n"));
}

// B30
#[tokio::test]
async fn a_resize_reaches_the_command_as_a_signal() {
    let vm = &*shared().await;
    let script = "trap 'stty size; exit 5' WINCH; echo ready; while :; do sleep .1; done";
    let mut seat = Seat::take(vm.shell(script)).await;
    seat.until("ready\r\n").await;
    let size = TerminalSize { rows: 2, cols: 3 };
    seat.command.resize(size).within(CEILING).await.unwrap();
    let (text, status) = seat.rest().await;
    assert_eq!((text.as_str(), status.code()), ("2 3\r\n", Some(5)));
}

// B30: what can have no size.
#[tokio::test]
async fn odd_resizes_are_refused_or_change_nothing() {
    let vm = &*shared().await;
    let none = TerminalSize { rows: 0, cols: 0 };
    let refused = vm.exec("true", [""; 0]).terminal(none);
    let refused = refused.spawn().within(CEILING).await;
    assert!(
        matches!(refused, Err(ExecError::InvalidRequest { .. })),
        "{refused:?}"
    );
    let plain = vm.shell("read x; echo done").stdin(Stdin::piped());
    let mut plain = plain.spawn().within(CEILING).await.unwrap();
    let refused = plain.resize(SIZE).within(CEILING).await;
    assert!(
        matches!(refused, Err(ControlError::NoTerminal)),
        "{refused:?}"
    );
    plain
        .take_stdin()
        .unwrap()
        .close()
        .within(CEILING)
        .await
        .unwrap();
    let (stdout, _, _) = to_its_exit(&mut plain).await;
    assert_eq!(stdout, b"done\n");
    let cat = vm.exec("cat", [""; 0]).terminal(SIZE);
    let mut cat = cat.spawn().within(CEILING).await.unwrap();
    let refused = cat.resize(none).within(CEILING).await;
    assert!(
        matches!(refused, Err(ControlError::InvalidSize { rows: 0, cols: 0 })),
        "{refused:?}"
    );
    cat.kill();
    cat.wait().within(CEILING).await.unwrap();
    let late = cat.resize(SIZE).within(CEILING).await;
    assert!(matches!(late, Err(ControlError::Ended)), "{late:?}");
}

// B31
#[tokio::test]
async fn a_shell_on_a_terminal_has_job_control() {
    let vm = &*shared().await;
    let mut seat = Seat::take(vm.exec("sh", ["-i"]).env("PS1", "ready> ")).await;
    let text = seat.until("ready> ").await;
    assert!(!text.contains("job control"), "{text}");
    // The quotes keep what is echoed from what is printed.
    let job = "sh -c 'trap \"echo co\"\"nt\" CONT; echo ru\"\"ns; while :; do read x; done'\r";
    seat.press(job).await;
    seat.until("runs\r\n").await;
    // ^C ends the job and not the shell.
    seat.press("\x03").await;
    seat.until("ready> ").await;
    seat.press("echo sti''ll\r").await;
    seat.until("still\r\n").await;
    // ^Z stops it, and it can go on.
    seat.press(job).await;
    seat.until("runs\r\n").await;
    seat.press("\x1a").await;
    seat.until("Stopped").await;
    seat.until("ready> ").await;
    seat.press("fg\r").await;
    seat.until("cont\r\n").await;
    seat.press("\x03").await;
    seat.until("ready> ").await;
    // ^D ends the shell.
    seat.press("\x04").await;
    let (_, status) = seat.rest().await;
    assert!(status.code().is_some(), "{status}");
}

// B41
#[tokio::test]
async fn a_user_who_is_not_root_owns_the_terminal() {
    let vm: &TestVm = &*shared().await;
    let script = "stty size; stat -c %u:%g:%a $(tty); echo o > /dev/stdout; echo e > /dev/stderr; \
                  echo t > /dev/tty; exec 3<>/dev/ptmx && echo another; id -u";
    let text = shown(vm.shell(script).user("1000")).await;
    assert_eq!(
        text,
        "41 97\r\n1000:5:620\r\no\r\ne\r\nt\r\nanother\r\n1000\r\n"
    );
}

#[tokio::test]
async fn a_terminal_that_cannot_be_made_is_a_failure_of_its_own_kind() {
    let vm = &*shared().await;
    let most = "/proc/sys/kernel/pty/max";
    let before = answer(vm, &format!("cat {most}; echo 0 > {most}")).await;
    let refused = vm.exec("true", [""; 0]).terminal(SIZE);
    let refused = refused.within(CEILING).await;
    answer(vm, &format!("echo {before} > {most}")).await;
    let Err(ExecError::NotStarted(failure)) = refused else {
        panic!("it should not have started: {refused:?}")
    };
    assert_eq!(failure.kind, FailureKind::PtySetup, "{failure:?}");
    assert_eq!(failure.errno_name().as_deref(), Some("ENOSPC"));
    assert_eq!(failure.stage, "open(/dev/pts/ptmx)");
    assert_eq!(shown(vm.shell("echo shown")).await, "shown\r\n");
}

#[tokio::test]
async fn nobody_listens_for_room_in_a_terminal_that_only_a_job_still_has() {
    let vm = &*shared().await;
    let script = "stty raw -echo; (trap '' HUP TERM; echo ready; exec sleep 100000) & \
                  exec sleep 100000";
    let exec = vm.shell(script).terminal(SIZE).stdin(Stdin::piped());
    let mut command = exec.spawn().within(CEILING).await.unwrap();
    let keys = command.take_stdin().unwrap();
    let mut shown = Vec::new();
    while !shown.ends_with(b"ready\n") {
        match command.recv().within(CEILING).await {
            Some(ExecEvent::Started { .. }) => {}
            Some(ExecEvent::Stdout(chunk)) => shown.extend_from_slice(&chunk),
            other => panic!("{other:?}"),
        }
    }
    // Much more than a terminal takes that nobody reads.
    let typing = tokio::spawn(async move { keys.write(vec![b'x'; 1 << 20]).await });
    // What PID 1 waits for; the last digit is the kind, and 7 is stdin.
    let listens = "cat /proc/1/fdinfo/* | grep '^tfd:.* data: *[0-9a-f]*7 ' | wc -l";
    let reaches = async |count: &str| {
        while answer(vm, listens).await != count {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    reaches("1").within(LONG).await;
    command.signal(Signal::TERM).within(CEILING).await.unwrap();
    let status = command.wait().within(CEILING).await.unwrap();
    assert_eq!(status.signal(), Some(Signal::TERM));
    assert!(typing.within(CEILING).await.unwrap().is_err());
    reaches("0").within(LONG).await;
    answer(vm, "pkill -9 sleep; :").await;
}
