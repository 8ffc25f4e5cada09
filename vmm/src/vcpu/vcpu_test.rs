use super::*;

#[test]
fn each_exit_that_ends_a_vm_is_told_apart() {
    assert_eq!(End::from(VcpuExit::Shutdown), End::Shutdown);
    assert_eq!(
        End::from(VcpuExit::SystemEvent(KVM_SYSTEM_EVENT_SHUTDOWN, &[])),
        End::PowerOff
    );
    assert_eq!(
        End::from(VcpuExit::SystemEvent(KVM_SYSTEM_EVENT_RESET, &[])),
        End::Reset
    );
    assert_eq!(
        End::from(VcpuExit::SystemEvent(KVM_SYSTEM_EVENT_CRASH, &[])),
        End::Crash
    );
    assert_eq!(End::from(VcpuExit::InternalError), End::InternalError);
    assert!(
        matches!(End::from(VcpuExit::FailEntry(0x21, 3)), End::Kvm(text) if text.contains("0x21"))
    );
    assert!(matches!(End::from(VcpuExit::Hlt), End::Kvm(_)));
}

#[test]
fn an_instruction_that_cannot_be_emulated_is_shown() {
    // Flags, then a length of 3 and the bytes.
    let text = describe_internal_error(KVM_INTERNAL_ERROR_EMULATION, &[1, 0x0ba2_0f03, 0]);
    assert!(text.ends_with(": 0f a2 0b"), "{text}");
    for data in [&[][..], &[1], &[0, 0x0ba2_0f03], &[1, 0]] {
        let text = describe_internal_error(KVM_INTERNAL_ERROR_EMULATION, data);
        assert!(text.ends_with("emulate"), "{text}");
    }
    assert!(describe_internal_error(99, &[0xab]).contains("ab"));
}
