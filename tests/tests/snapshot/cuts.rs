//! Executions of every kind go on wherever a VM is cut, in its copies and in itself.

use std::time::Duration;

use forebay::{Limits, Restore, Survivors, Vm};
use forebay_tests::{
    Seed, TestVm, assert_answers, assert_slots_come_free, builder, rounds, scaled, turn,
};

use crate::crew::Crew;

/// Rounds by hand.
const ALL: u32 = 200;
/// The longest that a round waits before the cut, on hardware.
const DELAY: Duration = Duration::from_millis(5);

/// So that a window is filled, and read beyond, in a moment.
fn limits() -> Limits {
    Limits {
        output_limit: 32 * 1024,
        output_chunk_size: 4 * 1024,
        input_limit: 16 * 1024,
        stdin_chunk_size: 4 * 1024,
        ..Limits::default()
    }
}

/// A copy of a VM at work, made in one of the ways that there are.
async fn cut(vm: &Vm, dir: &tempfile::TempDir, seed: &mut Seed) -> Restore {
    let path = dir.path().join("snapshot");
    let restore = match seed.below(4) {
        0 => vm.template().await.unwrap().fork(),
        1 => {
            vm.snapshot(&path).await.unwrap();
            Vm::restore(path)
        }
        // Without bringing the guest to rest, wherever it is.
        2 => {
            let template = vm.pause().unwrap().template().unwrap();
            assert!(!template.is_clone_safe());
            template.fork()
        }
        _ => {
            vm.pause().unwrap().snapshot(&path, |_, _| ()).unwrap();
            Vm::restore(path)
        }
    };
    restore.survivors(Survivors::Adopt)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_of_execution_goes_on_wherever_the_cut_is() {
    let _turn = turn().await;
    let mut seed = Seed::announced("cuts");
    let rounds = rounds(ALL);
    let kinds = [1, 2, 4];
    for cpus in kinds {
        let guest = builder().cpus(cpus).memory_mib(96).forkable(true);
        let mut vm = TestVm::start(guest.exec_limits(limits())).await;
        let mut crew = Crew::start(&vm, &mut seed).await;
        for round in 0..rounds.div_ceil(kinds.len() as u32) {
            crew.stalls(&vm).await;
            let dir = tempfile::tempdir().unwrap();
            let busy = crew.go_on(&mut seed);
            let delay = scaled(DELAY).as_micros() as u64;
            tokio::time::sleep(Duration::from_micros(seed.below(delay))).await;
            let restore = cut(&vm, &dir, &mut seed).await;
            let (source, before) = busy.stop().await;
            let copy = TestVm::restore(restore).await;
            let copied = source.adopt(&copy, &before);
            let copied = copied.check(&copy, &mut seed).await;
            // Now and then the next is a copy of this one, so that lineage becomes deep.
            if seed.below(3) == 0 {
                eprintln!("after round {round} of {cpus} vCPUs: on with the copy");
                drop(source.check(&vm, &mut seed).await);
                assert_slots_come_free(&vm).await;
                (vm, crew) = (copy, copied);
            } else {
                crew = source;
                drop(copied);
                assert_slots_come_free(&copy).await;
                assert_answers(&copy).await;
            }
        }
        drop(crew.check(&vm, &mut seed).await);
        assert_slots_come_free(&vm).await;
    }
}
