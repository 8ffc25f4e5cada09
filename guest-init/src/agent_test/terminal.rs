//! Commands on a terminal.

use std::fs;
use std::time::Duration;

use forebay_exec_proto::host::Event;
use forebay_exec_proto::{ExecId, Limits};

use super::host::Host;
use super::{pattern, pidfd, wait_for_end};

/// Runs a script on a terminal that nobody types into, and returns what it showed.
fn shown(host: &mut Host, script: &str) -> String {
    let id = host.exec_on_silent_terminal(&["sh", "-c", script]);
    let output = host.collect(id);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.code, Some(0), "{text}");
    assert_eq!(
        output.stderr, b"",
        "all that a terminal shows is its stdout"
    );
    text
}

/// Types `keys` into `argv` and closes stdin; returns what the terminal showed to the end.
fn typed(argv: &[&str], keys: &[u8]) -> String {
    let mut host = Host::start(Limits::default());
    let id = host.exec_on_terminal(argv);
    host.write_stdin(id, keys);
    host.close_stdin(id);
    let output = host.collect(id);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.code, Some(0), "{text}");
    text
}

#[test]
fn a_terminal_is_all_three_streams_and_controls_the_session() {
    let mut host = Host::start(Limits::default());
    let script = "readlink /proc/$$/fd/0 /proc/$$/fd/1 /proc/$$/fd/2; tty; stty size; \
                  echo err >&2; echo by name > /dev/tty; echo $TERM";
    let text = shown(&mut host, script);
    let lines: Vec<&str> = text.split("\r\n").collect();
    let name = lines[0];
    assert!(name.starts_with("/dev/pts/"), "{text}");
    assert_eq!(
        lines,
        [
            name,
            name,
            name,
            name,
            "41 97",
            "err",
            "by name",
            "xterm-256color",
            ""
        ]
    );
    // Session and foreground group are the leader's.
    let text = shown(&mut host, "read -r line < /proc/$$/stat; echo $$ $line");
    let words: Vec<&str> = text.split_whitespace().collect();
    // own pid, then pid, (name), state, parent, group, session, terminal, foreground group
    let pid = words[0];
    assert_eq!((words[5], words[6], words[8]), (pid, pid, pid), "{text}");
    assert_ne!(words[7], "0", "{text}");
}

#[test]
fn term_is_what_the_vm_or_the_request_says() {
    let mut host = Host::with_defaults(&[("TERM", "vt52")], "/");
    assert_eq!(shown(&mut host, "echo $TERM"), "vt52\r\n");
    // Without a terminal there is none.
    let mut host = Host::start(Limits::default());
    assert_eq!(host.shell("echo ${TERM-none}").stdout, b"none\n");
}

// B14, B15, B16.
#[test]
fn a_command_on_a_terminal_inherits_no_signals_and_no_descriptors() {
    let mut host = Host::start(Limits::default());
    // One of each kind is open in the agent.
    let other = host.exec_on_terminal(&["sleep", "1000"]);
    let piped = host.exec_with_open_stdin(&["sleep", "1000"]);
    let script = "n=0; while [ $n -lt 300 ]; do [ -e /proc/$$/fd/$n ] && echo $n; n=$((n+1)); done; \
                  grep SigBlk /proc/self/status; yes | head -n 3; echo $?";
    assert_eq!(
        shown(&mut host, script),
        "0\r\n1\r\n2\r\nSigBlk:\t0000000000000000\r\ny\r\ny\r\ny\r\n0\r\n"
    );
    for id in [other, piped] {
        host.put_down(id);
    }
}

// B29: what was shown last is not lost, and the error that ends a master is nobody's failure.
#[test]
fn the_last_output_is_never_lost() {
    let mut host = Host::start(Limits::default());
    for _ in 0..200 {
        assert_eq!(shown(&mut host, "printf final"), "final");
    }
    // More than a terminal holds and more than the host allows at once, most of it read after
    // the writer's end.
    let mut host = Host::start(Limits {
        output_limit: 5000,
        output_chunk_size: 1000,
        ..Limits::default()
    });
    let mut expected = String::new();
    for n in 1..=20_000 {
        expected.push_str(&format!("{n}\r\n"));
    }
    let id = host.exec_on_silent_terminal(&["seq", "1", "20000"]);
    let output = host.collect(id);
    assert_eq!(output.code, Some(0));
    assert_eq!(output.stdout.len(), expected.len());
    assert!(output.stdout == expected.as_bytes());
}

// B29, the third part: ends by the rule of B20.
#[test]
fn a_job_that_keeps_the_terminal_neither_holds_the_end_nor_loses_it() {
    let dir = tempfile::tempdir().unwrap();
    let (go, alive) = (dir.path().join("go"), dir.path().join("alive"));
    // The end of its leader hangs up what stands in the foreground, and a job is that without job
    // control.
    let script = format!(
        "trap '' HUP; (while [ ! -e {go} ]; do sleep 0.02; done; head -c 300000 /dev/zero; \
         echo alive > {alive}) & echo STARTED",
        go = go.display(),
        alive = alive.display()
    );
    let mut host = Host::start(Limits::default());
    assert_eq!(shown(&mut host, &script), "STARTED\r\n");
    fs::write(go, "").unwrap();
    // Far more than a terminal holds was written after the end.
    while !alive.exists() {
        host.turn(Duration::from_millis(5));
    }
}

// B20 on a terminal: a job that never stops writing adds a bounded piece.
#[test]
fn an_endless_job_does_not_hold_the_end() {
    let mut host = Host::start(Limits::default());
    let id = host.exec_on_silent_terminal(&["sh", "-c", "trap '' HUP; yes & echo $!"]);
    let output = host.collect(id);
    assert_eq!(output.code, Some(0));
    let text = String::from_utf8_lossy(&output.stdout);
    let job = text
        .split("\r\n")
        .find_map(|line| line.trim_matches('y').parse::<u32>().ok());
    let job = pidfd(job.expect("the leader's own line is there"));
    use std::os::fd::AsFd as _;
    crate::signals::send(job.as_fd(), 9, crate::signals::Reach::Process).unwrap();
    wait_for_end(&job);
}

#[test]
fn the_leaders_end_hangs_up_what_stands_in_the_foreground() {
    let mut host = Host::start(Limits::default());
    let id = host.exec_on_terminal(&["sh", "-c", "stty -echo; sleep 1000 & echo $!; read x"]);
    let mut shown = Vec::new();
    host.read_until(id, &mut shown, "\r\n");
    let text = String::from_utf8(shown).unwrap();
    let job = pidfd(text.trim().parse().unwrap());
    host.write_stdin(id, b"\n");
    assert_eq!(host.collect(id).code, Some(0));
    wait_for_end(&job);
}

#[test]
fn a_terminal_whose_streams_were_closed_can_be_opened_again() {
    let mut host = Host::start(Limits::default());
    let script = "exec 0<&- 1>&- 2>&-; sleep 0.2; echo late > /dev/tty";
    assert_eq!(shown(&mut host, script), "late\r\n");
}

#[test]
fn closing_a_terminals_stdin_is_its_end_of_file() {
    assert_eq!(typed(&["cat"], b""), "");
    assert_eq!(typed(&["wc", "-c"], b"abc\n"), "abc\r\n4\r\n");
    // A line that was begun is handed out by the first end of file; the second is the end.
    assert_eq!(typed(&["wc", "-c"], b"abc\nde"), "abc\r\nde6\r\n");
    // One that was typed by hand, behind a line, has ended the command already.
    assert_eq!(typed(&["wc", "-c"], b"abc\n\x04"), "abc\r\n4\r\n");
}

#[test]
fn an_end_of_file_ends_one_reader_and_not_the_next() {
    let mut host = Host::start(Limits::default());
    let script = "stty -echo; echo go; wc -c; echo between; wc -c";
    let id = host.exec_on_terminal(&["sh", "-c", script]);
    let mut shown = Vec::new();
    host.read_until(id, &mut shown, "go\r\n");
    host.write_stdin(id, b"abc\n");
    host.close_stdin(id);
    host.read_until(id, &mut shown, "between\r\n");
    assert_eq!(shown, b"go\r\n4\r\nbetween\r\n");
    // The second reader waits: nobody types an end for it.
    host.turn(Duration::from_millis(100));
    assert!(host.is_running(id));
    host.put_down(id);
}

#[test]
fn closing_the_stdin_of_a_raw_terminal_types_nothing() {
    let mut host = Host::start(Limits::default());
    let script = "stty raw -echo; echo go; head -c 4 | od -An -c";
    let id = host.exec_on_terminal(&["sh", "-c", script]);
    let mut shown = Vec::new();
    host.read_until(id, &mut shown, "go\n");
    host.write_stdin(id, b"abc");
    host.close_stdin(id);
    host.turn(Duration::from_millis(100));
    assert!(host.is_running(id));
    host.kill(id);
    let output = host.collect(id);
    assert_eq!(output.stdout, b"");
}

#[test]
fn nothing_is_typed_into_a_terminal_without_stdin() {
    let mut host = Host::start(Limits::default());
    let id = host.exec_on_silent_terminal(&["cat"]);
    host.turn(Duration::from_millis(100));
    assert!(host.is_running(id));
    host.kill(id);
    let output = host.collect(id);
    assert_eq!(
        (output.stdout.as_slice(), output.signal),
        (&b""[..], Some(9))
    );
}

/// Input to a raw terminal goes through it whole, far beyond what it holds.
#[test]
fn large_input_comes_back_through_a_raw_terminal() {
    let mut host = Host::start(Limits {
        input_limit: 10_000,
        output_limit: 30_000,
        stdin_chunk_size: 1000,
        output_chunk_size: 3000,
        ..Limits::default()
    });
    let bytes = pattern(300_000);
    let script = "stty raw -echo; echo go; head -c 300000";
    let id = host.exec_on_terminal(&["sh", "-c", script]);
    let mut shown = Vec::new();
    host.read_until(id, &mut shown, "go\n");
    host.type_ahead(id, &bytes);
    let output = host.collect(id);
    assert_eq!(output.code, Some(0));
    assert_eq!(output.stdout.len(), bytes.len());
    assert!(output.stdout == bytes);
}

/// The exception that is the kernel's: 4095 bytes are the longest line. What goes beyond is dropped,
/// and must not stop what comes behind it.
#[test]
fn a_line_beyond_what_a_terminal_takes_is_cut_and_ends_all_the_same() {
    let text = typed(&["sh", "-c", "stty -echo; wc -c"], &[b'x'; 100_000]);
    assert_eq!(text.trim_start_matches('x').trim(), "4095");
    // With a line waiting in front of it.
    let mut keys = b"abc\n".to_vec();
    keys.resize(100_000, b'x');
    let text = typed(&["sh", "-c", "stty -echo; sleep 0.2; wc -c"], &keys);
    let count: usize = text
        .trim_start_matches(['x', 'a', 'b', 'c', '\r', '\n'])
        .trim()
        .parse()
        .unwrap();
    assert!((4..=4 + 4095).contains(&count), "{count}");
}

#[test]
fn the_size_can_change_at_any_time() {
    let mut host = Host::start(Limits::default());
    let script = "while [ \"$(stty size)\" = '41 97' ]; do sleep 0.02; done; stty size";
    for n in 0..20 {
        let id = host.exec_on_silent_terminal(&["sh", "-c", script]);
        host.resize(id, 50, 200 + n);
        let output = host.collect(id);
        assert_eq!(output.stdout, format!("50 {}\r\n", 200 + n).as_bytes());
    }
    let script = "trap 'stty size; exit' WINCH; echo go; while :; do sleep 0.01; done";
    let id = host.exec_on_silent_terminal(&["sh", "-c", script]);
    let mut shown = Vec::new();
    host.read_until(id, &mut shown, "go\r\n");
    host.resize(id, 1, 65_535);
    let output = host.collect(id);
    assert_eq!(output.stdout, b"1 65535\r\n");
    // Without a terminal it is ignored.
    let id = host.exec(&["sh", "-c", "sleep 0.05; echo done"]);
    host.resize(id, 1, 1);
    assert_eq!(host.collect(id).stdout, b"done\n");
}

// B31.
#[test]
fn a_shell_on_a_terminal_has_job_control() {
    let mut host = Host::start(Limits::default());
    let id = shell(&mut host);
    let mut shown = Vec::new();
    host.read_until(id, &mut shown, "$ ");
    let text = String::from_utf8(shown).unwrap();
    assert!(!text.contains("job control"), "{text}");
    // ^C ends the job and not the shell. The job makes no processes: one that is stopped between
    // vfork and exec stops its shell for good, whatever the terminal. The quotes keep what is echoed from what is printed.
    let job = br#"sh -c 'trap "echo co""nt" CONT; echo ru""ns; while :; do read x; done'
"#;
    run(&mut host, id, job, "runs\r\n");
    run(&mut host, id, b"\x03", "$ ");
    run(&mut host, id, b"echo sti''ll\n", "still\r\n$ ");
    // ^Z stops it, and it can go on.
    run(&mut host, id, job, "runs\r\n");
    let text = run(&mut host, id, b"\x1a", "$ ");
    assert!(text.contains("Stopped"), "{text}");
    run(&mut host, id, b"fg\n", "cont\r\n");
    run(&mut host, id, b"\x03", "$ ");
    // ^D ends the shell.
    host.write_stdin(id, b"\x04");
    let output = host.collect(id);
    assert!(output.code.is_some());
}

fn shell(host: &mut Host) -> ExecId {
    host.exec_on_terminal(&["env", "PS1=$ ", "ENV=", "sh", "-i"])
}

/// Types `keys` and returns what is shown, up to and with `end`.
fn run(host: &mut Host, id: ExecId, keys: &[u8], end: &str) -> String {
    host.write_stdin(id, keys);
    let mut shown = Vec::new();
    host.read_until(id, &mut shown, end);
    String::from_utf8_lossy(&shown).into_owned()
}

#[test]
fn a_terminal_that_nobody_reads_holds_its_command_and_nobody_elses() {
    let mut host = Host::start(Limits::default());
    let endless = host.exec_on_silent_terminal(&["yes"]);
    let deaf = host.exec_on_terminal(&["sleep", "1000"]);
    host.type_ahead(deaf, &b"line\n".repeat(12_000));
    for n in 0..20 {
        let output = host.shell(&format!("echo {n}"));
        assert_eq!(output.stdout, format!("{n}\n").as_bytes());
    }
    for id in [endless, deaf] {
        host.put_down(id);
    }
}

#[test]
fn a_terminals_end_is_told_to_who_still_types() {
    let mut host = Host::start(Limits::default());
    let id = host.exec_on_terminal(&["sh", "-c", "stty raw -echo; echo go; sleep 0.2; exit 3"]);
    let mut shown = Vec::new();
    host.read_until(id, &mut shown, "go\n");
    host.type_ahead(id, &pattern(60_000));
    let mut told = 0;
    let code = loop {
        match host.next(id) {
            Event::StdinError(error) => {
                told += 1;
                assert_eq!(error.name, "EIO", "{}", error.message);
            }
            Event::End(forebay_exec_proto::host::Terminal::Exited(status)) => break status.code,
            Event::Stdout(_) => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((told, code), (1, Some(3)));
}
