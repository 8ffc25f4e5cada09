//! A vCPU's whole state, in a snapshot and back.
//!
//! KVM's structs stand in it as they are, as byte strings of exact length; what they hold KVM
//! judges. In which order they are read and written is the point of this file.
//!
//! Not in it: the state of nested virtualisation, which is not offered to guests; the page table
//! entries that 32-bit paging keeps in registers, since only 64-bit kernels are run.

#![allow(unsafe_code)] // the extended registers' length is a contract with KVM

use kvm_bindings::{
    CpuId, KVM_MAX_CPUID_ENTRIES, Xsave, kvm_cpuid_entry2, kvm_debugregs, kvm_lapic_state,
    kvm_mp_state, kvm_msr_entry, kvm_regs, kvm_sregs, kvm_vcpu_events, kvm_xcrs, kvm_xsave,
};
use kvm_ioctls::{Cap, Kvm, VcpuFd, VmFd};
use minicbor::{Decode, Encode};
use zerocopy::IntoBytes as _;

use super::{cpuid, msrs, tsc};
use crate::error::HostError;
use crate::snapshot::RestoreError;
use crate::snapshot::form::{one, several};

/// Which record the errors are about.
const RECORD: &str = "kvm";

/// What of the host's KVM decides what there is to save.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent {
    msrs: &'static [u32],
    /// Bytes of the extended registers beyond the struct that there always was.
    xsave_beyond: usize,
    /// There may be more of them than the old call reads.
    xsave2: bool,
}

impl Extent {
    pub(crate) fn of(kvm: &Kvm, vm: &VmFd) -> Result<Self, HostError> {
        let xsave = usize::try_from(vm.check_extension_int(Cap::Xsave2)).unwrap_or(0);
        Ok(Self {
            msrs: msrs::indices(kvm)?,
            xsave_beyond: xsave.saturating_sub(size_of::<kvm_xsave>()),
            xsave2: xsave > 0,
        })
    }

    /// Room for the extended registers as KVM reads and writes them.
    fn xsave(&self) -> Result<Xsave, HostError> {
        Xsave::new(self.xsave_beyond.div_ceil(size_of::<u32>()))
            .map_err(|e| HostError::new("lay out XSAVE", std::io::Error::other(format!("{e:?}"))))
    }
}

/// A vCPU at rest.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub(crate) struct VcpuV1 {
    #[n(0)]
    mp_state: u32,
    /// `kvm_regs`.
    #[n(1)]
    #[cbor(with = "minicbor::bytes")]
    regs: Vec<u8>,
    /// `kvm_sregs`.
    #[n(2)]
    #[cbor(with = "minicbor::bytes")]
    sregs: Vec<u8>,
    /// `kvm_xsave` with what is beyond it.
    #[n(3)]
    #[cbor(with = "minicbor::bytes")]
    xsave: Vec<u8>,
    /// `kvm_xcrs`.
    #[n(4)]
    #[cbor(with = "minicbor::bytes")]
    xcrs: Vec<u8>,
    /// `kvm_debugregs`.
    #[n(5)]
    #[cbor(with = "minicbor::bytes")]
    debugregs: Vec<u8>,
    /// `kvm_lapic_state`.
    #[n(6)]
    #[cbor(with = "minicbor::bytes")]
    lapic: Vec<u8>,
    /// How fast its time stamp counter counts, where KVM says.
    #[n(7)]
    tsc_khz: Option<u32>,
    /// `kvm_cpuid_entry2`, each.
    #[n(8)]
    #[cbor(with = "minicbor::bytes")]
    cpuid: Vec<u8>,
    /// `kvm_msr_entry`, each.
    #[n(9)]
    #[cbor(with = "minicbor::bytes")]
    msrs: Vec<u8>,
    /// `kvm_vcpu_events`.
    #[n(10)]
    #[cbor(with = "minicbor::bytes")]
    events: Vec<u8>,
}

/// Reads a vCPU, on its own thread, with no access pending and no other vCPU running.
pub(crate) fn save(vcpu: &VcpuFd, extent: &Extent) -> Result<VcpuV1, HostError> {
    let failed = |call| move |e: kvm_ioctls::Error| HostError::new(call, e);
    // First: it has KVM take INIT and SIPI that are pending, which changes registers.
    let mp_state = vcpu
        .get_mp_state()
        .map_err(failed("KVM_GET_MP_STATE"))?
        .mp_state;
    let regs = vcpu.get_regs().map_err(failed("KVM_GET_REGS"))?;
    let sregs = vcpu.get_sregs().map_err(failed("KVM_GET_SREGS"))?;
    let xsave = read_xsave(vcpu, extent)?;
    let xcrs = vcpu.get_xcrs().map_err(failed("KVM_GET_XCRS"))?;
    let debugregs = vcpu.get_debug_regs().map_err(failed("KVM_GET_DEBUGREGS"))?;
    let lapic = vcpu.get_lapic().map_err(failed("KVM_GET_LAPIC"))?;
    // What the guest sees by now, not what it was given at its start: a copy of a copy would lack
    // what KVM changes on the way.
    let cpuid = vcpu
        .get_cpuid2(KVM_MAX_CPUID_ENTRIES)
        .map_err(failed("KVM_GET_CPUID2"))?;
    let mut msrs = msrs::read(vcpu, extent.msrs)?;
    keep_timer(&mut msrs);
    // Last: whatever was read before may have moved an event on.
    let events = vcpu
        .get_vcpu_events()
        .map_err(failed("KVM_GET_VCPU_EVENTS"))?;
    Ok(VcpuV1 {
        mp_state,
        regs: regs.as_bytes().to_vec(),
        sregs: sregs.as_bytes().to_vec(),
        xsave,
        xcrs: xcrs.as_bytes().to_vec(),
        debugregs: debugregs.as_bytes().to_vec(),
        lapic: lapic.as_bytes().to_vec(),
        tsc_khz: tsc::khz(vcpu),
        cpuid: cpuid.as_slice().as_bytes().to_vec(),
        msrs: msrs.as_bytes().to_vec(),
        events: events.as_bytes().to_vec(),
    })
}

/// A timer that went off reads as off, and its interrupt may be in no state yet: it would be lost,
/// and with it the vCPU's tick for ever. Saved as going off now it comes once more at worst, which
/// no driver minds.
fn keep_timer(msrs: &mut [kvm_msr_entry]) {
    let now = msrs.iter().find(|msr| msr.index == msrs::TSC);
    let Some(now) = now.map(|msr| msr.data) else {
        return;
    };
    for msr in msrs {
        if msr.index == msrs::TSC_DEADLINE && msr.data == 0 {
            msr.data = now;
        }
    }
}

/// A [`VcpuV1`] whose every part has the form that it must have.
pub(crate) struct Restored {
    mp_state: kvm_mp_state,
    regs: kvm_regs,
    sregs: kvm_sregs,
    xsave: Vec<u8>,
    xcrs: kvm_xcrs,
    debugregs: kvm_debugregs,
    lapic: kvm_lapic_state,
    tsc_khz: Option<u32>,
    cpuid: CpuId,
    msrs: Vec<kvm_msr_entry>,
    events: kvm_vcpu_events,
}

impl Restored {
    /// Judges what was saved of a vCPU against what this host offers one like it.
    pub(crate) fn judge(saved: &VcpuV1, offered: &CpuId) -> Result<Self, RestoreError> {
        let cpuid: Vec<kvm_cpuid_entry2> = several(RECORD, "cpuid", &saved.cpuid)?;
        cpuid::judge(&cpuid, offered)?;
        let cpuid = CpuId::from_entries(&cpuid)
            .map_err(|_| RestoreError::rule(RECORD, "it has more CPUID leaves than KVM takes"))?;
        Ok(Self {
            mp_state: kvm_mp_state {
                mp_state: saved.mp_state,
            },
            regs: one(RECORD, "regs", &saved.regs)?,
            sregs: one(RECORD, "sregs", &saved.sregs)?,
            xsave: saved.xsave.clone(),
            xcrs: one(RECORD, "xcrs", &saved.xcrs)?,
            debugregs: one(RECORD, "debugregs", &saved.debugregs)?,
            lapic: one(RECORD, "lapic", &saved.lapic)?,
            tsc_khz: saved.tsc_khz,
            cpuid,
            msrs: several(RECORD, "msrs", &saved.msrs)?,
            events: one(RECORD, "events", &saved.events)?,
        })
    }

    /// The value of a register that was saved.
    pub(crate) fn msr(&self, index: u32) -> Option<u64> {
        let msr = self.msrs.iter().find(|msr| msr.index == index)?;
        Some(msr.data)
    }

    /// Writes a vCPU that has never run: all but what depends on the time.
    pub(crate) fn apply(
        &self,
        kvm: &Kvm,
        vcpu: &VcpuFd,
        extent: &Extent,
    ) -> Result<(), RestoreError> {
        let failed = |call| move |e: kvm_ioctls::Error| HostError::new(call, e);
        // Before the counter itself, which is computed with it.
        tsc::set_khz(kvm, vcpu, self.tsc_khz)?;
        // Before all registers: which values they take depends on what the guest has.
        vcpu.set_cpuid2(&self.cpuid)
            .map_err(failed("KVM_SET_CPUID2"))?;
        vcpu.set_mp_state(self.mp_state)
            .map_err(failed("KVM_SET_MP_STATE"))?;
        // It forgets exceptions that are pending, so before the events.
        vcpu.set_regs(&self.regs).map_err(failed("KVM_SET_REGS"))?;
        // The local APIC's address and mode are in here, so before its registers.
        vcpu.set_sregs(&self.sregs)
            .map_err(failed("KVM_SET_SREGS"))?;
        write_xsave(vcpu, extent, &self.xsave)?;
        // Where the host has none, none were saved, and KVM refuses to be told so.
        if self.xcrs.nr_xcrs > 0 {
            vcpu.set_xcrs(&self.xcrs).map_err(failed("KVM_SET_XCRS"))?;
        }
        vcpu.set_debug_regs(&self.debugregs)
            .map_err(failed("KVM_SET_DEBUGREGS"))?;
        // Sets the timer's mode, without which its deadline is not taken.
        vcpu.set_lapic(&self.lapic)
            .map_err(failed("KVM_SET_LAPIC"))?;
        let now: Vec<_> = self
            .msrs
            .iter()
            .filter(|msr| !is_deferred(msr))
            .copied()
            .collect();
        msrs::write(vcpu, &now)
    }

    /// Writes the rest, once all time stamp counters are right.
    pub(crate) fn apply_rest(&self, vcpu: &VcpuFd) -> Result<(), RestoreError> {
        if let Some(deadline) = self.msr(msrs::TSC_DEADLINE) {
            msrs::write(vcpu, &[msrs::entry(msrs::TSC_DEADLINE, deadline)])?;
        }
        // Last: much of the above forgets events.
        vcpu.set_vcpu_events(&self.events)
            .map_err(|e| HostError::new("KVM_SET_VCPU_EVENTS", e).into())
    }

    /// Has KVM write the time at which the guest's clock was zero once more, when that clock is
    /// right.
    pub(crate) fn apply_wall_clock(&self, vcpu: &VcpuFd) -> Result<(), RestoreError> {
        let registers = self.msrs.iter().filter(|msr| is_wall_clock(msr));
        msrs::write(vcpu, &registers.copied().collect::<Vec<_>>())
    }
}

fn is_wall_clock(msr: &kvm_msr_entry) -> bool {
    msrs::WALL_CLOCK.contains(&msr.index)
}

/// Registers that are computed from the time when they are written.
fn is_deferred(msr: &kvm_msr_entry) -> bool {
    msr.index == msrs::TSC_DEADLINE || is_wall_clock(msr)
}

fn read_xsave(vcpu: &VcpuFd, extent: &Extent) -> Result<Vec<u8>, HostError> {
    if !extent.xsave2 {
        let xsave = vcpu
            .get_xsave()
            .map_err(|e| HostError::new("KVM_GET_XSAVE", e))?;
        return Ok(xsave.region.as_bytes().to_vec());
    }
    let mut xsave = extent.xsave()?;
    // SAFETY: it has the length that KVM named for this VM, and no feature that would need more is
    // asked for afterwards.
    unsafe { vcpu.get_xsave2(&mut xsave) }.map_err(|e| HostError::new("KVM_GET_XSAVE2", e))?;
    let mut bytes = xsave.as_fam_struct_ref().xsave.region.as_bytes().to_vec();
    bytes.extend(xsave.as_slice().as_bytes());
    Ok(bytes)
}

fn write_xsave(vcpu: &VcpuFd, extent: &Extent, saved: &[u8]) -> Result<(), RestoreError> {
    let mut xsave = extent.xsave()?;
    // A host with fewer of these registers than the guest uses was refused for its CPUID, so what
    // does not fit is no state of a guest that it could run.
    let (region, beyond) = saved
        .split_at_checked(size_of::<kvm_xsave>())
        .filter(|(_, beyond)| beyond.len() <= size_of_val(xsave.as_slice()))
        .ok_or_else(|| {
            RestoreError::rule(
                RECORD,
                "its extended registers have no length that KVM takes",
            )
        })?;
    // SAFETY: the words are written in place; the length of what follows them is not touched.
    let to = unsafe { xsave.as_mut_fam_struct() };
    to.xsave.region.as_mut_bytes().copy_from_slice(region);
    for (to, from) in xsave.as_mut_slice().as_mut_bytes().iter_mut().zip(beyond) {
        *to = *from;
    }
    // SAFETY: it has the length that KVM named for this VM.
    unsafe { vcpu.set_xsave2(&xsave) }.map_err(|e| HostError::new("KVM_SET_XSAVE", e).into())
}

#[cfg(test)]
#[path = "state_test.rs"]
pub(crate) mod tests;
