use super::super::RecordProblem;
use super::*;
use crate::testing::Random;
use crate::vcpu::{Vcpu, state};
use crate::{kvm as host, memory};
use kvm_bindings::{
    KVM_MP_STATE_RUNNABLE, KVM_MP_STATE_UNINITIALIZED, kvm_mp_state, kvm_regs, kvm_sregs,
};
use kvm_ioctls::VcpuExit;
use std::sync::mpsc;
use std::time::Duration;
use vm_memory::{Bytes as _, GuestAddress, GuestMemoryMmap};

const CPUS: u8 = 2;

/// A machine without devices and threads, in the order of dropping.
struct Bare {
    vcpus: Vec<Vcpu>,
    vm: VmFd,
    kvm: Kvm,
    memory: GuestMemoryMmap,
}

impl Bare {
    /// `None`, with a note, where there is no KVM.
    fn new() -> Option<Self> {
        let kvm = host::open()
            .inspect_err(|error| eprintln!("skipped: {error}"))
            .ok()?;
        let memory = memory::map(4 << 20).unwrap();
        let vm = host::create_vm(&kvm).unwrap();
        memory::attach(&vm, &memory).unwrap();
        vm.create_irq_chip().unwrap();
        let vcpus = (0..CPUS).map(|id| Vcpu::new(&vm, id).unwrap()).collect();
        Some(Self {
            vcpus,
            vm,
            kvm,
            memory,
        })
    }

    fn set_up(self) -> Self {
        let supported = host::supported_cpuid(&self.kvm).unwrap();
        for vcpu in &self.vcpus {
            vcpu.set_up(supported, CPUS).unwrap();
        }
        self
    }

    /// A local APIC whose timer is in deadline mode on `vector`.
    fn enable_timer(&self, id: usize, vector: u8) {
        let fd = self.vcpus[id].fd();
        let mut lapic = fd.get_lapic().unwrap();
        for (at, value) in [(0x320, 0x0004_0000 | u32::from(vector)), (0xf0, 0x1ff)] {
            for (to, from) in lapic.regs[at..].iter_mut().zip(value.to_le_bytes()) {
                *to = from as i8;
            }
        }
        fd.set_lapic(&lapic).unwrap();
    }

    fn save(&self) -> VmV1 {
        let extent = Extent::of(&self.kvm, &self.vm).unwrap();
        // The first of them last: all counters go on from where its was.
        let vcpus = self.vcpus.iter().rev();
        let vcpus = vcpus.map(|vcpu| state::save(vcpu.fd(), &extent).unwrap());
        let mut vcpus: Vec<_> = vcpus.collect();
        vcpus.reverse();
        save(&self.vm, vcpus, &self.vm.get_clock().unwrap()).unwrap()
    }

    fn judge(&self, saved: &VmV1) -> Result<Judged, RestoreError> {
        let supported = host::supported_cpuid(&self.kvm).unwrap();
        let offered = self.vcpus.iter();
        let offered = offered.map(|vcpu| vcpu.offered(supported, CPUS).unwrap());
        Judged::new(saved, &offered.collect::<Vec<_>>())
    }

    fn restore(&self, saved: &VmV1) -> Result<(), RestoreError> {
        self.judge(saved)?.apply(&self.kvm, &self.vm, &self.vcpus)
    }
}

fn rule(result: Result<Judged, RestoreError>) -> &'static str {
    match result {
        Err(RestoreError::Record {
            problem: RecordProblem::Rule(rule),
            ..
        }) => rule,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was taken"),
    }
}

#[test]
fn what_was_restored_is_what_was_saved() {
    let Some(first) = Bare::new() else { return };
    let first = first.set_up();
    let regs = kvm_regs {
        rax: 0x1122_3344_5566_7788,
        rip: 0x1234,
        rflags: 0x202,
        ..Default::default()
    };
    first.vcpus[1].fd().set_regs(&regs).unwrap();
    first.enable_timer(0, 0x40);
    let now = msrs::read_one(first.vcpus[0].fd(), msrs::TSC).unwrap();
    let timer = now.unwrap() + (1 << 50);
    let write = [msrs::entry(msrs::TSC_DEADLINE, timer)];
    msrs::write(first.vcpus[0].fd(), &write).unwrap();
    let saved = first.save();
    let bytes = form::encode(&saved);
    let read: VmV1 = form::decode(RECORD, &bytes).unwrap();
    assert_eq!(read, saved);

    let mut copies = Vec::new();
    for _generation in 0..3 {
        let second = Bare::new().unwrap();
        second.restore(&read).unwrap();
        let again = second.save();
        assert_eq!(again.chips, saved.chips);
        assert!(again.clock >= saved.clock);
        assert_eq!(again.vcpus[0].msr(msrs::TSC_DEADLINE), Some(timer));
        for (id, (again, saved)) in again.vcpus.iter().zip(&saved.vcpus).enumerate() {
            let differs = again.differences(saved);
            assert_eq!(differs, Vec::<String>::new(), "vCPU {id}");
        }
        copies.push(second);
    }
}

#[test]
fn time_stamp_counters_go_on_from_where_they_were_and_are_alike() {
    let Some(first) = Bare::new() else { return };
    let first = first.set_up();
    let counter = |bare: &Bare, id: usize| {
        msrs::read_one(bare.vcpus[id].fd(), msrs::TSC)
            .unwrap()
            .unwrap()
    };
    // Far ahead, and near enough to a new machine's for KVM to take it for that one.
    let khz = tsc::khz(first.vcpus[0].fd()).unwrap_or(1_000_000);
    for ahead_ms in [500, 100_000] {
        let start = counter(&first, 0) + u64::from(khz) * ahead_ms;
        let write = [msrs::entry(msrs::TSC, start)];
        msrs::write(first.vcpus[0].fd(), &write).unwrap();
        let saved = first.save();
        let second = Bare::new().unwrap();
        let kept = second.judge(&saved).unwrap().vcpus[0]
            .msr(msrs::TSC)
            .unwrap();
        second.restore(&saved).unwrap();
        let (a, b, c) = (
            counter(&second, 0),
            counter(&second, 1),
            counter(&second, 0),
        );
        assert!(a >= kept, "it went back by {}", kept - a);
        assert!(a <= b && b <= c, "they differ: {a} {b} {c}");
    }
}

#[test]
fn every_vcpus_timer_goes_off_when_it_is_due_and_not_before() {
    const START: u64 = 0x1000;
    const HANDLER: u64 = 0x1100;
    const VECTOR: u8 = 0x40;
    /// Real mode: hlt. And, once the timer went off: out 0x41, al.
    const WAIT: [u8; 1] = [0xf4];
    const TELL: [u8; 2] = [0xe6, 0x41];
    let Some(first) = Bare::new() else { return };
    let first = first.set_up();
    let khz = u64::from(tsc::khz(first.vcpus[0].fd()).unwrap_or(1_000_000));
    let mut due = Vec::new();
    for (id, vcpu) in first.vcpus.iter().enumerate() {
        let fd = vcpu.fd();
        let runnable = kvm_mp_state {
            mp_state: KVM_MP_STATE_RUNNABLE,
        };
        fd.set_mp_state(runnable).unwrap();
        let mut sregs = fd.get_sregs().unwrap();
        (sregs.cs.base, sregs.cs.selector) = (0, 0);
        fd.set_sregs(&sregs).unwrap();
        let regs = kvm_regs {
            rip: START,
            rsp: START,
            rflags: 0x202,
            ..Default::default()
        };
        fd.set_regs(&regs).unwrap();
        first.enable_timer(id, VECTOR);
        let deadline = msrs::read_one(fd, msrs::TSC).unwrap().unwrap() + 800 * khz;
        msrs::write(fd, &[msrs::entry(msrs::TSC_DEADLINE, deadline)]).unwrap();
        due.push(deadline);
    }
    let saved = first.save();
    let second = Bare::new().unwrap();
    for (at, bytes) in [
        (START, &WAIT[..]),
        (HANDLER, &TELL),
        (u64::from(VECTOR) * 4, &(HANDLER as u32).to_le_bytes()),
    ] {
        second.memory.write_slice(bytes, GuestAddress(at)).unwrap();
    }
    // By then the deadlines would be over by the counter that KVM takes the one that is restored for.
    std::thread::sleep(Duration::from_millis(900));
    second.restore(&saved).unwrap();
    let Bare { vcpus, vm: _vm, .. } = second;
    for (mut vcpu, due) in vcpus.into_iter().zip(due) {
        let (sender, told) = mpsc::channel();
        std::thread::spawn(move || {
            match vcpu.run_once().unwrap() {
                VcpuExit::IoOut(0x41, _) => {}
                other => panic!("{other:?}"),
            }
            let now = msrs::read_one(vcpu.fd(), msrs::TSC).unwrap().unwrap();
            sender.send(now).unwrap();
        });
        let now = told.recv_timeout(Duration::from_secs(60));
        let now = now.expect("it has gone off");
        assert!(now >= due, "{} ms early", (due - now) / khz);
    }
}

#[test]
fn a_record_with_other_parts_than_a_machine_has_is_refused() {
    let Some(bare) = Bare::new() else { return };
    let saved = bare.set_up().save();
    let bare = Bare::new().unwrap();
    let mut fewer = saved.clone();
    fewer.vcpus.pop();
    assert!(rule(bare.judge(&fewer)).contains("vCPUs"));
    let chip = size_of::<kvm_irqchip>();
    let mut swapped = saved.clone();
    swapped.chips.rotate_left(chip);
    assert!(rule(bare.judge(&swapped)).contains("interrupt controllers"));
    let mut short = saved.clone();
    short.chips.truncate(2 * chip);
    assert!(rule(bare.judge(&short)).contains("interrupt controllers"));
    let mut cut = saved;
    cut.chips.pop();
    assert!(matches!(
        bare.judge(&cut),
        Err(RestoreError::Record {
            problem: RecordProblem::Malformed(_),
            ..
        })
    ));
}

#[test]
fn every_part_of_a_vcpu_has_its_length() {
    let Some(bare) = Bare::new() else { return };
    let saved = bare.set_up().save();
    for part in 0..state::tests::PARTS {
        for longer in [false, true] {
            let mut wrong = saved.clone();
            wrong.vcpus[1].change_length(part, longer);
            let bare = Bare::new().unwrap();
            let error = bare.restore(&wrong).unwrap_err();
            assert!(
                matches!(error, RestoreError::Record { .. }),
                "{part}: {error}"
            );
        }
    }
}

#[test]
fn what_kvm_refuses_is_an_error_that_names_the_call() {
    let Some(bare) = Bare::new() else { return };
    let saved = bare.set_up().save();
    let mut wrong = saved.clone();
    wrong.vcpus[0].set_mp_state(77);
    let error = Bare::new().unwrap().restore(&wrong).unwrap_err();
    assert!(error.to_string().contains("KVM_SET_MP_STATE"), "{error}");

    // Paging without protection.
    let mut wrong = saved;
    wrong.vcpus[0].change_sregs(|sregs: &mut kvm_sregs| sregs.cr0 = 1 << 31);
    let error = Bare::new().unwrap().restore(&wrong).unwrap_err();
    assert!(error.to_string().contains("KVM_SET_SREGS"), "{error}");
}

#[test]
fn vcpus_that_were_not_started_are_not_started() {
    let Some(bare) = Bare::new() else { return };
    let saved = bare.set_up().save();
    let second = Bare::new().unwrap();
    second.restore(&saved).unwrap();
    let state = second.vcpus[1].fd().get_mp_state().unwrap().mp_state;
    assert_eq!(state, KVM_MP_STATE_UNINITIALIZED);
}

#[test]
fn a_record_that_is_changed_anywhere_is_refused_or_judged_and_nothing_panics() {
    let Some(bare) = Bare::new() else { return };
    let bytes = form::encode(&bare.set_up().save());
    let bare = Bare::new().unwrap();
    let mut random = Random::announced();
    let mut taken = 0;
    for _ in 0..2000 {
        let changed = random.change(&bytes);
        if let Ok(saved) = form::decode::<VmV1>(RECORD, &changed) {
            taken += u32::from(bare.judge(&saved).is_ok());
        }
    }
    // Most of it is registers, of which any value has the right form.
    assert!(taken > 0, "no change came as far as the rules");
}

#[test]
fn the_form_of_version_1_is_what_it_was() {
    let vm = VmV1 {
        vcpus: Vec::new(),
        chips: vec![1, 2],
        clock: 3,
    };
    assert_eq!(form::encode(&vm), [0x83, 0x80, 0x42, 1, 2, 3]);
}
