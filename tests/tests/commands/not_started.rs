//! A program that cannot be started is an error with its reason, never an exit, and holds nothing.

use forebay::{ExecError, Failure, FailureKind};
use forebay_tests::{CEILING, TestVm, Within as _, rounds};

use super::{assert_answers, assert_slots_come_free, shared};

const ENOENT: i32 = 2;
const ENOEXEC: i32 = 8;
const EACCES: i32 = 13;
const ENOTDIR: i32 = 20;

async fn refused(vm: &TestVm, program: &str) -> Failure {
    match vm.exec(program, [""; 0]).within(CEILING).await {
        Err(ExecError::NotStarted(failure)) => failure,
        other => panic!("{program} should not have started: {other:?}"),
    }
}

// B09
#[tokio::test]
async fn each_reason_not_to_start_has_its_kind_errno_and_stage() {
    let vm = &*shared().await;
    let files = "mkdir -p /tmp/b09; cd /tmp/b09; echo text > plain; chmod 644 plain; \
                 printf '#!/no/such/interpreter\\n' > orphan; chmod 755 orphan; \
                 : > empty; chmod 755 empty; echo 'echo hi' > text; chmod 755 text";
    assert!(
        vm.shell(files)
            .within(CEILING)
            .await
            .unwrap()
            .status()
            .success()
    );
    let cases = [
        ("nosuch", FailureKind::NotFound, ENOENT),
        ("/nosuch", FailureKind::NotFound, ENOENT),
        ("/tmp/b09", FailureKind::NotExecutable, EACCES),
        ("/tmp/b09/plain", FailureKind::PermissionDenied, EACCES),
        ("/tmp/b09/orphan", FailureKind::NotFound, ENOENT),
        ("/tmp/b09/empty", FailureKind::NotExecutable, ENOEXEC),
        ("/tmp/b09/text", FailureKind::NotExecutable, ENOEXEC),
    ];
    for (program, kind, errno) in cases {
        let failure = refused(vm, program).await;
        assert_eq!(failure.kind, kind, "{program}: {failure}");
        assert_eq!(failure.errno, Some(errno), "{program}: {failure}");
        assert_eq!(failure.stage, "execve", "{program}: {failure}");
        assert!(failure.message.contains(program), "{program}: {failure}");
        assert_answers(vm).await;
    }
    assert_slots_come_free(vm).await;
}

// B09
#[tokio::test]
async fn a_shell_that_finds_no_program_is_an_exit_with_127() {
    let out = shared()
        .await
        .shell("nosuch")
        .within(CEILING)
        .await
        .unwrap();
    assert_eq!(out.status().code(), Some(127));
    assert!(
        out.stderr_str().unwrap().contains("nosuch"),
        "{:?}",
        out.stderr()
    );
}

// B09
#[tokio::test]
async fn failed_starts_in_great_number_keep_no_slot() {
    let vm = &*shared().await;
    // More than there are slots.
    let most = vm.client().limits().max_executions;
    for _ in 0..rounds(10).min(2) * (most + 10) {
        assert_eq!(refused(vm, "nosuch").await.kind, FailureKind::NotFound);
    }
    assert_slots_come_free(vm).await;
}

// B10
#[tokio::test]
async fn a_bad_working_directory_is_blamed_on_the_directory() {
    let vm = &*shared().await;
    for (directory, errno) in [("/no/such/dir", ENOENT), ("/etc/passwd", ENOTDIR)] {
        match vm
            .exec("true", [""; 0])
            .current_dir(directory)
            .within(CEILING)
            .await
        {
            Err(ExecError::NotStarted(failure)) => {
                assert_eq!(failure.kind, FailureKind::BadCwd, "{failure}");
                assert_eq!(
                    (failure.errno, failure.stage.as_str()),
                    (Some(errno), "chdir")
                );
                assert!(failure.message.contains(directory), "{failure}");
            }
            other => panic!("{directory}: {other:?}"),
        }
    }
    match vm
        .exec("nosuch", [""; 0])
        .current_dir("/tmp")
        .within(CEILING)
        .await
    {
        Err(ExecError::NotStarted(failure)) => assert_eq!(failure.kind, FailureKind::NotFound),
        other => panic!("{other:?}"),
    }
}

// B12
#[tokio::test]
async fn what_no_program_can_be_given_is_refused_with_its_kind() {
    let vm = &*shared().await;
    let out = vm
        .exec("true", [""; 0])
        .env("BIG", "x".repeat(131_000))
        .within(CEILING)
        .await;
    assert!(out.unwrap().status().success());
    // Beyond what the kernel takes in one string, and within what a request can be.
    match vm
        .exec("true", [""; 0])
        .env("BIG", "x".repeat(200_000))
        .within(CEILING)
        .await
    {
        Err(ExecError::NotStarted(failure)) => {
            assert_eq!(failure.kind, FailureKind::TooLarge, "{failure}");
        }
        other => panic!("{other:?}"),
    }
    // Beyond what a request can be: nothing is sent.
    let many = (0..400).map(|n| (format!("V{n}"), "x".repeat(8192)));
    match vm.exec("true", [""; 0]).envs(many).within(CEILING).await {
        Err(ExecError::TooLarge { size, limit }) => assert!(size > limit, "{size} {limit}"),
        other => panic!("{other:?}"),
    }
    match vm.exec("true", ["a\0b"]).within(CEILING).await {
        Err(ExecError::InvalidRequest { field, .. }) => assert_eq!(field, "args[0]"),
        other => panic!("{other:?}"),
    }
    assert_answers(vm).await;
}
