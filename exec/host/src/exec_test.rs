use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::{Exec, Stdin};
use crate::fake_guest::{ByHand, FakeVm};
use crate::{ExecError, Failure, FailureKind, Limits};

#[test]
fn awaiting_a_command_gives_its_status_and_output() {
    let vm = FakeVm::new();
    let out = vm
        .run(async { vm.client.exec("write", ["3", "2", "9"]).await })
        .unwrap();
    assert_eq!(out.status().code(), Some(9));
    assert!(!out.status().success());
    assert_eq!(
        out.status().duration(),
        std::time::Duration::from_micros(1500)
    );
    assert_eq!((out.stdout().len(), out.stderr().len()), (3, 2));
}

#[test]
fn a_shell_line_is_one_argument_of_sh() {
    let vm = FakeVm::new();
    let shell = vm.client.shell("a | b");
    assert_eq!(shell.program, "sh");
    assert_eq!(shell.args, ["-c", "a | b"]);
}

#[test]
fn the_closure_form_builds_the_same_request() {
    let vm = FakeVm::new();
    let build = |e: Exec| e.env("A", "1").envs([("B", "2"), ("A", "3")]);
    let out = vm.run(vm.client.exec_with("env", build).output()).unwrap();
    assert_eq!(
        out.stdout_str(),
        Ok("A=1\nB=2\nA=3\n"),
        "in order, so that the later key wins"
    );
}

#[test]
fn words_that_are_not_utf8_pass_unchanged() {
    let vm = FakeVm::new();
    let value = OsStr::from_bytes(b"\xff\xfe");
    let out = vm
        .run(vm.client.exec("env", [""; 0]).env("K", value).output())
        .unwrap();
    assert_eq!(out.stdout(), b"K=\xff\xfe\n");
    assert!(out.stdout_str().is_err());
}

#[test]
fn a_request_that_no_program_can_be_given_is_refused_before_anything_is_sent() {
    let vm = FakeVm::new();
    let exec = |program: &str| vm.client.exec(program, ["x"]);
    let cases = [
        (exec(""), "program is empty"),
        (exec("a\0b"), "program contains a NUL byte"),
        (exec("a").arg("b\0"), "args[1] contains a NUL byte"),
        (exec("a").env("", "v"), "the name of env[0] is empty"),
        (
            exec("a").env("K", "v").env("A=B", "v"),
            "the name of env[1] contains '='",
        ),
        (
            exec("a").env("K\0", "v"),
            "the name of env[0] contains a NUL byte",
        ),
        (
            exec("a").env("K", "v\0"),
            "the value of env[0] contains a NUL byte",
        ),
        (exec("a").current_dir(""), "current_dir is empty"),
        (
            exec("a").current_dir("/\0"),
            "current_dir contains a NUL byte",
        ),
    ];
    let kicks = vm.kicks();
    for (exec, message) in cases {
        let error = vm.run(exec.spawn()).unwrap_err();
        assert!(matches!(error, ExecError::InvalidRequest { .. }), "{error}");
        assert_eq!(error.to_string(), message);
    }
    assert_eq!(vm.kicks(), kicks);
    assert_eq!(vm.client.active(), 0);
}

#[test]
fn a_request_beyond_a_megabyte_is_refused_with_both_sizes_and_one_below_arrives() {
    let vm = FakeVm::new();
    let word = "w".repeat(1000);
    let error = vm
        .run(vm.client.exec("exit", vec![&word; 1100]).spawn())
        .unwrap_err();
    let ExecError::TooLarge { size, limit } = error else {
        panic!("{error}")
    };
    assert!(size > 1_100_000, "{size}");
    assert_eq!(limit, 1 << 20);
    assert_eq!(vm.client.active(), 0);
    let out = vm
        .run(vm.client.exec("echo", vec![&word; 1000]).output())
        .unwrap();
    assert_eq!(out.stdout().len(), 1000 * 1001 - 1);
}

#[test]
fn a_program_that_is_not_found_is_a_typed_error_of_spawn() {
    let vm = FakeVm::new();
    let error = vm
        .run(vm.client.exec("missing", [""; 0]).spawn())
        .unwrap_err();
    let ExecError::NotStarted(failure) = &error else {
        panic!("{error}")
    };
    assert_eq!(
        (failure.kind, failure.errno),
        (FailureKind::NotFound, Some(2))
    );
    assert_eq!(failure.stage, "execve");
    assert_eq!(failure.errno_name().as_deref(), Some("ENOENT"));
    for unnamed in [None, Some(0), Some(-2), Some(100_000)] {
        let odd = Failure {
            errno: unnamed,
            ..failure.clone()
        };
        assert_eq!(odd.errno_name(), None, "{unnamed:?}");
    }
    let text = error.to_string();
    assert!(
        text.contains("execve: missing: No such file or directory (errno 2)"),
        "{text}"
    );
}

#[test]
fn spawn_is_ready_when_the_program_runs_and_not_before() {
    let vm = FakeVm::new();
    let mut start = ByHand::new(vm.client.exec("late", [""; 0]).spawn());
    assert!(start.poll().is_pending());
    vm.settle();
    assert!(!start.woken.is_set());
    let id = vm.hub.inspect().executions[0].id;
    vm.command(id, |command| command.hold_start = false);
    vm.settle();
    assert!(start.woken.is_set());
    let std::task::Poll::Ready(Ok(handle)) = start.poll() else {
        panic!("started")
    };
    assert_eq!(handle.id(), id);
    assert_eq!(u64::from(handle.pid()), id.get());
}

#[test]
fn a_start_that_is_dropped_kills_what_it_started() {
    let vm = FakeVm::new();
    let mut start = ByHand::new(vm.client.exec("late", [""; 0]).spawn());
    assert!(start.poll().is_pending());
    vm.settle();
    let id = vm.hub.inspect().executions[0].id;
    assert!(vm.guest_knows(id));
    drop(start);
    vm.settle();
    assert!(!vm.guest_knows(id));
}

#[test]
fn the_hundred_and_twenty_ninth_execution_is_refused_by_numbers() {
    let vm = FakeVm::new();
    let spawn = || vm.run(vm.client.exec("stall", [""; 0]).spawn());
    let handles: Vec<_> = (0..128).map(|_| spawn().unwrap()).collect();
    let error = spawn().unwrap_err();
    assert!(
        matches!(
            error,
            ExecError::AtCapacity {
                limit: 128,
                active: 128,
                ..
            }
        ),
        "{error}"
    );
    let text = error.to_string();
    assert!(
        text.contains("128 of at most 128") && text.contains("max_executions"),
        "{text}"
    );
    handles[5].kill();
    vm.settle();
    assert!(
        spawn().is_ok(),
        "the killed one's slot is free: nothing of it is unread"
    );
}

#[test]
fn stdin_is_null_unless_asked_for_and_fixed_bytes_end_by_themselves() {
    let vm = FakeVm::new();
    // B25: no stdin, no bytes, some bytes; each ends at once.
    for (stdin, expected) in [
        (Stdin::bytes(""), &b""[..]),
        (Stdin::bytes("abc"), b"abc"),
        (Stdin::bytes(vec![7; 300_000]), &[7; 300_000]),
    ] {
        let out = vm
            .run(vm.client.exec("cat", [""; 0]).stdin(stdin).output())
            .unwrap();
        assert!(out.status().success());
        assert!(out.stdout() == expected);
    }
    let mut handle = vm.run(vm.client.exec("stall", [""; 0]).spawn()).unwrap();
    assert!(handle.take_stdin().is_none());
}

#[test]
fn fixed_bytes_are_sent_while_nobody_polls() {
    let vm = FakeVm::with_limits(Limits {
        input_limit: 16_384,
        ..Limits::default()
    });
    let exec = vm
        .client
        .exec("drain", [""; 0])
        .stdin(Stdin::bytes(vec![1; 1_000_000]));
    let mut start = ByHand::new(exec.spawn());
    assert!(start.poll().is_pending());
    vm.settle();
    let std::task::Poll::Ready(Ok(mut handle)) = start.poll() else {
        panic!("started")
    };
    let view = &vm.hub.inspect().executions[0];
    assert_eq!((view.stdin_sent, view.phase), (1_000_000, "ended"));
    assert!(vm.run(handle.wait()).unwrap().success());
}
