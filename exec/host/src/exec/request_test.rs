use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use forebay_exec_proto::{Request, Resources, Rlimit};

use crate::fake_guest::FakeVm;
use crate::{Exec, ExecError, Resource, TerminalSize};

/// Refused with this message, with nothing sent.
fn refusal(build: impl FnOnce(Exec) -> Exec) -> String {
    let vm = FakeVm::new();
    let kicks = vm.kicks();
    let error = vm
        .run(vm.client.exec_with("echo", build).spawn())
        .unwrap_err();
    assert!(matches!(error, ExecError::InvalidRequest { .. }), "{error}");
    assert_eq!((vm.kicks(), vm.client.active()), (kicks, 0));
    error.to_string()
}

/// What the guest was asked to run it as.
fn user_of(request: &Request) -> Option<&[u8]> {
    request.user.as_ref().map(|user| user.as_slice())
}

/// What the guest was asked for.
fn received(build: impl FnOnce(Exec) -> Exec) -> Request {
    let vm = FakeVm::new();
    let handle = vm.run(vm.client.exec_with("stall", build).spawn()).unwrap();
    vm.command(handle.id(), |command| command.request.clone())
}

#[test]
fn everything_that_is_asked_for_arrives_in_the_guest() {
    let size = TerminalSize {
        rows: 50,
        cols: 132,
    };
    let request = received(|exec| {
        exec.user("app:staff")
            .terminal(size)
            .rlimit(Resource::Nofile, 10, 20)
            .rlimit(Resource::Core, 0, Resource::UNLIMITED)
            .memory_limit(64 << 20)
            .process_limit(32)
            .cpu_weight(50)
            .cpu_limit(1.5)
    });
    assert_eq!(user_of(&request), Some(&b"app:staff"[..]));
    assert_eq!(request.terminal, Some(size.into()));
    let rlimits = [(7, 10, 20), (4, 0, u64::MAX)].map(|(resource, soft, hard)| Rlimit {
        resource,
        soft,
        hard,
    });
    assert_eq!(request.rlimits, rlimits);
    let resources = Resources {
        memory: Some(64 << 20),
        pids: Some(32),
        cpu_weight: Some(50),
        cpu_quota: Some(150_000),
    };
    assert_eq!(request.resources, Some(resources));

    let plain = received(|exec| exec);
    assert_eq!((plain.user, plain.terminal), (None, None));
    assert_eq!((plain.rlimits, plain.resources), (vec![], None));
}

#[test]
fn a_value_that_is_set_again_replaces_the_first() {
    let request = received(|exec| {
        exec.user("")
            .user("app")
            .memory_limit(0)
            .memory_limit(1 << 30)
            .terminal(TerminalSize { rows: 0, cols: 0 })
            .terminal(TerminalSize::default())
    });
    assert_eq!(user_of(&request), Some(&b"app"[..]));
    assert_eq!(request.resources.and_then(|all| all.memory), Some(1 << 30));
    let size = request.terminal.map(|size| (size.rows, size.cols));
    assert_eq!(size, Some((24, 80)));
}

#[test]
fn users_that_cannot_be_are_refused_by_what_is_wrong_with_them() {
    let cases = [
        ("", "user is empty"),
        ("a\0b", "user contains a NUL byte"),
        (
            "a:b:c",
            "user is \"a:b:c\", it has at most one colon, between user and group",
        ),
        (":staff", "user is \":staff\", it must begin with a user"),
        (":", "user is \":\", it must begin with a user"),
        ("app:", "user is \"app:\", a group must follow the colon"),
        (
            "4294967295",
            "user is \"4294967295\", ids are at most 4294967294",
        ),
        (
            "1000:99999999999999999999",
            "user is \"1000:99999999999999999999\", ids are at most 4294967294",
        ),
    ];
    for (user, message) in cases {
        assert_eq!(refusal(|exec| exec.user(user)), message);
    }
    let long = "7".repeat(1000);
    let message = refusal(|exec| exec.user(&long));
    assert!(message.len() < 200, "{message}");
}

#[test]
fn users_that_only_the_guest_can_judge_are_passed_on() {
    let bytes: [&[u8]; 7] = [
        b"0",
        b"4294967294:4294967294",
        b"007",
        b"app:1000",
        b"1000:staff",
        b"1000th",
        b"\xff",
    ];
    for user in bytes {
        let request = received(|exec| exec.user(OsStr::from_bytes(user)));
        assert_eq!(user_of(&request), Some(user));
    }
}

#[test]
fn contradictory_limits_are_refused_by_resource_and_values() {
    assert_eq!(
        refusal(|exec| exec.rlimit(Resource::Nofile, 20, 10)),
        "rlimit(nofile) has a soft limit of 20, it must be at most the hard one of 10"
    );
    assert_eq!(
        refusal(|exec| {
            exec.rlimit(Resource::Nofile, 1, 2)
                .rlimit(Resource::Core, 0, 0)
                .rlimit(Resource::Nofile, 1, 2)
        }),
        "rlimit(nofile) is given twice"
    );
    assert_eq!(
        refusal(|exec| exec.memory_limit(4096)),
        "memory_limit is 4096, it must be at least 1048576 bytes"
    );
    assert_eq!(
        refusal(|exec| exec.process_limit(0)),
        "process_limit is 0, it must be 1 to 4194304"
    );
    assert_eq!(
        refusal(|exec| exec.cpu_weight(0)),
        "cpu_weight is 0, it must be 1 to 10000"
    );
    assert_eq!(
        refusal(|exec| exec.cpu_limit(-0.5)),
        "cpu_limit is -0.5, it must be 0.01 to 1024 CPUs"
    );
}

#[test]
fn each_resource_may_be_limited_once() {
    let request = received(|exec| {
        let all = Resource::ALL.into_iter();
        all.fold(exec, |exec, resource| exec.rlimit(resource, 5, 5))
    });
    let numbers: Vec<u32> = request.rlimits.iter().map(|limit| limit.resource).collect();
    assert_eq!(numbers, (0..16).collect::<Vec<_>>());
}

#[test]
fn a_terminal_has_at_least_one_row_and_one_column() {
    for (rows, cols) in [(0, 80), (24, 0), (0, 0)] {
        let size = TerminalSize { rows, cols };
        assert_eq!(
            refusal(|exec| exec.terminal(size)),
            format!(
                "terminal is {rows} rows of {cols} columns, there must be at least one of each"
            )
        );
    }
    let smallest = TerminalSize { rows: 1, cols: 1 };
    let request = received(|exec| exec.terminal(smallest));
    assert_eq!(request.terminal, Some(smallest.into()));
}
