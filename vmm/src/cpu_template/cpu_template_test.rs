use super::*;
use crate::agent::NoAgent;
use crate::machine::Machine;
use crate::probe::Probing;
use crate::stop::StopReason;
use crate::testing::{SPIN, out};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// A processor with every flag in every register of flags, and the state components of all features
/// that have one.
fn everything() -> CpuId {
    let mut leaves: Vec<kvm_cpuid_entry2> = Vec::new();
    let entry = |function, index| kvm_cpuid_entry2 {
        function,
        index,
        ..Default::default()
    };
    for place in FLAGS {
        let known = leaves
            .iter()
            .any(|e| (e.function, e.index) == (place.leaf, place.subleaf));
        if !known {
            leaves.push(entry(place.leaf, place.subleaf));
        }
        *place.of(&mut leaves).unwrap() = u32::MAX;
    }
    let mut sizes = entry(0xd, 0);
    // x87, SSE, AVX, MPX, AVX-512, PKRU, AMX; the length of all of it.
    (sizes.eax, sizes.ecx) = (0x6_02ff, 11_008);
    leaves.push(sizes);
    for (component, len, offset) in [
        (2, 256, 576),
        (3, 64, 960),
        (4, 64, 1024),
        (5, 64, 1088),
        (6, 512, 1152),
        (7, 1024, 1664),
        (9, 8, 2688),
        (17, 64, 2752),
        (18, 8192, 2816),
    ] {
        let mut component = entry(0xd, component);
        (component.eax, component.ebx) = (len, offset);
        leaves.push(component);
    }
    let mut vendor = entry(0, 0);
    vendor.ebx = 0x756e_6547;
    leaves.push(vendor);
    CpuId::from_entries(&leaves).unwrap()
}

fn shown(template: &CpuTemplate) -> Vec<kvm_cpuid_entry2> {
    template.check().unwrap();
    template.apply(&everything()).unwrap().as_slice().to_vec()
}

fn left(template: &CpuTemplate) -> HashSet<&'static str> {
    let mut leaves = shown(template);
    FEATURES
        .iter()
        .map(|feature| feature.name)
        .filter(|name| has(&mut leaves, name))
        .collect()
}

/// Names that a template takes away from a processor with everything.
fn gone(template: &CpuTemplate) -> HashSet<&'static str> {
    let left = left(template);
    let all: HashSet<_> = FEATURES.iter().map(|feature| feature.name).collect();
    all.difference(&left).copied().collect()
}

#[test]
fn the_table_names_each_flag_once_and_what_it_needs_before_it() {
    let (mut names, mut places) = (HashSet::new(), HashSet::new());
    for feature in FEATURES {
        let Place { leaf, subleaf, .. } = feature.place;
        let register = feature.place.register;
        assert!(names.insert(feature.name), "{feature:?}");
        let place = (leaf, subleaf, register, feature.bit);
        assert!(places.insert(place), "{feature:?}");
        assert!(FLAGS.contains(&feature.place), "{feature:?}");
        if let Some(needs) = feature.needs {
            assert!(names.contains(needs), "{feature:?}");
        }
    }
    for name in NEEDED {
        assert!(names.contains(name), "{name}");
        assert!(left(&CpuTemplate::x86_64_v2()).contains(name), "{name}");
    }
}

#[test]
fn without_a_template_nothing_is_changed() {
    assert_eq!(shown(&CpuTemplate::host()), everything().as_slice());
}

#[test]
fn a_hidden_flag_is_gone_and_no_other() {
    let template = CpuTemplate::host().without("rdrand").without("rdseed");
    assert_eq!(gone(&template), HashSet::from(["rdrand", "rdseed"]));
}

#[test]
fn what_needs_a_hidden_flag_goes_with_it() {
    let template = CpuTemplate::host().without("avx512bw");
    let expected = [
        "avx512bw",
        "avx512vbmi",
        "avx512_vbmi2",
        "avx512_bitalg",
        "avx512_fp16",
    ];
    assert_eq!(gone(&template), HashSet::from(expected));
    let without_avx = gone(&CpuTemplate::host().without("avx"));
    for name in ["avx", "avx2", "fma", "f16c", "avx512f", "avx512vl", "vaes"] {
        assert!(without_avx.contains(name), "{name}");
    }
    assert!(!without_avx.contains("xsave") && !without_avx.contains("aes"));
}

fn xsave(template: &CpuTemplate) -> Option<(u32, u32, Vec<u32>)> {
    let leaves = shown(template);
    let of_leaf = leaves.iter().filter(|e| e.function == 0xd);
    let main = of_leaf.clone().find(|e| e.index == 0)?;
    let own = of_leaf.filter(|e| e.index >= 2).map(|e| e.index).collect();
    Some((main.eax, main.ecx, own))
}

#[test]
fn saved_state_fits_the_features_that_are_left() {
    let all = (0x6_02ff, 11_008, vec![2, 3, 4, 5, 6, 7, 9, 17, 18]);
    let hidden = |name| CpuTemplate::host().without(name);
    assert_eq!(xsave(&hidden("rdrand")), Some(all));
    assert_eq!(
        xsave(&hidden("amx_tile")),
        Some((0x2ff, 2696, vec![2, 3, 4, 5, 6, 7, 9]))
    );
    assert_eq!(
        xsave(&hidden("avx512f").without("amx_tile").without("pku")),
        Some((0x1f, 1088, vec![2, 3, 4]))
    );
    assert_eq!(
        xsave(&CpuTemplate::x86_64_v3()),
        Some((0b111, 832, vec![2]))
    );
    assert_eq!(xsave(&hidden("xsave")), None, "the leaf is gone");
    assert_eq!(xsave(&CpuTemplate::x86_64_v2()), None);
}

#[test]
fn a_level_leaves_what_it_names_and_what_a_guest_needs_and_no_unknown_flag() {
    let (v2, v3) = (CpuTemplate::x86_64_v2(), CpuTemplate::x86_64_v3());
    let (in_v2, in_v3) = (left(&v2), left(&v3));
    for name in [
        "cx16", "lahf_lm", "popcnt", "pni", "ssse3", "sse4_1", "sse4_2",
    ] {
        assert!(in_v2.contains(name), "{name}");
    }
    for name in ["avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"] {
        assert!(!in_v2.contains(name) && in_v3.contains(name), "{name}");
    }
    assert!(in_v3.is_superset(&in_v2));
    assert!(!in_v3.contains("avx512f") && !in_v3.contains("sse4a"));
    // Bits of no name in the table.
    let mut leaves = shown(&v3);
    let unnamed = Place {
        leaf: 7,
        subleaf: 1,
        register: CpuidRegister::Edx,
    };
    assert_eq!(unnamed.of(&mut leaves), Some(&mut 0));
    // AMD says again what leaf 1 says.
    let repeated = Place {
        leaf: 0x8000_0001,
        subleaf: 0,
        register: CpuidRegister::Edx,
    };
    assert_ne!(*repeated.of(&mut leaves).unwrap() & 1 << 24, 0, "fxsr");
    // Protection against speculation is not a matter of level.
    let spec_ctrl = Place {
        subleaf: 0,
        ..unnamed
    };
    assert_ne!(*spec_ctrl.of(&mut leaves).unwrap() & 1 << 26, 0);
}

#[test]
fn a_level_can_be_lowered_further() {
    let template = CpuTemplate::x86_64_v3().without("rdrand");
    assert!(!left(&template).contains("rdrand"));
    assert!(left(&template).contains("avx2"));
}

#[test]
fn bits_of_no_name_can_be_cleared() {
    let template = CpuTemplate::host().mask(7, 1, CpuidRegister::Edx, 1 << 4);
    let mut leaves = shown(&template);
    let place = template.masks[0].place;
    assert_eq!(place.of(&mut leaves), Some(&mut !(1 << 4)));
}

#[test]
fn what_a_guest_needs_cannot_be_hidden_and_is_named() {
    for name in NEEDED {
        let error = CpuTemplate::host().without(name).check().unwrap_err();
        assert_eq!((error.field, error.value.as_str()), ("cpu_template", name));
        let Feature { place, bit, .. } = named(name).unwrap();
        let mask = CpuTemplate::host().mask(place.leaf, place.subleaf, place.register, 1 << bit);
        assert_eq!(mask.check().unwrap_err().value, name);
    }
}

#[test]
fn unknown_names_and_registers_without_flags_are_refused() {
    let error = CpuTemplate::host().without("avx1024").check().unwrap_err();
    assert_eq!(error.value, "avx1024");
    let vendor = CpuTemplate::host().mask(0, 0, CpuidRegister::Ebx, 1);
    let error = vendor.check().unwrap_err();
    assert!(error.value.contains("leaf 0x0"), "{error}");
}

#[test]
fn leaves_that_are_not_there_are_no_obstacle() {
    let none = CpuId::from_entries(&[]).unwrap();
    let template = CpuTemplate::x86_64_v2().without("rdrand");
    assert!(template.apply(&none).unwrap().as_slice().is_empty());
}

// What the guest then sees is a matter for tests with real guests: a KVM that only emulates shows them
// what it likes.
#[test]
fn kvm_takes_what_each_template_leaves() {
    if let Err(error) = crate::kvm::open() {
        eprintln!("skipped: {error}");
        return;
    }
    let flags = ["xsave", "avx", "avx512f", "amx_tile", "pku"];
    let lowered = flags.map(|flag| CpuTemplate::host().without(flag));
    let levels = [CpuTemplate::x86_64_v2(), CpuTemplate::x86_64_v3()];
    for template in levels.into_iter().chain(lowered) {
        let (_dir, builder) = crate::testing::kernel(&[&out(0x600, 0x34), &SPIN]);
        let spec = builder.cpus(2).cpu_template(template).spec().unwrap();
        let machine =
            Machine::start_probed(spec, Arc::new(NoAgent), Probing::not_needed()).unwrap();
        let end = machine.wait_blocking(Some(Duration::from_secs(60)));
        assert_eq!(end, Some(StopReason::PowerOff));
    }
}
