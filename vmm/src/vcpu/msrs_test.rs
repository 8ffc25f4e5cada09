use super::*;
use crate::kvm as host;
use kvm_ioctls::VmFd;

/// None that any processor has.
const NONE: u32 = 0xdead_0000;
/// One that all have, and that takes any value.
const KERNEL_GS_BASE: u32 = 0xc000_0102;

/// `None`, with a note, where there is no KVM.
fn vcpu() -> Option<(VcpuFd, VmFd, Kvm)> {
    let kvm = host::open()
        .inspect_err(|error| eprintln!("skipped: {error}"))
        .ok()?;
    let vm = host::create_vm(&kvm).unwrap();
    vm.create_irq_chip().unwrap();
    Some((vm.create_vcpu(0).unwrap(), vm, kvm))
}

#[test]
fn registers_that_a_vcpu_does_not_have_are_left_out_and_those_behind_them_are_read() {
    let Some((vcpu, _vm, _kvm)) = vcpu() else {
        return;
    };
    let mut wanted = vec![TSC; CHUNK + 3];
    for missing in [0, 5, CHUNK, CHUNK + 2] {
        wanted[missing] = NONE;
    }
    let found = read(&vcpu, &wanted).unwrap();
    assert_eq!(found.len(), wanted.len() - 4);
    assert!(found.iter().all(|msr| msr.index == TSC));
    assert_eq!(read_one(&vcpu, NONE).unwrap(), None);
}

#[test]
fn a_register_that_does_not_take_its_value_is_named_and_those_before_it_were_written() {
    let Some((vcpu, _vm, _kvm)) = vcpu() else {
        return;
    };
    let values = [entry(KERNEL_GS_BASE, 0x1234_5000), entry(NONE, 7)];
    match write(&vcpu, &values) {
        Err(RestoreError::Msr { index, value }) => assert_eq!((index, value), (NONE, 7)),
        other => panic!("{other:?}"),
    }
    assert_eq!(read_one(&vcpu, KERNEL_GS_BASE).unwrap(), Some(0x1234_5000));
}

#[test]
fn all_of_them_can_be_written_back() {
    let Some((vcpu, _vm, kvm)) = vcpu() else {
        return;
    };
    let supported = host::supported_cpuid(&kvm).unwrap();
    vcpu.set_cpuid2(supported).unwrap();
    let indices = indices(&kvm).unwrap();
    assert!(indices.contains(&TSC) && indices.contains(&WALL_CLOCK[0]));
    let values = read(&vcpu, indices).unwrap();
    write(&vcpu, &values).unwrap();
}
