//! A Ready that does not agree: the start fails and says so, whoever's kernel it was that booted.

use forebay::{BootPhase, StartError, StopReason};
use forebay_tests::{CEILING, Within as _, turn};

use super::hostile;

/// Each greeting, and a part of what the host says of it.
const GREETINGS: [(&str, &str); 5] = [
    ("no-limits", "names no exec_limits"),
    ("other-limits", "other exec_limits than the bootstrap"),
    ("other-generation", "another protocol generation"),
    ("other-connection", "answers another connection"),
    ("nonsense", "cannot be decoded"),
];

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
