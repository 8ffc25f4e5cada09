//! The distribution's own kernel: it finds the machine by ACPI, and PID 1 loads its modules.

use std::time::Duration;

use forebay::{BootPhase, StartError, StopReason};
use forebay_tests::{CEILING, TestVm, Within as _, builder, scaled, turn};

use crate::cloud_kernel;

/// Enough for the kernel to start PID 1, on hardware.
const TO_PID_1: Duration = Duration::from_millis(400);

/// What the guest says of itself.
const ABOUT: &str = "uname -r; nproc; cat /sys/class/tty/console/active; \
                     cut -d' ' -f1 /proc/modules | tr '\\n' ' '";

async fn assert_is_the_distributions(vm: &TestVm, cpus: u8) {
    let kernel = cloud_kernel();
    let out = vm.shell(ABOUT).within(CEILING).await.unwrap();
    let text = out.stdout_str().unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some(kernel.facts.release.as_str()), "{text}");
    assert_eq!(lines.next(), Some(cpus.to_string().as_str()), "{text}");
    assert_eq!(lines.next(), Some("hvc0"), "{text}");
    let loaded: Vec<_> = lines.next().unwrap().split_whitespace().collect();
    for module in &kernel.facts.modules {
        assert!(
            loaded.contains(&module.as_str()),
            "{module} is not in {loaded:?}"
        );
    }
}

#[tokio::test]
async fn the_distributions_bzimage_boots_with_the_modules_that_it_needs() {
    let _turn = turn().await;
    let kernel = cloud_kernel();
    let vm = builder()
        .kernel(&kernel.bzimage)
        .initramfs(&kernel.modules)
        .cpus(2);
    let vm = TestVm::start(vm).await;
    println!("{}", vm.boot_report());
    assert_is_the_distributions(&vm, 2).await;
    vm.close().within(CEILING).await;
}

#[tokio::test]
async fn the_distributions_vmlinux_boots_and_its_panic_is_told_from_a_reset() {
    let _turn = turn().await;
    let kernel = cloud_kernel();
    let vmlinux = kernel.vmlinux.as_ref().unwrap();
    let vm = builder().kernel(vmlinux).initramfs(&kernel.modules);
    let vm = TestVm::start(vm).await;
    println!("{}", vm.boot_report());
    assert_is_the_distributions(&vm, 1).await;
    let _cut_off = vm
        .shell("echo c > /proc/sysrq-trigger")
        .within(CEILING)
        .await;
    let reason = vm.wait().within(CEILING).await;
    assert!(matches!(reason, StopReason::Panic { .. }), "{reason}");
}

#[tokio::test]
async fn a_kernel_without_the_machines_driver_is_said_to_lack_it() {
    let _turn = turn().await;
    let kernel = cloud_kernel();
    let vmlinux = kernel.vmlinux.as_ref().unwrap();
    let start = builder().kernel(vmlinux).boot_deadline(scaled(TO_PID_1));
    match start.start().within(CEILING).await {
        Err(StartError::Boot(failure)) => {
            assert_eq!(failure.phase, BootPhase::KernelStart, "{failure}");
            let text = failure.to_string();
            assert!(
                text.contains("CONFIG_VIRTIO_MMIO") && text.contains("module"),
                "{text}"
            );
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it started"),
    }
}
