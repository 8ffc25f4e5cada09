//! Booting again and again, several at once, and what stays afterwards: nothing.

use std::time::{Duration, Instant};

use forebay::{Activity, Stdin, StopReason, VcpuView};
use forebay_tests::{
    CEILING, HELPER, HostUse, TestVm, Within as _, builder, guest_mappings, rounds, turn,
};

/// Mappings that come and go with the allocator and with stacks that the C library keeps.
const MAPPINGS_SLACK: usize = 8;

/// Boots, uses and closes one VM.
async fn live_once(number: u32) {
    let vm = TestVm::start(builder().cpus(1 + (number % 2) as u8)).await;
    let exec = vm
        .exec("cat", [""; 0])
        .stdin(Stdin::bytes(format!("life {number}")));
    let out = exec.within(CEILING).await.unwrap();
    assert_eq!(out.stdout_str().unwrap(), format!("life {number}"));
    // Not all ends are tidy: some executions still run.
    let running = vm
        .exec("sleep", ["1000"])
        .spawn()
        .within(CEILING)
        .await
        .unwrap();
    match number % 3 {
        0 => drop(running),
        1 => {
            running.detach();
        }
        _ => {
            let closing = tokio::spawn(vm.close());
            assert_eq!(
                closing.within(CEILING).await.unwrap(),
                StopReason::Requested
            );
            return drop(running);
        }
    }
    assert_eq!(vm.close().within(CEILING).await, StopReason::Requested);
}

#[tokio::test]
async fn fifty_lives_leave_no_descriptor_thread_or_mapping() {
    let _turn = turn().await;
    // The first lives fill what is kept on purpose: caches of the allocator and of the library.
    for number in 0..2 {
        live_once(number).await;
    }
    let before = HostUse::without_vms().await;
    for number in 0..rounds(50).max(6) {
        live_once(number).await;
        assert_eq!(guest_mappings(), 0, "after life {number}");
    }
    before.is_back().await;
    let after = HostUse::now();
    let allowed = before.mappings + MAPPINGS_SLACK;
    assert!(
        after.mappings <= allowed,
        "{} mappings before, {} after",
        before.mappings,
        after.mappings
    );
}

#[tokio::test]
async fn several_vms_in_one_process_do_not_know_each_other() {
    let _turn = turn().await;
    let before = HostUse::without_vms().await;
    let mut vms = Vec::new();
    for number in 0..3 {
        vms.push(TestVm::start(builder().hostname(format!("vm{number}")).memory_mib(128)).await);
    }
    for (number, vm) in vms.iter().enumerate() {
        let script = format!("echo {number} > /tmp/mine; hostname");
        let out = vm.shell(script).within(CEILING).await.unwrap();
        assert_eq!(out.stdout_str().unwrap(), format!("vm{number}\n"));
    }
    // One dies by itself, one is dropped; the third goes on.
    let third = vms.pop().unwrap();
    let second = vms.pop().unwrap();
    let first = vms.pop().unwrap();
    let dying = tokio::spawn(first.exec("poweroff", ["-f"]).output());
    assert_eq!(first.wait().within(CEILING).await, StopReason::PowerOff);
    assert!(dying.within(CEILING).await.unwrap().is_err());
    drop(second);
    let out = third.shell("cat /tmp/mine").within(CEILING).await.unwrap();
    assert_eq!(out.stdout(), b"2\n");
    first.close().within(CEILING).await;
    third.close().within(CEILING).await;
    before.is_back().await;
}

#[tokio::test]
async fn an_idle_vm_uses_no_processor() {
    let _turn = turn().await;
    let vm = TestVm::start(builder().cpus(2)).await;
    vm.exec("true", [""; 0]).within(CEILING).await.unwrap();
    // One second is enough in which the process used less than a tenth of one processor and the
    // guest's slept, whatever the seconds before were like. A guest or a loop of ours that spins
    // never has one, however long it is watched.
    let idle_once = async {
        loop {
            let (before, clock) = (cpu_time(), Instant::now());
            tokio::time::sleep(Duration::from_secs(1)).await;
            let used = cpu_time().saturating_sub(before);
            let slept = used * 10 < clock.elapsed();
            let vcpus = vm.inspect().machine.vcpus;
            let halted = |vcpu: &Option<VcpuView>| {
                let activity = vcpu.as_ref().map(|vcpu| vcpu.activity);
                activity == Some(Activity::Halted)
            };
            if slept && vcpus.len() == 2 && vcpus.iter().all(halted) {
                break;
            }
        }
    };
    idle_once.within(CEILING * 2).await;
    vm.close().await;
}

/// Processor time of this process.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}

#[tokio::test]
async fn a_vm_that_is_dropped_with_running_executions_is_gone_with_them() {
    let _turn = turn().await;
    let before = HostUse::without_vms().await;
    let vm = TestVm::start(builder().cpus(2)).await;
    let mut running = Vec::new();
    for _ in 0..8 {
        let writer = vm.exec(HELPER, ["random", "1", "1125899906842624"]);
        running.push(writer.spawn().within(CEILING).await.unwrap());
        running.push(
            vm.exec(HELPER, ["spin"])
                .spawn()
                .within(CEILING)
                .await
                .unwrap(),
        );
    }
    drop(vm);
    before.is_back().await;
    for mut one in running {
        assert!(one.wait().within(CEILING).await.is_err());
    }
}
