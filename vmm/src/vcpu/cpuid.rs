//! What a guest's `cpuid` answers: what KVM supports, as far as the VM's template shows it
//! ([`crate::cpu_template`]), made to fit this VM; and whether a guest that was given its answers
//! elsewhere can run here.
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
use crate::snapshot::RestoreError;

const LEAF_FEATURES: u32 = 0x1;
const LEAF_INTEL_CACHE: u32 = 0x4;
const LEAF_MORE_FEATURES: u32 = 0x7;
const LEAF_INTEL_PMU: u32 = 0xa;
const LEAF_TOPOLOGY: u32 = 0xb;
const LEAF_XSAVE: u32 = 0xd;
const LEAF_TOPOLOGY_V2: u32 = 0x1f;
const LEAF_KVM_FEATURES: u32 = 0x4000_0001;
const LEAF_AMD_FEATURES: u32 = 0x8000_0001;
const LEAF_AMD_POWER: u32 = 0x8000_0007;
const LEAF_AMD_SIZES: u32 = 0x8000_0008;
const LEAF_AMD_CACHE: u32 = 0x8000_001d;
const LEAF_AMD_TOPOLOGY: u32 = 0x8000_001e;
const LEAF_AMD_MORE_FEATURES: u32 = 0x8000_0021;
const LEAF_AMD_PMU: u32 = 0x8000_0022;

/// ECX of [`LEAF_FEATURES`].
const VMX: u32 = 1 << 5;
const X2APIC: u32 = 1 << 21;
const TSC_DEADLINE: u32 = 1 << 24;
const OSXSAVE: u32 = 1 << 27;
const HYPERVISOR: u32 = 1 << 31;
/// EDX of [`LEAF_FEATURES`]: the topology leaves count.
const HTT: u32 = 1 << 28;
/// ECX of [`LEAF_MORE_FEATURES`].
const OSPKE: u32 = 1 << 4;
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

/// The leaves for vCPU `id` of `cpus`, from what of KVM's the VM is to show.
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

/// Registers of leaves whose bits are features, each with the bits that count: not those in which
/// the processor shows what the guest has switched on.
const FEATURES: [(u32, u32, Register, u32); 20] = [
    (LEAF_FEATURES, 0, Register::Ecx, !OSXSAVE),
    (LEAF_FEATURES, 0, Register::Edx, !0),
    (LEAF_MORE_FEATURES, 0, Register::Ebx, !0),
    (LEAF_MORE_FEATURES, 0, Register::Ecx, !OSPKE),
    (LEAF_MORE_FEATURES, 0, Register::Edx, !0),
    (LEAF_MORE_FEATURES, 1, Register::Eax, !0),
    (LEAF_MORE_FEATURES, 1, Register::Ebx, !0),
    (LEAF_MORE_FEATURES, 1, Register::Edx, !0),
    (LEAF_MORE_FEATURES, 2, Register::Edx, !0),
    (LEAF_XSAVE, 0, Register::Eax, !0),
    (LEAF_XSAVE, 0, Register::Edx, !0),
    (LEAF_XSAVE, 1, Register::Eax, !0),
    (LEAF_XSAVE, 1, Register::Ecx, !0),
    (LEAF_XSAVE, 1, Register::Edx, !0),
    (LEAF_KVM_FEATURES, 0, Register::Eax, !0),
    (LEAF_AMD_FEATURES, 0, Register::Ecx, !0),
    (LEAF_AMD_FEATURES, 0, Register::Edx, !0),
    (LEAF_AMD_POWER, 0, Register::Edx, !0),
    (LEAF_AMD_SIZES, 0, Register::Ebx, !0),
    (LEAF_AMD_MORE_FEATURES, 0, Register::Eax, !0),
];

#[derive(Debug, Clone, Copy)]
enum Register {
    Eax,
    Ebx,
    Ecx,
    Edx,
}

impl Register {
    fn of(self, entry: &kvm_cpuid_entry2) -> u32 {
        match self {
            Self::Eax => entry.eax,
            Self::Ebx => entry.ebx,
            Self::Ecx => entry.ecx,
            Self::Edx => entry.edx,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Eax => "EAX",
            Self::Ebx => "EBX",
            Self::Ecx => "ECX",
            Self::Edx => "EDX",
        }
    }
}

/// Judges the leaves that a guest was given elsewhere, or earlier, by what a guest is offered here:
/// same maker, no feature more, no wider addresses. What only describes (caches, names, clocks) may
/// be different: the guest is not to notice that it was moved.
pub(crate) fn judge(saved: &[kvm_cpuid_entry2], offered: &CpuId) -> Result<(), RestoreError> {
    let offered = offered.as_slice();
    let (found, host) = (vendor(saved), vendor(offered));
    if found != host {
        let text = |vendor: [u8; 12]| String::from_utf8_lossy(&vendor).into_owned();
        return Err(RestoreError::CpuVendor {
            found: text(found),
            host: text(host),
        });
    }
    for (leaf, subleaf, register, counts) in FEATURES {
        let bits = |entries| find(entries, leaf, subleaf).map_or(0, |entry| register.of(entry));
        let bits = bits(saved) & !bits(offered) & counts;
        if bits != 0 {
            return Err(RestoreError::CpuFeature {
                leaf,
                subleaf,
                register: register.name(),
                bits,
            });
        }
    }
    let address_bits = |entries| find(entries, LEAF_AMD_SIZES, 0).map_or(0, |e| e.eax & 0xff);
    let (found, host) = (address_bits(saved), address_bits(offered));
    if found > host {
        return Err(RestoreError::AddressBits { found, host });
    }
    Ok(())
}

/// Who made the processor: twelve letters.
pub(crate) fn vendor(leaves: &[kvm_cpuid_entry2]) -> [u8; 12] {
    let mut vendor = [0; 12];
    if let Some(entry) = find(leaves, 0, 0) {
        let words = [entry.ebx, entry.edx, entry.ecx].map(u32::to_le_bytes);
        vendor
            .iter_mut()
            .zip(words.as_flattened())
            .for_each(|(to, from)| *to = *from);
    }
    vendor
}

/// Family, model and stepping, as the processor says them.
pub(crate) fn signature(leaves: &[kvm_cpuid_entry2]) -> u32 {
    find(leaves, LEAF_FEATURES, 0).map_or(0, |entry| entry.eax)
}

fn find(leaves: &[kvm_cpuid_entry2], leaf: u32, subleaf: u32) -> Option<&kvm_cpuid_entry2> {
    leaves
        .iter()
        .find(|entry| entry.function == leaf && entry.index == subleaf)
}

#[cfg(test)]
#[path = "cpuid_test.rs"]
mod tests;
