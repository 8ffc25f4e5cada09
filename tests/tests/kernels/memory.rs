//! Memory from the smallest to beyond the hole below 4 GiB and one to four processors: the guest has
//! what was asked for, in one piece below the hole and one above it.

use forebay_tests::{CEILING, TestVm, Within as _, builder, turn};

/// What the kernel keeps from its own count of memory: its image, and tables that grow with memory.
const KERNEL_KIB: u64 = 16 * 1024;
/// Of what commands may take, the part that they fill in small guests.
const FILLED_PERCENT: u64 = 90;
/// What the agent keeps back from commands, at least.
const RESERVE_KIB: u64 = 8 * 1024;
/// The largest guest whose memory is filled: the machine below has not much more.
const FILLED_MIB_MAX: u32 = 512;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// A field of `/proc/meminfo`, in KiB.
async fn meminfo(vm: &TestVm, field: &str) -> u64 {
    let script = format!("sed -n 's/^{field}: *\\([0-9]*\\) kB/\\1/p' /proc/meminfo");
    let out = vm.shell(script).within(CEILING).await.unwrap();
    out.stdout_str().unwrap().trim().parse().unwrap()
}

/// The stretches of RAM above the first mebibyte, each as first and last address.
async fn ram(vm: &TestVm) -> Vec<(u64, u64)> {
    let script = "sed -n 's/^\\([0-9a-f]*\\)-\\([0-9a-f]*\\) : System RAM$/\\1 \\2/p' /proc/iomem";
    let out = vm.shell(script).within(CEILING).await.unwrap();
    let address = |word: &str| u64::from_str_radix(word, 16).unwrap();
    out.stdout_str()
        .unwrap()
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(first, last)| (address(first), address(last)))
        .filter(|(first, _)| *first >= MIB)
        .collect()
}

async fn boots_with(mib: u32, cpus: u8) {
    let vm = TestVm::start(builder().memory_mib(mib).cpus(cpus)).await;
    let total = meminfo(&vm, "MemTotal").await;
    let asked = u64::from(mib) * 1024;
    assert!(total <= asked, "{total} KiB of {asked}");
    let least = asked - asked * 6 / 100 - KERNEL_KIB;
    assert!(
        total >= least,
        "the guest has {total} KiB of {asked}, at least {least} are expected"
    );
    let size = u64::from(mib) * MIB;
    let mut pieces = vec![(MIB, size.min(3 * GIB) - 1)];
    if size > 3 * GIB {
        pieces.push((4 * GIB, GIB + size - 1));
    }
    assert_eq!(ram(&vm).await, pieces, "of {mib} MiB");
    if mib <= FILLED_MIB_MAX {
        // Every processor works on memory of its own.
        let free = meminfo(&vm, "MemAvailable").await - RESERVE_KIB.max(total / 20);
        let share = free * FILLED_PERCENT / 100 / u64::from(cpus);
        let fill = format!(
            "nproc; for n in $(seq {cpus}); do \
             dd if=/dev/zero of=/dev/null bs={share}k count=1 2>&1 | tail -n1 & done; wait"
        );
        let out = vm.shell(fill).within(CEILING).await.unwrap();
        let text = out.stdout_str().unwrap();
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some(cpus.to_string().as_str()));
        // Whole, and not at the hands of the guest's kernel for lack of memory.
        let filled = vec!["1+0 records out"; cpus.into()];
        assert_eq!(lines.collect::<Vec<_>>(), filled);
    }
    vm.close().within(CEILING).await;
}

// B42
#[tokio::test]
async fn small_guests_boot_and_their_commands_can_fill_what_is_free() {
    let _turn = turn().await;
    for (mib, cpus) in [(64, 1), (128, 1), (256, 2), (512, 4)] {
        boots_with(mib, cpus).await;
    }
}

// B42
#[tokio::test]
async fn large_guests_have_their_memory_below_and_above_the_device_hole() {
    let _turn = turn().await;
    for mib in [3071, 3072, 3073, 3328, 4096, 4097, 6144] {
        boots_with(mib, 1).await;
    }
}
