//! All model-specific registers of a vCPU, read and written back.
//!
//! Which there are KVM says, once per process. In which order they are written back is
//! [`super::state`]'s to say.

use std::io;
use std::ops::Range;
use std::sync::OnceLock;

use kvm_bindings::{Msrs, kvm_msr_entry};
use kvm_ioctls::{Kvm, VcpuFd};

use crate::error::HostError;
use crate::snapshot::RestoreError;

/// The time stamp counter.
pub(crate) const TSC: u32 = 0x10;
/// When the local APIC's timer goes off, in units of [`TSC`]; zero for never.
pub(crate) const TSC_DEADLINE: u32 = 0x6e0;
/// Where the guest wants the time at which its clock was zero; the newer and the older number of
/// the same register.
pub(crate) const WALL_CLOCK: [u32; 2] = [0x4b56_4d00, 0x11];

/// Those of another hypervisor's interface, which our guests are not given and cannot reach: most of
/// them show the time, and writing one has KVM set up what serves them all.
const HYPER_V: Range<u32> = 0x4000_0000..0x4000_0200;

/// Most that KVM takes in one call: fewer than its limit of 256.
const CHUNK: usize = 255;

/// The registers of a guest that KVM can save on this host. They do not change while a process lives.
pub(crate) fn indices(kvm: &Kvm) -> Result<&'static [u32], HostError> {
    static INDICES: OnceLock<Vec<u32>> = OnceLock::new();
    if let Some(indices) = INDICES.get() {
        return Ok(indices);
    }
    let list = kvm
        .get_msr_index_list()
        .map_err(|e| HostError::new("KVM_GET_MSR_INDEX_LIST", e))?;
    let ours = list.as_slice().iter().filter(|msr| !HYPER_V.contains(msr));
    Ok(INDICES.get_or_init(|| ours.copied().collect()))
}

/// Reads `wanted`, but for those that this vCPU does not have.
pub(crate) fn read(vcpu: &VcpuFd, wanted: &[u32]) -> Result<Vec<kvm_msr_entry>, HostError> {
    let mut found = Vec::with_capacity(wanted.len());
    let mut rest = wanted;
    while !rest.is_empty() {
        let (chunk, behind) = rest.split_at(rest.len().min(CHUNK));
        let entries: Vec<_> = chunk.iter().map(|index| entry(*index, 0)).collect();
        let mut msrs = list(&entries, "KVM_GET_MSRS")?;
        let read = vcpu
            .get_msrs(&mut msrs)
            .map_err(|e| HostError::new("KVM_GET_MSRS", e))?;
        found.extend(msrs.as_slice().iter().take(read));
        // It stops at the first that it does not have.
        rest = match chunk.get(read..).and_then(<[u32]>::split_first) {
            Some((index, _)) => {
                tracing::trace!("MSR {index:#x} cannot be read and is not saved");
                rest.get(read + 1..).unwrap_or_default()
            }
            None => behind,
        };
    }
    Ok(found)
}

/// Writes `values`. A register that takes no value is fine if it holds the right one.
pub(crate) fn write(vcpu: &VcpuFd, values: &[kvm_msr_entry]) -> Result<(), RestoreError> {
    let mut rest = values;
    while !rest.is_empty() {
        let (chunk, behind) = rest.split_at(rest.len().min(CHUNK));
        let written = vcpu
            .set_msrs(&list(chunk, "KVM_SET_MSRS")?)
            .map_err(|e| HostError::new("KVM_SET_MSRS", e))?;
        rest = match chunk
            .get(written..)
            .and_then(<[kvm_msr_entry]>::split_first)
        {
            Some((refused, _)) => {
                let held = read(vcpu, &[refused.index])?;
                if held.first().map(|held| held.data) != Some(refused.data) {
                    return Err(RestoreError::Msr {
                        index: refused.index,
                        value: refused.data,
                    });
                }
                rest.get(written + 1..).unwrap_or_default()
            }
            None => behind,
        };
    }
    Ok(())
}

/// The value of one register, if this vCPU has it.
pub(crate) fn read_one(vcpu: &VcpuFd, index: u32) -> Result<Option<u64>, HostError> {
    Ok(read(vcpu, &[index])?.first().map(|entry| entry.data))
}

pub(crate) fn entry(index: u32, data: u64) -> kvm_msr_entry {
    kvm_msr_entry {
        index,
        data,
        ..Default::default()
    }
}

fn list(entries: &[kvm_msr_entry], call: &'static str) -> Result<Msrs, HostError> {
    Msrs::from_entries(entries)
        .map_err(|e| HostError::new(call, io::Error::other(format!("{e:?}"))))
}

#[cfg(test)]
#[path = "msrs_test.rs"]
mod tests;
