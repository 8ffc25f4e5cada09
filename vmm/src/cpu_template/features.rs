//! The table of features: their names in `/proc/cpuinfo`, where `cpuid` has them, and what they need.
//!
//! Names are Linux's (`arch/x86/include/asm/cpufeatures.h`; KVM's own, which `/proc/cpuinfo` does not
//! show, as in `linux/kvm_para.h`), and so are dependencies (`arch/x86/kernel/cpu/cpuid-deps.c`).

use super::CpuidRegister::{Eax, Ebx, Ecx, Edx};
use super::{CpuidRegister, Level, Place};

/// A feature.
#[derive(Debug)]
pub(super) struct Feature {
    pub(super) name: &'static str,
    pub(super) place: Place,
    pub(super) bit: u32,
    /// The feature without which this one is not to be shown; it stands before it in the table.
    pub(super) needs: Option<&'static str>,
    /// The lowest level that has it; `None`: neither.
    level: Option<Level>,
}

const fn place(leaf: u32, subleaf: u32, register: CpuidRegister) -> Place {
    Place {
        leaf,
        subleaf,
        register,
    }
}

const FEATURES_EDX: Place = place(1, 0, Edx);
const FEATURES_ECX: Place = place(1, 0, Ecx);
const POWER_EAX: Place = place(6, 0, Eax);
const EXTENDED_EBX: Place = place(7, 0, Ebx);
const EXTENDED_ECX: Place = place(7, 0, Ecx);
const EXTENDED_EDX: Place = place(7, 0, Edx);
const EXTENDED_1_EAX: Place = place(7, 1, Eax);
const XSAVE_EAX: Place = place(0xd, 1, Eax);
const KVM_EAX: Place = place(0x4000_0001, 0, Eax);
const AMD_ECX: Place = place(0x8000_0001, 0, Ecx);
const AMD_EDX: Place = place(0x8000_0001, 0, Edx);
const AMD_8_EBX: Place = place(0x8000_0008, 0, Ebx);

/// The registers that hold feature flags and nothing else.
pub(super) const FLAGS: [Place; 20] = [
    FEATURES_EDX,
    FEATURES_ECX,
    POWER_EAX,
    EXTENDED_EBX,
    EXTENDED_ECX,
    EXTENDED_EDX,
    EXTENDED_1_EAX,
    place(7, 1, Ebx),
    place(7, 1, Ecx),
    place(7, 1, Edx),
    place(7, 2, Edx),
    XSAVE_EAX,
    KVM_EAX,
    AMD_ECX,
    AMD_EDX,
    place(0x8000_0007, 0, Ebx),
    place(0x8000_0007, 0, Edx),
    AMD_8_EBX,
    place(0x8000_001f, 0, Eax),
    place(0x8000_0021, 0, Eax),
];

/// What a guest of this library does not boot without.
pub(super) const NEEDED: [&str; 23] = [
    "fpu",
    "pse",
    "tsc",
    "msr",
    "pae",
    "cx8",
    "apic",
    "pge",
    "cmov",
    "clflush",
    "fxsr",
    "sse",
    "sse2",
    "x2apic",
    "tsc_deadline_timer",
    "hypervisor",
    "arat",
    "syscall",
    "nx",
    "lm",
    "kvmclock",
    "kvmclock2",
    "kvmclock_stable",
];

/// Bits that a level leaves where they are: what is said about protection against speculation, which
/// follows from the host's microcode and which a guest's kernel should know, and what KVM offers.
fn left_anyway(place: Place) -> u32 {
    match place {
        // What AMD repeats there of leaf 1.
        AMD_EDX => 0x0183_f3ff,
        // md_clear, spec_ctrl, intel_stibp, flush_l1d, arch_capabilities, ssbd
        EXTENDED_EDX => 1 << 10 | 0b11 << 26 | 0b11 << 28 | 1 << 31,
        // ibpb, ibrs, stibp, their preferences, ssbd in its two forms and not being needed
        AMD_8_EBX => 1 << 12 | 0b1111 << 14 | 0b111 << 24,
        KVM_EAX => u32::MAX,
        // Not offered by KVM for what they are, but for what they say is needed.
        Place {
            leaf: 0x8000_0021, ..
        } => u32::MAX,
        _ => 0,
    }
}

/// The bits of a register of flags that a level leaves.
pub(super) fn left_by(level: Level, place: Place) -> u32 {
    FEATURES
        .iter()
        .filter(|feature| feature.place == place)
        .filter(|feature| feature.level.is_some_and(|lowest| lowest <= level))
        .fold(left_anyway(place), |bits, feature| bits | 1 << feature.bit)
}

/// Of both levels.
const fn v2(name: &'static str, place: Place, bit: u32) -> Feature {
    Feature {
        name,
        place,
        bit,
        needs: None,
        level: Some(Level::V2),
    }
}

/// Of the higher level alone.
const fn v3(name: &'static str, place: Place, bit: u32) -> Feature {
    Feature {
        level: Some(Level::V3),
        ..v2(name, place, bit)
    }
}

/// Of neither level.
const fn other(name: &'static str, place: Place, bit: u32) -> Feature {
    Feature {
        level: None,
        ..v2(name, place, bit)
    }
}

impl Feature {
    const fn on(mut self, needs: &'static str) -> Self {
        self.needs = Some(needs);
        self
    }
}

pub(super) const FEATURES: &[Feature] = &[
    v2("fpu", FEATURES_EDX, 0),
    v2("vme", FEATURES_EDX, 1),
    v2("de", FEATURES_EDX, 2),
    v2("pse", FEATURES_EDX, 3),
    v2("tsc", FEATURES_EDX, 4),
    v2("msr", FEATURES_EDX, 5),
    v2("pae", FEATURES_EDX, 6),
    v2("mce", FEATURES_EDX, 7),
    v2("cx8", FEATURES_EDX, 8),
    v2("apic", FEATURES_EDX, 9),
    v2("sep", FEATURES_EDX, 11),
    v2("mtrr", FEATURES_EDX, 12),
    v2("pge", FEATURES_EDX, 13),
    v2("mca", FEATURES_EDX, 14),
    v2("cmov", FEATURES_EDX, 15),
    v2("pat", FEATURES_EDX, 16),
    v2("pse36", FEATURES_EDX, 17),
    v2("clflush", FEATURES_EDX, 19),
    v2("mmx", FEATURES_EDX, 23),
    v2("fxsr", FEATURES_EDX, 24),
    v2("sse", FEATURES_EDX, 25),
    v2("sse2", FEATURES_EDX, 26),
    other("ss", FEATURES_EDX, 27),
    v2("ht", FEATURES_EDX, 28),
    v2("pni", FEATURES_ECX, 0),
    v3("pclmulqdq", FEATURES_ECX, 1),
    v2("ssse3", FEATURES_ECX, 9),
    v2("cx16", FEATURES_ECX, 13),
    other("pcid", FEATURES_ECX, 17),
    v2("sse4_1", FEATURES_ECX, 19),
    v2("sse4_2", FEATURES_ECX, 20),
    v2("x2apic", FEATURES_ECX, 21),
    v3("movbe", FEATURES_ECX, 22),
    v2("popcnt", FEATURES_ECX, 23),
    v2("tsc_deadline_timer", FEATURES_ECX, 24),
    v3("aes", FEATURES_ECX, 25),
    v3("xsave", FEATURES_ECX, 26),
    v3("avx", FEATURES_ECX, 28).on("xsave"),
    v3("fma", FEATURES_ECX, 12).on("avx"),
    v3("f16c", FEATURES_ECX, 29).on("avx"),
    v3("rdrand", FEATURES_ECX, 30),
    v2("hypervisor", FEATURES_ECX, 31),
    v2("arat", POWER_EAX, 2),
    v3("fsgsbase", EXTENDED_EBX, 0),
    other("tsc_adjust", EXTENDED_EBX, 1),
    v3("bmi1", EXTENDED_EBX, 3),
    other("hle", EXTENDED_EBX, 4),
    v3("avx2", EXTENDED_EBX, 5).on("avx"),
    v3("smep", EXTENDED_EBX, 7),
    v3("bmi2", EXTENDED_EBX, 8),
    other("erms", EXTENDED_EBX, 9),
    other("invpcid", EXTENDED_EBX, 10),
    other("rtm", EXTENDED_EBX, 11),
    other("mpx", EXTENDED_EBX, 14).on("xsave"),
    other("avx512f", EXTENDED_EBX, 16).on("avx2"),
    other("avx512dq", EXTENDED_EBX, 17).on("avx512f"),
    other("rdseed", EXTENDED_EBX, 18),
    other("adx", EXTENDED_EBX, 19),
    other("smap", EXTENDED_EBX, 20),
    other("avx512ifma", EXTENDED_EBX, 21).on("avx512f"),
    other("clflushopt", EXTENDED_EBX, 23),
    other("clwb", EXTENDED_EBX, 24),
    other("avx512cd", EXTENDED_EBX, 28).on("avx512f"),
    other("sha_ni", EXTENDED_EBX, 29),
    other("avx512bw", EXTENDED_EBX, 30).on("avx512f"),
    other("avx512vl", EXTENDED_EBX, 31).on("avx512f"),
    other("avx512vbmi", EXTENDED_ECX, 1).on("avx512bw"),
    other("umip", EXTENDED_ECX, 2),
    other("pku", EXTENDED_ECX, 3).on("xsave"),
    other("waitpkg", EXTENDED_ECX, 5),
    other("avx512_vbmi2", EXTENDED_ECX, 6).on("avx512bw"),
    other("gfni", EXTENDED_ECX, 8),
    other("vaes", EXTENDED_ECX, 9).on("avx"),
    other("vpclmulqdq", EXTENDED_ECX, 10).on("avx"),
    other("avx512_vnni", EXTENDED_ECX, 11).on("avx512f"),
    other("avx512_bitalg", EXTENDED_ECX, 12).on("avx512bw"),
    other("avx512_vpopcntdq", EXTENDED_ECX, 14).on("avx512f"),
    other("la57", EXTENDED_ECX, 16),
    other("rdpid", EXTENDED_ECX, 22),
    other("movdiri", EXTENDED_ECX, 27),
    other("movdir64b", EXTENDED_ECX, 28),
    other("fsrm", EXTENDED_EDX, 4),
    other("avx512_vp2intersect", EXTENDED_EDX, 8).on("avx512vl"),
    other("serialize", EXTENDED_EDX, 14),
    other("amx_tile", EXTENDED_EDX, 24).on("xsave"),
    other("amx_bf16", EXTENDED_EDX, 22).on("amx_tile"),
    other("amx_int8", EXTENDED_EDX, 25).on("amx_tile"),
    other("avx512_fp16", EXTENDED_EDX, 23).on("avx512bw"),
    other("avx_vnni", EXTENDED_1_EAX, 4).on("avx2"),
    other("avx512_bf16", EXTENDED_1_EAX, 5).on("avx512vl"),
    v3("xsaveopt", XSAVE_EAX, 0).on("xsave"),
    other("xsavec", XSAVE_EAX, 1).on("xsave"),
    other("xgetbv1", XSAVE_EAX, 2).on("xsave"),
    other("xsaves", XSAVE_EAX, 3).on("xsavec"),
    v2("kvmclock", KVM_EAX, 0),
    v2("kvmclock2", KVM_EAX, 3),
    v2("kvmclock_stable", KVM_EAX, 24),
    v2("lahf_lm", AMD_ECX, 0),
    other("cr8_legacy", AMD_ECX, 4),
    v3("abm", AMD_ECX, 5),
    other("sse4a", AMD_ECX, 6),
    other("misalignsse", AMD_ECX, 7),
    other("3dnowprefetch", AMD_ECX, 8),
    other("osvw", AMD_ECX, 9),
    other("xop", AMD_ECX, 11).on("avx"),
    other("fma4", AMD_ECX, 16).on("avx"),
    other("tbm", AMD_ECX, 21),
    v2("topoext", AMD_ECX, 22),
    v2("syscall", AMD_EDX, 11),
    v2("nx", AMD_EDX, 20),
    other("mmxext", AMD_EDX, 22),
    other("fxsr_opt", AMD_EDX, 25),
    v2("pdpe1gb", AMD_EDX, 26),
    v2("rdtscp", AMD_EDX, 27),
    v2("lm", AMD_EDX, 29),
    other("clzero", AMD_8_EBX, 0),
    other("xsaveerptr", AMD_8_EBX, 2),
    other("wbnoinvd", AMD_8_EBX, 9),
];
