use std::time::Duration;

use serde_json::json;

use super::ExitStatus;
use crate::{ExecEvent, ExecOutput, Failure, FailureKind, Signal, StdinError, Usage};
use forebay_exec_proto as proto;

/// What the guest says with everything in it.
fn reported() -> proto::ExitStatus {
    proto::ExitStatus {
        code: None,
        signal: Some(9),
        duration_us: 1_500_000,
        usage: Some(proto::Usage {
            user_us: Some(1),
            system_us: Some(2),
            peak_memory: Some(3),
            major_faults: Some(4),
            involuntary_switches: Some(5),
            read_bytes: Some(6),
            written_bytes: Some(7),
        }),
        oom_killed: Some(true),
    }
}

fn exited(code: i32) -> ExitStatus {
    let status = proto::ExitStatus {
        code: Some(code),
        ..proto::ExitStatus::default()
    };
    ExitStatus::from_wire(&status).unwrap()
}

#[test]
fn everything_that_the_guest_reports_is_there_and_what_it_leaves_out_is_none() {
    let status = ExitStatus::from_wire(&reported()).unwrap();
    assert_eq!(status.signal(), Some(Signal::KILL));
    assert_eq!(status.duration(), Duration::from_millis(1500));
    assert_eq!(status.oom_killed(), Some(true));
    assert!(!status.timed_out() && !status.success());
    let usage = status.usage();
    assert_eq!(usage.user_time, Some(Duration::from_micros(1)));
    assert_eq!(usage.system_time, Some(Duration::from_micros(2)));
    assert_eq!(usage.peak_memory, Some(3));
    assert_eq!(usage.major_faults, Some(4));
    assert_eq!(usage.involuntary_switches, Some(5));
    assert_eq!((usage.read_bytes, usage.written_bytes), (Some(6), Some(7)));

    let silent = exited(0);
    assert_eq!(silent.oom_killed(), None);
    assert_eq!(silent.usage(), Usage::default());
    assert_eq!(Usage::default().user_time, None);
}

#[test]
fn a_status_is_serialized_by_documented_names_and_read_again() {
    let mut status = ExitStatus::from_wire(&reported()).unwrap();
    status.timed_out = true;
    let written = serde_json::to_value(status).unwrap();
    let expected = json!({
        "code": -1,
        "signal": "SIGKILL",
        "timed_out": true,
        "oom_killed": true,
        "duration_us": 1_500_000,
        "usage": {
            "user_time_us": 1,
            "system_time_us": 2,
            "peak_memory": 3,
            "major_faults": 4,
            "involuntary_switches": 5,
            "read_bytes": 6,
            "written_bytes": 7,
        },
    });
    assert_eq!(written, expected);
    assert_eq!(
        serde_json::from_value::<ExitStatus>(written).unwrap(),
        status
    );

    let written = serde_json::to_value(exited(3)).unwrap();
    let expected = json!({
        "code": 3,
        "signal": null,
        "timed_out": false,
        "oom_killed": null,
        "duration_us": 0,
        "usage": {
            "user_time_us": null,
            "system_time_us": null,
            "peak_memory": null,
            "major_faults": null,
            "involuntary_switches": null,
            "read_bytes": null,
            "written_bytes": null,
        },
    });
    assert_eq!(written, expected);
    assert_eq!(
        serde_json::from_value::<ExitStatus>(written).unwrap(),
        exited(3)
    );
}

#[test]
fn what_a_newer_version_knows_more_and_an_older_one_less_of_is_read() {
    let text = r#"{"code": 0, "signal": null, "timed_out": false, "duration_us": 5, "colour": 1,
        "usage": {"peak_memory": 9, "joules": 2}}"#;
    let status: ExitStatus = serde_json::from_str(text).unwrap();
    assert_eq!(status.usage().peak_memory, Some(9));
    assert_eq!(status.usage().read_bytes, None);
    let kind: FailureKind = serde_json::from_str("\"quota_exceeded\"").unwrap();
    assert_eq!(kind, FailureKind::Other);
}

#[test]
fn a_status_that_no_process_can_have_is_not_read() {
    let form = |code: i32, signal: serde_json::Value, timed_out: bool| {
        json!({
            "code": code, "signal": signal, "timed_out": timed_out, "duration_us": 0, "usage": {},
        })
    };
    for (code, signal, timed_out) in [
        (256, json!(null), false),
        (-1, json!(null), false),
        (0, json!("SIGKILL"), false),
        (-1, json!("SIGNOTHING"), false),
        (-1, json!("SIG65"), false),
        (0, json!(null), true),
        (-1, json!("SIGTERM"), true),
    ] {
        let value = form(code, signal, timed_out);
        let read = serde_json::from_value::<ExitStatus>(value.clone());
        assert!(read.is_err(), "{value}");
    }
    let good = form(-1, json!("SIGKILL"), true);
    assert!(
        serde_json::from_value::<ExitStatus>(good)
            .unwrap()
            .timed_out()
    );
}

#[test]
fn outputs_failures_and_events_are_read_as_they_were_written() {
    let failure = Failure {
        kind: FailureKind::BadCwd,
        errno: Some(2),
        stage: "chdir".to_owned(),
        message: "/nowhere: No such file or directory".to_owned(),
    };
    let stdin_error = StdinError {
        errno: 32,
        name: "EPIPE".to_owned(),
        message: "Broken pipe".to_owned(),
    };
    let output = ExecOutput {
        status: exited(1),
        stdout: b"\xff\x00out".to_vec(),
        stderr: Vec::new(),
    };
    let text = serde_json::to_string(&output).unwrap();
    assert!(
        text.contains(r#""stdout":[255,0,111,117,116],"stderr":[]"#),
        "{text}"
    );
    assert_eq!(serde_json::from_str::<ExecOutput>(&text).unwrap(), output);

    let events = [
        (
            r#"{"event":"started","data":{"pid":7}}"#,
            ExecEvent::Started { pid: 7 },
        ),
        (
            r#"{"event":"stdout","data":[104,105]}"#,
            ExecEvent::Stdout("hi".into()),
        ),
        (
            r#"{"event":"stderr","data":[]}"#,
            ExecEvent::Stderr("".into()),
        ),
    ];
    for (text, event) in events {
        assert_eq!(serde_json::to_string(&event).unwrap(), text);
        assert_eq!(serde_json::from_str::<ExecEvent>(text).unwrap(), event);
    }
    let longer = [
        ExecEvent::StdinError(stdin_error),
        ExecEvent::Exited(exited(0)),
        ExecEvent::Failed(failure),
    ];
    for event in longer {
        let text = serde_json::to_string(&event).unwrap();
        assert_eq!(
            serde_json::from_str::<ExecEvent>(&text).unwrap(),
            event,
            "{text}"
        );
    }
}

#[test]
fn people_are_shown_how_it_ended_and_why() {
    let mut status = ExitStatus::from_wire(&reported()).unwrap();
    assert_eq!(status.to_string(), "ended by SIGKILL (out of memory)");
    status.timed_out = true;
    assert_eq!(status.to_string(), "ended by SIGKILL (timed out)");
    assert_eq!(exited(3).to_string(), "exit code 3");
}
