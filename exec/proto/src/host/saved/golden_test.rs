//! The bytes of version 1. A later library reads them as what they were, or refuses them by name.
//!
//! Neighbours of one type have different values everywhere, so that no two can change places.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use bytes::Bytes;

use super::format::{
    ConnV1, ControlV1, DeadlineV1, ExecV1, KillV1, OutputV1, PhaseV1, PowerOffV1, StageV1, StdinV1,
    UnreadV1,
};
use super::tests::restored;
use super::*;
use crate::credit::{SavedReceiver, SavedSender};
use crate::host::execution::{InputState, Terminal};
use crate::message::{
    Bootstrap, EnvVar, ExitStatus, Failure, FailureKind, QUIESCE, Ready, Resources, StdinError,
    TerminalSize, Usage,
};
use crate::schedule::{Order, Scheduler, Slot};

/// One of everything that there is in the saved form, and within the rules.
const EVERYTHING: &str = "\
    82018ea70001010202850c18411904011118810364686f73740481a200434b4559014576616c756505442f637764\
    06a1011840a70001010202850c18411904011118810365392e382e3704190457051908ae06826771756965736365\
    6b61206e65776572206f6e650c8b9101820380f483820903408200808319012c0a05820ef48200f481820081446c\
    6566741864f582028164676f6e65f4f482008063636174f6f49102820380f483820000408202808319010e19010e\
    1901048200f4820ef4801864f4820081a4000302184d03a10219100004f4f5f482028063636174f6f49103820380\
    f48382000040820280830000008200f48200f4801864f4820081a4010902184d03a10219100004f4f4f482008063\
    636174f6f49104820380f48382000040820280830000008200f48200f480f6f4820181a400010102026573746167\
    6503676d657373616765f4f482008063636174f6f49105820280f483820604446c6173748201808319010e19010e\
    190104820ef58200f5801864f4f6f4f5820180636361748482183c098201838204038201020df6f5f49106820280\
    f48382080740820381a300182001654550495045026b42726f6b656e2070697065831902120a04820df48205f483\
    82018145666972737482028082008143656e641864f4f6f4f4820080636361748482185a09820081820708821858\
    07f4f59107820280f583820000408202808319012c19012c18fa8204f48200f481820081446b6570741864f48201\
    81a4000c01020265737461676503676d657373616765f4f482018063636174f6f49108820180f483820000456669\
    786564820080830000008200f48200f480f6f4f6f4f4820080636361748482184609820280f6f4f4910982008244\
    68616c66f5f48382000040820280830000008200f48200f480f6f4f6f4f482008063636174f6f4910a8200824961\
    2072657175657374f4f48382000040820280830000008200f48200f480f6f4f6f4f482008063636174f6f4910b82\
    0380f48382000040820280830000008200f48200f4801864f4820382a2010902184e820506f4f482028063636174\
    f6f483830705068209058201810383820082060a820082050f82018208a2001819011851184e0383f41905dcf505\
    06184ff5816771756965736365";

/// An agent without limits: more stdin in the guest than `input_limit`, and a larger chunk.
const LEGACY: &str = "\
    82018ea70001010202850c18411904011118810364686f73740481a200434b4559014576616c756505442f637764\
    06a1011840a6000101020365392e382e3704190457051908ae068267717569657363656b61206e65776572206f6e\
    650c819101820280f483821901f40040820080831901820000821882f48200f48182008158827878787878787878\
    78787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878\
    78787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878\
    7878787878787878787878787878787878787878787878787878787878781864f4f6f4f482008063636174f6f483\
    808082008080184e0383f41905dcf50506184ff5816771756965736365";

fn id(n: u64) -> ExecId {
    ExecId::new(n).unwrap()
}

fn text(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

fn limits() -> Limits {
    Limits {
        max_executions: 12,
        input_limit: 65,
        output_limit: 1025,
        stdin_chunk_size: 17,
        output_chunk_size: 129,
    }
}

/// One that runs and has done nothing.
fn running(n: u64) -> ExecV1 {
    let nothing = OutputV1 {
        received: 0,
        discard: false,
    };
    ExecV1 {
        id: id(n),
        phase: PhaseV1::Started,
        condemned: false,
        stdin: stdin(0, 0, "", InputState::Closed),
        window: window(0, 0, 0),
        stdout: nothing.clone(),
        stderr: nothing,
        unread: Vec::new(),
        pid: Some(100),
        started_unread: false,
        terminal: None,
        terminal_read: false,
        forgotten: false,
        kill: KillV1::No,
        program: String::from("cat"),
        deadline: None,
        on_terminal: false,
    }
}

fn stdin(sent: u64, acked: u64, pending: &'static str, state: InputState) -> StdinV1 {
    StdinV1 {
        credit: SavedSender { sent, acked },
        pending: text(pending),
        state,
    }
}

fn window(received: u64, released: u64, said: u64) -> SavedReceiver {
    SavedReceiver {
        received,
        released,
        said,
    }
}

fn exited(code: Option<i32>, signal: Option<u32>) -> Option<Terminal> {
    Some(Terminal::Exited(ExitStatus {
        code,
        signal,
        duration_us: 77,
        usage: Some(Usage {
            peak_memory: Some(4096),
            ..Usage::default()
        }),
        oom_killed: Some(false),
    }))
}

fn failed(kind: FailureKind) -> Option<Terminal> {
    Some(Terminal::Failed(Failure {
        kind,
        errno: Some(2),
        stage: String::from("stage"),
        message: String::from("message"),
    }))
}

fn deadline(limit: u64, stage: StageV1) -> Option<DeadlineV1> {
    let limit = Duration::new(limit, 9);
    Some(DeadlineV1 {
        limit,
        stage,
        left: None,
        killed: false,
    })
}

fn received(received: u64, discard: bool) -> OutputV1 {
    OutputV1 { received, discard }
}

fn executions() -> Vec<ExecV1> {
    let lost = ExecV1 {
        phase: PhaseV1::Ended,
        stdin: stdin(9, 3, "", InputState::Open),
        // A frame was charged and never delivered.
        window: window(300, 10, 5),
        stdout: received(14, false),
        unread: Vec::from([UnreadV1::Stdout(text("left"))]),
        started_unread: true,
        terminal: Some(Terminal::Lost(String::from("gone"))),
        ..running(1)
    };
    let exited_and_read = ExecV1 {
        phase: PhaseV1::Ended,
        window: window(270, 270, 260),
        stderr: received(14, false),
        terminal: exited(Some(3), None),
        terminal_read: true,
        kill: KillV1::Sent,
        ..running(2)
    };
    let by_signal = ExecV1 {
        phase: PhaseV1::Ended,
        terminal: exited(None, Some(9)),
        ..running(3)
    };
    let not_started = ExecV1 {
        phase: PhaseV1::Ended,
        pid: None,
        terminal: failed(FailureKind::NotFound),
        ..running(4)
    };
    let forgotten = ExecV1 {
        stdin: stdin(6, 4, "last", InputState::Closing),
        window: window(270, 270, 260),
        stdout: received(14, true),
        stderr: received(0, true),
        forgotten: true,
        kill: KillV1::Due,
        deadline: deadline(
            60,
            StageV1::Expired {
                left: Duration::new(4, 3),
                waited: Duration::new(1, 2),
                received: 13,
            },
        )
        .map(|deadline| DeadlineV1 {
            killed: true,
            ..deadline
        }),
        ..running(5)
    };
    let broken = ExecV1 {
        stdin: stdin(
            8,
            7,
            "",
            InputState::Broken(StdinError {
                errno: 32,
                name: String::from("EPIPE"),
                message: String::from("Broken pipe"),
            }),
        ),
        window: window(520 + 10, 10, 4),
        stdout: received(13, false),
        stderr: received(5, false),
        unread: Vec::from([
            UnreadV1::Stderr(text("first")),
            UnreadV1::StdinError,
            UnreadV1::Stdout(text("end")),
        ]),
        deadline: deadline(
            90,
            StageV1::Running {
                left: Duration::new(7, 8),
            },
        )
        .map(|deadline| DeadlineV1 {
            left: Some(Duration::new(88, 7)),
            ..deadline
        }),
        on_terminal: true,
        ..running(6)
    };
    let condemned = ExecV1 {
        condemned: true,
        window: window(300, 300, 250),
        stdout: received(4, false),
        unread: Vec::from([UnreadV1::Stdout(text("kept"))]),
        terminal: failed(FailureKind::Protocol),
        kill: KillV1::Due,
        ..running(7)
    };
    let starting = ExecV1 {
        phase: PhaseV1::Starting,
        stdin: stdin(0, 0, "fixed", InputState::Open),
        pid: None,
        deadline: deadline(70, StageV1::Unconfirmed),
        ..running(8)
    };
    let requesting = |n, begun, rest| ExecV1 {
        phase: PhaseV1::Requesting {
            rest: text(rest),
            begun,
        },
        pid: None,
        ..running(n)
    };
    let timed_out = ExecV1 {
        phase: PhaseV1::Ended,
        terminal: Some(Terminal::TimedOut {
            status: ExitStatus {
                signal: Some(9),
                duration_us: 78,
                ..ExitStatus::default()
            },
            limit: Duration::new(5, 6),
        }),
        kill: KillV1::Sent,
        ..running(11)
    };
    Vec::from([
        lost,
        exited_and_read,
        by_signal,
        not_started,
        forgotten,
        broken,
        condemned,
        starting,
        requesting(9, true, "half"),
        requesting(10, false, "a request"),
        timed_out,
    ])
}

/// In the middle of a round's acknowledgements.
fn order() -> Order {
    let mut schedule: Scheduler<u32> = Scheduler::new();
    for n in [11, 7, 5, 6] {
        schedule.push_ack(id(n));
    }
    for n in [9, 5] {
        schedule.push_slot(Slot::Exec(id(n)));
    }
    schedule.next_turn();
    schedule.save().0
}

fn everything() -> SavedConn {
    SavedConn(ConnV1 {
        bootstrap: Bootstrap {
            generation: GENERATION,
            connection: 2,
            limits: limits(),
            hostname: Some(String::from("host")),
            env: Vec::from([EnvVar {
                key: b"KEY".to_vec().into(),
                value: b"value".to_vec().into(),
            }]),
            cwd: Some(b"/cwd".to_vec().into()),
            resources: Some(Resources {
                pids: Some(64),
                ..Resources::default()
            }),
        },
        ready: Ready {
            generation: GENERATION,
            connection: 2,
            exec_limits: Some(limits()),
            version: String::from("9.8.7"),
            pid1_us: Some(1111),
            ready_us: Some(2222),
            capabilities: Some(Vec::from([
                String::from(QUIESCE),
                String::from("a newer one"),
            ])),
        },
        last_id: 12,
        execs: executions(),
        order: order(),
        controls: Vec::from([
            ControlV1::Signal {
                id: id(6),
                signal: 10,
            },
            ControlV1::Signal {
                id: id(5),
                signal: 15,
            },
            ControlV1::Resize {
                id: id(8),
                size: TerminalSize { rows: 25, cols: 81 },
            },
        ]),
        ping_due: Some(78),
        pings: 3,
        power_off: Some(PowerOffV1 {
            reboot: false,
            grace_ms: 1500,
            due: true,
        }),
        faults: 5,
        skipped: 6,
        asked: 79,
        frozen: true,
        relies_on: Vec::from([String::from(QUIESCE)]),
    })
}

fn legacy() -> SavedConn {
    let SavedConn(mut conn) = everything();
    conn.ready.exec_limits = None;
    conn.execs = Vec::from([ExecV1 {
        stdin: stdin(500, 0, "", InputState::Open),
        window: window(130 + 256, 0, 0),
        stdout: received(130, false),
        unread: Vec::from([UnreadV1::Stdout(Bytes::from_static(&[b'x'; 130]))]),
        ..running(1)
    }]);
    conn.order = Scheduler::<u32>::new().save().0;
    conn.controls.clear();
    SavedConn(conn)
}

#[test]
fn the_bytes_of_version_1_are_what_they_were() {
    for (saved, golden) in [(everything(), EVERYTHING), (legacy(), LEGACY)] {
        let bytes = saved.encode();
        let hex = bytes.iter().map(|byte| alloc::format!("{byte:02x}"));
        assert_eq!(hex.collect::<String>(), golden);
        assert_eq!(SavedConn::decode(&bytes), Ok(saved.clone()));
        // It is a connection, and the same one.
        assert_eq!(restored(saved.clone()).unwrap().save(), Ok(saved));
    }
}

#[test]
fn kinds_of_failure_keep_their_numbers() {
    use FailureKind::*;
    let kinds = [
        Other,
        NotFound,
        PermissionDenied,
        NotExecutable,
        BadCwd,
        BadArgs,
        TooLarge,
        ResourceLimit,
        UserSetup,
        OutOfMemory,
        PtySetup,
        AtCapacity,
        Protocol,
        Lost,
    ];
    for (number, kind) in (0_u8..).zip(kinds) {
        assert_eq!(crate::message::encode(&kind), [number], "{kind:?}");
    }
}
