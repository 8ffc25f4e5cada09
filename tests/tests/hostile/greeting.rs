//! A Ready that does not agree: the start fails and says so, whoever's kernel it was that booted. One
//! that names no limits is an old agent's, which a VM may be told to take.

use std::time::Duration;

use forebay::{BootPhase, ExecError, StartError, Stdin, StopReason};
use forebay_guest_helper::pattern::Pattern;
use forebay_tests::{CEILING, TestVm, Within as _, resident_beyond_guests, scaled, turn};
use tokio::io::AsyncReadExt as _;

use super::{
    CHUNK_CHARGE, NOISE, WINDOW, assert_broke, assert_honest_work, assert_slots_in_use, hostile,
};

/// Payload of a chunk of an old agent at most.
const LEGACY_CHUNK: u64 = 4096;

/// Less than may be unread of one execution, in chunks of an old agent.
const FITS: u64 = 900_000;

/// What is echoed at a time, and how often: a window of output and many of stdin.
const ECHO: usize = 40_000;
const ECHOES: usize = 40;

/// Each greeting, and a part of what the host says of it.
const GREETINGS: [(&str, &str); 9] = [
    ("no-limits", "names no exec_limits"),
    ("other-limits", "other exec_limits than the bootstrap"),
    ("other-generation", "another protocol generation"),
    ("other-connection", "answers another connection"),
    ("nonsense", "cannot be decoded"),
    ("output-first", "an execution frame came before Ready"),
    ("pong-first", "out of turn"),
    ("half-a-ready", "crosses the end of its descriptor chain"),
    ("hang-up", "closed"),
];

/// Enough for a guest to get to its greeting, on hardware.
const TO_GREETING: Duration = Duration::from_millis(500);

#[tokio::test]
async fn a_start_fails_by_a_real_guests_ready_that_does_not_agree() {
    let _turn = turn().await;
    for (greeting, why) in GREETINGS {
        let failure = match hostile(greeting).start().within(CEILING).await {
            Err(StartError::Boot(failure)) => failure,
            Err(other) => panic!("{greeting}: {other}"),
            Ok(_) => panic!("{greeting}: it started"),
        };
        match &failure.reason {
            StopReason::AgentLost { why: said } => assert!(said.contains(why), "{failure}"),
            other => panic!("{greeting}: {other}"),
        }
        assert_eq!(failure.phase, BootPhase::AgentHandshake, "{failure}");
    }
}

// B45
#[tokio::test]
async fn a_start_that_a_real_guest_never_greets_ends_at_its_deadline_and_keeps_nothing() {
    let _turn = turn().await;
    let mut held = None;
    for greeting in ["silent", "flood-first", "flood-first"] {
        let start = hostile(greeting).boot_deadline(scaled(TO_GREETING));
        let failure = match start.start().within(CEILING).await {
            Err(StartError::Boot(failure)) => failure,
            Err(other) => panic!("{greeting}: {other}"),
            Ok(_) => panic!("{greeting}: it started"),
        };
        assert!(
            matches!(failure.reason, StopReason::BootDeadline { .. }),
            "{greeting}: {failure}"
        );
        assert_eq!(failure.phase, BootPhase::AgentHandshake, "{failure}");
        let now = resident_beyond_guests();
        // The first has filled what is kept for the next.
        let grown = now.saturating_sub(*held.get_or_insert(now));
        assert!(grown <= NOISE, "{greeting}: {grown} bytes more");
    }
}

#[tokio::test]
async fn a_real_guest_that_knows_no_limits_runs_commands_if_it_is_allowed_and_claims_no_bound() {
    let _turn = turn().await;
    let vm = TestVm::start(hostile("no-limits").allow_legacy_guest(true)).await;
    assert!(!vm.inspect().executions.bounded);
    let refused = vm.exec("cat", [""; 0]).require_bounds().spawn().await;
    assert!(
        matches!(refused, Err(ExecError::Unbounded)),
        "it was not refused: {refused:?}"
    );
    assert_honest_work(&vm, 1, FITS).await;

    // More than a window of output, and stdin beyond its own: both without acknowledgements. The
    // agent ends when it is sent one.
    let cat = vm.exec("cat", [""; 0]).stdin(Stdin::piped()).spawn();
    let mut cat = cat.within(CEILING).await.unwrap().split();
    let sink = cat.stdin.take().expect("it is piped");
    let mut pattern = Pattern::new(2);
    for echo in 0..ECHOES {
        let sent = pattern.take(ECHO);
        let mut back = vec![0; ECHO];
        let both =
            async { tokio::join!(sink.write(sent.clone()), cat.stdout.read_exact(&mut back)) };
        let (written, read) = both.within(CEILING).await;
        written.unwrap();
        read.unwrap();
        assert!(sent == back, "echo {echo} is not what was sent");
    }
    let views = vm.inspect().executions.executions;
    assert_eq!(views.len(), 1, "{views:?}");
    assert_eq!((views[0].stdin_acked, views[0].output_acked), (0, 0));
    assert_eq!(views[0].stdin_sent, (ECHO * ECHOES) as u64);
    sink.close().within(CEILING).await.unwrap();
    assert!(cat.exit.wait().within(CEILING).await.unwrap().success());
    drop(cat);

    // A slow reader slows nobody, so what is unread is bounded by the execution's end.
    let much = vm.exec("random", ["3".to_owned(), (3 * WINDOW).to_string()]);
    let mut much = much.spawn().within(CEILING).await.unwrap().split();
    let end = much.exit.wait().within(CEILING).await;
    assert_broke(&end.unwrap_err(), "unread", "output_limit");
    let mut accepted = Vec::new();
    let end = much.stdout.read_to_end(&mut accepted).within(CEILING).await;
    assert!(end.is_err(), "an end was invented");
    let fits = WINDOW / (LEGACY_CHUNK + u64::from(CHUNK_CHARGE));
    assert_eq!(accepted.len() as u64, fits * LEGACY_CHUNK);
    assert_eq!(Pattern::new(3).first_difference(&accepted), None);
    drop(much);

    assert_slots_in_use(&vm, 0).await;
    assert_honest_work(&vm, 4, FITS).await;
    assert_eq!(vm.stopped(), None);
    assert_eq!(vm.close().within(CEILING).await, StopReason::Requested);
}
