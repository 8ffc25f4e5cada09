//! What a guest's `cpuid` answers: what KVM supports, made to fit this VM.
//!
//! Changed from KVM's answer:
//! - processor ids and topology: one socket, one thread per core, as many cores as vCPUs;
//! - on: the hypervisor bit, x2APIC, the TSC deadline timer (KVM has it and does not list it;
//!   without it a boot takes ten times as long);
//! - off, since it would tie a snapshot to this host or cannot survive one: invariant TSC,
//!   asynchronous page faults, steal time, the performance monitoring unit;
//! - off: VMX and SVM. Virtualisation inside the guest is not offered.

use kvm_bindings::{CpuId, KVM_CPUID_FLAG_SIGNIFCANT_INDEX, kvm_cpuid_entry2};

use crate::error::HostError;

const LEAF_FEATURES: u32 = 0x1;
const LEAF_INTEL_CACHE: u32 = 0x4;
const LEAF_INTEL_PMU: u32 = 0xa;
const LEAF_TOPOLOGY: u32 = 0xb;
const LEAF_TOPOLOGY_V2: u32 = 0x1f;
const LEAF_KVM_FEATURES: u32 = 0x4000_0001;
const LEAF_AMD_FEATURES: u32 = 0x8000_0001;
const LEAF_AMD_POWER: u32 = 0x8000_0007;
const LEAF_AMD_SIZES: u32 = 0x8000_0008;
const LEAF_AMD_CACHE: u32 = 0x8000_001d;
const LEAF_AMD_TOPOLOGY: u32 = 0x8000_001e;
const LEAF_AMD_PMU: u32 = 0x8000_0022;

/// ECX of [`LEAF_FEATURES`].
const VMX: u32 = 1 << 5;
const X2APIC: u32 = 1 << 21;
const TSC_DEADLINE: u32 = 1 << 24;
const HYPERVISOR: u32 = 1 << 31;
/// EDX of [`LEAF_FEATURES`]: the topology leaves count.
const HTT: u32 = 1 << 28;
/// ECX of [`LEAF_AMD_FEATURES`].
const SVM: u32 = 1 << 2;
const PERFCTR_CORE: u32 = 1 << 23;
const PERFCTR_NB: u32 = 1 << 24;
/// EDX of [`LEAF_AMD_POWER`].
const INVARIANT_TSC: u32 = 1 << 8;
/// EAX of [`LEAF_KVM_FEATURES`]: asynchronous page faults (three bits) and steal time.
const KVM_ASYNC_PF: u32 = 1 << 4 | 1 << 10 | 1 << 14;
const KVM_STEAL_TIME: u32 = 1 << 5;

/// Cache levels of [`LEAF_INTEL_CACHE`] and [`LEAF_AMD_CACHE`] from this one up are shared.
const SHARED_CACHE_LEVEL: u32 = 3;

/// The leaves for vCPU `id` of `cpus`, from what KVM supports.
pub(crate) fn for_vcpu(supported: &CpuId, id: u8, cpus: u8) -> Result<CpuId, HostError> {
    let mut leaves = Vec::with_capacity(supported.as_slice().len() + 4);
    let mut highest_basic = 0;
    for entry in supported.as_slice() {
        match entry.function {
            0 => highest_basic = entry.eax,
            LEAF_TOPOLOGY | LEAF_TOPOLOGY_V2 => continue,
            _ => {}
        }
        leaves.push(fit(*entry, id, cpus));
    }
    for leaf in [LEAF_TOPOLOGY, LEAF_TOPOLOGY_V2] {
        if leaf <= highest_basic {
            leaves.extend(topology(leaf, id, cpus));
        }
    }
    CpuId::from_entries(&leaves)
        .map_err(|e| HostError::new("lay out CPUID", std::io::Error::other(format!("{e:?}"))))
}

fn fit(mut entry: kvm_cpuid_entry2, id: u8, cpus: u8) -> kvm_cpuid_entry2 {
    let (id, cpus) = (u32::from(id), u32::from(cpus));
    let others = cpus.saturating_sub(1);
    match entry.function {
        LEAF_FEATURES => {
            entry.ebx = (entry.ebx & 0xffff) | id << 24 | cpus << 16;
            entry.ecx |= HYPERVISOR | X2APIC | TSC_DEADLINE;
            entry.ecx &= !VMX;
            entry.edx = if cpus > 1 {
                entry.edx | HTT
            } else {
                entry.edx & !HTT
            };
        }
        // EAX: 31..26 cores in the package - 1, 25..14 threads sharing the cache - 1, 7..5 level.
        LEAF_INTEL_CACHE if entry.eax & 0x1f != 0 => {
            let sharing = shared_by(entry.eax, others);
            entry.eax = (entry.eax & 0x3fff) | sharing << 14 | others.min(0x3f) << 26;
        }
        LEAF_INTEL_PMU | LEAF_AMD_PMU => {
            (entry.eax, entry.ebx, entry.ecx, entry.edx) = (0, 0, 0, 0)
        }
        LEAF_KVM_FEATURES => entry.eax &= !(KVM_ASYNC_PF | KVM_STEAL_TIME),
        LEAF_AMD_FEATURES => entry.ecx &= !(SVM | PERFCTR_CORE | PERFCTR_NB),
        LEAF_AMD_POWER => entry.edx &= !INVARIANT_TSC,
        // ECX: 15..12 bits of an id within the package, 7..0 cores - 1.
        LEAF_AMD_SIZES => {
            entry.ecx = (entry.ecx & !0xf0ff) | id_bits(cpus) << 12 | others;
        }
        LEAF_AMD_CACHE if entry.eax & 0x1f != 0 => {
            let sharing = shared_by(entry.eax, others);
            entry.eax = (entry.eax & !(0xfff << 14)) | sharing << 14;
        }
        // EAX: id; EBX: 15..8 threads per core - 1, 7..0 core; ECX: node 0 of one.
        LEAF_AMD_TOPOLOGY => (entry.eax, entry.ebx, entry.ecx) = (id, id, 0),
        _ => {}
    }
    entry
}

/// Threads beside the first that share the cache described by `eax`.
fn shared_by(eax: u32, others: u32) -> u32 {
    if (eax >> 5 & 7) >= SHARED_CACHE_LEVEL {
        others
    } else {
        0
    }
}

/// Bits that number `cpus` processors.
fn id_bits(cpus: u32) -> u32 {
    cpus.max(1).next_power_of_two().trailing_zeros()
}

/// The extended topology: a level of threads (one each), a level of cores, the end.
fn topology(leaf: u32, id: u8, cpus: u8) -> [kvm_cpuid_entry2; 3] {
    const LEVEL_THREAD: u32 = 1;
    const LEVEL_CORE: u32 = 2;
    let level = |index: u32, shift: u32, count: u32, kind: u32| kvm_cpuid_entry2 {
        function: leaf,
        index,
        flags: KVM_CPUID_FLAG_SIGNIFCANT_INDEX,
        eax: shift,
        ebx: count,
        ecx: kind << 8 | index,
        edx: id.into(),
        ..Default::default()
    };
    let cpus = u32::from(cpus);
    [
        level(0, 0, 1, LEVEL_THREAD),
        level(1, id_bits(cpus), cpus, LEVEL_CORE),
        level(2, 0, 0, 0),
    ]
}

#[cfg(test)]
#[path = "cpuid_test.rs"]
mod tests;
