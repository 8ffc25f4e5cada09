use super::*;
use kvm_bindings::kvm_cpuid_entry2;

fn cpuid(leaves: &[(u32, u32, u32)]) -> CpuId {
    let entries: Vec<_> = leaves
        .iter()
        .map(|(function, ebx, ecx)| kvm_cpuid_entry2 {
            function: *function,
            ebx: *ebx,
            ecx: *ecx,
            ..Default::default()
        })
        .collect();
    CpuId::from_entries(&entries).unwrap()
}

#[test]
fn only_what_the_processor_claims_is_tried() {
    let names = |leaves: &[_]| -> Vec<_> { steps(&cpuid(leaves)).iter().map(|s| s.name).collect() };
    assert_eq!(names(&[]).len(), 2);
    assert_eq!(
        names(&[(1, 0, 1 << 26), (7, 1 << 8 | 1 << 3, 0)])[1..4],
        ["shlx", "andn", "xsave"]
    );
}

#[test]
fn the_parts_of_the_program_do_not_overlap() {
    let all = cpuid(&[(1, 0, 1 << 26), (7, 1 << 8 | 1 << 3, 0)]);
    assert!(CODE + program(&steps(&all)).len() as u64 <= HANDLER);
    assert_eq!(XSAVE_AREA % 64, 0);
    assert_eq!(DATA % 16, 0);
}

#[test]
fn where_kvm_is_there_the_probe_comes_to_an_end_that_says_something() {
    // Any answer is right somewhere; what may not happen is a hang or an answer without a reason.
    match probe() {
        Ok(()) => probe().unwrap(),
        Err(KvmError::EmulatesOnly { instruction, how }) => {
            assert!(!instruction.is_empty() && !how.is_empty());
        }
        Err(other) => assert!(!other.to_string().is_empty()),
    }
}

#[test]
fn a_probe_that_nobody_waits_for_leaves_nothing() {
    let probing = start();
    let guest = Arc::downgrade(&probing.guest);
    drop(probing);
    assert!(guest.upgrade().is_none(), "its thread goes on");
}
