use super::*;

fn entry(function: u32, index: u32) -> kvm_cpuid_entry2 {
    kvm_cpuid_entry2 {
        function,
        index,
        eax: u32::MAX,
        ebx: u32::MAX,
        ecx: u32::MAX,
        edx: u32::MAX,
        ..Default::default()
    }
}

fn supported() -> CpuId {
    let mut highest = entry(0, 0);
    highest.eax = LEAF_TOPOLOGY_V2;
    CpuId::from_entries(&[
        highest,
        entry(LEAF_FEATURES, 0),
        entry(LEAF_TOPOLOGY, 0),
        entry(LEAF_INTEL_PMU, 0),
        entry(LEAF_KVM_FEATURES, 0),
        entry(LEAF_AMD_FEATURES, 0),
        entry(LEAF_AMD_POWER, 0),
        entry(LEAF_AMD_SIZES, 0),
        entry(LEAF_AMD_TOPOLOGY, 0),
        entry(LEAF_AMD_PMU, 0),
    ])
    .unwrap()
}

fn leaf(cpuid: &CpuId, function: u32, index: u32) -> kvm_cpuid_entry2 {
    *cpuid
        .as_slice()
        .iter()
        .find(|e| e.function == function && e.index == index)
        .unwrap()
}

#[test]
fn what_would_tie_a_snapshot_to_this_host_is_hidden() {
    let cpuid = for_vcpu(&supported(), 0, 1).unwrap();
    assert_eq!(
        !leaf(&cpuid, LEAF_KVM_FEATURES, 0).eax,
        1 << 4 | 1 << 5 | 1 << 10 | 1 << 14
    );
    assert_eq!(!leaf(&cpuid, LEAF_AMD_POWER, 0).edx, 1 << 8);
    for function in [LEAF_INTEL_PMU, LEAF_AMD_PMU] {
        let counters = leaf(&cpuid, function, 0);
        assert_eq!((counters.eax, counters.ebx), (0, 0));
    }
}

#[test]
fn the_deadline_timer_is_offered_and_virtualisation_is_not() {
    let mut bare = supported();
    for entry in bare.as_mut_slice() {
        if entry.function == LEAF_FEATURES {
            entry.ecx = VMX;
        }
    }
    let cpuid = for_vcpu(&bare, 0, 1).unwrap();
    assert_eq!(
        leaf(&cpuid, LEAF_FEATURES, 0).ecx,
        HYPERVISOR | X2APIC | TSC_DEADLINE
    );
    assert_eq!(leaf(&cpuid, LEAF_AMD_FEATURES, 0).ecx & SVM, 0);
}

#[test]
fn every_vcpu_is_a_core_of_its_own_in_one_socket() {
    for cpus in [1u8, 2, 3, 4, 254] {
        for id in [0, cpus - 1] {
            let (number, count) = (u32::from(id), u32::from(cpus));
            let cpuid = for_vcpu(&supported(), id, cpus).unwrap();
            let features = leaf(&cpuid, LEAF_FEATURES, 0);
            assert_eq!(features.ebx >> 24, number);
            assert_eq!(features.ebx >> 16 & 0xff, count);
            assert_eq!(features.edx & HTT != 0, cpus > 1);
            for function in [LEAF_TOPOLOGY, LEAF_TOPOLOGY_V2] {
                let threads = leaf(&cpuid, function, 0);
                assert_eq!((threads.eax, threads.ebx), (0, 1));
                let cores = leaf(&cpuid, function, 1);
                assert_eq!((cores.ebx, cores.edx), (count, number));
                assert!(1u32 << cores.eax >= count, "ids overflow the field");
                assert_eq!(leaf(&cpuid, function, 2).ecx, 2, "end of the list");
            }
            assert_eq!(leaf(&cpuid, LEAF_AMD_TOPOLOGY, 0).ebx, number);
            assert_eq!(leaf(&cpuid, LEAF_AMD_SIZES, 0).ecx & 0xff, count - 1);
        }
    }
}

#[test]
fn a_processor_without_topology_leaves_gets_none() {
    let mut old = supported();
    old.as_mut_slice()[0].eax = 7;
    let cpuid = for_vcpu(&old, 0, 2).unwrap();
    assert!(cpuid.as_slice().iter().all(|e| e.function != LEAF_TOPOLOGY));
}

#[test]
fn only_the_outer_cache_is_shared() {
    let cache = |level: u32| {
        let mut e = entry(LEAF_INTEL_CACHE, level);
        e.eax = level << 5 | 1;
        fit(e, 0, 4).eax >> 14 & 0xfff
    };
    assert_eq!((cache(1), cache(2), cache(3)), (0, 0, 3));
}

#[test]
fn a_guest_with_a_feature_that_is_not_offered_is_refused_by_name() {
    let offered = for_vcpu(&supported(), 0, 1).unwrap();
    assert!(judge(offered.as_slice(), &offered).is_ok());
    for (function, subleaf, register, counts) in FEATURES {
        let mut saved = offered.as_slice().to_vec();
        let mut here = saved.clone();
        saved.retain(|e| e.function != function);
        here.retain(|e| e.function != function);
        let mut with = entry(function, subleaf);
        saved.push(with);
        // All but one bit of it, the lowest that counts.
        let bit = 1 << counts.trailing_zeros();
        let field = match register {
            Register::Eax => &mut with.eax,
            Register::Ebx => &mut with.ebx,
            Register::Ecx => &mut with.ecx,
            Register::Edx => &mut with.edx,
        };
        *field &= !bit;
        here.push(with);
        match judge(&saved, &CpuId::from_entries(&here).unwrap()) {
            Err(RestoreError::CpuFeature {
                leaf,
                subleaf: sub,
                register: name,
                bits,
            }) => {
                assert_eq!(
                    (leaf, sub, name, bits),
                    (function, subleaf, register.name(), bit)
                );
            }
            other => panic!("{function:#x}.{subleaf} {register:?}: {other:?}"),
        }
        // And the other way round it is none the guest would miss.
        let more = CpuId::from_entries(&saved).unwrap();
        assert!(judge(&here, &more).is_ok(), "{function:#x} {register:?}");
    }
}

#[test]
fn what_a_guest_has_switched_on_is_no_feature() {
    let mut offered = for_vcpu(&supported(), 0, 1).unwrap();
    let saved = offered.as_slice().to_vec();
    for entry in offered.as_mut_slice() {
        if entry.function == LEAF_FEATURES {
            entry.ecx &= !OSXSAVE;
        }
    }
    assert!(judge(&saved, &offered).is_ok());
}

#[test]
fn another_makers_processor_and_a_narrower_one_are_refused() {
    let offered = for_vcpu(&supported(), 0, 1).unwrap();
    let mut saved = offered.as_slice().to_vec();
    saved[0].ebx = u32::from_le_bytes(*b"Genu");
    assert!(matches!(
        judge(&saved, &offered),
        Err(RestoreError::CpuVendor { .. })
    ));
    let mut narrow = offered.clone();
    for entry in narrow.as_mut_slice() {
        if entry.function == LEAF_AMD_SIZES {
            entry.eax = entry.eax & !0xff | 48;
        }
    }
    assert!(matches!(
        judge(offered.as_slice(), &narrow),
        Err(RestoreError::AddressBits {
            found: 255,
            host: 48
        })
    ));
    assert!(judge(narrow.as_slice(), &offered).is_ok());
}

#[test]
fn a_processor_is_told_by_its_maker_and_signature() {
    let mut leaves = vec![entry(0, 0), entry(LEAF_FEATURES, 0)];
    let words = [*b"Genu", *b"ineI", *b"ntel"].map(u32::from_le_bytes);
    (leaves[0].ebx, leaves[0].edx, leaves[0].ecx) = words.into();
    leaves[1].eax = 0x806f8;
    assert_eq!(&vendor(&leaves), b"GenuineIntel");
    assert_eq!(signature(&leaves), 0x806f8);
    assert_eq!((vendor(&[]), signature(&[])), ([0; 12], 0));
}
