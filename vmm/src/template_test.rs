use super::*;
use crate::memory::{Backing, GuestRam, MIB};
use crate::snapshot::file::{Records, Shape};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use vm_memory::{Bytes as _, GuestAddress};

/// Saves a machine with a MiB of memory, of which no page is zero.
fn save(
    directory: PathBuf,
    progress: impl FnMut(u64, u64) + Send + 'static,
) -> impl Future<Output = Result<SnapshotReport, SnapshotError>> {
    let ram = GuestRam::new(MIB, Backing::Shareable).unwrap();
    let ones = vec![1; MIB as usize];
    ram.guest().write_slice(&ones, GuestAddress(0)).unwrap();
    let memory = ram.freeze().unwrap().image;
    let state = State {
        shape: Shape {
            vendor: *b"maker of all",
            signature: 0,
            memory: MIB,
            cpus: 1,
        },
        records: Records::default(),
        taken: SystemTime::now(),
    };
    while_waited_for(progress, move |progress| {
        directory::write(&directory, state, |file| {
            Ok(memory.write_to(file, progress)?)
        })
    })
}

#[test]
fn a_save_tells_how_far_it_is_until_it_is_all_there() {
    let dir = tempfile::tempdir().unwrap();
    let (sender, told) = mpsc::channel();
    let saving = save(dir.path().to_owned(), move |done, total| {
        sender.send((done, total)).unwrap();
    });
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let report = runtime.unwrap().block_on(saving).unwrap();
    assert_eq!(report.memory_bytes / MIB, 1);
    let told: Vec<_> = told.iter().collect();
    assert!(told.len() > 1, "{told:?}");
    assert!(told.is_sorted(), "{told:?}");
    assert_eq!(told.last(), Some(&(MIB, MIB)));
    directory::read(dir.path()).unwrap();
}

#[test]
fn a_save_that_nobody_waits_for_any_more_stops_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (sender, told) = mpsc::channel();
    let (go_on, wait) = mpsc::channel();
    {
        let mut saving = pin!(save(dir.path().to_owned(), move |done, _| {
            sender.send(done).unwrap();
            wait.recv().unwrap();
        }));
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Pending = saving.as_mut().poll(&mut context) else {
            panic!("it did not wait for its progress");
        };
        assert!(told.recv().unwrap() < MIB);
        assert!(dir.path().join("memory.unfinished").exists());
    }
    // As often as it asks, if it does: after once it should have gone.
    for _ in 0..100 {
        let _ = go_on.send(());
    }
    // Its end of the channel is dropped when the thread is done.
    assert_eq!(told.iter().count(), 0);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
