//! VMs that are held open for as long as L1 lives, and never run.
//!
//! KVM keeps rare cases out of its fast paths by static branches: code that is patched when the
//! first vCPU of a kind comes and when the last one goes. On two emulated processors that patching
//! now and then ends in an unexpected breakpoint exception, and L1 with it; and it costs the VM that
//! causes it milliseconds. One vCPU of each kind, held, leaves every branch patched as it is.
//!
//! | kind of vCPU | branch it holds |
//! |---|---|
//! | any | preemption notifiers |
//! | without an interrupt controller in the kernel | `kvm_has_noapic_vcpu` |
//! | with one that software has not enabled, as every vCPU until its guest boots | `apic_sw_disabled` |
//! | with one that is switched off in its base register | `apic_hw_disabled` |

use std::fs::File;

use anyhow::{Context, Result};
use kvm_ioctls::{Kvm, VcpuFd, VmFd};

/// The enable bit of the interrupt controller's base register.
const APIC_BASE_ENABLE: u64 = 1 << 11;

/// The held VMs; dropping it lets go of them.
pub(crate) struct Held {
    _vms: [VmFd; 2],
    _vcpus: [VcpuFd; 3],
}

impl Held {
    /// Creates them, and so shows that `/dev/kvm` works.
    pub(crate) fn create() -> Result<Self> {
        File::open("/dev/kvm")
            .context("open /dev/kvm: the emulated processor offers no virtualisation")?;
        Self::vms().context("create VMs to hold in L1")
    }

    fn vms() -> Result<Self> {
        let kvm = Kvm::new()?;
        let bare = kvm.create_vm()?;
        let without_controller = bare.create_vcpu(0)?;
        let vm = kvm.create_vm()?;
        vm.create_irq_chip()?;
        let not_enabled = vm.create_vcpu(0)?;
        let switched_off = vm.create_vcpu(1)?;
        let mut registers = switched_off.get_sregs()?;
        registers.apic_base &= !APIC_BASE_ENABLE;
        switched_off.set_sregs(&registers)?;
        Ok(Self {
            _vms: [bare, vm],
            _vcpus: [without_controller, not_enabled, switched_off],
        })
    }
}
