//! How a command ended is told as it was.

use std::time::Duration;

use forebay::{ControlError, Signal};
use forebay_tests::{CEILING, HELPER, Within as _};

use super::shared;

// B08
#[tokio::test]
async fn exit_codes_are_the_programs_own() {
    let vm = &*shared().await;
    for (asked, given) in [(0, 0), (1, 1), (137, 137), (143, 143), (255, 255), (256, 0)] {
        let status = vm
            .shell(format!("exit {asked}"))
            .status()
            .within(CEILING)
            .await
            .unwrap();
        assert_eq!(status.code(), Some(given), "exit {asked}");
        assert_eq!(status.signal(), None, "exit {asked}");
        assert_eq!(status.success(), given == 0, "exit {asked}");
    }
}

// B08
#[tokio::test]
async fn a_signal_is_never_an_exit_code() {
    let vm = &*shared().await;
    for (number, name) in [(9, "SIGKILL"), (15, "SIGTERM")] {
        let status = vm
            .shell(format!("kill -{number} $$"))
            .status()
            .within(CEILING)
            .await
            .unwrap();
        assert_eq!(status.code(), None, "{name}");
        assert_eq!(status.signal_name().as_deref(), Some(name));
        assert!(!status.success());
    }
    for (number, name) in [
        (11, "SIGSEGV"),
        (6, "SIGABRT"),
        (34, "SIG34"),
        (64, "SIG64"),
    ] {
        let raise = ["raise".to_owned(), number.to_string()];
        let status = vm
            .exec(HELPER, raise)
            .status()
            .within(CEILING)
            .await
            .unwrap();
        assert_eq!(status.code(), None, "{name}");
        assert_eq!(status.signal_name().as_deref(), Some(name));
    }
}

#[tokio::test]
async fn a_signal_reaches_the_command_and_no_other() {
    let vm = &*shared().await;
    let other = vm
        .exec("sleep", ["1000"])
        .spawn()
        .within(CEILING)
        .await
        .unwrap();
    let script = "trap 'echo caught; exit 5' USR1; echo set; while :; do sleep .1; done";
    let mut command = vm.shell(script).spawn().within(CEILING).await.unwrap();
    while !matches!(
        command.recv().within(CEILING).await,
        Some(forebay::ExecEvent::Stdout(_))
    ) {}
    command.signal(Signal::USR1).within(CEILING).await.unwrap();
    let out = command.collect().within(CEILING).await.unwrap();
    assert_eq!(
        (out.stdout(), out.status().code()),
        (&b"caught\n"[..], Some(5))
    );

    let control = other.control();
    control.signal(Signal::TERM).within(CEILING).await.unwrap();
    let mut other = other;
    let status = other.wait().within(CEILING).await.unwrap();
    assert_eq!(status.signal(), Some(Signal::TERM));
    let late = control.signal(Signal::KILL).within(CEILING).await;
    assert!(matches!(late, Err(ControlError::Ended)), "{late:?}");
}

#[tokio::test]
async fn kill_ends_everything_that_the_command_started() {
    let vm = &*shared().await;
    // The job has left the command's session, so only its cgroup still holds it.
    let script = "rm -f /tmp/beat; setsid sh -c 'while :; do echo x >> /tmp/beat; sleep .1; done' & \
                  while [ ! -s /tmp/beat ]; do sleep .1; done; echo beating; wait";
    let mut command = vm.shell(script).spawn().within(CEILING).await.unwrap();
    while !matches!(
        command.recv().within(CEILING).await,
        Some(forebay::ExecEvent::Stdout(_))
    ) {}
    command.kill();
    let status = command.wait().within(CEILING).await.unwrap();
    assert_eq!(status.signal(), Some(Signal::KILL));
    let grown = "a=$(wc -c < /tmp/beat); sleep 1; b=$(wc -c < /tmp/beat); echo $((b - a))";
    let out = vm.shell(grown).within(CEILING).await.unwrap();
    assert_eq!(out.stdout(), b"0\n", "the job goes on");
}

#[tokio::test]
async fn the_duration_is_the_guests_own_and_not_zero() {
    let vm = &*shared().await;
    let status = vm
        .exec("sleep", ["0.2"])
        .status()
        .within(CEILING)
        .await
        .unwrap();
    // `sleep` itself guarantees the lower bound; nothing bounds it from above.
    assert!(
        status.duration() >= Duration::from_millis(200),
        "{:?}",
        status.duration()
    );
}
