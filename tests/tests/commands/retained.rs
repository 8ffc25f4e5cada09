//! A command that is over and of which nobody has read: its slot, its output and its end are kept.
//! What arrives later includes the tail that stood in the guest's pipe when the allowance ran out.

use forebay::{Limits, Signal};
use forebay_guest_helper::pattern::Pattern;
use forebay_tests::{CEILING, HELPER, TestVm, Within as _, sha256};

use super::{LONG, assert_answers, assert_slots_come_free, blocked_in_write, shared, to_its_exit};

/// What a pipe of the guest holds, in bytes.
const PIPE: usize = 64 * 1024;
/// The charge per chunk beside its bytes.
const CHARGE: u32 = 256;

/// Payload of an unread window of whole chunks, in bytes.
fn window(limits: &Limits) -> usize {
    let chunks = limits.output_limit / (limits.output_chunk_size + CHARGE);
    (chunks * limits.output_chunk_size) as usize
}

/// Waits until the guest has no such process any more.
async fn is_gone(vm: &TestVm, pid: u32) {
    let script = format!("while [ -e /proc/{pid} ]; do sleep .1; done");
    let gone = vm.shell(script).within(LONG).await.unwrap();
    assert!(gone.status().success(), "{}", gone.status());
}

#[tokio::test]
async fn what_a_command_left_in_its_pipe_arrives_after_its_exit() {
    let vm = &*shared().await;
    assert_slots_come_free(vm).await;
    // Beyond the window by half a pipe: it ends by itself though nobody reads.
    let total = window(&vm.client().limits()) + PIPE / 2;
    let arguments = ["random".to_owned(), "7".to_owned(), total.to_string()];
    let command = vm.exec(HELPER, arguments).spawn().within(CEILING).await;
    let mut command = command.unwrap();
    is_gone(vm, command.pid()).await;
    for _ in 0..5 {
        assert_answers(vm).await;
    }
    assert_slot_is_kept(vm, total).await;

    let (stdout, stderr, status) = to_its_exit(&mut command).await;
    assert_eq!((stdout.len(), stderr.len()), (total, 0));
    assert_eq!(Pattern::new(7).first_difference(&stdout), None);
    assert_eq!(status.code(), Some(0));
    drop(command);
    assert_slots_come_free(vm).await;
}

/// That one execution is left, which holds its whole allowance, and less than it wrote.
async fn assert_slot_is_kept(vm: &TestVm, written: usize) {
    let kept = async {
        // The slot of the command that looked comes free a moment after its end.
        while vm.client().active() != 1 {
            tokio::task::yield_now().await;
        }
    };
    kept.within(CEILING).await;
    let view = vm.inspect().executions;
    let [execution] = view.executions.as_slice() else {
        panic!("{view:?}");
    };
    assert!(execution.admitted, "{execution:?}");
    let held = execution.output_held;
    assert!(
        (1..written).contains(&held),
        "{held} of {written} bytes are here"
    );
}

#[tokio::test]
async fn what_a_killed_writer_managed_to_write_arrives_and_then_its_end() {
    let vm = &*shared().await;
    assert_slots_come_free(vm).await;
    // A write of 1 KiB into a pipe is whole or nothing, and dd says how many there were.
    let dd = vm.exec("dd", ["if=/dev/zero", "bs=1024"]);
    let mut command = dd.spawn().within(CEILING).await.unwrap();
    let pid = command.pid();
    blocked_in_write(vm, pid).await;
    command.signal(Signal::USR1).within(CEILING).await.unwrap();
    blocked_in_write(vm, pid).await;
    command.signal(Signal::KILL).within(CEILING).await.unwrap();
    is_gone(vm, pid).await;
    assert_answers(vm).await;

    let (stdout, stderr, status) = to_its_exit(&mut command).await;
    assert_eq!(status.signal(), Some(Signal::KILL));
    let said = String::from_utf8_lossy(&stderr).into_owned();
    let records = said
        .lines()
        .find_map(|line| line.strip_suffix("+0 records out"));
    let written = records.unwrap_or_else(|| panic!("dd said {said:?}"));
    let written = written.parse::<usize>().unwrap() * 1024;
    assert_eq!(stdout.len(), written);
    assert!(written > PIPE);
    assert_eq!(sha256(&stdout), sha256(&vec![0; written]));
    drop(command);
    assert_slots_come_free(vm).await;
}
