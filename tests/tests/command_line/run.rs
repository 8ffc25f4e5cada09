//! `forebay run`.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;

use forebay_guest_helper::pattern::Pattern;
use forebay_tests::Running;
use rustix::process::{Pid, Signal, kill_process};

use super::{CEILING, fed, forebay, output, run, start, wait_for};

#[test]
fn streams_and_exit_code_are_the_commands() {
    let out = output(run(&["sh", "-c", "echo hello; echo oops >&2; exit 3"]));
    assert_eq!(out.stdout, b"hello\n");
    assert_eq!(out.stderr, b"oops\n");
    assert_eq!(out.status.code(), Some(3));
}

#[test]
fn bytes_pass_through_unchanged_in_both_directions() {
    let data = Pattern::new(1).take(3_000_001);
    let out = fed(run(&["cat"]), &data);
    assert_eq!(
        (out.status.code(), out.stderr.as_slice()),
        (Some(0), &b""[..])
    );
    assert!(
        out.stdout == data,
        "{} bytes, or other ones",
        out.stdout.len()
    );
}

#[test]
fn options_reach_the_guest() {
    let image = forebay_tests::image();
    let mut command = forebay(&[
        "run", "--cpus", "2", "--memory", "128", "-e", "A=b=c", "-w", "/tmp",
    ]);
    command.arg("--image").arg(image.directory());
    command.args(["sh", "-c", "nproc; pwd; echo $A"]);
    let out = output(command);
    assert_eq!(String::from_utf8_lossy(&out.stdout), "2\n/tmp\nb=c\n");
}

#[test]
fn user_and_limits_of_the_command_reach_the_guest() {
    let options = [
        "--user",
        "1000:1001",
        "--ulimit",
        "nofile=10:20",
        "--pids-limit",
        "33",
        "--memory-limit",
        "64m",
        "--cpu-limit",
        "0.5",
        "--cpu-weight",
        "50",
    ];
    let script = "id -u; id -g; ulimit -Sn; ulimit -Hn; \
         cd /sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup); \
         cat pids.max memory.max cpu.max cpu.weight";
    let mut command = forebay(&["run", "--image"]);
    command
        .arg(forebay_tests::image().directory())
        .args(options);
    command.args(["--", "sh", "-c", script]);
    let out = output(command);
    assert_eq!(
        String::from_utf8_lossy(&out.stdout),
        "1000\n1001\n10\n20\n33\n67108864\n50000 100000\n50\n",
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
}

#[test]
fn a_limit_that_cannot_work_and_a_time_that_was_up_are_told() {
    let refused = |options: &[&str]| {
        let mut command = forebay(&["run", "--image"]);
        command
            .arg(forebay_tests::image().directory())
            .args(options)
            .args(["--", "sleep", "1000"]);
        let out = output(command);
        let text = String::from_utf8_lossy(&out.stderr).into_owned();
        (out.status.code(), text)
    };
    let (code, text) = refused(&["--ulimit", "nofile=20:10"]);
    assert_eq!(code, Some(125));
    assert!(
        text.starts_with("forebay: ") && text.contains("nofile"),
        "{text}"
    );
    let (code, text) = refused(&["--timeout", "500ms"]);
    assert_eq!(code, Some(124));
    assert!(text.contains("timeout of 500ms"), "{text}");
}

#[test]
fn a_signal_is_128_and_its_number() {
    assert_eq!(
        output(run(&["sh", "-c", "kill -9 $$"])).status.code(),
        Some(137)
    );
    assert_eq!(
        output(run(&["sh", "-c", "kill -15 $$"])).status.code(),
        Some(143)
    );
}

#[test]
fn what_did_not_start_ends_as_container_tools_end() {
    let missing = output(run(&["nosuch"]));
    assert_eq!(missing.status.code(), Some(127));
    let text = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(
        text.starts_with("forebay: ") && text.contains("nosuch"),
        "{text}"
    );
    assert_eq!(output(run(&["/tmp"])).status.code(), Some(126));
    assert_eq!(output(run(&["/etc/passwd"])).status.code(), Some(126));
    let unusable = output(forebay(&["run", "--memory", "1", "true"]));
    assert_eq!(unusable.status.code(), Some(125));
    assert!(
        String::from_utf8_lossy(&unusable.stderr).contains("memory"),
        "{unusable:?}"
    );
    assert_eq!(output(forebay(&["run"])).status.code(), Some(125));
    assert_eq!(output(run(&["poweroff", "-f"])).status.code(), Some(125));
}

#[test]
fn wrong_options_are_told_with_their_value_and_what_would_do() {
    let long = format!("/tmp/{}", "s".repeat(103));
    for (option, value, told) in [
        ("--cpus", "0", ["cpus", "254"]),
        ("--cpus", "255", ["cpus", "254"]),
        ("--cpus", "256", ["cpus", "256"]),
        ("--cpus", "two", ["cpus", "two"]),
        ("--memory", "63", ["memory", "64"]),
        ("--memory", "4294967295", ["memory", "1048576"]),
        ("--attach-socket", &long, ["attach_socket", "107"]),
        ("--image", "/nowhere", ["/nowhere", "image"]),
        ("--kernel", "/nowhere", ["/nowhere", "kernel"]),
        ("--env", "novalue", ["env", "KEY=VALUE"]),
        ("--ulimit", "nofile", ["ulimit", "NAME=SOFT[:HARD]"]),
        ("--ulimit", "files=1", ["ulimit", "nofile"]),
        ("--timeout", "5d", ["timeout", "500ms"]),
        ("--memory-limit", "64mb", ["memory-limit", "64m"]),
        ("--detach-keys", "ctrl-1", ["detach-keys", "ctrl-p,ctrl-q"]),
    ] {
        let image = forebay_tests::image();
        let mut command = forebay(&["run", option, value]);
        if option != "--image" {
            command.arg("--image").arg(image.directory());
        }
        command.arg("true");
        let out = output(command);
        let text = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(125), "{option} {value}: {text}");
        assert!(out.stdout.is_empty());
        assert!(
            told.iter().all(|part| text.contains(part)),
            "{option} {value}: {text}"
        );
    }
}

#[test]
fn a_reader_that_goes_away_ends_an_endless_command_quietly() {
    let mut child = start(run(&["yes"]));
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 100_000]).unwrap();
    drop(stdout);
    let out = child.end(CEILING);
    assert_eq!(
        (
            out.status.code(),
            String::from_utf8_lossy(&out.stderr).as_ref()
        ),
        (Some(141), "")
    );
}

#[test]
fn a_signal_to_forebay_reaches_the_command() {
    let script = "trap 'echo caught; exit 9' TERM; echo set; while :; do sleep .1; done";
    let (child, mut lines) = started(&["sh", "-c", script]);
    signal(&child, Signal::TERM);
    assert_eq!(lines.next().unwrap().unwrap(), "caught");
    assert_eq!(child.end(CEILING).status.code(), Some(9));
}

#[test]
fn a_second_signal_ends_the_vm_at_once() {
    // Ended by the second signal it is told as that one, ended by the patience of five seconds as
    // the first. Where those pass before the second gets there, it is tried again.
    let ended_by_the_second = || {
        let script = "trap 'echo caught' INT; echo set; while :; do sleep .1; done";
        let (mut child, mut lines) = started(&["sh", "-c", script]);
        signal(&child, Signal::INT);
        assert_eq!(lines.next().unwrap().unwrap(), "caught");
        signal(&child, Signal::TERM);
        wait_for("the end", || child.try_wait().unwrap().is_some());
        match child.wait().unwrap().code() {
            Some(143) => true,
            Some(130) => false,
            other => panic!("{other:?}"),
        }
    };
    assert!((0..5).any(|_| ended_by_the_second()));
}

#[test]
fn a_signal_that_is_a_message_asks_for_no_end() {
    // Longer than the patience with a command that was asked to end.
    let script = "trap 'echo caught' USR1; echo set; while :; do \
        sleep .5 & wait $!; i=$((i+1)); [ $i -lt 16 ] || break; done; exit 9";
    let (child, mut lines) = started(&["sh", "-c", script]);
    for signalled in [Signal::USR1, Signal::USR1] {
        signal(&child, signalled);
        assert_eq!(lines.next().unwrap().unwrap(), "caught");
    }
    assert_eq!(child.end(CEILING).status.code(), Some(9));
}

#[test]
fn a_command_that_ignores_the_signal_is_ended_with_the_vm() {
    let script = "trap '' INT; echo set; while :; do sleep 1; done";
    let (mut child, _lines) = started(&["sh", "-c", script]);
    signal(&child, Signal::INT);
    wait_for("the end", || child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn the_probe_answers_in_one_line() {
    let out = output(forebay(&["doctor", "--probe"]));
    assert_eq!(out.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&out.stdout).lines().count(), 1);
    let out = output(forebay(&["doctor", "--json"]));
    let checks: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let checks = checks.as_array().unwrap();
    assert!(!checks.is_empty());
    for check in checks {
        for field in ["name", "outcome", "detail"] {
            assert!(check[field].is_string(), "{check}");
        }
        assert_ne!(check["outcome"], "bad", "guests run here: {check}");
    }
    assert_eq!(out.status.code(), Some(0));
    let out = output(forebay(&["--version"]));
    assert!(String::from_utf8_lossy(&out.stdout).starts_with("forebay 0."));
}

/// Starts a command that says `set`, and waits until it has.
fn started(
    command: &[&str],
) -> (
    Running,
    impl Iterator<Item = std::io::Result<String>> + use<>,
) {
    let mut command = run(command);
    command.stderr(Stdio::null());
    let mut child = start(command);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "set");
    (child, lines)
}

fn signal(child: &Running, signal: Signal) {
    let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
    // Gone already is what the caller waits for.
    let _ = kill_process(pid, signal);
}
