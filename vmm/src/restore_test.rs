use super::*;
use crate::memory::MIB;
use crate::snapshot::directory::State;
use crate::snapshot::file::{self, Records, Shape};
use crate::template;
use crate::testing::Random;
use forebay_exec::{Config, SavedConn, Verdict};
use forebay_exec_proto::guest::{Conn, Transmit};
use forebay_exec_proto::{FRAME_MAX, HEADER_LEN};
use std::path::Path;
use std::time::SystemTime;

/// The executions' side of a VM whose agent is ready.
fn exec() -> SavedConn {
    let hub = Hub::new(Config::default()).unwrap();
    hub.opened();
    let mut agent = Conn::new();
    let bootstrap = hub.next_to_guest().unwrap();
    agent.handle_bytes(&bootstrap.head).unwrap();
    agent.handle_bytes(&bootstrap.body).unwrap();
    agent.ready(Ready {
        capabilities: Some(vec![QUIESCE.to_owned()]),
        ..Ready::default()
    });
    let mut frame = [0; FRAME_MAX];
    let Transmit::Frame(len) = agent.poll_transmit(&mut frame) else {
        panic!("the agent has nothing to say");
    };
    let (head, body) = frame[..len].split_first_chunk::<HEADER_LEN>().unwrap();
    assert_eq!(hub.judge(head, body.len()), Verdict::Accept(body.len()));
    hub.deliver(body.to_vec()).unwrap();
    hub.save().unwrap()
}

/// Writes a snapshot that [`Template::open`] takes.
fn write_snapshot(directory: &Path) {
    let mut records = Records::default();
    records.put("kvm", 1, (0..=255).collect());
    let machine = State {
        shape: Shape {
            vendor: *b"maker of all",
            signature: 0x123,
            memory: MIB,
            cpus: 1,
        },
        records,
        taken: SystemTime::now(),
    };
    let origin = Vm::builder().kernel("/boot/vmlinux").origin();
    template::write(directory, machine, &exec(), &origin, |memory| {
        memory.set_len(MIB).unwrap();
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_state_file_that_is_changed_anywhere_is_refused_by_name_by_all_who_read_it() {
    let dir = tempfile::tempdir().unwrap();
    write_snapshot(dir.path());
    let path = dir.path().join(file::NAME);
    let whole = std::fs::read(&path).unwrap();
    let open = || Template::open(dir.path());
    assert_eq!(open().unwrap().executions(), []);
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.unwrap();
    let restore = || runtime.block_on(Vm::restore(dir.path()).start());
    let mut random = Random::announced();
    for round in 0..2000 {
        let changed = random.change(&whole);
        std::fs::write(&path, &changed).unwrap();
        let at = whole.iter().zip(&changed).position(|(a, b)| a != b);
        for error in [open().unwrap_err(), restore().unwrap_err()] {
            assert!(
                matches!(
                    error,
                    RestoreError::NotASnapshot
                        | RestoreError::Version { .. }
                        | RestoreError::Length { .. }
                        | RestoreError::Damaged
                ),
                "round {round}, at {at:?}: {error}"
            );
        }
    }
    std::fs::write(&path, &whole).unwrap();
    open().unwrap();
}
