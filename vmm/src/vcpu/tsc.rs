//! The guest's time stamp counter: how fast it counts, and how far the vCPUs' are apart.

#![allow(unsafe_code)] // ioctls that kvm-ioctls does not have for a vCPU

use std::io;

use kvm_bindings::{KVM_VCPU_TSC_CTRL, KVM_VCPU_TSC_OFFSET, KVMIO, kvm_device_attr};
use kvm_ioctls::{Cap, Kvm, VcpuFd};
use vmm_sys_util::ioctl::ioctl_with_ref;
use vmm_sys_util::ioctl_iow_nr;

use super::msrs;
use crate::error::HostError;
use crate::snapshot::RestoreError;

ioctl_iow_nr!(KVM_SET_DEVICE_ATTR, KVMIO, 0xe1, kvm_device_attr);
ioctl_iow_nr!(KVM_GET_DEVICE_ATTR, KVMIO, 0xe2, kvm_device_attr);

/// A frequency is the same if it differs by this at most: as far as KVM lets a clock that it does
/// not scale be off.
const TOLERANCE_PPM: u64 = 250;

/// How fast the counter counts, where KVM says.
pub(crate) fn khz(vcpu: &VcpuFd) -> Option<u32> {
    vcpu.get_tsc_khz().ok().filter(|khz| *khz != 0)
}

/// Has the counter count as fast as where it was saved.
pub(crate) fn set_khz(kvm: &Kvm, vcpu: &VcpuFd, saved: Option<u32>) -> Result<(), RestoreError> {
    let (Some(saved), Some(host)) = (saved, khz(vcpu)) else {
        return Ok(());
    };
    if is_same(saved, host) {
        return Ok(());
    }
    let scales = kvm.check_extension(Cap::TscControl);
    if scales && vcpu.set_tsc_khz(saved).is_ok() {
        return Ok(());
    }
    Err(RestoreError::TscFrequency { saved, host })
}

fn is_same(saved: u32, host: u32) -> bool {
    let off = u64::from(saved.abs_diff(host));
    off * 1_000_000 <= u64::from(host) * TOLERANCE_PPM
}

/// Has all counters go on from where the first one's was saved, exactly alike.
///
/// A write of the register alone may not do so: KVM takes a value that is within a second of what it
/// expects for an attempt to make two vCPUs alike, and keeps what it expected; and two that are
/// not exactly alike cost the guest its clock page that all vCPUs can read. Host kernels before 5.16
/// have nothing better.
pub(crate) fn align(vcpus: &[&VcpuFd], saved: u64) -> Result<(), HostError> {
    let Some((first, others)) = vcpus.split_first() else {
        return Ok(());
    };
    let Some(offset) = offset(first)? else {
        return Ok(());
    };
    let now = msrs::read_one(first, msrs::TSC)?.unwrap_or(saved);
    let offset = offset.wrapping_add(saved.wrapping_sub(now));
    set_offset(first, offset)?;
    others.iter().try_for_each(|vcpu| set_offset(vcpu, offset))
}

/// What the counter differs from the host's by, modulo 2⁶⁴; `None` where KVM does not say.
fn offset(vcpu: &VcpuFd) -> Result<Option<u64>, HostError> {
    let mut offset = 0u64;
    let attribute = kvm_device_attr {
        group: KVM_VCPU_TSC_CTRL,
        attr: KVM_VCPU_TSC_OFFSET.into(),
        addr: &raw mut offset as u64,
        flags: 0,
    };
    // SAFETY: the kernel writes eight bytes to the address in `attribute`, which is that of
    // `offset`, alive until after the call.
    if unsafe { ioctl_with_ref(vcpu, KVM_GET_DEVICE_ATTR(), &attribute) } == 0 {
        return Ok(Some(offset));
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        // Without this attribute, or without any.
        Some(libc::ENXIO | libc::ENOTTY | libc::EINVAL) => Ok(None),
        _ => Err(HostError::new("KVM_GET_DEVICE_ATTR", error)),
    }
}

fn set_offset(vcpu: &VcpuFd, offset: u64) -> Result<(), HostError> {
    let attribute = kvm_device_attr {
        group: KVM_VCPU_TSC_CTRL,
        attr: KVM_VCPU_TSC_OFFSET.into(),
        addr: &raw const offset as u64,
        flags: 0,
    };
    // SAFETY: the kernel reads eight bytes at the address in `attribute`, which is that of
    // `offset`, alive until after the call.
    match unsafe { ioctl_with_ref(vcpu, KVM_SET_DEVICE_ATTR(), &attribute) } {
        0 => Ok(()),
        _ => Err(HostError::new(
            "KVM_SET_DEVICE_ATTR",
            io::Error::last_os_error(),
        )),
    }
}

#[cfg(test)]
#[path = "tsc_test.rs"]
mod tests;
