//! A guest that takes nothing from its port any more: what is meant for it waits where the
//! allowances say, what it sends still arrives, and the VM is stopped as any other.

use std::time::Duration;

use bytes::Bytes;
use forebay::{Stdin, StopReason, WriteError};
use forebay_guest_helper::pattern::Pattern;
use forebay_tests::{CEILING, TestVm, Within as _, turn};

use super::{Held, LONG, LOOK_AGAIN, assert_slots_in_use, comes_to_rest, hostile};

/// With their allowances of stdin they fill the ring towards the guest twice.
const WRITERS: u32 = 16;

/// What each of them is sent.
const MUCH: usize = 1024 * 1024;

/// Less than a window: it needs no acknowledgement.
const LITTLE: usize = 900_000;

#[tokio::test]
async fn a_real_guest_that_never_reads_again_holds_up_only_what_is_meant_for_it() {
    let _turn = turn().await;
    let vm = TestVm::start(hostile("honest")).await;
    let mut writers = Vec::new();
    for _ in 0..WRITERS {
        let cat = vm.exec("cat", [""; 0]).stdin(Stdin::piped());
        writers.push(cat.spawn().within(CEILING).await.unwrap());
    }
    // The application's own buffer, and one for all.
    let much = Bytes::from(vec![b'x'; MUCH]);
    let held = Held::now(&vm).await;

    let last_words = vm.exec("stop-reading", ["9".to_owned(), LITTLE.to_string()]);
    let last_words = last_words.within(LONG).await.unwrap();
    assert!(last_words.status().success(), "{}", last_words.status());
    assert_eq!(last_words.stdout().len(), LITTLE);
    assert_eq!(Pattern::new(9).first_difference(last_words.stdout()), None);
    drop(last_words);

    let writes = writers.iter_mut().map(|writer| {
        let (sink, much) = (writer.take_stdin().unwrap(), much.clone());
        tokio::spawn(async move { sink.write(much).await })
    });
    let writes: Vec<_> = writes.collect();
    let full = async {
        while !vm.inspect().machine.device.agent.placing {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    };
    full.within(CEILING).await;
    // A start that cannot leave waits, and one that is given up gives its slot back.
    let start = vm.exec("random", ["1", "1"]).spawn();
    let start = tokio::time::timeout(Duration::from_millis(100), start).await;
    assert!(start.is_err(), "who answered? {start:?}");
    assert_slots_in_use(&vm, WRITERS).await;

    comes_to_rest(&vm).await;
    assert_eq!(vm.stopped(), None);
    held.assert_flat(1, "with a full ring");
    let limit = u64::from(vm.client().limits().input_limit);
    for one in vm.inspect().executions.executions {
        assert!(one.stdin_sent <= limit, "{one:?}");
        assert!(one.stdin_pending > 0, "{one:?}");
    }
    assert!(writes.iter().all(|write| !write.is_finished()));

    vm.kill();
    assert_eq!(vm.wait().within(CEILING).await, StopReason::Requested);
    for write in writes {
        let told = write.within(CEILING).await.unwrap();
        assert!(matches!(told, Err(WriteError::VmGone { .. })), "{told:?}");
    }
    drop(writers);
    vm.close().within(CEILING).await;
}
