use super::*;

/// Parts of a [`VcpuV1`] that are byte strings.
pub(crate) const PARTS: usize = 9;

impl VcpuV1 {
    fn parts(&mut self) -> [&mut Vec<u8>; PARTS] {
        [
            &mut self.regs,
            &mut self.sregs,
            &mut self.xsave,
            &mut self.xcrs,
            &mut self.debugregs,
            &mut self.lapic,
            &mut self.cpuid,
            &mut self.msrs,
            &mut self.events,
        ]
    }

    /// What is not as in `other`, but for registers that go on with the time.
    pub(crate) fn differences(&self, other: &Self) -> Vec<String> {
        let (mut a, mut b) = (self.clone(), other.clone());
        let mut found = Vec::new();
        let msrs = |vcpu: &Self| several::<kvm_msr_entry>(RECORD, "msrs", &vcpu.msrs).unwrap();
        for (a, b) in msrs(&a).iter().zip(&msrs(&b)) {
            let with_time = [msrs::TSC, msrs::TSC_DEADLINE].contains(&a.index);
            let moves = with_time && a.data >= b.data;
            if a.index != b.index || (a.data != b.data && !moves) {
                found.push(format!("MSR {:#x}: {:#x} {:#x}", a.index, a.data, b.data));
            }
        }
        if a.msrs.len() != b.msrs.len() {
            found.push("number of MSRs".into());
        }
        (a.msrs, b.msrs) = Default::default();
        for (part, (a, b)) in a.parts().into_iter().zip(b.parts()).enumerate() {
            if a != b {
                let at = a.iter().zip(b.iter()).position(|(a, b)| a != b);
                found.push(format!("part {part} at {at:?}"));
            }
        }
        if (a.mp_state, a.tsc_khz) != (b.mp_state, b.tsc_khz) {
            found.push("mp_state or frequency".into());
        }
        found
    }

    pub(crate) fn msr(&self, index: u32) -> Option<u64> {
        let msrs = several::<kvm_msr_entry>(RECORD, "msrs", &self.msrs).unwrap();
        Some(msrs.iter().find(|msr| msr.index == index)?.data)
    }

    pub(crate) fn change_length(&mut self, part: usize, longer: bool) {
        let bytes = self.parts().into_iter().nth(part).unwrap();
        if longer {
            // One that no multiple of a word makes up for.
            bytes.push(0);
        } else {
            bytes.pop();
        }
    }

    pub(crate) fn set_mp_state(&mut self, mp_state: u32) {
        self.mp_state = mp_state;
    }

    pub(crate) fn change_sregs(&mut self, change: impl FnOnce(&mut kvm_sregs)) {
        let mut sregs = one(RECORD, "sregs", &self.sregs).unwrap();
        change(&mut sregs);
        self.sregs = sregs.as_bytes().to_vec();
    }
}

#[test]
fn a_timer_that_went_off_goes_off_again() {
    let timer = |deadline| {
        let mut saved = [
            msrs::entry(msrs::TSC_DEADLINE, deadline),
            msrs::entry(0x1a0, 0),
            msrs::entry(msrs::TSC, 500),
        ];
        keep_timer(&mut saved);
        assert_eq!(saved[1].data, 0);
        saved[0].data
    };
    assert_eq!(timer(0), 500);
    assert_eq!(timer(700), 700);
}

#[test]
fn the_form_of_version_1_is_what_it_was() {
    let vcpu = VcpuV1 {
        mp_state: 1,
        regs: vec![2],
        sregs: vec![3],
        xsave: vec![4],
        xcrs: vec![5],
        debugregs: vec![6],
        lapic: vec![7],
        tsc_khz: Some(8),
        cpuid: vec![9],
        msrs: vec![10],
        events: vec![11],
    };
    let mut golden = vec![0x8b, 1];
    for part in 2..=7 {
        golden.extend([0x41, part]);
    }
    golden.extend([8, 0x41, 9, 0x41, 10, 0x41, 11]);
    assert_eq!(crate::snapshot::form::encode(&vcpu), golden);
    let without = VcpuV1 {
        tsc_khz: None,
        ..vcpu
    };
    golden[14] = 0xf6;
    assert_eq!(crate::snapshot::form::encode(&without), golden);
}

#[test]
fn kvms_structs_have_the_lengths_that_they_have_in_version_1() {
    // They are its interface, which does not change; a field more in the bindings would.
    let lengths = [
        (size_of::<kvm_regs>(), 144),
        (size_of::<kvm_sregs>(), 312),
        (size_of::<kvm_xsave>(), 4096),
        (size_of::<kvm_xcrs>(), 392),
        (size_of::<kvm_debugregs>(), 128),
        (size_of::<kvm_lapic_state>(), 1024),
        (size_of::<kvm_cpuid_entry2>(), 40),
        (size_of::<kvm_msr_entry>(), 16),
        (size_of::<kvm_vcpu_events>(), 64),
        (size_of::<kvm_bindings::kvm_irqchip>(), 520),
    ];
    for (now, then) in lengths {
        assert_eq!(now, then);
    }
}
