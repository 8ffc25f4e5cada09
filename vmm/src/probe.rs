//! Does this KVM run guests, or does it only emulate a few instructions?
//!
//! Some hosts offer a `/dev/kvm` without hardware virtualisation behind it: every call works, VMs
//! are created, and the guest's kernel code is emulated instruction by instruction, until one comes
//! that the emulator does not know. A kernel meets such a one soon, or after a minute. So a VM of a
//! few instructions is run and thrown away: each kind of instruction that kernels use and emulators
//! lack, once, each announced in memory before it is tried. On hardware that takes about a
//! millisecond, nearly all of it the VM's creation.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kvm_bindings::{CpuId, kvm_regs, kvm_segment, kvm_sregs};
use kvm_ioctls::{VcpuExit, VcpuFd, VmFd};
use vm_memory::{Bytes as _, GuestAddress, GuestMemoryMmap};

use crate::error::HostError;
use crate::kvm::{self, KvmError};
use crate::memory;
use crate::threads;
use crate::vcpu::kick::{self, KickTarget};

/// Far more than any KVM that runs guests needs, and short enough to wait for.
const DEADLINE: Duration = Duration::from_secs(5);

const PAGE_MAP_4: u64 = 0x1000;
const PAGE_POINTERS: u64 = 0x2000;
const PAGE_DIRECTORY: u64 = 0x3000;
const SEGMENTS: u64 = 0x4000;
const INTERRUPTS: u64 = 0x5000;
const CODE: u64 = 0x6000;
const HANDLER: u64 = 0x6800;
const DATA: u32 = 0x7000;
const PROGRESS: u32 = 0x7100;
const STACK_TOP: u64 = 0x9000;
const XSAVE_AREA: u32 = 0xa000;
const MEMORY_LEN: u64 = 0x1_0000;

/// The port by which the guest says that it has reached the end.
const DONE_PORT: u8 = 0x80;
const SELECTOR_CODE: u16 = 0x8;
const SELECTOR_DATA: u16 = 0x10;
const VECTOR_INVALID_OPCODE: u64 = 6;

/// One thing the guest tries.
struct Step {
    name: &'static str,
    code: Vec<u8>,
}

/// This host runs guests; known once and for all, since hosts do not lose the ability. The opposite
/// is not kept: a module may be loaded, or a permission given, meanwhile.
static CAPABLE: OnceLock<()> = OnceLock::new();

/// Whether KVM on this host runs unmodified 64-bit guests. Asked once per process.
///
/// # Errors
/// [`KvmError::EmulatesOnly`] names the first instruction that did not work; the others say why no
/// VM could be created to find out.
pub fn probe() -> Result<(), KvmError> {
    if let Some(closing) = start().result()? {
        threads::join(closing);
    }
    Ok(())
}

/// A probe that runs beside something else, if one is needed at all. Dropping it ends it: nothing
/// of it is left afterwards.
pub(crate) struct Probing {
    /// When the guest has to be done.
    until: Instant,
    guest: Arc<Guest>,
    answer: mpsc::Receiver<Result<(), KvmError>>,
    /// `None` if the answer came without a thread.
    thread: Option<JoinHandle<()>>,
}

/// The probe's guest, as others may stop it.
#[derive(Default)]
struct Guest {
    kick: KickTarget,
    give_up: AtomicBool,
}

/// Starts [`probe`] on a thread of its own, unless the answer is known.
pub(crate) fn start() -> Probing {
    const NAME: &str = "forebay-probe";
    if CAPABLE.get().is_some() {
        return Probing::answered(Ok(()));
    }
    let guest = Arc::new(Guest::default());
    let (sender, answer) = mpsc::channel();
    let work = {
        let guest = Arc::clone(&guest);
        move || run(&guest, &sender)
    };
    match threads::spawn(NAME.into(), work) {
        Ok(thread) => Probing {
            until: Instant::now() + DEADLINE,
            guest,
            answer,
            thread: Some(thread),
        },
        Err(e) => Probing::answered(Err(HostError::on("start thread", NAME, e).into())),
    }
}

impl Probing {
    fn answered(outcome: Result<(), KvmError>) -> Self {
        let (sender, answer) = mpsc::channel();
        // The receiver is right here.
        let _ = sender.send(outcome);
        Self {
            until: Instant::now(),
            guest: Arc::default(),
            answer,
            thread: None,
        }
    }

    /// For guests that only use what every KVM can do.
    #[cfg(test)]
    pub(crate) fn not_needed() -> Self {
        Self::answered(Ok(()))
    }

    /// Waits for the answer. A thread that comes with it still closes the probe's VM, which is the
    /// dearest part of all this: join it where nobody waits.
    pub(crate) fn result(mut self) -> Result<Option<JoinHandle<()>>, KvmError> {
        let left = self.until.saturating_duration_since(Instant::now());
        let answer = self.answer.recv_timeout(left).or_else(|_| {
            self.guest.stop();
            self.answer.recv()
        });
        answer.unwrap_or_else(|_| {
            Err(HostError::new("probe", io::Error::other("its thread died")).into())
        })?;
        Ok(self.thread.take())
    }
}

impl Drop for Probing {
    fn drop(&mut self) {
        self.guest.stop();
        if let Some(thread) = self.thread.take() {
            threads::join(thread);
        }
    }
}

impl Guest {
    fn stop(&self) {
        self.give_up.store(true, Ordering::Release);
        self.kick.kick();
    }

    /// Runs it to its end; what stopped it, if it did not get there.
    fn run(&self, vcpu: &mut VcpuFd) -> Result<Option<String>, HostError> {
        let _registered = self
            .kick
            .enter(vcpu)
            .map_err(|e| HostError::new("KVM_SET_SIGNAL_MASK", e))?;
        while !self.give_up.load(Ordering::Acquire) {
            match vcpu.run() {
                Ok(VcpuExit::IoOut(port, _)) if port == u16::from(DONE_PORT) => return Ok(None),
                Ok(exit) => return Ok(Some(describe(&exit))),
                Err(e) if [libc::EINTR, libc::EAGAIN].contains(&e.errno()) => kick::drain(),
                Err(e) => return Ok(Some(format!("KVM_RUN: {e}"))),
            }
        }
        Ok(Some(format!("no end within {DEADLINE:?}")))
    }
}

/// The probe's thread: makes the VM, answers, and closes the VM.
fn run(guest: &Guest, answer: &mpsc::Sender<Result<(), KvmError>>) {
    let outcome = threads::catch(|| {
        let mut trial = Trial::new()?;
        let outcome = trial.run(guest);
        Ok((outcome, trial))
    });
    let (outcome, trial) = match outcome {
        Ok(Ok((outcome, trial))) => (outcome, Some(trial)),
        Ok(Err(e)) => (Err(e), None),
        Err(message) => {
            let error = HostError::new("probe", io::Error::other(message));
            (Err(error.into()), None)
        }
    };
    if outcome.is_ok() {
        let _ = CAPABLE.set(());
    }
    // Nobody listens if the probe was dropped.
    let _ = answer.send(outcome);
    drop(trial);
}

/// The VM, in the order of dropping.
struct Trial {
    steps: Vec<Step>,
    vcpu: VcpuFd,
    _vm: VmFd,
    memory: GuestMemoryMmap,
}

impl Trial {
    fn new() -> Result<Self, KvmError> {
        let kvm = kvm::open()?;
        let supported = kvm::supported_cpuid(&kvm)?;
        let steps = steps(supported);
        let vm = kvm::create_vm(&kvm)?;
        let memory = memory::map(MEMORY_LEN)?;
        write_memory(&memory, &steps)?;
        memory::attach(&vm, &memory)?;
        let vcpu = vm
            .create_vcpu(0)
            .map_err(|e| HostError::new("KVM_CREATE_VCPU", e))?;
        vcpu.set_cpuid2(supported)
            .map_err(|e| HostError::new("KVM_SET_CPUID2", e))?;
        enter_long_mode(&vcpu, supported)?;
        Ok(Self {
            steps,
            vcpu,
            _vm: vm,
            memory,
        })
    }

    fn run(&mut self, guest: &Guest) -> Result<(), KvmError> {
        let Some(how) = guest.run(&mut self.vcpu)? else {
            return Ok(());
        };
        let reached: u8 = self
            .memory
            .read_obj(GuestAddress(PROGRESS.into()))
            .unwrap_or_default();
        let instruction = usize::from(reached)
            .checked_sub(1)
            .and_then(|last| self.steps.get(last))
            .map_or("the first instruction in 64-bit mode", |step| step.name);
        Err(KvmError::EmulatesOnly { instruction, how })
    }
}

fn describe(exit: &VcpuExit<'_>) -> String {
    match exit {
        VcpuExit::InternalError => "KVM cannot emulate it".into(),
        VcpuExit::Shutdown => "it raised an exception that could not be delivered".into(),
        VcpuExit::FailEntry(reason, _) => format!("the entry failed, reason {reason:#x}"),
        other => format!("unexpected exit {other:?}"),
    }
}

/// The instructions, as far as the processor claims to have them.
fn steps(supported: &CpuId) -> Vec<Step> {
    let mut steps = vec![Step {
        name: "lock cmpxchg16b",
        code: [
            &[0x31, 0xc0, 0x31, 0xd2, 0x31, 0xdb, 0x31, 0xc9][..], // xor eax/edx/ebx/ecx, itself
            &[0xf0, 0x48, 0x0f, 0xc7, 0x0c, 0x25],                 // lock cmpxchg16b [DATA]
            &DATA.to_le_bytes(),
        ]
        .concat(),
    }];
    if features(supported).bmi2 {
        steps.push(Step {
            name: "shlx",
            code: vec![0xc4, 0xe2, 0xf1, 0xf7, 0xc3], // shlx rax, rbx, rcx
        });
    }
    if features(supported).bmi1 {
        steps.push(Step {
            name: "andn",
            code: vec![0xc4, 0xe2, 0xe0, 0xf2, 0xc1], // andn rax, rbx, rcx
        });
    }
    if features(supported).xsave {
        steps.push(Step {
            name: "xsave",
            code: [
                &[0x6a, 0x01, 0x58, 0x31, 0xd2][..], // push 1; pop rax; xor edx, edx
                &[0x0f, 0xae, 0x24, 0x25],           // xsave [XSAVE_AREA]
                &XSAVE_AREA.to_le_bytes(),
            ]
            .concat(),
        });
    }
    steps.push(Step {
        name: "ud2 (an exception through the guest's own table)",
        code: vec![0x0f, 0x0b],
    });
    steps
}

struct Features {
    bmi1: bool,
    bmi2: bool,
    xsave: bool,
}

fn features(supported: &CpuId) -> Features {
    let leaf = |function| {
        supported
            .as_slice()
            .iter()
            .find(|e| e.function == function && e.index == 0)
    };
    Features {
        bmi1: leaf(7).is_some_and(|e| e.ebx & 1 << 3 != 0),
        bmi2: leaf(7).is_some_and(|e| e.ebx & 1 << 8 != 0),
        xsave: leaf(1).is_some_and(|e| e.ecx & 1 << 26 != 0),
    }
}

/// The program: before each step its number goes to [`PROGRESS`], at the end a byte to a port.
fn program(steps: &[Step]) -> Vec<u8> {
    let mut code = Vec::new();
    for (number, step) in (1u8..).zip(steps) {
        code.extend([0xc6, 0x04, 0x25]); // mov byte [PROGRESS], number
        code.extend(PROGRESS.to_le_bytes());
        code.push(number);
        code.extend(&step.code);
    }
    code.extend([0xe6, DONE_PORT, 0xf4]); // out DONE_PORT, al; hlt
    code
}

fn write_memory(memory: &GuestMemoryMmap, steps: &[Step]) -> Result<(), HostError> {
    const PRESENT_WRITABLE: u64 = 0b11;
    const LARGE: u64 = 1 << 7;
    const GATE_INTERRUPT: u64 = 0x8e << 40;
    let gate = (HANDLER & 0xffff) | u64::from(SELECTOR_CODE) << 16 | GATE_INTERRUPT;
    let long = |at, value: u64| memory.write_obj(value, GuestAddress(at));
    // add qword [rsp], 2 (past the ud2); iretq
    let handler = [0x48, 0x83, 0x04, 0x24, 0x02, 0x48, 0xcf];
    let segment = |selector: u16| SEGMENTS + u64::from(selector);
    long(PAGE_MAP_4, PAGE_POINTERS | PRESENT_WRITABLE)
        .and_then(|()| long(PAGE_POINTERS, PAGE_DIRECTORY | PRESENT_WRITABLE))
        .and_then(|()| long(PAGE_DIRECTORY, LARGE | PRESENT_WRITABLE))
        .and_then(|()| long(segment(SELECTOR_CODE), 0x00af_9b00_0000_ffff))
        .and_then(|()| long(segment(SELECTOR_DATA), 0x00cf_9300_0000_ffff))
        .and_then(|()| long(INTERRUPTS + VECTOR_INVALID_OPCODE * 16, gate))
        .and_then(|()| memory.write_slice(&program(steps), GuestAddress(CODE)))
        .and_then(|()| memory.write_slice(&handler, GuestAddress(HANDLER)))
        .map_err(|e| HostError::new("write probe", io::Error::other(e)))
}

fn enter_long_mode(vcpu: &VcpuFd, supported: &CpuId) -> Result<(), HostError> {
    const CR0_LONG: u64 = 1 << 31 | 1 << 5 | 1 << 4 | 1 << 1 | 1; // PG, NE, ET, MP, PE
    const CR4_PAE: u64 = 1 << 5;
    const CR4_FXSR: u64 = 1 << 9;
    const CR4_XSAVE: u64 = 1 << 18;
    const EFER_LONG: u64 = 1 << 8 | 1 << 10; // LME, LMA
    let mut special: kvm_sregs = vcpu
        .get_sregs()
        .map_err(|e| HostError::new("KVM_GET_SREGS", e))?;
    let data = kvm_segment {
        limit: u32::MAX,
        selector: SELECTOR_DATA,
        type_: 0b0011,
        present: 1,
        s: 1,
        db: 1,
        g: 1,
        ..Default::default()
    };
    special.cs = kvm_segment {
        selector: SELECTOR_CODE,
        type_: 0b1011,
        db: 0,
        l: 1,
        ..data
    };
    (special.ds, special.es, special.ss) = (data, data, data);
    (special.fs, special.gs) = (data, data);
    special.gdt.base = SEGMENTS;
    special.gdt.limit = SELECTOR_DATA + 7;
    special.idt.base = INTERRUPTS;
    special.idt.limit = 16 * 32 - 1;
    special.cr0 = CR0_LONG;
    special.cr3 = PAGE_MAP_4;
    special.cr4 = CR4_PAE | CR4_FXSR;
    if features(supported).xsave {
        special.cr4 |= CR4_XSAVE;
    }
    special.efer = EFER_LONG;
    vcpu.set_sregs(&special)
        .map_err(|e| HostError::new("KVM_SET_SREGS", e))?;
    vcpu.set_regs(&kvm_regs {
        rip: CODE,
        rsp: STACK_TOP,
        rflags: 2,
        ..Default::default()
    })
    .map_err(|e| HostError::new("KVM_SET_REGS", e))
}

#[cfg(test)]
#[path = "probe_test.rs"]
mod tests;
