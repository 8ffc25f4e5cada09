#![allow(unsafe_code)] // reading the union that KVM describes its interrupt controllers with

use super::*;
use crate::agent::NoAgent;
use crate::agent_port::{Closed, Gate, HEADER_LEN, Outgoing, Verdict};
use crate::testing::{CRASH, HALT, SPIN, alone, out, print, run};
use crate::vcpu::look::Activity;
use std::sync::Mutex;

const LONG: Option<Duration> = Some(Duration::from_secs(60));

fn end_of(code: &[&[u8]]) -> Option<StopReason> {
    let machine = run(code, Arc::new(NoAgent))?;
    Some(machine.wait_blocking(LONG).expect("no end"))
}

/// Fails if the code ended the machine otherwise; passes where there is no KVM.
fn assert_end(code: &[&[u8]], expected: &StopReason) {
    if let Some(reason) = end_of(code) {
        assert_eq!(reason, *expected);
    }
}

#[test]
fn each_way_of_a_guest_to_end_is_told_apart() {
    assert_end(&[&out(0x600, 0x34), &SPIN], &StopReason::PowerOff);
    assert_end(&[&out(0x602, 1), &SPIN], &StopReason::Reboot);
    assert_end(&[&out(0x64, 0xfe), &SPIN], &StopReason::Reboot);
    assert_end(
        &[
            &print("Kernel panic - not syncing: testing\n"),
            &out(0x505, 1),
            &out(0x602, 1),
            &SPIN,
        ],
        &StopReason::Panic {
            message: Some("testing".into()),
        },
    );
}

#[test]
fn a_guest_that_crashes_is_shown_with_what_is_known_of_it() {
    match end_of(&[&CRASH]) {
        None | Some(StopReason::TripleFault { vcpu: 0, .. }) => {}
        // A KVM that only emulates cannot even deliver the exception.
        Some(StopReason::KvmError {
            vcpu: 0,
            exit,
            registers: Some(registers),
        }) => {
            assert!(exit.contains(": cc"), "{exit}");
            assert_eq!(registers.rip, u64::from(crate::testing::ENTRY));
        }
        Some(other) => panic!("{other}"),
    }
}

#[test]
fn a_panic_without_a_reset_ends_all_the_same() {
    assert_end(
        &[&out(0x505, 1), &SPIN],
        &StopReason::Panic { message: None },
    );
}

#[test]
fn a_guest_that_never_leaves_its_loop_is_stopped() {
    let Some(machine) = run(&[&print("on"), &SPIN], Arc::new(NoAgent)) else {
        return;
    };
    while machine.console_log().text() != "on" {
        std::thread::yield_now();
    }
    assert_eq!(machine.stopped(), None);
    machine.stop();
    assert_eq!(machine.wait_blocking(LONG), Some(StopReason::Requested));
}

#[test]
fn a_guest_that_does_not_switch_itself_off_when_asked_is_killed_and_that_is_told() {
    let Some(machine) = run(&[&SPIN], Arc::new(NoAgent)) else {
        return;
    };
    machine.expect_power_off(Duration::from_millis(50));
    assert_eq!(
        machine.wait_blocking(LONG),
        Some(StopReason::Forced { after_ms: 50 })
    );
}

#[test]
fn a_running_guest_and_a_halted_one_are_told_apart_by_a_look() {
    let Some(running) = run(&[&SPIN], Arc::new(NoAgent)) else {
        return;
    };
    let view = running.vcpus.look()[0].unwrap();
    assert_eq!(view.activity, Activity::Running);
    assert!(!running.vcpus.are_all_dead());

    let halted = run(&[&print("."), &HALT], Arc::new(NoAgent)).unwrap();
    while halted.console_log().written() == 0 || !halted.vcpus.are_all_dead() {
        std::thread::yield_now();
    }
    let view = halted.vcpus.look()[0].unwrap();
    assert_eq!((view.activity, view.interrupts), (Activity::Halted, false));
    assert_eq!(halted.stopped(), None, "a look changes nothing");
}

#[test]
fn many_kicks_at_once_are_all_answered() {
    let Some(machine) = run(&[&SPIN], Arc::new(NoAgent)) else {
        return;
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    assert!(machine.vcpus.look()[0].is_some(), "a kick was lost");
                }
            });
        }
    });
}

#[test]
fn a_guest_is_stopped_also_where_the_user_may_queue_no_signal() {
    let name = "machine::tests::a_guest_is_stopped_also_where_the_user_may_queue_no_signal";
    alone(name, || {
        use rustix::process::{Resource, Rlimit, setrlimit};
        let none = Rlimit {
            current: Some(0),
            maximum: Some(0),
        };
        setrlimit(Resource::Sigpending, none).unwrap();
        let Some(machine) = run(&[&print("on"), &SPIN], Arc::new(NoAgent)) else {
            return;
        };
        while machine.console_log().text() != "on" {
            std::thread::yield_now();
        }
        machine.stop();
        let reason = machine.wait_blocking(LONG);
        if reason.is_none() {
            // Not by unwinding: the drop would wait for the vCPU for ever.
            eprintln!("the vCPU was not stopped");
            std::process::exit(1);
        }
        assert_eq!(reason, Some(StopReason::Requested));
    });
}

/// Lines of what this process has, by those that are ours.
fn mine(directory: &str, wanted: impl Fn(&std::path::Path) -> bool) -> usize {
    std::fs::read_dir(directory)
        .unwrap()
        .filter(|entry| entry.as_ref().is_ok_and(|entry| wanted(&entry.path())))
        .count()
}

#[test]
fn a_drop_stops_the_guest_before_it_returns() {
    let Some(machine) = run(&[&SPIN], Arc::new(NoAgent)) else {
        return;
    };
    let lifecycle = Arc::clone(&machine.lifecycle);
    drop(machine);
    // Nothing runs any more, so this does not wait.
    lifecycle.wait_vcpus();
    assert_eq!(lifecycle.reason(), Some(StopReason::Dropped));
    assert_eq!(lifecycle.wait_blocking(LONG), Some(StopReason::Dropped));
}

#[test]
fn a_machine_that_is_dropped_on_a_vcpus_thread_is_freed_by_another() {
    let Some(machine) = run(&[&SPIN], Arc::new(NoAgent)) else {
        return;
    };
    let device = Arc::downgrade(&machine.console);
    let waker = std::thread::spawn(move || {
        machine.lifecycle.vcpu_runs_here();
        drop(machine);
    });
    waker.join().unwrap();
    let limit = Instant::now() + LONG.unwrap();
    while device.upgrade().is_some() {
        assert!(Instant::now() < limit, "nobody frees it");
        std::thread::yield_now();
    }
}

#[test]
fn the_power_button_raises_its_line() {
    let Some(machine) = run(&[&HALT], Arc::new(NoAgent)) else {
        return;
    };
    // The second of the two old interrupt controllers latches an edge, with nobody to take it.
    let pressed = || {
        let mut chip = kvm_bindings::kvm_irqchip {
            chip_id: kvm_bindings::KVM_IRQCHIP_PIC_SLAVE,
            ..Default::default()
        };
        let (remains, _) = machine.remains.as_ref().unwrap();
        remains.vm.get_irqchip(&mut chip).unwrap();
        // SAFETY: the chip that was asked for is one of this kind.
        let requests = unsafe { chip.chip.pic.irr };
        requests & 1 << (crate::layout::GSI_POWER_BUTTON - 8) != 0
    };
    assert!(!pressed());
    machine.press_power_button();
    let limit = Instant::now() + LONG.unwrap();
    while !pressed() {
        assert!(Instant::now() < limit, "the line stays low");
        std::thread::yield_now();
    }
}

#[test]
fn a_close_frees_the_memory_and_says_how_it_ended() {
    let Some(machine) = run(&[&out(0x600, 0x34), &SPIN], Arc::new(NoAgent)) else {
        return;
    };
    machine.wait_blocking(LONG);
    let memory = Arc::downgrade(&machine.console);
    let reason = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(machine.close());
    assert_eq!(reason, StopReason::PowerOff);
    assert!(memory.upgrade().is_none(), "somebody holds the devices");
}

#[test]
fn descriptors_are_closed_on_exec() {
    let Some(machine) = run(&[&SPIN], Arc::new(NoAgent)) else {
        return;
    };
    machine.vcpus.look();
    let open = mine("/proc/self/fd", |path| {
        let kind = std::fs::read_link(path).unwrap_or_default();
        let kind = kind.to_string_lossy();
        let ours = ["kvm", "eventfd", "timerfd", "eventpoll"];
        if !ours.iter().any(|name| kind.contains(name)) {
            return false;
        }
        let number = path.file_name().unwrap().to_str().unwrap();
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}"));
        let Ok(info) = info else {
            return false; // closed meanwhile, by another test
        };
        let flags = info.lines().find_map(|l| l.strip_prefix("flags:")).unwrap();
        let flags = i32::from_str_radix(flags.trim(), 8).unwrap();
        flags & libc::O_CLOEXEC == 0
    });
    assert_eq!(open, 0, "descriptors that an exec would hand on");
}

/// Records the order of what it is told.
#[derive(Default)]
struct Recorder {
    told: Mutex<Vec<String>>,
    panics: bool,
}

impl Gate for Recorder {
    fn judge(&self, _head: &[u8; HEADER_LEN], rest: usize) -> Verdict {
        Verdict::Discard(rest)
    }

    fn deliver(&self, _payload: Vec<u8>) -> Result<(), &'static str> {
        Ok(())
    }

    fn next_to_guest(&self) -> Option<Outgoing> {
        None
    }

    fn opened(&self) {}

    fn closed(&self, _why: Closed) {}
}

impl AgentSide for Recorder {
    fn vm_stopped(&self, reason: &StopReason) {
        self.told.lock().unwrap().push(reason.to_string());
        assert!(!self.panics, "as the test wants it");
    }
}

#[test]
fn the_agent_side_learns_of_the_end_before_the_waiters() {
    let agent = Arc::new(Recorder::default());
    let Some(machine) = run(&[&out(0x602, 1), &SPIN], Arc::clone(&agent) as _) else {
        return;
    };
    let reason = machine.wait_blocking(LONG).unwrap();
    assert_eq!(*agent.told.lock().unwrap(), [reason.to_string()]);
}

#[test]
fn an_agent_side_that_panics_keeps_no_waiter_waiting() {
    let agent = Arc::new(Recorder {
        panics: true,
        ..Recorder::default()
    });
    let Some(machine) = run(&[&out(0x602, 1), &SPIN], agent) else {
        return;
    };
    assert_eq!(machine.wait_blocking(LONG), Some(StopReason::Reboot));
}

#[test]
fn a_console_tap_that_panics_ends_that_machine_only() {
    if kvm::open().is_err() {
        return;
    }
    let (_dir, builder) = crate::testing::kernel(&[&print("x"), &SPIN]);
    let spec = builder
        .console_tap(|_| panic!("as the test wants it"))
        .spec()
        .unwrap();
    let machine = Machine::start_probed(spec, Arc::new(NoAgent), Probing::not_needed()).unwrap();
    match machine.wait_blocking(LONG).unwrap() {
        StopReason::Internal { thread, message } => {
            assert_eq!(thread, "forebay-vcpu0");
            assert!(message.contains("as the test wants it"));
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_boot_that_does_not_become_ready_ends_at_its_deadline() {
    if kvm::open().is_err() {
        return;
    }
    let (_dir, builder) = crate::testing::kernel(&[&print("booting\n"), &HALT]);
    let spec = builder
        .boot_deadline(Duration::from_millis(200))
        .spec()
        .unwrap();
    let machine = Machine::start_probed(spec, Arc::new(NoAgent), Probing::not_needed()).unwrap();
    let reason = machine.wait_blocking(LONG).unwrap();
    assert_eq!(
        reason,
        StopReason::BootDeadline {
            limit_ms: 200,
            halted: true
        }
    );
    let failure = machine.boot_failure(reason).to_string();
    assert!(failure.contains("booting"), "{failure}");
    assert!(failure.contains("halted itself"), "{failure}");
}
