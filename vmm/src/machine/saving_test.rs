use super::*;
use crate::builder::VmBuilder;
use crate::pause::PauseError;
use crate::probe::Probing;
use crate::snapshot::RecordProblem;
use crate::testing::{self, COUNT, HALT, Random, SPIN, kernel, numbers_from, out, print, reaches};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tempfile::TempDir;

const LONG: Option<Duration> = Some(Duration::from_secs(60));

fn start(builder: VmBuilder) -> Option<Machine> {
    testing::start(builder, Arc::new(NoAgent))
}

/// The log of a copy that counts from `first` on, and how far that has come.
fn log_from(first: u64) -> (Arc<ConsoleLog>, Arc<AtomicU64>) {
    let (tap, counted) = numbers_from(first);
    let log = ConsoleLog::with_tap(ConsoleLog::DEFAULT_CAPACITY, Some(tap));
    (log, counted)
}

#[test]
fn every_copy_of_a_counting_guest_goes_on_without_repeat_or_gap() {
    for (cpus, rounds) in [(1, 200), (2, 40), (4, 40)] {
        let (tap, mut counted) = numbers_from(0);
        let (_kernel, builder) = kernel(&[&COUNT]);
        let Some(mut machine) = start(builder.cpus(cpus).console_tap(tap)) else {
            return;
        };
        // Copies of copies, each taken of one that runs.
        for round in 0..rounds {
            let dir = tempfile::tempdir().unwrap();
            reaches(
                &counted,
                counted.load(Ordering::SeqCst) + round % 7,
                &machine,
            );
            let paused = machine.pause().unwrap();
            let at = counted.load(Ordering::SeqCst);
            paused.snapshot(dir.path()).unwrap();
            paused.resume();
            let (log, copied) = log_from(at);
            let copy = Machine::restore(dir.path(), log).unwrap();
            reaches(&copied, at + 3, &copy);
            // The source goes on too.
            reaches(&counted, at + 3, &machine);
            (machine, counted) = (copy, copied);
        }
    }
}

/// A guest that has printed, and stands still in a snapshot.
fn saved(code: &[&[u8]], cpus: u8) -> Option<(TempDir, Machine)> {
    let (_kernel, builder) = kernel(code);
    let machine = start(builder.cpus(cpus))?;
    while machine.console_log().written() == 0 {
        std::thread::yield_now();
    }
    let dir = tempfile::tempdir().unwrap();
    machine.pause().unwrap().snapshot(dir.path()).unwrap();
    Some((dir, machine))
}

fn restore(dir: &TempDir) -> Result<Machine, RestoreError> {
    Machine::restore(dir.path(), ConsoleLog::new(ConsoleLog::DEFAULT_CAPACITY))
}

#[test]
fn a_restored_machine_ends_as_any_other() {
    let Some((dir, source)) = saved(&[&print("x"), &SPIN], 2) else {
        return;
    };
    drop(source);
    let machine = restore(&dir).unwrap();
    let view = machine.inspect();
    assert!(!view.paused);
    assert_eq!(view.vcpus.len(), 2);
    assert!(view.vcpus.iter().all(Option::is_some));
    machine.stop();
    assert_eq!(machine.wait_blocking(LONG), Some(StopReason::Requested));
    drop(machine);
    drop(restore(&dir).unwrap());
}

#[test]
fn a_restored_machine_stands_still_until_it_is_told_to_go_on() {
    let Some((dir, _source)) = saved(&[&COUNT], 1) else {
        return;
    };
    let (state, image) = directory::read(dir.path()).unwrap();
    let log = ConsoleLog::new(ConsoleLog::DEFAULT_CAPACITY);
    let machine = Machine::restore_paused(
        state,
        GuestRam::from_image(&image).unwrap(),
        &[7; 16],
        BootClock::start(),
        Arc::clone(&log),
        Arc::new(NoAgent),
    )
    .unwrap();
    assert!(machine.inspect().paused);
    assert!(matches!(machine.pause(), Err(PauseError::AlreadyPaused)));
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(log.written(), 0);
    let report = machine.boot_report();
    assert!(report.set_up.is_some());
    assert_eq!(report.first_instruction, None, "it has executed nothing");
    // It can be saved as it stands.
    let again = PausedMachine::new(&machine);
    let other = tempfile::tempdir().unwrap();
    again.snapshot(other.path()).unwrap();
    again.resume();
    while log.written() == 0 {
        std::thread::yield_now();
    }
    assert!(machine.boot_report().first_instruction >= report.set_up);
    drop(restore(&other).unwrap());
}

#[test]
fn every_copy_has_a_generation_id_of_its_own() {
    use vm_memory::{Bytes as _, GuestAddress};
    let Some((dir, source)) = saved(&[&print("x"), &SPIN], 1) else {
        return;
    };
    let id = |machine: &Machine| {
        let mut id = [0u8; 16];
        let address = GuestAddress(crate::layout::GENERATION_ID);
        let guest = machine.memory().unwrap().guest();
        guest.read_slice(&mut id, address).unwrap();
        id
    };
    let (a, b) = (restore(&dir).unwrap(), restore(&dir).unwrap());
    let mut ids = vec![id(&source), id(&a), id(&b), [0; 16]];
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 4, "two are the same");
}

#[test]
fn a_machine_that_ended_is_not_saved() {
    let (_kernel, builder) = kernel(&[&SPIN]);
    let Some(machine) = start(builder) else {
        return;
    };
    let paused = machine.pause().unwrap();
    machine.stop();
    let dir = tempfile::tempdir().unwrap();
    match paused.snapshot(dir.path()) {
        Err(SnapshotError::Ended { reason }) => assert_eq!(reason, StopReason::Requested),
        other => panic!("{other:?}"),
    }
    assert!(directory::read(dir.path()).is_err());
}

#[test]
fn a_machine_whose_memory_was_lost_while_it_was_frozen_ends_before_it_goes_on() {
    const NAME: &str = "machine::saving::tests::\
        a_machine_whose_memory_was_lost_while_it_was_frozen_ends_before_it_goes_on";
    crate::testing::alone(NAME, || {
        let (_kernel, builder) = kernel(&[&COUNT]);
        let Some(machine) = start(builder.forkable(true)) else {
            return;
        };
        let paused = machine.pause().unwrap();
        let printed = machine.console_log().written();
        let Some(taken) = crate::testing::take_mappings() else {
            return;
        };
        let error = paused.freeze().unwrap_err();
        drop(taken);
        let SnapshotError::Ended { reason } = error else {
            panic!("{error}");
        };
        let text = reason.to_string();
        assert!(matches!(reason, StopReason::Host { .. }), "{text}");
        assert!(text.contains("memory was lost"), "{text}");
        paused.resume();
        assert_eq!(machine.wait_blocking(LONG), Some(reason));
        assert_eq!(machine.console_log().written(), printed);
    });
}

#[test]
fn a_panic_that_was_reported_before_ends_the_copy_too() {
    let Some((dir, _source)) = saved(&[&out(0x505, 1), &print("x"), &HALT], 1) else {
        return;
    };
    let copy = restore(&dir).unwrap();
    assert_eq!(
        copy.wait_blocking(LONG),
        Some(StopReason::Panic { message: None })
    );
}

#[test]
fn what_a_snapshot_lacks_or_has_too_much_is_named() {
    let Some((dir, _source)) = saved(&[&print("x"), &SPIN], 1) else {
        return;
    };
    let refused = |state: State| {
        let image = directory::read(dir.path()).unwrap().1;
        let memory = GuestRam::from_image(&image).unwrap();
        let log = ConsoleLog::new(ConsoleLog::DEFAULT_CAPACITY);
        let agent = Arc::new(NoAgent);
        Machine::restore_paused(state, memory, &[7; 16], BootClock::start(), log, agent)
            .map(drop)
            .unwrap_err()
    };
    let (state, _) = directory::read(dir.path()).unwrap();
    for name in ["kvm", "transport", "console", "platform"] {
        let mut less = state.clone();
        less.records.take(name, 1).unwrap();
        match refused(less) {
            RestoreError::Record { record, problem } => {
                assert_eq!((&*record, problem), (name, RecordProblem::Missing));
            }
            other => panic!("{name}: {other}"),
        }
    }
    let mut more = state.clone();
    more.records.put("exec", 1, Vec::new());
    match refused(more) {
        RestoreError::Record { record, problem } => {
            assert_eq!((&*record, problem), ("exec", RecordProblem::Unknown));
        }
        other => panic!("{other}"),
    }
    for cpus in [0, 2, 300] {
        let mut wrong = state.clone();
        wrong.shape.cpus = cpus;
        let error = refused(wrong).to_string();
        assert!(error.contains("vCPU"), "{cpus}: {error}");
    }
    let mut wrong = state.clone();
    wrong.shape.memory += 4096;
    assert!(matches!(refused(wrong), RestoreError::Machine { .. }));
    // And as it was it is taken.
    drop(restore(&dir).unwrap());
}

#[test]
fn devices_of_a_state_that_is_changed_anywhere_are_refused_or_behave() {
    let Some((dir, _source)) = saved(&[&COUNT], 1) else {
        return;
    };
    let (state, image) = directory::read(dir.path()).unwrap();
    let mut random = Random::announced();
    let mut taken = 0;
    for round in 0..300 {
        let name = ["transport", "console", "platform"][round % 3];
        let mut changed = state.clone();
        let bytes = changed.records.take(name, 1).unwrap();
        changed.records.put(name, 1, random.change(&bytes));
        let memory = GuestRam::from_image(&image).unwrap();
        let log = ConsoleLog::new(ConsoleLog::DEFAULT_CAPACITY);
        let agent = Arc::new(NoAgent);
        let begun = BootClock::start();
        let Ok(machine) = Machine::restore_paused(changed, memory, &[7; 16], begun, log, agent)
        else {
            continue;
        };
        taken += 1;
        machine.resume();
        assert!(!machine.inspect().paused);
        machine.pause().unwrap().resume();
        machine.stop();
        assert_eq!(machine.wait_blocking(LONG), Some(StopReason::Requested));
    }
    assert!(taken > 0, "no change came as far as a machine");
}

#[test]
fn a_memory_file_that_is_cut_ends_the_machine_that_runs_from_it_and_no_other() {
    let Some((dir, source)) = saved(&[&COUNT], 1) else {
        return;
    };
    let copy = restore(&dir).unwrap();
    std::fs::File::create(dir.path().join("memory")).unwrap();
    let reason = copy.wait_blocking(LONG).unwrap();
    // A KVM that only emulates says that there is no instruction where it reads none.
    let emulated = matches!(reason, StopReason::KvmError { .. });
    assert!(reason == StopReason::MemoryLost || emulated, "{reason}");
    assert_eq!(source.stopped(), None);
    let error = restore(&dir).unwrap_err();
    assert!(matches!(error, RestoreError::Memory(_)), "{error}");
}

#[test]
fn a_snapshot_from_which_a_machine_runs_is_not_replaced() {
    let Some((dir, source)) = saved(&[&COUNT], 1) else {
        return;
    };
    let copy = restore(&dir).unwrap();
    let error = source.pause().unwrap().snapshot(dir.path()).unwrap_err();
    assert!(matches!(error, SnapshotError::Exists { .. }), "{error}");
    let printed = copy.console_log().written();
    while copy.console_log().written() < printed + 10 {
        assert_eq!(copy.stopped(), None, "its memory was taken from it");
        std::thread::yield_now();
    }
    drop(restore(&dir).unwrap());
}

/// Keeps what it was told of time.
#[derive(Default)]
struct Told(Mutex<Vec<&'static str>>);

impl crate::agent_port::Gate for Told {
    fn judge(
        &self,
        _head: &[u8; crate::agent_port::HEADER_LEN],
        rest: usize,
    ) -> crate::agent_port::Verdict {
        crate::agent_port::Verdict::Discard(rest)
    }

    fn deliver(&self, _payload: Vec<u8>) -> Result<(), &'static str> {
        Ok(())
    }

    fn next_to_guest(&self) -> Option<crate::agent_port::Outgoing> {
        None
    }

    fn opened(&self) {}

    fn closed(&self, _why: crate::agent_port::Closed) {}
}

impl AgentSide for Told {
    fn vm_stopped(&self, _reason: &StopReason) {}

    fn hold_time(&self) {
        self.0.lock().unwrap().push("hold");
    }

    fn release_time(&self) {
        self.0.lock().unwrap().push("release");
    }
}

#[test]
fn the_agent_side_is_told_when_time_stands_still_and_when_it_goes_on() {
    let (_kernel, mut builder) = kernel(&[&SPIN]);
    if kvm::open().is_err() {
        return;
    }
    let agent = Arc::new(Told::default());
    let spec = builder.spec().unwrap();
    let machine =
        Machine::start_probed(spec, Arc::clone(&agent) as _, Probing::not_needed()).unwrap();
    let told = || agent.0.lock().unwrap().clone();
    for n in 1..=2 {
        let paused = machine.pause().unwrap();
        assert_eq!(told(), ["hold", "release"].repeat(n)[..2 * n - 1]);
        paused.resume();
        assert_eq!(told(), ["hold", "release"].repeat(n));
    }
}
