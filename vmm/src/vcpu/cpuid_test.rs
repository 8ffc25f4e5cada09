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
