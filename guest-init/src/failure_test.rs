use forebay_exec_proto::{Failure, FailureKind, Request, Rlimit};
use rustix::io::Errno;

use super::{Found, Report, Stage, describe, exec, name, step};
use crate::command::{Command, Defaults};
use crate::user::Fault;

#[test]
fn a_missing_program_and_a_missing_interpreter_read_differently() {
    let missing = exec(
        Errno::NOENT,
        Found::Nothing,
        "nosuch",
        Some("/bin:/usr/bin"),
    );
    assert_eq!(missing.kind, FailureKind::NotFound);
    assert_eq!(missing.errno, Some(libc::ENOENT));
    assert_eq!(missing.stage, "execve");
    assert_eq!(
        missing.message,
        "nosuch was not found in PATH (/bin:/usr/bin)"
    );
    let interpreter = exec(Errno::NOENT, Found::File, "/x/script", None);
    assert_eq!(interpreter.kind, FailureKind::NotFound);
    assert!(
        interpreter.message.contains("interpreter"),
        "{}",
        interpreter.message
    );
}

#[test]
fn what_cannot_be_run_is_told_from_what_may_not() {
    let kind = |errno, found| exec(errno, found, "p", None).kind;
    assert_eq!(
        kind(Errno::ACCESS, Found::Directory),
        FailureKind::NotExecutable
    );
    assert_eq!(
        kind(Errno::ACCESS, Found::File),
        FailureKind::PermissionDenied
    );
    assert_eq!(kind(Errno::NOEXEC, Found::File), FailureKind::NotExecutable);
    assert_eq!(kind(Errno::TOOBIG, Found::File), FailureKind::TooLarge);
    assert_eq!(kind(Errno::LOOP, Found::Nothing), FailureKind::BadArgs);
    assert_eq!(kind(Errno::TXTBSY, Found::File), FailureKind::Other);
}

#[test]
fn a_bad_working_directory_names_the_directory() {
    let failure = step(Stage::Cwd, Errno::NOTDIR, "/etc/passwd");
    assert_eq!(failure.kind, FailureKind::BadCwd);
    assert_eq!(failure.stage, "chdir");
    assert!(
        failure.message.contains("/etc/passwd"),
        "{}",
        failure.message
    );
}

#[test]
fn running_into_a_limit_is_no_fault_of_the_program() {
    assert_eq!(
        step(Stage::Clone, Errno::AGAIN, "sh").kind,
        FailureKind::ResourceLimit
    );
    assert_eq!(
        step(Stage::Pipe, Errno::MFILE, "sh").kind,
        FailureKind::ResourceLimit
    );
    assert_eq!(
        step(Stage::Clone, Errno::NOMEM, "sh").kind,
        FailureKind::OutOfMemory
    );
}

#[test]
fn errors_are_named_and_described_without_their_number() {
    assert_eq!(describe(Errno::NOENT), "No such file or directory (ENOENT)");
    assert_eq!(name(Errno::PIPE), "EPIPE");
    assert_eq!(name(Errno::from_raw_os_error(4000)), "errno 4000");
}

#[test]
fn every_stage_survives_the_status_pipe() {
    for stage in Stage::ALL {
        assert_eq!(Stage::from_wire(stage as u8), Some(stage));
    }
    assert_eq!(Stage::from_wire(200), None);
    for found in [Found::Nothing, Found::Directory, Found::File] {
        assert_eq!(Found::from_wire(found as u8), found);
    }
}

/// What the host is told of a report about a command that asks for a user, a limit and a directory.
fn told(stage: Stage, errno: Errno, detail: u8) -> Failure {
    let request = Request {
        argv: vec![b"p".to_vec().into()],
        cwd: Some(b"/srv".to_vec().into()),
        user: Some(b"ghost:1000".to_vec().into()),
        rlimits: vec![Rlimit {
            resource: 7,
            soft: 10,
            hard: 2_000_000_000,
        }],
        ..Request::default()
    };
    let command = Command::new(&request, &Defaults::default()).unwrap();
    let report = Report {
        stage,
        errno,
        detail,
    };
    assert_eq!(Report::from_wire(report.to_wire()), report);
    report.failure(&command)
}

#[test]
fn a_user_that_cannot_be_had_is_named_with_the_reason() {
    let unknown = told(Stage::User, Errno::NOENT, Fault::UnknownUser as u8);
    assert_eq!(unknown.kind, FailureKind::UserSetup);
    assert_eq!((unknown.stage.as_str(), unknown.errno), ("user", None));
    assert_eq!(
        unknown.message,
        "nothing can run as ghost:1000: no such user in the guest's /etc/passwd"
    );
    let group = told(Stage::User, Errno::NOENT, Fault::UnknownGroup as u8);
    assert!(group.message.contains("no such group"), "{}", group.message);
    let large = told(Stage::User, Errno::FBIG, Fault::Group as u8);
    assert_eq!(large.errno, Some(libc::EFBIG));
    assert!(
        large.message.contains("/etc/group of the guest is larger"),
        "{}",
        large.message
    );
    let refused = told(Stage::Uid, Errno::PERM, 0);
    assert_eq!(refused.kind, FailureKind::UserSetup);
    assert_eq!(refused.stage, "setresuid");
}

// B18
#[test]
fn a_limit_that_cannot_be_set_is_named_with_its_values() {
    let failure = told(Stage::Limit, Errno::PERM, 7);
    assert_eq!(failure.kind, FailureKind::ResourceLimit);
    assert_eq!(failure.stage, "setrlimit(NOFILE)");
    assert_eq!(failure.errno, Some(libc::EPERM));
    assert_eq!(
        failure.message,
        "the limit nofile of p cannot be set to 10 (soft) and 2000000000 (hard): \
         Operation not permitted (EPERM); the guest allows none above its fs.nr_open"
    );
    assert!(
        !told(Stage::Limit, Errno::PERM, 8)
            .message
            .contains("nr_open")
    );
}

#[test]
fn a_report_names_what_its_step_was_about() {
    assert!(told(Stage::Cwd, Errno::ACCESS, 0).message.contains("/srv"));
    assert!(
        told(Stage::Session, Errno::PERM, 0)
            .message
            .contains("start p")
    );
    let busy = told(Stage::Exec, Errno::TXTBSY, Found::File as u8);
    assert_eq!(
        (busy.kind, busy.errno),
        (FailureKind::Other, Some(libc::ETXTBSY))
    );
    assert!(
        busy.message.contains("open for writing"),
        "{}",
        busy.message
    );
}

#[test]
fn bytes_that_are_no_report_make_one_all_the_same() {
    for bytes in [[0; 8], [255; 8], [8, 0, 0, 0, 0, 16, 0, 0]] {
        assert_eq!(Report::from_wire(bytes).errno, Errno::INVAL);
    }
}

#[test]
fn whatever_keeps_a_terminal_from_being_made_is_its_own_kind() {
    let stages = [
        Stage::Master,
        Stage::Slave,
        Stage::WindowSize,
        Stage::ControllingTerminal,
    ];
    for stage in stages {
        for errno in [Errno::NOSPC, Errno::NOMEM, Errno::MFILE, Errno::PERM] {
            let failure = step(stage, errno, "p");
            assert_eq!(failure.kind, FailureKind::PtySetup, "{}", failure.message);
            assert_eq!(failure.errno, Some(errno.raw_os_error()));
            assert!(
                failure.message.contains(stage.name()),
                "{}",
                failure.message
            );
        }
    }
}
