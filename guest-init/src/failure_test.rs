use forebay_exec_proto::FailureKind;
use rustix::io::Errno;

use super::{Found, Stage, describe, exec, name, step};

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
