//! Registers: those a kernel is entered with, and those worth showing when it goes wrong.

use std::fmt;
use std::io;

use kvm_bindings::{Msrs, kvm_msr_entry, kvm_regs, kvm_segment, kvm_sregs};
use kvm_ioctls::VcpuFd;

use crate::boot::long_mode::{CODE_SELECTOR, DATA_SELECTOR, GDT_LEN};
use crate::error::HostError;
use crate::layout::{GDT, PAGE_TABLES, START_INFO, ZERO_PAGE};

/// Protected mode without paging; the second bit is fixed on all processors since the 387.
const CR0_PROTECTED: u64 = 0x11;
const CR0_PAGING: u64 = 1 << 31;
const CR4_PAE: u64 = 1 << 5;
/// `EFER`: long mode enabled, and active.
const EFER_LONG_MODE: u64 = 1 << 8 | 1 << 10;
/// A flag register with nothing set but the bit that always is.
const RFLAGS_CLEAR: u64 = 0x2;
/// `RFLAGS.IF`.
pub(crate) const RFLAGS_INTERRUPTS: u64 = 1 << 9;

const MSR_MISC_ENABLE: u32 = 0x1a0;
const MISC_ENABLE_FAST_STRING: u64 = 1;
const MSR_MTRR_DEF_TYPE: u32 = 0x2ff;
/// MTRRs on, everything write-back: what firmware would leave behind.
const MTRR_WRITE_BACK: u64 = 1 << 11 | 6;

/// Sets the boot vCPU up to enter a PVH kernel at `entry`: flat 32-bit protected mode, paging off,
/// `ebx` at the start info.
pub(crate) fn enter_pvh(vcpu: &VcpuFd, entry: u64) -> Result<(), HostError> {
    let general = kvm_regs {
        rip: entry,
        rbx: START_INFO,
        rflags: RFLAGS_CLEAR,
        ..Default::default()
    };
    enter(vcpu, &general, |special| {
        set_segments(special, flat(0x8, CODE), flat(0x10, DATA));
        special.cr0 = CR0_PROTECTED;
    })
}

/// Sets the boot vCPU up to enter a kernel at `entry` by the 64-bit boot protocol: long mode with
/// the first 4 GiB mapped one to one, `rsi` at the zero page.
pub(crate) fn enter_linux64(vcpu: &VcpuFd, entry: u64) -> Result<(), HostError> {
    let general = kvm_regs {
        rip: entry,
        rsi: ZERO_PAGE,
        rflags: RFLAGS_CLEAR,
        ..Default::default()
    };
    enter(vcpu, &general, |special| {
        let code = kvm_segment {
            l: 1,
            db: 0,
            ..flat(CODE_SELECTOR, CODE)
        };
        set_segments(special, code, flat(DATA_SELECTOR, DATA));
        special.gdt.base = GDT;
        special.gdt.limit = GDT_LEN as u16 - 1;
        special.cr3 = PAGE_TABLES;
        special.cr4 = CR4_PAE;
        special.cr0 = CR0_PROTECTED | CR0_PAGING;
        special.efer = EFER_LONG_MODE;
    })
}

/// Sets the registers of a vCPU that has not run.
fn enter(
    vcpu: &VcpuFd,
    general: &kvm_regs,
    change: impl FnOnce(&mut kvm_sregs),
) -> Result<(), HostError> {
    let mut special = vcpu
        .get_sregs()
        .map_err(|e| HostError::new("KVM_GET_SREGS", e))?;
    change(&mut special);
    vcpu.set_sregs(&special)
        .map_err(|e| HostError::new("KVM_SET_SREGS", e))?;
    vcpu.set_regs(general)
        .map_err(|e| HostError::new("KVM_SET_REGS", e))
}

/// Segment types: code that may be read, data that may be written, a task in use; all accessed.
const CODE: u8 = 0b1011;
const DATA: u8 = 0b0011;
const TASK: u8 = 0b1011;

fn set_segments(special: &mut kvm_sregs, code: kvm_segment, data: kvm_segment) {
    special.cs = code;
    special.ds = data;
    special.es = data;
    special.fs = data;
    special.gs = data;
    special.ss = data;
    special.tr = kvm_segment {
        limit: 0x67,
        type_: TASK,
        present: 1,
        ..Default::default()
    };
}

/// A segment over all of the first 4 GiB.
fn flat(selector: u16, type_: u8) -> kvm_segment {
    kvm_segment {
        limit: u32::MAX,
        selector,
        type_,
        present: 1,
        s: 1,
        db: 1,
        g: 1,
        ..Default::default()
    }
}

/// Sets the model-specific registers that firmware would have set.
pub(crate) fn set_msrs(vcpu: &VcpuFd) -> Result<(), HostError> {
    let entry = |index, data| kvm_msr_entry {
        index,
        data,
        ..Default::default()
    };
    let wanted = [
        entry(MSR_MISC_ENABLE, MISC_ENABLE_FAST_STRING),
        entry(MSR_MTRR_DEF_TYPE, MTRR_WRITE_BACK),
    ];
    let failed = |e: io::Error| HostError::new("KVM_SET_MSRS", e);
    let msrs =
        Msrs::from_entries(&wanted).map_err(|e| failed(io::Error::other(format!("{e:?}"))))?;
    match vcpu.set_msrs(&msrs) {
        Ok(set) if set == wanted.len() => Ok(()),
        Ok(set) => Err(failed(io::Error::other(format!(
            "register {:#x} refused",
            wanted.get(set).map_or(0, |e| e.index)
        )))),
        Err(e) => Err(failed(e.into())),
    }
}

/// What a vCPU held when it stopped for good. Values as the guest left them: its word, not ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
#[allow(missing_docs)] // the processor manuals' names
pub struct Registers {
    pub rip: u64,
    pub rsp: u64,
    pub rflags: u64,
    pub rax: u64,
    pub rbx: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    pub cs: u16,
    pub cr0: u64,
    pub cr2: u64,
    pub cr3: u64,
    pub cr4: u64,
    pub efer: u64,
}

impl Registers {
    /// Whether they are those after a reset, as some processors leave them behind a triple fault.
    pub(crate) fn is_reset(&self) -> bool {
        const RESET_CS: u16 = 0xf000;
        const RESET_RIP: u64 = 0xfff0;
        (self.cs, self.rip) == (RESET_CS, RESET_RIP)
    }

    /// Reads them from a vCPU that is not running.
    pub(crate) fn read(vcpu: &VcpuFd) -> Option<Self> {
        let general = vcpu.get_regs().ok()?;
        let special = vcpu.get_sregs().ok()?;
        Some(Self {
            rip: general.rip,
            rsp: general.rsp,
            rflags: general.rflags,
            rax: general.rax,
            rbx: general.rbx,
            rcx: general.rcx,
            rdx: general.rdx,
            rsi: general.rsi,
            rdi: general.rdi,
            cs: special.cs.selector,
            cr0: special.cr0,
            cr2: special.cr2,
            cr3: special.cr3,
            cr4: special.cr4,
            efer: special.efer,
        })
    }
}

impl fmt::Display for Registers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "rip={:#x} rsp={:#x} rflags={:#x} rax={:#x} rbx={:#x} rcx={:#x} rdx={:#x} rsi={:#x} \
             rdi={:#x} cs={:#x} cr0={:#x} cr2={:#x} cr3={:#x} cr4={:#x} efer={:#x}",
            self.rip,
            self.rsp,
            self.rflags,
            self.rax,
            self.rbx,
            self.rcx,
            self.rdx,
            self.rsi,
            self.rdi,
            self.cs,
            self.cr0,
            self.cr2,
            self.cr3,
            self.cr4,
            self.efer,
        )
    }
}
