use std::sync::{Arc, Barrier, Mutex, Weak};
use std::task::Poll;

use forebay_exec_proto::HEADER_LEN;
use forebay_exec_proto::frame::FromGuest;

use super::{Hub, Link};
use crate::fake_guest::{ByHand, FakeVm};
use crate::{Config, ConfigError, EnvVar, ExecError, ExecEvent, FailureKind, Limits, Stdin};

const NONE: [&str; 0] = [];

#[test]
fn limits_that_cannot_work_are_refused_by_name() {
    let limits = Limits {
        input_limit: 0,
        ..Limits::default()
    };
    let error = Hub::new(Config {
        limits,
        ..Config::default()
    })
    .unwrap_err();
    let ConfigError::Limits(error) = error else {
        panic!("{error}")
    };
    assert_eq!(error.field, "input_limit");
}

#[test]
fn an_environment_that_no_bootstrap_can_carry_is_refused_with_both_sizes() {
    let var = EnvVar {
        key: b"BIG".to_vec().into(),
        value: vec![b'x'; 40_000].into(),
    };
    let error = Hub::new(Config {
        env: vec![var],
        ..Config::default()
    })
    .unwrap_err();
    let ConfigError::TooLarge { size, limit } = error else {
        panic!("{error}")
    };
    assert!(size > 40_000 && limit < 40_000, "{size} {limit}");
}

#[test]
fn nothing_is_sent_and_nothing_starts_before_the_guest_opens_its_port() {
    let vm = FakeVm::before_open(Limits::default());
    assert!(vm.hub.next_to_guest().is_none());
    let error = vm.run(vm.client.exec("exit", ["0"]).spawn()).unwrap_err();
    assert!(matches!(error, ExecError::NotReady), "{error}");
    assert_eq!(vm.client.active(), 0);
}

#[test]
fn ready_waits_for_the_agents_answer() {
    let vm = FakeVm::before_open(Limits::default());
    let mut ready = ByHand::new(vm.hub.ready());
    assert!(ready.poll().is_pending());
    vm.hub.opened();
    assert!(!ready.woken.is_set());
    vm.settle();
    assert!(ready.woken.is_set());
    assert!(matches!(ready.poll(), Poll::Ready(Ok(answer)) if answer.version == "fake"));
}

#[test]
fn ready_fails_with_the_reason_when_the_connection_ends_first() {
    let vm = FakeVm::before_open(Limits::default());
    vm.hub.opened();
    let mut ready = ByHand::new(vm.hub.ready());
    assert!(ready.poll().is_pending());
    vm.hub.vm_gone("the guest panicked");
    assert!(ready.woken.is_set());
    let Poll::Ready(Err(ExecError::VmGone { reason })) = ready.poll() else {
        panic!()
    };
    assert_eq!(reason, "the guest panicked");
}

#[test]
fn ready_waits_on_when_the_port_opens_again_before_the_agent_answered() {
    let vm = FakeVm::before_open(Limits::default());
    vm.hub.opened();
    let mut before = ByHand::new(vm.hub.ready());
    assert!(before.poll().is_pending());
    vm.hub.opened();
    let mut after = ByHand::new(vm.hub.ready());
    assert!(before.poll().is_pending(), "a new greeting is under way");
    assert!(after.poll().is_pending(), "a new greeting is under way");
    vm.settle();
    assert!(matches!(before.poll(), Poll::Ready(Ok(_))));
    assert!(matches!(after.poll(), Poll::Ready(Ok(_))));
}

#[test]
fn ready_waits_for_the_new_answer_when_a_ready_port_opens_again() {
    let vm = FakeVm::new();
    let mut lost = vm.run(vm.client.exec("stall", [""; 0]).spawn()).unwrap();
    vm.agent(|conn| *conn = Default::default());
    vm.hub.opened();
    let mut ready = ByHand::new(vm.hub.ready());
    assert!(ready.poll().is_pending(), "the old answer does not count");
    assert!(matches!(vm.run(lost.wait()), Err(ExecError::VmGone { .. })));
    vm.settle();
    assert!(matches!(ready.poll(), Poll::Ready(Ok(_))));
}

#[test]
fn the_link_is_kicked_when_idle_becomes_pending_and_not_again_before_it_was_drained() {
    let vm = FakeVm::new();
    let before = vm.kicks();
    let mut starts: Vec<_> = (0..5)
        .map(|_| ByHand::new(vm.client.exec("stall", [""; 0]).spawn()))
        .collect();
    for start in &mut starts {
        assert!(start.poll().is_pending());
    }
    assert_eq!(vm.kicks(), before + 1);
    assert!(vm.hub.next_to_guest().is_some());
    starts.push(ByHand::new(vm.client.exec("stall", [""; 0]).spawn()));
    assert!(starts[5].poll().is_pending());
    assert_eq!(
        vm.kicks(),
        before + 1,
        "whoever pulls will come to the new one, too"
    );
    while vm.hub.next_to_guest().is_some() {}
    starts.push(ByHand::new(vm.client.exec("stall", [""; 0]).spawn()));
    assert!(starts[6].poll().is_pending());
    assert_eq!(vm.kicks(), before + 2);
}

#[test]
fn a_link_that_comes_late_is_kicked_for_what_waits() {
    struct Flag(Mutex<u32>);
    impl Link for Flag {
        fn transmit(&self) {
            *self.0.lock().unwrap() += 1;
        }

        fn expire_at(&self, _at: std::time::Instant) {}
    }
    let hub = Hub::new(Config::default()).unwrap();
    hub.opened();
    let link = Arc::new(Flag(Mutex::new(0)));
    let weak: Weak<Flag> = Arc::downgrade(&link);
    hub.set_link(weak);
    assert_eq!(*link.0.lock().unwrap(), 1);
}

#[test]
fn admission_is_atomic_over_threads_and_the_refusal_names_both_numbers() {
    let vm = FakeVm::new();
    let barrier = Barrier::new(16);
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..16)
            .map(|_| {
                scope.spawn(|| {
                    barrier.wait();
                    let attempt = |_| {
                        let mut start = ByHand::new(vm.client.exec("stall", [""; 0]).spawn());
                        let refused = match start.poll() {
                            Poll::Pending => None,
                            Poll::Ready(outcome) => Some(outcome.unwrap_err()),
                        };
                        (start, refused)
                    };
                    (0..20).map(attempt).collect::<Vec<_>>()
                })
            })
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    });
    let refused: Vec<_> = outcomes
        .iter()
        .filter_map(|(_, refused)| refused.as_ref())
        .collect();
    assert_eq!(outcomes.len() - refused.len(), 128);
    assert_eq!(refused.len(), 16 * 20 - 128);
    for error in refused {
        let ExecError::AtCapacity { limit, active, .. } = error else {
            panic!("{error}")
        };
        assert_eq!((*limit, *active), (128, 128));
    }
    assert_eq!(vm.client.active(), 128);
    drop(outcomes);
    vm.settle();
    assert_eq!(vm.client.active(), 0);
}

/// Each path by which an execution can end gives back its one slot, and gives it back once.
#[test]
fn every_path_frees_its_slot_exactly_once() {
    type Path = (&'static str, fn(&FakeVm));
    let paths: [Path; 9] = [
        ("exit and read", |vm| {
            vm.run(vm.client.exec("echo", ["hi"]).output()).unwrap();
        }),
        ("exit, unread, then dropped", |vm| {
            let handle = vm.run(vm.client.exec("echo", ["hi"]).spawn()).unwrap();
            vm.settle();
            drop(handle);
        }),
        ("dropped while it runs", |vm| {
            drop(vm.run(vm.client.exec("chatter", [""; 0]).spawn()).unwrap());
        }),
        ("killed", |vm| {
            let mut handle = vm.run(vm.client.exec("stall", [""; 0]).spawn()).unwrap();
            handle.kill();
            vm.run(handle.wait()).unwrap();
        }),
        ("failed start", |vm| {
            vm.run(vm.client.exec("missing", [""; 0]).spawn())
                .unwrap_err();
        }),
        ("start dropped before it was sent", |vm| {
            let mut start = ByHand::new(vm.client.exec("stall", [""; 0]).spawn());
            assert!(start.poll().is_pending());
        }),
        ("start dropped after it was sent", |vm| {
            let mut start = ByHand::new(vm.client.exec("late", [""; 0]).spawn());
            assert!(start.poll().is_pending());
            vm.settle();
        }),
        ("detached", |vm| {
            vm.run(vm.client.exec("echo", ["hi"]).spawn())
                .unwrap()
                .detach();
        }),
        ("connection closed", |vm| {
            let mut handle = vm.run(vm.client.exec("stall", [""; 0]).spawn()).unwrap();
            vm.hub.closed("the port was closed");
            assert!(matches!(
                vm.run(handle.wait()),
                Err(ExecError::VmGone { .. })
            ));
            drop(handle);
        }),
    ];
    for (name, path) in paths {
        let vm = FakeVm::with_limits(Limits {
            max_executions: 3,
            ..Limits::default()
        });
        // A second execution shows a slot that is given back twice.
        let other = vm.run(vm.client.exec("stall", [""; 0]).spawn()).unwrap();
        path(&vm);
        vm.settle();
        let expected = u32::from(name != "connection closed");
        assert_eq!(vm.client.active(), expected, "{name}");
        drop(other);
        vm.settle();
        assert_eq!(vm.client.active(), 0, "{name}");
        assert!(
            vm.hub.inspect().executions.is_empty(),
            "{name}: entries are left"
        );
    }
}

#[test]
fn a_finished_execution_with_unread_output_keeps_its_slot() {
    let vm = FakeVm::with_limits(Limits {
        max_executions: 1,
        ..Limits::default()
    });
    let mut handle = vm.run(vm.client.exec("echo", ["hi"]).spawn()).unwrap();
    vm.settle();
    assert_eq!(vm.client.active(), 1);
    let refused = vm.run(vm.client.exec("exit", ["0"]).spawn());
    assert!(matches!(
        refused,
        Err(ExecError::AtCapacity {
            limit: 1,
            active: 1,
            ..
        })
    ));
    assert!(matches!(
        vm.run(handle.recv()),
        Some(ExecEvent::Started { .. })
    ));
    assert!(matches!(vm.run(handle.recv()), Some(ExecEvent::Stdout(_))));
    assert_eq!(
        vm.client.active(),
        0,
        "exited and read, whether or not the handle lives"
    );
    assert!(
        vm.run(vm.client.exec("exit", ["0"]).status())
            .unwrap()
            .success()
    );
    assert!(matches!(vm.run(handle.recv()), Some(ExecEvent::Exited(_))));
    assert_eq!(vm.run(handle.recv()), None);
}

#[test]
fn a_port_that_opens_again_begins_anew_and_one_of_a_vm_that_is_gone_does_not() {
    let vm = FakeVm::new();
    let mut old = vm.run(vm.client.exec("stall", [""; 0]).spawn()).unwrap();
    vm.hub.closed("the guest closed its agent port");
    let error = vm.run(vm.client.exec("exit", ["0"]).spawn()).unwrap_err();
    assert!(
        error.to_string().contains("closed its agent port"),
        "{error}"
    );
    vm.agent(|conn| *conn = Default::default());
    vm.hub.opened();
    vm.settle();
    assert!(
        vm.run(vm.client.exec("exit", ["0"]).status())
            .unwrap()
            .success()
    );
    assert!(matches!(vm.run(old.wait()), Err(ExecError::VmGone { .. })));

    vm.hub.vm_gone("stopped");
    vm.hub.vm_gone("a later reason");
    vm.hub.opened();
    assert!(vm.hub.next_to_guest().is_none());
    let error = vm.run(vm.client.exec("exit", ["0"]).spawn()).unwrap_err();
    assert!(matches!(error, ExecError::VmGone { reason } if reason == "stopped"));
}

#[test]
fn a_guest_that_breaks_the_rules_of_one_execution_fails_that_one_alone() {
    let vm = FakeVm::new();
    let mut bad = vm.run(vm.client.exec("stall", [""; 0]).spawn()).unwrap();
    let good = vm
        .run(
            vm.client
                .exec("cat", [""; 0])
                .stdin(Stdin::bytes("fine"))
                .spawn(),
        )
        .unwrap();
    // A stdout frame of one byte more than a chunk may have.
    let mut chain = vec![0x01, 0x40, 0, 0, 0x91, 0, 0, 0];
    chain.extend(bad.id().get().to_le_bytes());
    chain.extend([0; 0x4001]);
    assert_eq!(vm.deliver_chain(&chain), None);
    let error = vm.run(bad.wait()).unwrap_err();
    let ExecError::Protocol(failure) = &error else {
        panic!("{error}")
    };
    assert_eq!(failure.kind, FailureKind::Protocol);
    assert_eq!(failure.stage, "protocol");
    assert_eq!(vm.run(good.collect()).unwrap().stdout(), b"fine");
    vm.settle();
    assert_eq!(vm.client.active(), 0, "the guest confirmed the kill");
}

#[test]
fn an_exit_that_no_process_can_have_is_a_broken_rule() {
    for (code, signal) in [(Some(256), None), (Some(-1), None), (None, Some(65))] {
        let vm = FakeVm::new();
        let mut handle = vm.run(vm.client.exec("stall", [""; 0]).spawn()).unwrap();
        let status = forebay_exec_proto::ExitStatus {
            code,
            signal,
            duration_us: 1,
            ..forebay_exec_proto::ExitStatus::default()
        };
        vm.agent(|conn| {
            for stream in crate::Stream::ALL {
                conn.stream_ended(handle.id(), stream);
            }
            conn.exited(handle.id(), status);
        });
        let error = vm.run(handle.wait()).unwrap_err();
        assert!(matches!(error, ExecError::Protocol(_)), "{error}");
        vm.settle();
        assert_eq!(vm.client.active(), 0);
    }
}

#[test]
fn broken_framing_ends_every_execution_with_the_reason() {
    let vm = FakeVm::new();
    let mut handle = vm.run(vm.client.exec("stall", [""; 0]).spawn()).unwrap();
    let reason = vm.deliver_chain(&[0xff; 16]).unwrap();
    let error = vm.run(handle.wait()).unwrap_err();
    assert!(
        matches!(&error, ExecError::VmGone { reason: told } if told == reason),
        "{error}"
    );
}

#[test]
fn the_reason_of_the_vms_end_replaces_that_of_its_port() {
    let vm = FakeVm::new();
    vm.hub.closed("the guest closed its agent port");
    vm.hub.vm_gone("the guest powered off");
    let error = vm.run(vm.client.exec("exit", ["0"]).spawn()).unwrap_err();
    assert!(matches!(error, ExecError::VmGone { reason } if reason == "the guest powered off"));
    let error = vm.run(vm.hub.ready()).unwrap_err();
    assert!(matches!(error, ExecError::VmGone { reason } if reason == "the guest powered off"));
}

#[test]
fn a_ping_is_answered_and_refused_when_there_is_no_connection() {
    let vm = FakeVm::new();
    assert_eq!(vm.hub.last_pong(), None);
    assert!(vm.hub.ping(7));
    vm.settle();
    assert_eq!(vm.hub.last_pong(), Some(7));
    vm.hub.closed("gone");
    assert!(!vm.hub.ping(8));
}

#[test]
fn a_legacy_guest_runs_commands_but_none_that_requires_bounds() {
    let vm = FakeVm::legacy();
    let ready = vm.run(vm.hub.ready()).unwrap();
    assert_eq!((&*ready.version, ready.exec_limits), ("old", None));
    assert!(!vm.hub.inspect().bounded);
    let out = vm.run(vm.client.exec("echo", ["old"]).output()).unwrap();
    assert_eq!(out.stdout(), b"old");
    let strict = vm.client.exec("echo", ["old"]).require_bounds();
    let error = vm.run(strict.output()).unwrap_err();
    assert!(matches!(error, ExecError::Unbounded), "{error}");
    assert_eq!(vm.client.active(), 0);
}

#[test]
fn what_an_unread_command_of_a_legacy_guest_writes_too_much_costs_it_its_life() {
    let vm = FakeVm::legacy();
    let mut unread = vm.run(vm.client.exec("stall", NONE).spawn()).unwrap();
    let limit = vm.client.limits().output_limit as usize;
    let mut chunk = vec![0; HEADER_LEN + 4096];
    chunk[..2].copy_from_slice(&4096_u16.to_le_bytes());
    chunk[4] = FromGuest::Stdout.to_wire();
    chunk[8] = u8::try_from(unread.id().get()).unwrap();
    for _ in 0..2 * limit / 4096 {
        assert_eq!(vm.deliver_chain(&chunk), None);
        let held = vm.hub.inspect().executions[0].output_held;
        assert!(held <= limit, "{held}");
    }
    let error = vm.run(unread.wait()).unwrap_err();
    assert!(matches!(error, ExecError::Protocol(_)), "{error}");
    let out = vm.run(vm.client.exec("echo", ["others"]).output()).unwrap();
    assert_eq!(out.stdout(), b"others");
}

#[test]
fn a_command_that_requires_bounds_runs_where_they_are_kept() {
    let vm = FakeVm::new();
    let strict = vm.client.exec("echo", ["new"]).require_bounds();
    assert_eq!(vm.run(strict.output()).unwrap().stdout(), b"new");
}
