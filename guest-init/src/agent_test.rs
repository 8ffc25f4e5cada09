//! The agent as a whole against the host's end of the protocol, over a socket instead of a port.

#[path = "agent_test/host.rs"]
mod host;
#[path = "agent_test/resources.rs"]
mod resources;
#[path = "agent_test/rest.rs"]
mod rest;
#[path = "agent_test/terminal.rs"]
mod terminal;

use std::fs;
use std::os::fd::AsFd as _;
use std::time::Duration;

use forebay_exec_proto::host::{Event, Terminal};
use forebay_exec_proto::{FailureKind, Limits};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::cgroup::place::Place;
use crate::power::End;
use host::{Host, Output};

fn pidfd(pid: u32) -> rustix::fd::OwnedFd {
    pidfd_open(
        Pid::from_raw(pid.cast_signed()).unwrap(),
        PidfdFlags::empty(),
    )
    .unwrap()
}

fn wait_for_end(pidfd: &rustix::fd::OwnedFd) {
    let ceiling = Timespec {
        tv_sec: 60,
        tv_nsec: 0,
    };
    let ended = poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&ceiling)).unwrap();
    assert_eq!(ended, 1, "the process still lives");
}

/// A pattern that shows lost, doubled and moved bytes.
fn pattern(n: usize) -> Vec<u8> {
    (0..n)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect()
}

#[test]
fn streams_arrive_apart_and_the_code_comes_last() {
    let mut host = Host::start(Limits::default());
    let output = host.shell("echo out; echo err >&2; exit 3");
    assert_eq!(
        output,
        Output {
            stdout: b"out\n".to_vec(),
            stderr: b"err\n".to_vec(),
            code: Some(3),
            signal: None
        }
    );
}

// B08: killed by a signal is no success, and no exit code either.
#[test]
fn signals_and_codes_are_told_apart() {
    let mut host = Host::start(Limits::default());
    for (script, code, signal) in [
        ("kill -9 $$", None, Some(9)),
        ("kill -15 $$", None, Some(15)),
        ("kill -34 $$", None, Some(34)),
        ("exit 137", Some(137), None),
        ("exit 255", Some(255), None),
        ("exit 0", Some(0), None),
    ] {
        let output = host.shell(script);
        assert_eq!((output.code, output.signal), (code, signal), "{script}");
    }
}

// B09, B10.
#[test]
fn a_program_that_never_ran_has_failed_and_not_exited() {
    let mut host = Host::start(Limits::default());
    let failure = host.failure(&["nosuch"], None);
    assert_eq!(
        (failure.kind, failure.stage.as_str()),
        (FailureKind::NotFound, "execve")
    );
    assert!(failure.message.contains("nosuch"), "{}", failure.message);
    let failure = host.failure(&["/"], None);
    assert_eq!(failure.kind, FailureKind::NotExecutable);
    let failure = host.failure(&["true"], Some("/nosuch"));
    assert_eq!(
        (failure.kind, failure.stage.as_str()),
        (FailureKind::BadCwd, "chdir")
    );
    assert!(failure.message.contains("/nosuch"), "{}", failure.message);
    let failure = host.failure(&["a\0b"], None);
    assert_eq!(
        (failure.kind, failure.stage.as_str()),
        (FailureKind::BadArgs, "request")
    );
    // What the shell could not find is the shell's own exit.
    let output = host.shell("nosuch 2>/dev/null");
    assert_eq!(output.code, Some(127));
}

// B02: far more than any buffer on the way.
#[test]
fn long_output_arrives_whole() {
    let mut host = Host::start(Limits::default());
    let output = host.shell("seq 1 200000; echo END >&2");
    let mut expected = String::new();
    for n in 1..=200_000 {
        expected.push_str(&format!("{n}\n"));
    }
    assert_eq!(output.stdout.len(), expected.len());
    assert!(output.stdout == expected.as_bytes());
    assert_eq!(output.stderr, b"END\n");
}

// B05: each stream is read whatever the other does.
#[test]
fn a_full_stderr_does_not_stop_stdout() {
    let mut host = Host::start(Limits::default());
    let output = host.shell("head -c 3000000 /dev/zero >&2; echo ok");
    assert_eq!(output.stderr.len(), 3_000_000);
    assert_eq!(output.stdout, b"ok\n");
}

// B25.
#[test]
fn stdin_that_nobody_asked_for_ends_at_once() {
    let mut host = Host::start(Limits::default());
    assert_eq!(host.shell("cat; echo end").stdout, b"end\n");
    assert_eq!(host.shell("wc -c").stdout, b"0\n");
    let output = host.run_with_stdin(&["wc", "-c"], b"abc");
    assert_eq!(output.stdout, b"3\n");
    let output = host.run_with_stdin(&["wc", "-c"], b"");
    assert_eq!(output.stdout, b"0\n");
}

// B28: input and output at once, far beyond both allowances.
#[test]
fn large_input_comes_back_through_a_filter() {
    let mut host = Host::start(Limits {
        input_limit: 10_000,
        output_limit: 30_000,
        stdin_chunk_size: 1000,
        output_chunk_size: 3000,
        ..Limits::default()
    });
    let bytes = pattern(1 << 20);
    let output = host.run_with_stdin(&["cat"], &bytes);
    assert_eq!(output.stdout.len(), bytes.len());
    assert!(output.stdout == bytes);
    assert_eq!(output.code, Some(0));
}

// B26.
#[test]
fn a_command_that_stops_reading_is_said_once_and_goes_on() {
    let mut host = Host::start(Limits::default());
    for (script, code) in [
        ("head -c 10 >/dev/null; exit 3", 3),
        ("exec 0<&-; sleep 0.1; echo out; exit 4", 4),
    ] {
        let id = host.exec_with_stdin(&["sh", "-c", script], &pattern(1 << 20));
        let (mut errors, mut stdout) = (0, Vec::new());
        let exited = loop {
            match host.next(id) {
                Event::StdinError(error) => {
                    assert_eq!(error.name, "EPIPE");
                    errors += 1;
                }
                Event::Stdout(bytes) => stdout.extend_from_slice(&bytes),
                Event::End(end) => break end,
                _ => {}
            }
        };
        assert!(errors <= 1, "{errors}");
        assert!(matches!(exited, Terminal::Exited(status) if status.code == Some(code)));
        assert_eq!(stdout, if code == 4 { &b"out\n"[..] } else { b"" });
    }
}

// B20: the result comes when the leader ends; the job lives on.
#[test]
fn a_background_job_neither_holds_the_result_nor_dies_of_its_pipe() {
    let dir = tempfile::tempdir().unwrap();
    let (go, alive) = (dir.path().join("go"), dir.path().join("alive"));
    let script = format!(
        "(while [ ! -e {go} ]; do sleep 0.02; done; head -c 300000 /dev/zero; echo x >&2; \
         echo alive > {alive}) & echo STARTED",
        go = go.display(),
        alive = alive.display()
    );
    let mut host = Host::start(Limits::default());
    let output = host.shell(&script);
    assert_eq!(output.stdout, b"STARTED\n");
    assert_eq!(output.code, Some(0));
    fs::write(go, "").unwrap();
    // More than a pipe holds was written after the end, and the job came past it.
    while !alive.exists() {
        host.turn(Duration::from_millis(5));
    }
}

// B20 (d): the leader's own bytes are all there though the job still holds the pipe, and though
// they are more than the host allows at once.
#[test]
fn what_the_leader_wrote_is_delivered_after_its_end() {
    let mut host = Host::start(Limits {
        output_limit: 20_000,
        ..Limits::default()
    });
    let id = host.exec(&[
        "sh",
        "-c",
        "sleep 1000 & echo $!; head -c 50000 /dev/zero; exit 5",
    ]);
    let output = host.collect(id);
    assert_eq!(output.code, Some(5));
    let text = String::from_utf8_lossy(&output.stdout);
    let (job, zeroes) = text.split_once('\n').unwrap();
    assert_eq!(zeroes.len(), 50_000);
    let job = pidfd(job.parse().unwrap());
    crate::signals::send(job.as_fd(), 9, crate::signals::Reach::Process).unwrap();
}

// B27: a stalled execution is nobody else's trouble.
#[test]
fn an_unread_and_an_unfed_execution_do_not_hold_up_others() {
    let mut host = Host::start(Limits::default());
    let endless = host.exec(&["yes"]);
    let deaf = host.exec_with_stdin(&["sleep", "1000"], &pattern(1 << 20));
    for n in 0..20 {
        let output = host.shell(&format!("echo {n}"));
        assert_eq!(output.stdout, format!("{n}\n").as_bytes());
    }
    for id in [endless, deaf] {
        host.put_down(id);
    }
}

#[test]
fn a_kill_before_the_start_is_not_lost() {
    let mut host = Host::start(Limits::default());
    for _ in 0..20 {
        // The kill follows the request at once and finds the child on its way.
        let id = host.begin(&["sleep", "1000"]);
        host.send();
        host.put_down(id);
    }
}

#[test]
fn a_kill_reaches_the_whole_group() {
    let mut host = Host::start(Limits::default());
    let id = host.exec(&["sh", "-c", "sleep 1000 & echo $!; wait"]);
    let Event::Stdout(pid) = host.next(id) else {
        panic!("the job's pid comes first")
    };
    let job = pidfd(String::from_utf8_lossy(&pid).trim().parse().unwrap());
    host.put_down(id);
    wait_for_end(&job);
}

#[test]
fn a_signal_reaches_the_group_and_can_be_handled() {
    let mut host = Host::start(Limits::default());
    let script = "trap 'echo got; exit 7' USR1; echo ready; while :; do sleep 0.01; done";
    let id = host.exec(&["sh", "-c", script]);
    assert!(matches!(host.next(id), Event::Stdout(bytes) if &bytes[..] == b"ready\n"));
    host.signal(id, 10);
    let output = host.collect(id);
    assert_eq!(
        (output.stdout.as_slice(), output.code),
        (&b"got\n"[..], Some(7))
    );
}

#[test]
fn numbers_that_are_no_signals_do_nothing() {
    let mut host = Host::start(Limits::default());
    let id = host.exec_with_open_stdin(&["cat"]);
    for signal in [0, 65, u32::MAX] {
        host.signal(id, signal);
    }
    host.close_stdin(id);
    assert_eq!(host.collect(id).code, Some(0));
}

// B21: codes are never mixed up.
#[test]
fn many_at_once_keep_their_codes_and_bytes() {
    let mut host = Host::start(Limits::default());
    for round in 0..5 {
        let ids: Vec<_> = (0..32)
            .map(|n| {
                let n = round * 32 + n;
                (
                    n,
                    host.begin(&["sh", "-c", &format!("echo {n}; exit {}", n % 250)]),
                )
            })
            .collect();
        for (n, id) in ids {
            let output = host.collect(id);
            assert_eq!(output.stdout, format!("{n}\n").as_bytes());
            assert_eq!(output.code, Some(n % 250));
        }
    }
}

#[test]
fn the_vms_environment_and_directory_hold_unless_the_request_names_its_own() {
    let mut host = Host::with_defaults(&[("A", "vm"), ("B", "vm")], "/usr");
    let output = host.run_with_env(&["sh", "-c", "pwd; echo $A $B"], &[("B", "own")]);
    assert_eq!(output.stdout, b"/usr\nvm own\n");
}

#[test]
fn losing_the_host_kills_what_it_had_started() {
    let mut host = Host::start(Limits::default());
    let id = host.exec(&[
        "sh",
        "-c",
        "trap '' TERM HUP PIPE; echo $$; while :; do sleep 1; done",
    ]);
    let Event::Stdout(pid) = host.next(id) else {
        panic!("its pid comes first")
    };
    let command = pidfd(String::from_utf8_lossy(&pid).trim().parse().unwrap());
    assert_eq!(host.hang_up(), End::Disconnected);
    wait_for_end(&command);
}

// The execution that started the job is over, and its leaf was given back.
#[test]
fn losing_the_host_kills_the_background_jobs_of_ended_executions() {
    let Some((_place, parent)) = Place::find("background") else {
        return;
    };
    let mut host = Host::start_in(parent);
    let output = host.shell("sleep 1000 >/dev/null 2>&1 & echo $!");
    let job = pidfd(
        String::from_utf8_lossy(&output.stdout)
            .trim()
            .parse()
            .unwrap(),
    );
    // A later command's end shows that the job's leaf was dealt with.
    assert_eq!(host.shell("exit 0").code, Some(0));
    assert_eq!(host.hang_up(), End::Disconnected);
    wait_for_end(&job);
}

// A tracer that attaches to PID 1 interrupts its wait, and so does a job control stop.
#[test]
fn an_interrupted_wait_is_no_end_of_the_loop() {
    let mut host = Host::start(Limits::default());
    for n in 0..50 {
        let id = host.exec_with_open_stdin(&["cat"]);
        host.interrupt();
        host.close_stdin(id);
        assert_eq!(host.collect(id).code, Some(0), "round {n}");
        host.interrupt();
    }
}

#[test]
fn bytes_that_make_no_sense_end_the_connection() {
    let mut host = Host::start(Limits::default());
    let id = host.exec(&["sleep", "1000"]);
    let command = pidfd(host.pid(id));
    host.send_raw(&[0xff; 64]);
    assert_eq!(host.agent_end(), End::Disconnected);
    wait_for_end(&command);
}

#[test]
fn a_power_off_asks_then_kills_and_delivers_the_last_output() {
    let mut host = Host::start(Limits::default());
    let polite = host.exec(&[
        "sh",
        "-c",
        "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.01; done",
    ]);
    let deaf = host.exec(&[
        "sh",
        "-c",
        "trap '' TERM; echo up; while :; do sleep 0.01; done",
    ]);
    for id in [polite, deaf] {
        assert!(matches!(host.next(id), Event::Stdout(_)));
    }
    host.power_off(true, 200);
    let output = host.collect(polite);
    assert_eq!(
        (output.stdout.as_slice(), output.code),
        (&b"bye\n"[..], Some(0))
    );
    assert_eq!(host.collect(deaf).signal, Some(9));
    assert_eq!(host.agent_end(), End::Reboot);
}

#[test]
fn nothing_starts_once_the_guest_is_ending() {
    let mut host = Host::start(Limits::default());
    let waits = host.exec(&["sh", "-c", "trap '' TERM; echo up; sleep 1000"]);
    assert!(matches!(host.next(waits), Event::Stdout(_)));
    host.power_off(false, 300);
    let failure = host.failure(&["true"], None);
    assert_eq!(failure.stage, "request");
    assert_eq!(host.agent_end(), End::PowerOff);
}
