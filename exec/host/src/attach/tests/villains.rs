//! Each rule that a client can break harms the client alone.

use std::io::Write as _;

use forebay_exec_proto::frame::ToGuest;
use forebay_exec_proto::host::Config;
use forebay_exec_proto::{ExecId, HEADER_LEN, Header, Resources};

use super::villain::{Villain, frame};
use super::{Attached, run, wait_until};
use crate::{ExecEvent, ExecHandle, Limits};

const NONE: [&str; 0] = [];

/// Lets a villain do its worst, with an execution of its own and beside a bystander with one: the
/// villain is told which `rule` it broke and cut off, its execution is killed, the bystander's is
/// not.
fn cut_off(rule: &str, words: &[&str], misdeed: impl Fn(&mut Villain, u64)) {
    run(async {
        let attached = Attached::new();
        let bystander = attached.client().await;
        let mut cat = bystander
            .exec("cat", NONE)
            .stdin(crate::Stdin::piped())
            .spawn()
            .await
            .unwrap();
        let sink = cat.take_stdin().unwrap();
        let mut villain = Villain::attach(&attached.path);
        let id = villain.start(words);
        assert_eq!(attached.vm.client.active(), 2);
        misdeed(&mut villain, id.get());
        assert_eq!(villain.is_cut_off(), Some(broke(rule)));
        wait_until("the end of the villain's execution", || {
            attached.vm.client.active() == 1
        });
        assert!(!attached.vm.guest_knows(ExecId::new(2).unwrap()));
        sink.write("alive").await.unwrap();
        sink.close().await.unwrap();
        attached.goes_on(&bystander).await;
        assert_eq!(cat.collect().await.unwrap().stdout(), b"alive");
    });
}

/// What who broke `rule` is told.
fn broke(rule: &str) -> String {
    format!("this client broke the exec protocol: {rule}")
}

/// The payload of an acknowledgement.
fn acked(units: u64, stdout: u64) -> Vec<u8> {
    let totals = [units, stdout, 0].map(u64::to_le_bytes);
    totals.concat()
}

const fn wire(kind: ToGuest) -> u8 {
    kind.to_wire()
}

#[test]
fn stdin_beyond_the_allowance() {
    cut_off("stdin beyond input_limit", &["stall"], |villain, id| {
        for _ in 0..=4 {
            villain.raw(wire(ToGuest::Stdin), id, &[0; 16 * 1024]);
        }
    });
}

#[test]
fn a_stdin_chunk_that_is_too_large_or_empty() {
    for len in [16 * 1024 + 1, 0] {
        cut_off(
            "a stdin chunk that is empty or larger than stdin_chunk_size",
            &["cat"],
            |villain, id| {
                villain.raw(wire(ToGuest::Stdin), id, &vec![0; len]);
            },
        );
    }
}

#[test]
fn stdin_after_its_end() {
    cut_off("stdin after its end", &["stall"], |villain, id| {
        villain.raw(wire(ToGuest::StdinEof), id, &[]);
        villain.raw(wire(ToGuest::Stdin), id, b"x");
    });
}

#[test]
fn an_acknowledgement_beyond_what_was_sent() {
    cut_off(
        "an ack goes back, or beyond what was sent",
        &["write", "100", "0"],
        |villain, id| {
            villain.raw(wire(ToGuest::OutputAck), id, &acked(1_000_000, 1_000_000));
        },
    );
}

#[test]
fn an_acknowledgement_that_goes_back() {
    cut_off(
        "an ack goes back, or beyond what was sent",
        &["stall"],
        |villain, _| {
            let done = villain.begin(&["write", "100", "0", "0"]);
            villain.ended(done);
            villain.raw(wire(ToGuest::OutputAck), done.get(), &acked(60, 60));
            villain.raw(wire(ToGuest::OutputAck), done.get(), &acked(50, 50));
        },
    );
}

#[test]
fn an_acknowledgement_whose_totals_do_not_agree() {
    for (units, stdout) in [(60, 59), (60, 61), (100, 100), (0, 1000)] {
        cut_off(
            "an ack whose totals do not agree with what was sent",
            &["stall"],
            |villain, _| {
                let done = villain.begin(&["write", "100", "0", "0"]);
                villain.ended(done);
                let totals = acked(units, stdout);
                villain.raw(wire(ToGuest::OutputAck), done.get(), &totals);
            },
        );
    }
}

#[test]
fn an_acknowledgement_that_is_right_of_one_stream_and_wrong_of_the_other() {
    run(async {
        let attached = Attached::new();
        let bystander = attached.client().await;
        for positions in [[100, 6], [101, 5]] {
            let mut villain = Villain::attach(&attached.path);
            let done = villain.begin(&["write", "100", "5", "0"]);
            villain.ended(done);
            let totals = [100, positions[0], positions[1]].map(u64::to_le_bytes);
            villain.raw(wire(ToGuest::OutputAck), done.get(), &totals.concat());
            let rule = "an ack whose totals do not agree with what was sent";
            assert_eq!(villain.is_cut_off(), Some(broke(rule)));
            wait_until("its slot", || attached.vm.client.active() == 0);
            assert!(attached.vm.hub.inspect().executions.is_empty());
        }
        attached.goes_on(&bystander).await;
    });
}

#[test]
fn an_adoption_of_nothing() {
    cut_off("an adoption without an id", &["stall"], |villain, _| {
        villain.raw(wire(ToGuest::Adopt), 2, &0u64.to_le_bytes());
    });
}

#[test]
fn adoptions_beyond_max_executions() {
    cut_off(
        "an execution beyond max_executions",
        &["stall"],
        |villain, _| {
            let most = u64::from(villain.limits().max_executions);
            let frames =
                (2..=most + 1).flat_map(|id| frame(wire(ToGuest::Adopt), id, &1u64.to_le_bytes()));
            let _ = villain.stream.write_all(&frames.collect::<Vec<_>>());
        },
    );
}

#[test]
fn a_leave_that_cannot_be_decoded() {
    cut_off("a leave cannot be decoded", &["stall"], |villain, id| {
        villain.raw(wire(ToGuest::Leave), id, b"nonsense");
    });
}

#[test]
fn an_execution_of_somebody_else() {
    // The bystander's is 1 in the VM, and 1 is the villain's own here; 2 it never started.
    for kind in [
        ToGuest::Kill,
        ToGuest::StdinEof,
        ToGuest::OutputAck,
        ToGuest::Resize,
    ] {
        cut_off(
            "a frame names an execution that was never started",
            &["stall"],
            |villain, _| {
                villain.raw(wire(kind), 2, &0u64.to_le_bytes());
            },
        );
    }
}

#[test]
fn an_id_that_was_used_before() {
    cut_off(
        "an execution id was used again",
        &["stall"],
        |villain, id| {
            villain.raw(wire(ToGuest::Request), id, b"again");
        },
    );
}

#[test]
fn a_length_beyond_all_frames() {
    cut_off(
        "frame exceeds the 32768-byte ceiling",
        &["stall"],
        |villain, id| {
            let header = Header {
                len: u32::MAX,
                kind: wire(ToGuest::Stdin),
                flags: 0,
                reserved: 0,
                exec: id,
            };
            let _ = villain.stream.write_all(&header.encode());
        },
    );
}

#[test]
fn garbage_between_frames() {
    cut_off(
        "frame exceeds the 32768-byte ceiling",
        &["stall"],
        |villain, _| {
            let _ = villain.stream.write_all(&[0xEE; 100]);
        },
    );
}

#[test]
fn a_request_that_is_none() {
    cut_off(
        "an exec request cannot be decoded",
        &["stall"],
        |villain, _| {
            let mut nonsense = frame(wire(ToGuest::Request), 7, b"no request").to_vec();
            nonsense[5] = 1;
            let _ = villain.stream.write_all(&nonsense);
        },
    );
}

#[test]
fn a_signal_that_does_not_exist_or_comes_before_the_start() {
    for signal in [0u32, 65, u32::MAX] {
        cut_off("a signal that does not exist", &["stall"], |villain, id| {
            villain.raw(wire(ToGuest::Signal), id, &signal.to_le_bytes());
        });
    }
    cut_off("a signal before Started", &["stall"], |villain, _| {
        let early = villain.begin(&["late"]);
        villain.raw(wire(ToGuest::Signal), early.get(), &10u32.to_le_bytes());
    });
}

#[test]
fn a_resize_that_names_no_size_or_comes_before_the_start() {
    for payload in [&[][..], &[24, 0], &[24, 0, 80, 0, 0]] {
        cut_off("a resize without its size", &["stall"], |villain, id| {
            villain.raw(wire(ToGuest::Resize), id, payload);
        });
    }
    cut_off("a resize before Started", &["stall"], |villain, _| {
        let early = villain.begin(&["late"]);
        villain.raw(wire(ToGuest::Resize), early.get(), &[24, 0, 80, 0]);
    });
}

#[test]
fn a_wish_to_end_the_guest() {
    cut_off(
        "a client may not end the guest",
        &["stall"],
        |villain, _| {
            villain.raw(wire(ToGuest::PowerOff), 0, &[0, 1, 0, 0, 0]);
        },
    );
}

#[test]
fn a_second_bootstrap() {
    cut_off("a second bootstrap", &["stall"], |villain, _| {
        villain.raw(wire(ToGuest::Bootstrap), 0, b"again");
    });
}

#[test]
fn nonsense_instead_of_a_bootstrap() {
    run(async {
        let attached = Attached::new();
        let bystander = attached.client().await;
        let greetings: [(&str, &[u8]); 3] = [
            (
                "frame exceeds the 32768-byte ceiling",
                b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
            ),
            (
                "a frame before the agent was ready",
                &frame(wire(ToGuest::Ping), 0, &[0; 8]),
            ),
            (
                "the bootstrap cannot be decoded",
                &frame(wire(ToGuest::Bootstrap), 0, &[0xFF; 32]),
            ),
        ];
        for (rule, greeting) in greetings {
            let mut villain = Villain::connect(&attached.path);
            villain.stream.write_all(greeting).unwrap();
            assert_eq!(villain.is_cut_off(), Some(broke(rule)));
        }
        attached.goes_on(&bystander).await;
    });
}

#[test]
fn a_bootstrap_that_would_decide_what_is_the_vms() {
    run(async {
        let attached = Attached::new();
        let bystander = attached.client().await;
        let limits = bystander.limits();
        let wishes = [
            (
                "a bootstrap with other limits than the VM's",
                Config {
                    limits: Limits {
                        output_limit: u32::MAX,
                        ..limits
                    },
                    ..Config::default()
                },
            ),
            (
                "a bootstrap that would configure the guest",
                Config {
                    limits,
                    hostname: Some("mine".to_owned()),
                    ..Config::default()
                },
            ),
            (
                "a bootstrap that would configure the guest",
                Config {
                    limits,
                    resources: Resources {
                        pids: Some(1),
                        ..Resources::default()
                    },
                    ..Config::default()
                },
            ),
        ];
        for (rule, wish) in wishes {
            let mut villain = Villain::connect(&attached.path);
            villain.bootstrap(wish);
            assert_eq!(villain.is_cut_off(), Some(broke(rule)));
        }
        attached.goes_on(&bystander).await;
    });
}

#[test]
fn pings_whose_answers_nobody_reads() {
    run(async {
        let attached = Attached::new();
        let bystander = attached.client().await;
        let mut villain = Villain::attach(&attached.path);
        let ping = frame(wire(ToGuest::Ping), 0, &[0; 8]);
        let flood: Vec<u8> = ping.iter().copied().cycle().take(24 * 4096).collect();
        // Ends only by being cut off: the answers fill the socket, and then there are more than
        // may be outstanding.
        while villain.stream.write_all(&flood).is_ok() {}
        attached.goes_on(&bystander).await;
        wait_until("its end", || attached.clients() == 1);
    });
}

#[test]
fn half_a_frame_and_then_nothing() {
    run(async {
        let attached = Attached::new();
        let bystander = attached.client().await;
        let mut villains = Vec::new();
        for cut in [1, HEADER_LEN - 1, HEADER_LEN, HEADER_LEN + 5_000] {
            let mut villain = Villain::attach(&attached.path);
            let id = villain.start(&["stall"]);
            let half = frame(wire(ToGuest::Stdin), id.get(), &[0; 16 * 1024]);
            villain.stream.write_all(&half[..cut]).unwrap();
            villains.push(villain);
        }
        attached.goes_on(&bystander).await;
        wait_until("that all are still attached", || attached.clients() == 5);
        drop(villains);
        wait_until("their end", || attached.vm.client.active() == 0);
    });
}

/// A villain floods its execution, the VM's second, with controls, while the first, a bystander's,
/// gets a hundred signals of its own.
async fn flood(
    kind: ToGuest,
    payloads: impl Iterator<Item = [u8; 4]> + Send + 'static,
) -> (Attached, ExecHandle, Villain) {
    let attached = Attached::new();
    let bystander = attached.client().await;
    let target = bystander.exec("stall", NONE).spawn().await.unwrap();
    let mut villain = Villain::attach(&attached.path);
    let id = villain.start(&["stall"]);
    let flood = std::thread::spawn(move || {
        for payload in payloads {
            villain.raw(wire(kind), id.get(), &payload);
        }
        villain
    });
    // Its own get their turn meanwhile.
    for _ in 0..100 {
        target.signal(crate::Signal::USR2).await.unwrap();
    }
    attached.goes_on(&bystander).await;
    (attached, target, flood.join().unwrap())
}

#[test]
fn a_flood_of_signals() {
    const SIGNALS: usize = 20_000;
    run(async {
        let signals = std::iter::repeat_n(10u32.to_le_bytes(), SIGNALS);
        let (attached, _target, _villain) = flood(ToGuest::Signal, signals).await;
        let signals = |id, number| {
            attached.vm.command(id_of(id), |command| {
                command.signals.iter().filter(|s| **s == number).count()
            })
        };
        wait_until("every signal", || {
            (signals(1, 12), signals(2, 10)) == (100, SIGNALS)
        });
    });
}

#[test]
fn a_flood_of_sizes() {
    const SIZES: u16 = 20_000;
    run(async {
        let sizes = (1..=SIZES).map(|rows| {
            let [low, high] = rows.to_le_bytes();
            [low, high, 80, 0]
        });
        let (attached, _target, _villain) = flood(ToGuest::Resize, sizes).await;
        let sizes = || {
            attached
                .vm
                .command(id_of(2), |command| command.sizes.clone())
        };
        wait_until("the last size", || sizes().last() == Some(&(SIZES, 80)));
        assert!(sizes().is_sorted(), "an older size came after a newer one");
    });
}

fn id_of(number: u64) -> ExecId {
    ExecId::new(number).unwrap()
}

#[test]
fn never_reading() {
    run(async {
        let attached = Attached::new();
        let bystander = attached.client().await;
        let mut villain = Villain::attach(&attached.path);
        let limit = u64::from(villain.limits().output_limit);
        for _ in 0..8 {
            villain.begin(&["chatter"]);
        }
        // It never reads again, and every one of its executions fills up.
        let executions = || attached.vm.hub.inspect().executions;
        wait_until("the stall", || {
            let all = executions();
            all.len() == 8 && all.iter().all(|e| limit - e.output_received < 16_384 + 256)
        });
        // Meanwhile another reads as if it were alone, and control is not lost.
        let mut other = bystander.exec("chatter", NONE).spawn().await.unwrap();
        let mut read = 0;
        while read < 8 << 20 {
            if let Some(ExecEvent::Stdout(chunk)) = other.recv().await {
                read += chunk.len();
            }
        }
        drop(other);
        attached.goes_on(&bystander).await;
        for exec in executions().iter().filter(|exec| exec.id.get() <= 8) {
            assert!(exec.output_received <= limit, "{exec:?}");
            assert_eq!(exec.output_released, 0, "{exec:?}");
            let held = exec.output_held as u64 + exec.output_forwarded;
            assert!(held <= limit, "{exec:?}");
        }
        drop(villain);
        wait_until("its end", || attached.vm.client.active() == 0);
    });
}
