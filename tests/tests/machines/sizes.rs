//! Memory from the smallest to beyond 3 GiB and one to four processors: the guest has what was
//! asked for.

use forebay_tests::{CEILING, TestVm, Within as _, builder, turn};

/// What the kernel keeps from its own count of memory: its image, and tables that grow with memory.
const KERNEL_KIB: u64 = 16 * 1024;
/// What the guest's programs fill.
const FILLED_KIB: u64 = 16 * 1024;

async fn boots_with(mib: u32, cpus: u8) {
    let vm = TestVm::start(builder().memory_mib(mib).cpus(cpus)).await;
    let script = "sed -n 's/^MemTotal: *//p' /proc/meminfo; nproc";
    let out = vm.shell(script).within(CEILING).await.unwrap();
    let text = out.stdout_str().unwrap();
    let mut lines = text.lines();
    let kib: u64 = lines
        .next()
        .unwrap()
        .trim_end_matches(" kB")
        .parse()
        .unwrap();
    let asked = u64::from(mib) * 1024;
    assert!(kib <= asked, "{kib} KiB of {asked}");
    let least = asked - asked * 6 / 100 - KERNEL_KIB;
    assert!(
        kib >= least,
        "the guest has {kib} KiB of {asked}, at least {least} are expected"
    );
    assert_eq!(lines.next(), Some(cpus.to_string().as_str()));
    // Every processor works on memory of its own.
    let share = FILLED_KIB / u64::from(cpus);
    let fill = format!(
        "for n in $(seq {cpus}); do head -c {share}k /dev/zero > /tmp/$n & done; wait; \
         cat /tmp/* | wc -c"
    );
    let out = vm.shell(fill).within(CEILING).await.unwrap();
    assert_eq!(
        out.stdout_str().unwrap().trim(),
        (FILLED_KIB * 1024).to_string()
    );
    vm.close().within(CEILING).await;
}

#[tokio::test]
async fn the_smallest_guest_boots_and_works() {
    let _turn = turn().await;
    boots_with(64, 1).await;
}

#[tokio::test]
async fn one_two_and_four_processors_are_all_there() {
    let _turn = turn().await;
    for (mib, cpus) in [(128, 1), (256, 2), (512, 4)] {
        boots_with(mib, cpus).await;
    }
}

#[tokio::test]
async fn large_guests_have_their_memory_below_and_above_the_device_hole() {
    let _turn = turn().await;
    for mib in [1024, 3072, 4096] {
        boots_with(mib, 1).await;
    }
}
