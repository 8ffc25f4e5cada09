//! The virtual machine and its vCPUs: everything that KVM holds of a guest, and the order in which
//! it goes back.
//!
//! | step | why there |
//! |---|---|
//! | each vCPU, but for what depends on the time | [`Restored::apply`] says its own order |
//! | all time stamp counters alike | deadlines are computed from them |
//! | each vCPU's timer, then its events | whatever is written before may forget an event |
//! | interrupt controllers | a pending line is given to the local APICs, which must not be written behind it |
//! | clock | before any vCPU runs, or time jumps for it |
//! | wall clock | KVM computes the guest's page from the clock as it is then |
//!
//! There is no timer chip (PIT) in our VMs, so none is saved.

use kvm_bindings::{
    CpuId, KVM_IRQCHIP_IOAPIC, KVM_IRQCHIP_PIC_MASTER, KVM_IRQCHIP_PIC_SLAVE, kvm_clock_data,
    kvm_irqchip,
};
use kvm_ioctls::{Kvm, VmFd};
use minicbor::{Decode, Encode};
use zerocopy::IntoBytes as _;

use super::error::RestoreError;
use super::form;
use crate::error::HostError;
use crate::vcpu::state::{Extent, Restored, VcpuV1};
use crate::vcpu::{Vcpu, msrs, tsc};

/// The record's name.
pub(crate) const RECORD: &str = "kvm";

/// In the order in which they are saved and restored.
const CHIPS: [u32; 3] = [
    KVM_IRQCHIP_PIC_MASTER,
    KVM_IRQCHIP_PIC_SLAVE,
    KVM_IRQCHIP_IOAPIC,
];

/// A virtual machine at rest.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub(crate) struct VmV1 {
    /// In order of their ids.
    #[n(0)]
    vcpus: Vec<VcpuV1>,
    /// `kvm_irqchip`, one for each of [`CHIPS`].
    #[n(1)]
    #[cbor(with = "minicbor::bytes")]
    chips: Vec<u8>,
    /// What the guest's clock shows, in nanoseconds.
    #[n(2)]
    clock: u64,
}

/// Adds to what was read of the vCPUs what is the machine's.
pub(crate) fn save(
    vm: &VmFd,
    vcpus: Vec<VcpuV1>,
    clock: &kvm_clock_data,
) -> Result<VmV1, HostError> {
    let mut chips = Vec::with_capacity(CHIPS.len() * size_of::<kvm_irqchip>());
    for chip_id in CHIPS {
        let mut chip = kvm_irqchip {
            chip_id,
            ..Default::default()
        };
        vm.get_irqchip(&mut chip)
            .map_err(|e| HostError::on("KVM_GET_IRQCHIP", chip_id, e))?;
        chips.extend(chip.as_bytes());
    }
    Ok(VmV1 {
        vcpus,
        chips,
        clock: clock.clock,
    })
}

/// A [`VmV1`] that was judged.
pub(crate) struct Judged {
    vcpus: Vec<Restored>,
    chips: Vec<kvm_irqchip>,
    clock: u64,
}

impl Judged {
    /// Judges it against what this host [offers](Vcpu::offered) each of the vCPUs that it is to be
    /// restored to.
    pub(crate) fn new(saved: &VmV1, offered: &[CpuId]) -> Result<Self, RestoreError> {
        if saved.vcpus.len() != offered.len() {
            return Err(RestoreError::rule(
                RECORD,
                "it has not as many vCPUs as the header says",
            ));
        }
        let each = saved.vcpus.iter().zip(offered);
        let vcpus = each
            .map(|(saved, offered)| Restored::judge(saved, offered))
            .collect::<Result<_, _>>()?;
        let chips: Vec<kvm_irqchip> = form::several(RECORD, "chips", &saved.chips)?;
        if !chips.iter().map(|chip| chip.chip_id).eq(CHIPS) {
            return Err(RestoreError::rule(
                RECORD,
                "it has not the interrupt controllers that every machine has",
            ));
        }
        Ok(Self {
            vcpus,
            chips,
            clock: saved.clock,
        })
    }

    /// What the guest's clock is to show.
    pub(crate) fn clock(&self) -> kvm_clock_data {
        kvm_clock_data {
            clock: self.clock,
            // Without flags: they would have KVM add the time that has passed since.
            ..Default::default()
        }
    }

    /// Writes it to a machine of which no vCPU has run.
    pub(crate) fn apply(&self, kvm: &Kvm, vm: &VmFd, vcpus: &[Vcpu]) -> Result<(), RestoreError> {
        let extent = Extent::of(kvm, vm)?;
        let vcpus: Vec<_> = vcpus.iter().map(Vcpu::fd).collect();
        let each = || vcpus.iter().zip(&self.vcpus);
        for (vcpu, saved) in each() {
            saved.apply(kvm, vcpu, &extent)?;
        }
        if let Some(counter) = self.vcpus.first().and_then(|first| first.msr(msrs::TSC)) {
            tsc::align(&vcpus, counter)?;
        }
        for (vcpu, saved) in each() {
            saved.apply_rest(vcpu)?;
        }
        for chip in &self.chips {
            vm.set_irqchip(chip)
                .map_err(|e| HostError::on("KVM_SET_IRQCHIP", chip.chip_id, e))?;
        }
        vm.set_clock(&self.clock())
            .map_err(|e| HostError::new("KVM_SET_CLOCK", e))?;
        if let Some((vcpu, saved)) = each().next() {
            saved.apply_wall_clock(vcpu)?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "kvm_test.rs"]
mod tests;
