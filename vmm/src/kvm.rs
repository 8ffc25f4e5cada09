//! `/dev/kvm`: opening it, checking it, and what a process asks it only once.
//!
//! Owns the device and the checks that tell a usable KVM from one that is missing, out of reach or
//! too old. Whether its guests really run is [`crate::probe`]'s question; both answers are the
//! [`KvmError`] that starting a VM and [`crate::doctor`] share.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::OnceLock;

use kvm_bindings::{
    CpuId, KVM_API_VERSION, KVM_IRQCHIP_PIC_MASTER, KVM_IRQCHIP_PIC_SLAVE, KVM_MAX_CPUID_ENTRIES,
    kvm_irqchip,
};
use kvm_ioctls::{Cap, Kvm, VmFd};

use crate::error::HostError;

/// The device.
pub(crate) const DEVICE: &str = "/dev/kvm";

/// What is asked of KVM, with the names its documentation uses.
const REQUIRED: [(Cap, &str); 8] = [
    (Cap::UserMemory, "KVM_CAP_USER_MEMORY"),
    (Cap::Irqchip, "KVM_CAP_IRQCHIP"),
    (Cap::Irqfd, "KVM_CAP_IRQFD"),
    (Cap::Ioeventfd, "KVM_CAP_IOEVENTFD"),
    (Cap::ExtCpuid, "KVM_CAP_EXT_CPUID"),
    (Cap::MpState, "KVM_CAP_MP_STATE"),
    (Cap::SetTssAddr, "KVM_CAP_SET_TSS_ADDR"),
    (Cap::TscDeadlineTimer, "KVM_CAP_TSC_DEADLINE_TIMER"),
];

/// Why the host's KVM cannot be used; each says what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KvmError {
    /// There is no such device.
    #[error("{DEVICE} is missing: {0}")]
    Missing(&'static str),
    /// The device may not be opened.
    #[error(
        "no permission to open {DEVICE} (mode {mode:04o}, owner uid {uid}, group `{group}`): add \
         this user to the group `{group}` (as root: `usermod -aG {group} USER`, then log in \
         again), or give the device to it in this container"
    )]
    Permission {
        /// Permission bits of the device node.
        mode: u32,
        /// Owner of the device node.
        uid: u32,
        /// Group of the device node, by name where it has one.
        group: String,
    },
    /// Something else uses the processor's virtualisation.
    #[error(
        "{DEVICE} is busy: another hypervisor holds the processor's virtualisation; stop it (for \
         example VirtualBox or VMware) and try again"
    )]
    Busy,
    /// It is there, and opening or asking it failed.
    #[error(transparent)]
    Host(#[from] HostError),
    /// Not the one stable version of the interface.
    #[error(
        "{DEVICE} speaks API version {found}, not {wanted}: this is no usable KVM, boot a current \
         kernel",
        wanted = KVM_API_VERSION
    )]
    ApiVersion {
        /// What it answered.
        found: i32,
    },
    /// Parts of the interface are not there.
    #[error(
        "{DEVICE} lacks {}: boot a host kernel (5.10 or newer) built with them, or a host that \
         does not restrict KVM",
        missing.join(", ")
    )]
    Capabilities {
        /// Names of the missing capabilities.
        missing: Vec<&'static str>,
    },
    /// It creates VMs, but no operating system can run in them.
    #[error(
        "{DEVICE} only emulates: it stopped at `{instruction}` ({how}), an instruction every \
         64-bit kernel executes. This KVM runs without hardware virtualisation (typically a cloud \
         VM without nested virtualisation); use a host with it, or an emulated one"
    )]
    EmulatesOnly {
        /// The first instruction that did not work.
        instruction: &'static str,
        /// What happened at it.
        how: String,
    },
}

/// Opens [`DEVICE`], close-on-exec, and checks version and capabilities.
pub(crate) fn open() -> Result<Kvm, KvmError> {
    let kvm = Kvm::new().map_err(|e| explain_open(e.errno()))?;
    let found = kvm.get_api_version();
    if u32::try_from(found).ok() != Some(KVM_API_VERSION) {
        return Err(KvmError::ApiVersion { found });
    }
    let missing: Vec<_> = REQUIRED
        .iter()
        .filter(|(cap, _)| !kvm.check_extension(*cap))
        .map(|(_, name)| *name)
        .collect();
    if !missing.is_empty() {
        return Err(KvmError::Capabilities { missing });
    }
    Ok(kvm)
}

/// Creates an empty VM.
pub(crate) fn create_vm(kvm: &Kvm) -> Result<VmFd, KvmError> {
    // A signal that is pending for this thread (it need not be ours) makes the call give up with
    // EINTR before it has done anything.
    loop {
        match kvm.create_vm() {
            Ok(vm) => return Ok(vm),
            Err(e) if e.errno() == libc::EINTR => {}
            Err(e) if e.errno() == libc::EBUSY => return Err(KvmError::Busy),
            Err(e) => return Err(HostError::new("KVM_CREATE_VM", e).into()),
        }
    }
}

/// Masks every line of the legacy interrupt controllers, as firmware leaves them. KVM has them open,
/// and a kernel that is told that the hardware is reduced (ACPI) never touches them: an interrupt that
/// comes before it has set up its I/O APIC would reach it as a vector below 16, which is an exception.
pub(crate) fn mask_legacy_pics(vm: &VmFd) -> Result<(), HostError> {
    for chip_id in [KVM_IRQCHIP_PIC_MASTER, KVM_IRQCHIP_PIC_SLAVE] {
        let mut chip = kvm_irqchip {
            chip_id,
            ..Default::default()
        };
        vm.get_irqchip(&mut chip)
            .map_err(|e| HostError::on("KVM_GET_IRQCHIP", chip_id, e))?;
        chip.chip.pic.imr = u8::MAX;
        vm.set_irqchip(&chip)
            .map_err(|e| HostError::on("KVM_SET_IRQCHIP", chip_id, e))?;
    }
    Ok(())
}

/// The CPUID leaves this host's KVM can give a guest. They do not change while a process lives and
/// cost a third of a millisecond to ask for, so they are asked for once.
pub(crate) fn supported_cpuid(kvm: &Kvm) -> Result<&'static CpuId, HostError> {
    static LEAVES: OnceLock<CpuId> = OnceLock::new();
    if let Some(leaves) = LEAVES.get() {
        return Ok(leaves);
    }
    let leaves = kvm
        .get_supported_cpuid(KVM_MAX_CPUID_ENTRIES)
        .map_err(|e| HostError::new("KVM_GET_SUPPORTED_CPUID", e))?;
    Ok(LEAVES.get_or_init(|| leaves))
}

fn explain_open(errno: i32) -> KvmError {
    match errno {
        libc::ENOENT | libc::ENODEV | libc::ENXIO => KvmError::Missing(why_missing(
            &fs::read_to_string("/proc/cpuinfo").unwrap_or_default(),
        )),
        libc::EACCES | libc::EPERM => match fs::metadata(DEVICE) {
            Ok(meta) => KvmError::Permission {
                mode: meta.permissions().mode() & 0o7777,
                uid: meta.uid(),
                group: group_name(Path::new("/etc/group"), meta.gid()),
            },
            Err(e) => HostError::on("stat", DEVICE, e).into(),
        },
        libc::EBUSY => KvmError::Busy,
        errno => HostError::on("open", DEVICE, io::Error::from_raw_os_error(errno)).into(),
    }
}

fn why_missing(cpuinfo: &str) -> &'static str {
    let has = |flag| {
        cpuinfo
            .lines()
            .filter(|line| line.starts_with("flags"))
            .any(|line| line.split_ascii_whitespace().any(|word| word == flag))
    };
    if has("vmx") {
        "the processor has VT-x; load the module (as root: `modprobe kvm_intel`), switch VT-x on in \
         the firmware, or pass the device into this container"
    } else if has("svm") {
        "the processor has AMD-V; load the module (as root: `modprobe kvm_amd`), switch SVM on in \
         the firmware, or pass the device into this container"
    } else {
        "the processor shows no hardware virtualisation; if this is a virtual machine, switch \
         nested virtualisation on for it, else switch VT-x or SVM on in the firmware"
    }
}

/// Name of a group by its number, or the number.
fn group_name(database: &Path, gid: u32) -> String {
    let number = gid.to_string();
    fs::read_to_string(database)
        .unwrap_or_default()
        .lines()
        .find_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            (fields.nth(1)? == number).then(|| name.to_owned())
        })
        .unwrap_or(number)
}

#[cfg(test)]
#[path = "kvm_test.rs"]
mod tests;
