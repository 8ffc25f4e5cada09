use super::*;
use crate::{kvm, memory};
use vm_memory::{Bytes as _, GuestAddress};

impl Vcpu {
    /// Runs it until it comes out.
    pub(crate) fn run_once(&mut self) -> Result<VcpuExit<'_>, kvm_ioctls::Error> {
        self.fd.run()
    }
}

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

/// What [`Vcpu::run`] relies on, by reads and writes.
#[test]
fn a_vcpu_that_is_kicked_has_finished_the_access_that_it_came_out_for() {
    const START: u64 = 0x1000;
    /// Real mode: again: in al, 0x40; out 0x41, al; jmp again.
    const CODE: [u8; 6] = [0xe4, 0x40, 0xe6, 0x41, 0xeb, 0xfa];
    let Ok(kvm) = kvm::open().inspect_err(|error| eprintln!("skipped: {error}")) else {
        return;
    };
    let memory = memory::map(4 << 20).unwrap();
    memory.write_slice(&CODE, GuestAddress(START)).unwrap();
    let vm = kvm::create_vm(&kvm).unwrap();
    memory::attach(&vm, &memory).unwrap();
    let rounds = move || {
        let mut fd = vm.create_vcpu(0).unwrap();
        let mut sregs = fd.get_sregs().unwrap();
        (sregs.cs.base, sregs.cs.selector) = (0, 0);
        fd.set_sregs(&sregs).unwrap();
        let mut regs = fd.get_regs().unwrap();
        regs.rip = START;
        fd.set_regs(&regs).unwrap();
        let kick = KickTarget::default();
        let _registered = kick.enter(&fd).unwrap();
        let kicked = |fd: &mut VcpuFd| {
            kick.kick();
            let errno = fd.run().unwrap_err().errno();
            assert_eq!(errno, libc::EINTR);
            kick::drain();
            fd.get_regs().unwrap()
        };
        for number in 0..=255 {
            match fd.run().unwrap() {
                VcpuExit::IoIn(0x40, data) => data.copy_from_slice(&[number]),
                other => panic!("{other:?}"),
            }
            let regs = kicked(&mut fd);
            assert_eq!((regs.rip, regs.rax & 0xff), (START + 2, number.into()));
            match fd.run().unwrap() {
                VcpuExit::IoOut(0x41, data) => assert_eq!(data, [number]),
                other => panic!("{other:?}"),
            }
            assert_eq!(kicked(&mut fd).rip, START + 4);
        }
    };
    // One that has the signal blocked.
    threads::spawn("kicked".into(), rounds)
        .unwrap()
        .join()
        .unwrap();
}
