//! From what a failed boot left behind to what probably went wrong.
//!
//! The console is the guest's word and is only searched for texts that kernels print; the answer is
//! a hint to a person and never decides anything.

use crate::error::{BootFailure, BootPhase};
use crate::guest_text;
use crate::machine::Machine;
use crate::stop::StopReason;

/// Lines of console output that go into an error.
const CONSOLE_LINES: usize = 20;

/// What kernels print, and what that means here. The first that is found counts, so what is behind
/// something else stands before it: a kernel that cannot use its initramfs goes on, and panics about
/// what it then does not find.
const KNOWN: [(&str, &str); 15] = [
    (
        "Unable to load the System Description Tables",
        "the kernel cannot read the ACPI tables: build it with CONFIG_ACPI=y and CONFIG_PCI=y",
    ),
    (
        "Initramfs unpacking failed: write error",
        "the guest has too little memory to unpack its initramfs: give it more with `memory_mib`",
    ),
    (
        "Initramfs unpacking failed: compression method",
        "the initramfs is compressed and this kernel cannot unpack it: build the kernel with the \
         CONFIG_RD_ option of that compression, or leave the initramfs uncompressed",
    ),
    (
        "Initramfs unpacking failed",
        "the initramfs is damaged, or compressed in a way this kernel cannot unpack",
    ),
    (
        "System is deadlocked on memory",
        "the guest ran out of memory: give it more with `memory_mib`",
    ),
    (
        "Out of memory",
        "the guest ran out of memory: give it more with `memory_mib`",
    ),
    (
        "Failed to execute /init",
        "`/init` in the initramfs cannot be executed: it must be executable, for x86-64, and static \
         or have its loader beside it; and the kernel needs CONFIG_BINFMT_ELF=y",
    ),
    (
        "Requested init ",
        "the init that the command line names cannot be executed: correct `init=`, or leave it out",
    ),
    (
        "check access for rdinit=",
        "there is no `/init` in the initramfs: check that the image was built whole, or give one \
         with `initramfs(path)`",
    ),
    (
        "No working init found",
        "nothing in the initramfs can be executed as init: check that the image was built whole, or \
         give one with `initramfs(path)`",
    ),
    (
        "Unable to mount root fs",
        "the kernel got no initramfs, or one without `/init`, or cannot use any: check that the \
         image was built whole, or give one with `initramfs(path)`; and the kernel needs \
         CONFIG_BLK_DEV_INITRD=y",
    ),
    (
        "cannot mount devtmpfs",
        "the kernel cannot show its devices to the agent: build it with CONFIG_DEVTMPFS=y",
    ),
    (
        "cannot mount sysfs",
        "the agent cannot look for its port: build the kernel with CONFIG_SYSFS=y",
    ),
    (
        "cannot mount proc",
        "the agent cannot look at its processes: build the kernel with CONFIG_PROC_FS=y",
    ),
    (
        "Attempted to kill init",
        "the guest's init ended: it crashed or exited; its last words are on the console",
    ),
];

/// Describes why `machine` did not get to a working agent, having ended for `reason`.
pub(crate) fn boot_failure(machine: &Machine, reason: StopReason) -> BootFailure {
    let report = machine.boot_report();
    let phase = if report.port_opened.is_some() {
        BootPhase::AgentHandshake
    } else if report.driver_found.is_some() || machine.console_log().written() > 0 {
        BootPhase::KernelToAgent
    } else {
        BootPhase::KernelStart
    };
    let drivers = match (report.device_found, report.driver_found) {
        (_, Some(_)) => Drivers::Both,
        (Some(_), None) => Drivers::TransportOnly,
        (None, None) => Drivers::Neither,
    };
    let cause = likely_cause(phase, drivers, &reason, &machine.console_log().text());
    BootFailure {
        phase,
        elapsed: machine.uptime(),
        console: guest_text::lines(&machine.console_log().last_lines(CONSOLE_LINES)),
        cause,
        reason,
    }
}

/// Which of the two drivers that the console device needs the guest's kernel has shown to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Drivers {
    /// It has not even looked at the device.
    Neither,
    /// It has found the device, by the driver for virtio-mmio, and not taken it.
    TransportOnly,
    Both,
}

fn likely_cause(
    phase: BootPhase,
    drivers: Drivers,
    reason: &StopReason,
    console: &str,
) -> Option<&'static str> {
    if let Some((_, cause)) = KNOWN.iter().find(|(text, _)| console.contains(text)) {
        return Some(cause);
    }
    if reason.is_requested() {
        return None;
    }
    // A guest that stands still, or in which PID 1 gave up waiting for its port.
    let stuck = matches!(
        reason,
        StopReason::BootDeadline { .. } | StopReason::PowerOff
    );
    match (drivers, reason) {
        // Without ACPI, switching itself off is nothing but halting.
        (Drivers::Neither, StopReason::BootDeadline { halted: true, .. }) => {
            return Some(
                "the kernel ran to its end without finding the console device and cannot switch \
                 the machine off: build it with CONFIG_ACPI=y and CONFIG_PCI=y; vCPUs that all wait \
                 for a lock halt likewise: `earlyprintk=serial loglevel=7` on the command line shows \
                 how far it came",
            );
        }
        (Drivers::Neither, _) if stuck => {
            return Some(
                "the kernel has not found the console device: build it with CONFIG_VIRTIO_MMIO=y \
                 and CONFIG_ACPI=y, or, where the driver is a module as in distributions' \
                 kernels, give the initramfs layer with that kernel's modules; if it hangs \
                 earlier (as without CONFIG_KVM_GUEST=y), `earlyprintk=serial loglevel=7` on the command line shows where",
            );
        }
        (Drivers::TransportOnly, _) if stuck => {
            return Some(
                "the kernel has found the console device and has no driver for it: build it with \
                 CONFIG_VIRTIO_CONSOLE=y, or give the initramfs layer with that module",
            );
        }
        _ => {}
    }
    match (phase, reason) {
        (BootPhase::KernelStart, StopReason::TripleFault { .. } | StopReason::Reboot) => Some(
            "the kernel crashed before it could print: it may be built for another machine or be \
             damaged",
        ),
        (BootPhase::KernelToAgent, StopReason::BootDeadline { halted: false, .. }) => Some(
            "the guest's init is not the agent, or does not find its port: the image must have the \
             agent as `/init`",
        ),
        (BootPhase::KernelToAgent, StopReason::PowerOff | StopReason::Reboot) => {
            Some("the guest's init is not the agent: it ran and ended the guest by itself")
        }
        (
            BootPhase::AgentHandshake,
            StopReason::BootDeadline { .. } | StopReason::AgentLost { .. },
        ) => Some(
            "the agent in the image does not speak this library's protocol: build the image anew",
        ),
        _ => None,
    }
}

#[cfg(test)]
#[path = "diagnosis_test.rs"]
mod tests;
