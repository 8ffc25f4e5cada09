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
