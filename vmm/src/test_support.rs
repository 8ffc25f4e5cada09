//! The inside, for fuzz targets.

use forebay_exec::{Hub, RestoreOptions};
use kvm_bindings::{CpuId, kvm_cpuid_entry2};

use crate::cpu_template::{CpuTemplate, CpuidRegister};
use crate::error::HostError;
use crate::machine;
use crate::snapshot::RestoreError;
use crate::snapshot::directory;
use crate::snapshot::file;
use crate::snapshot::form;
use crate::snapshot::kvm::Judged;
use crate::template;
use crate::vm::Vm;

/// CPUID leaves that the host of [`judge_state`] offers with all bits set. It has no others, and so no
/// maker.
const LEAVES: std::ops::Range<u32> = 1..0x20;

/// Reads a state file as a restore does, and judges it as far as that goes without the memory file and
/// without KVM, for a host that offers one vCPU whatever a processor can have.
///
/// # Errors
/// Those of a restore.
pub fn judge_state(bytes: &[u8]) -> Result<(), RestoreError> {
    let (shape, records) = file::decode(bytes)?;
    let (mut state, _mark) = directory::take(shape, records)?;
    let (exec, origin) = template::take(&mut state.records)?;
    // Its files need not be there.
    let _ = origin.builder();
    Hub::restore(exec, RestoreOptions::default())?;
    let (vm, _devices) = machine::take(state.records)?;
    Judged::new(&vm, &[everything()?])?;
    Ok(())
}

/// The record of what a VM was booted from, of one that uses all of it.
pub fn origin_record() -> Vec<u8> {
    let template = CpuTemplate::x86_64_v3()
        .without("rdrand")
        .mask(1, 0, CpuidRegister::Ecx, 1);
    let builder = Vm::builder()
        .kernel("/boot/vmlinux")
        .initramfs("/boot/initramfs")
        .cmdline("quiet")
        .cpu_template(template)
        .hostname("guest")
        .env("KEY", "value")
        .current_dir("/srv")
        .exec_cpu_limit(0.5);
    form::encode(&builder.origin())
}

fn everything() -> Result<CpuId, HostError> {
    let leaf = |function| kvm_cpuid_entry2 {
        function,
        eax: u32::MAX,
        ebx: u32::MAX,
        ecx: u32::MAX,
        edx: u32::MAX,
        ..Default::default()
    };
    let leaves: Vec<_> = LEAVES.map(leaf).collect();
    CpuId::from_entries(&leaves)
        .map_err(|e| HostError::new("lay out CPUID", std::io::Error::other(format!("{e:?}"))))
}
