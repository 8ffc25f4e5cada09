//! The hub's hand-offs under loom, in every order of their threads with two preemptions at most:
//! `cargo test -p forebay-exec --features loom --lib loom_test`. The filter is needed, since no
//! other test of this crate runs with that feature.
//!
//! What is tried is the crate's own code on loom's primitives (see `sync`). Who waits is parked
//! for good unless it is woken, so a lost wake-up is reported as a deadlock. Loom does not see
//! inside tokio's primitives, nor the hub's reference count, nor the attach socket.

mod bench;

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use loom::future::block_on;
use tokio::io::AsyncReadExt as _;

use crate::clock;
use crate::fake_guest::agent::Agent;
use crate::{ControlError, ExecControl, ExecError, ExecEvent, Signal, Stdin, WriteError};
use bench::{ONE, Vm, model, once, oversized, spawn};

// Admission, and the slot's way back.

#[test]
fn the_last_slot_goes_to_one_of_two_that_start_at_once() {
    model(|| {
        let vm = Vm::new(ONE);
        let start = |vm: Arc<Vm>| {
            let mut start = Box::pin(vm.exec("stall").spawn());
            match once(start.as_mut()) {
                Poll::Pending => Some(start),
                Poll::Ready(Err(ExecError::AtCapacity { limit, active, .. })) => {
                    assert_eq!((limit, active), (1, 1));
                    None
                }
                Poll::Ready(other) => panic!("{other:?}"),
            }
        };
        let theirs = Arc::clone(&vm);
        let other = spawn(move || start(theirs));
        let outcomes = [start(Arc::clone(&vm)), other.join().unwrap()];
        assert_eq!(outcomes.iter().flatten().count(), 1);
        assert_eq!(vm.hub.active(), 1);
        drop(outcomes);
        vm.assert_all_slots_are_back();
    });
}

#[test]
fn a_start_beside_an_exit_gets_the_slot_or_hears_who_has_it() {
    model(|| {
        let vm = Vm::new(ONE);
        let handle = vm.start("stall", Stdin::null());
        let id = handle.detach();
        let guest = Arc::clone(&vm);
        let exit = spawn(move || guest.ends(id, b""));
        let mut start = Box::pin(vm.exec("stall").spawn());
        match once(start.as_mut()) {
            Poll::Pending => {}
            Poll::Ready(Err(ExecError::AtCapacity { limit, active, .. })) => {
                assert_eq!((limit, active), (1, 1));
            }
            Poll::Ready(other) => panic!("{other:?}"),
        }
        exit.join().unwrap();
        assert!(vm.hub.active() <= 1);
        drop(start);
        vm.assert_all_slots_are_back();
    });
}

/// Drops a handle on one thread, kills by a control on another, and lets the VM's thread do
/// something to the execution meanwhile: whatever comes first, the slot comes back once.
fn released_once(meanwhile: impl Fn(&Vm, crate::ExecId) + Copy + Send + Sync + 'static) {
    model(move || {
        let vm = Vm::new(ONE);
        let handle = vm.start("stall", Stdin::piped());
        let id = handle.id();
        let control = handle.control();
        let killer = spawn(move || {
            control.kill();
            drop(control);
        });
        let device = Arc::clone(&vm);
        let device = spawn(move || meanwhile(&device, id));
        drop(handle);
        killer.join().unwrap();
        device.join().unwrap();
        vm.assert_all_slots_are_back();
    });
}

#[test]
fn exit_drop_and_kill_at_once_give_the_slot_back_once() {
    released_once(|vm, id| vm.ends(id, b"unread"));
}

#[test]
fn a_broken_rule_drop_and_kill_at_once_give_the_slot_back_once() {
    released_once(|vm, id| vm.deliver(&oversized(id)));
}

#[test]
fn a_lost_connection_drop_and_kill_at_once_give_the_slot_back_once() {
    released_once(|vm, _| {
        vm.hub.closed("the guest closed its agent port");
        vm.hub.settle();
        vm.open();
    });
}

#[test]
fn a_start_beside_the_vms_end_is_told_of_it_and_keeps_no_slot() {
    model(|| {
        let vm = Vm::new(ONE);
        let ending = Arc::clone(&vm);
        let end = spawn(move || ending.hub.vm_gone("stopped"));
        // The guest never answers: only the end can wake it.
        match block_on(vm.exec("stall").spawn()) {
            Err(ExecError::VmGone { reason }) => assert_eq!(reason, "stopped"),
            other => panic!("{other:?}"),
        }
        end.join().unwrap();
        assert_eq!(vm.hub.active(), 0);
        assert!(vm.hub.inspect().executions.is_empty());
    });
}

#[test]
fn a_detach_is_seen_by_whoever_drops_last() {
    model(|| {
        let vm = Vm::new(ONE);
        let handle = vm.start("stall", Stdin::null());
        let id = handle.id();
        let control = handle.control();
        let other = spawn(move || drop(control));
        handle.detach();
        other.join().unwrap();
        vm.speak();
        assert!(
            vm.command(id, |_| ()).is_some(),
            "a detached command was killed"
        );
    });
}

// Who waits is woken.

#[test]
fn a_reader_is_woken_by_output_and_by_the_end() {
    model(|| {
        let vm = Vm::new(ONE);
        let mut parts = vm.start("stall", Stdin::null()).split();
        let id = parts.exit.id();
        let device = Arc::clone(&vm);
        let device = spawn(move || {
            device.command(id, |command| command.out[0].extend(b"hi"));
            device.speak();
            device.ends(id, b"");
        });
        let mut all = Vec::new();
        block_on(parts.stdout.read_to_end(&mut all)).unwrap();
        assert_eq!(all, b"hi");
        device.join().unwrap();
    });
}

#[test]
fn a_reader_that_makes_room_lets_a_stalled_command_go_on() {
    model(|| {
        let vm = Vm::new(ONE);
        let mut handle = vm.start("stall", Stdin::null());
        let id = handle.id();
        // The first chunk leaves no room for the second.
        vm.command(id, |command| {
            command.out[0].extend([7; 400]);
            command.exit = Some(0);
        });
        let device = Arc::clone(&vm);
        let device = spawn(move || device.serve(|agent| agent.commands.is_empty()));
        let mut bytes = 0;
        while let Some(event) = block_on(handle.recv()) {
            if let ExecEvent::Stdout(chunk) = event {
                bytes += chunk.len();
            }
        }
        assert_eq!(bytes, 400);
        device.join().unwrap();
    });
}

#[test]
fn whoever_takes_the_notes_of_the_device_wakes_for_it() {
    model(|| {
        let vm = Vm::new(ONE);
        let mut parts = vm.start("stall", Stdin::null()).split();
        let id = parts.exit.id();
        let device = Arc::clone(&vm);
        let device = spawn(move || device.ends(id, b""));
        // An application's step beside it, which may come between the notes and the settling.
        let other = Arc::clone(&vm);
        let other = spawn(move || other.hub.ping(1));
        assert!(block_on(parts.exit.wait()).unwrap().success());
        device.join().unwrap();
        assert!(other.join().unwrap());
    });
}

#[test]
fn every_signal_that_waits_for_room_is_woken_by_it() {
    model(|| {
        let vm = Vm::new(ONE);
        let handle = vm.start("stall", Stdin::null());
        vm.room(false);
        for _ in 0..16 {
            let mut signal = pin!(handle.signal(Signal::USR1));
            assert!(once(signal.as_mut()).is_ready());
        }
        let waits = |control: ExecControl| move || block_on(control.signal(Signal::USR2)).unwrap();
        let other = spawn(waits(handle.control()));
        let device = Arc::clone(&vm);
        let device = spawn(move || device.room(true));
        waits(handle.control())();
        other.join().unwrap();
        device.join().unwrap();
        let arrived = vm.command(handle.id(), |command| command.signals.len());
        assert_eq!(arrived, Some(18));
    });
}

#[test]
fn a_signal_that_waits_for_room_hears_of_the_end() {
    model(|| {
        let vm = Vm::new(ONE);
        let handle = vm.start("stall", Stdin::null());
        let id = handle.id();
        vm.room(false);
        for _ in 0..16 {
            let mut signal = pin!(handle.signal(Signal::USR1));
            assert!(once(signal.as_mut()).is_ready());
        }
        let device = Arc::clone(&vm);
        let device = spawn(move || device.ends(id, b""));
        let signal = block_on(handle.signal(Signal::USR2));
        assert!(matches!(signal, Err(ControlError::Ended)), "{signal:?}");
        device.join().unwrap();
    });
}

#[test]
fn two_writers_take_turns_and_each_write_stays_whole() {
    model(|| {
        let vm = Vm::new(ONE);
        let mut handle = vm.start("drain", Stdin::piped());
        let id = handle.id();
        let sink = Arc::new(handle.take_stdin().unwrap());
        let received = move |agent: &Agent| agent.commands.get(&id).map_or(0, |c| c.received.len());
        let device = Arc::clone(&vm);
        let device = spawn(move || device.serve(|agent| received(agent) == 8));
        let theirs = Arc::clone(&sink);
        // Longer than the window, so that it needs an acknowledgement in between.
        let other = spawn(move || block_on(theirs.write("aaaaaa")).unwrap());
        block_on(sink.write("bb")).unwrap();
        other.join().unwrap();
        device.join().unwrap();
        let arrived = vm.command(id, |command| command.received.clone()).unwrap();
        assert!(
            arrived == b"aaaaaabb" || arrived == b"bbaaaaaa",
            "{arrived:?}"
        );
    });
}

#[test]
fn a_write_that_is_dropped_gives_its_turn_to_the_next() {
    model(|| {
        let vm = Vm::new(ONE);
        let mut handle = vm.start("drain", Stdin::piped());
        let id = handle.id();
        let sink = Arc::new(handle.take_stdin().unwrap());
        let theirs = Arc::clone(&sink);
        let other = spawn(move || {
            let mut write = Box::pin(theirs.write("aaaaaa"));
            // Ready at once if the link has carried it off already.
            let _ = once(write.as_mut());
        });
        let device = Arc::clone(&vm);
        let device = spawn(move || {
            device.serve(|agent| {
                let command = agent.commands.get(&id);
                command.is_some_and(|command| command.received.contains(&b'b'))
            });
        });
        block_on(sink.write("bb")).unwrap();
        other.join().unwrap();
        device.join().unwrap();
        let arrived = vm.command(id, |command| command.received.clone()).unwrap();
        let mut rest = arrived.strip_suffix(b"bb");
        rest = rest.or(arrived.strip_prefix(b"bb"));
        assert!(
            rest.is_some_and(|prefix| b"aaaaaa".starts_with(prefix)),
            "{arrived:?}"
        );
    });
}

#[test]
fn a_close_beside_a_write_ends_stdin_behind_it() {
    model(|| {
        let vm = Vm::new(ONE);
        let mut handle = vm.start("drain", Stdin::piped());
        let id = handle.id();
        vm.command(id, |command| command.exit = None);
        let sink = Arc::new(handle.take_stdin().unwrap());
        let device = Arc::clone(&vm);
        let device = spawn(move || device.serve(|agent| agent.commands[&id].eof));
        let theirs = Arc::clone(&sink);
        let other = spawn(move || block_on(theirs.close()).unwrap());
        let expected: &[u8] = match block_on(sink.write("aaaaaa")) {
            Ok(()) => b"aaaaaa",
            Err(WriteError::Closed) => b"",
            Err(error) => panic!("{error}"),
        };
        other.join().unwrap();
        device.join().unwrap();
        let arrived = vm.command(id, |command| command.received.clone());
        assert_eq!(arrived.as_deref(), Some(expected));
    });
}

#[test]
fn whoever_waits_for_the_agent_is_woken_by_its_answer() {
    model(|| {
        let vm = Vm::before_open(ONE);
        let device = Arc::clone(&vm);
        let device = spawn(move || device.open());
        assert_eq!(block_on(vm.hub.ready()).unwrap().version, "fake");
        device.join().unwrap();
    });
}

#[test]
fn whoever_waits_for_the_agent_is_woken_by_the_vms_end() {
    model(|| {
        let vm = Vm::before_open(ONE);
        let ending = Arc::clone(&vm);
        let end = spawn(move || ending.hub.vm_gone("stopped"));
        assert!(matches!(
            block_on(vm.hub.ready()),
            Err(ExecError::VmGone { reason }) if reason == "stopped"
        ));
        end.join().unwrap();
    });
}

// Time passes.

/// A VM with a command that has a minute to run.
fn timed(vm: &Vm) -> crate::ExecHandle {
    vm.start_exec(vm.exec("stall").timeout(MINUTE))
}

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn a_start_with_a_deadline_beside_the_vms_end_leaves_no_deadline() {
    model(|| {
        let vm = Vm::new(ONE);
        let ending = Arc::clone(&vm);
        let end = spawn(move || ending.hub.vm_gone("stopped"));
        match block_on(vm.exec("stall").timeout(MINUTE).spawn()) {
            Err(ExecError::VmGone { reason }) => assert_eq!(reason, "stopped"),
            other => panic!("{other:?}"),
        }
        end.join().unwrap();
        assert_eq!(vm.hub.expire_by(clock::now()), None);
        assert_eq!(vm.hub.active(), 0);
    });
}

#[test]
fn whoever_keeps_the_time_hears_of_each_start_that_he_could_miss() {
    model(|| {
        let vm = Vm::new(ONE);
        let starting = Arc::clone(&vm);
        let start = spawn(move || {
            let mut start = Box::pin(starting.exec("stall").timeout(MINUTE).spawn());
            assert!(once(start.as_mut()).is_pending());
            start
        });
        // The VM's loop looks, and sets its timer for what it saw, unless it is set for earlier.
        let seen = vm.hub.expire_by(clock::now());
        let start = start.join().unwrap();
        assert!(seen.is_some() || vm.alarms() == 1, "nobody will look again");
        drop(start);
        vm.assert_all_slots_are_back();
    });
}

#[test]
fn an_expiry_beside_an_exit_is_the_one_or_the_other() {
    model(|| {
        let vm = Vm::new(ONE);
        let mut handle = timed(&vm);
        let id = handle.id();
        let device = Arc::clone(&vm);
        let device = spawn(move || device.ends(id, b""));
        let clock = Arc::clone(&vm);
        let clock = spawn(move || {
            clock.hub.expire_by(crate::clock::now() + MINUTE);
            clock.speak();
        });
        match block_on(handle.wait()) {
            Ok(status) => assert!(status.success() && !status.timed_out(), "{status}"),
            Err(ExecError::TimedOut { output, .. }) => {
                let status = output.status();
                assert!(
                    status.timed_out() && status.signal() == Some(Signal::KILL),
                    "{status}"
                );
            }
            Err(error) => panic!("{error}"),
        }
        device.join().unwrap();
        clock.join().unwrap();
        drop(handle);
        vm.assert_all_slots_are_back();
    });
}

#[test]
fn whoever_waits_is_told_that_an_end_is_unconfirmed_or_what_it_was() {
    model(|| {
        let vm = Vm::new(ONE);
        let mut handle = timed(&vm);
        let expired = clock::now() + MINUTE;
        vm.room(false);
        vm.hub.expire_by(expired);
        let clock = Arc::clone(&vm);
        let clock = spawn(move || clock.hub.expire_by(expired + MINUTE));
        let device = Arc::clone(&vm);
        let device = spawn(move || {
            device.room(true);
            device.speak();
        });
        match block_on(handle.wait()) {
            Err(ExecError::TimedOut { .. } | ExecError::Unconfirmed { .. }) => {}
            other => panic!("{other:?}"),
        }
        clock.join().unwrap();
        device.join().unwrap();
        let late = block_on(handle.wait());
        assert!(matches!(late, Err(ExecError::TimedOut { .. })), "{late:?}");
    });
}

// What is to be sent leaves.

#[test]
fn what_two_threads_ask_for_leaves_without_another_kick() {
    model(|| {
        let vm = Vm::new(ONE);
        let handle = vm.start("stall", Stdin::null());
        let id = handle.id();
        let control = handle.control();
        let other = spawn(move || {
            let mut signal = pin!(control.signal(Signal::USR1));
            assert!(once(signal.as_mut()).is_ready());
        });
        // The guest posts buffers, which makes the device look by itself.
        let device = Arc::clone(&vm);
        let device = spawn(move || device.room(true));
        let mut signal = Box::pin(handle.signal(Signal::USR2));
        assert!(once(signal.as_mut()).is_ready());
        other.join().unwrap();
        device.join().unwrap();
        let arrived = vm.command(id, |command| command.signals.len());
        assert_eq!(arrived, Some(2));
    });
}
