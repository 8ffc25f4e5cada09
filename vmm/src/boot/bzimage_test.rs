use super::*;
use crate::agent::NoAgent;
use crate::boot::kernel::{self, Protocol};
use crate::builder::VmBuilder;
use crate::error::StartError;
use crate::machine::Machine;
use crate::memory::MIB;
use crate::probe::Probing;
use crate::stop::StopReason;
use crate::testing::out;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

const LOW_RAM: u64 = 64 * MIB;
const SETUP_SECTORS: u64 = 3;
const KERNEL: &[u8] = &[0x5a; 4096];

/// The header of a kernel as they are built today.
fn header() -> setup_header {
    setup_header {
        setup_sects: SETUP_SECTORS as u8,
        syssize: KERNEL.len() as u32 / 16,
        boot_flag: 0xaa55,
        jump: 0x6aeb, // over the header, to 0x26c
        header: 0x5372_6448,
        version: 0x20f,
        loadflags: LOADED_HIGH,
        initrd_addr_max: 0x7fff_ffff,
        kernel_alignment: 2 << 20,
        relocatable_kernel: 1,
        xloadflags: XLF_KERNEL_64 | XLF_CAN_BE_LOADED_ABOVE_4G,
        cmdline_size: 2047,
        pref_address: 16 * MIB,
        init_size: 8 << 20,
        ..Default::default()
    }
}

fn file(header: setup_header) -> Vec<u8> {
    let mut file = vec![0; ((SETUP_SECTORS + 1) * SECTOR) as usize];
    file[HEADER_AT..HEADER_AT + header.as_slice().len()].copy_from_slice(header.as_slice());
    file.extend(KERNEL);
    file
}

fn stored(bytes: &[u8]) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vmlinuz");
    std::fs::write(&path, bytes).unwrap();
    (dir, path)
}

fn loaded(bytes: &[u8]) -> Result<(LoadedKernel, GuestMemoryMmap), KernelProblem> {
    let (_dir, path) = stored(bytes);
    let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), LOW_RAM as usize)]).unwrap();
    match kernel::load(&path, &memory) {
        Ok(kernel) => Ok((kernel, memory)),
        Err(StartError::Kernel { problem, .. }) => Err(problem),
        Err(other) => panic!("{other}"),
    }
}

fn refusal(header: setup_header) -> KernelProblem {
    loaded(&file(header)).unwrap_err()
}

fn entry(kernel: &LoadedKernel) -> u64 {
    match kernel.protocol {
        Protocol::Linux64 { entry, .. } => entry,
        Protocol::Pvh { .. } => panic!("{kernel:?}"),
    }
}

#[test]
fn the_kernel_behind_the_setup_code_is_copied_to_where_it_prefers_to_be() {
    let (kernel, memory) = loaded(&file(header())).unwrap();
    assert_eq!(entry(&kernel), 16 * MIB + 0x200);
    assert_eq!(kernel.end, 24 * MIB);
    assert_eq!(kernel.initramfs_top, HOLE_START);
    let mut copied = vec![0; KERNEL.len() + 1];
    memory
        .read_slice(&mut copied, GuestAddress(16 * MIB))
        .unwrap();
    assert_eq!(copied.split_last(), Some((&0, KERNEL)));
    let Protocol::Linux64 { header: passed, .. } = kernel.protocol else {
        panic!();
    };
    assert_eq!(*passed, header(), "the kernel gets its own header back");
}

#[test]
fn a_relocatable_kernel_goes_lower_where_the_guest_is_small_and_a_fixed_one_does_not() {
    let mut large = header();
    large.init_size = 60 << 20;
    let (kernel, _) = loaded(&file(large)).unwrap();
    assert_eq!(entry(&kernel), 2 * MIB + 0x200);
    large.relocatable_kernel = 0;
    match refusal(large) {
        KernelProblem::NeedsMemory { needed, available } => {
            assert_eq!((needed, available), (76 * MIB, 64 * MIB));
        }
        other => panic!("{other}"),
    }
}

#[test]
fn an_old_kernel_gets_its_initramfs_where_it_can_reach_it() {
    let mut old = header();
    old.xloadflags = XLF_KERNEL_64;
    let (kernel, _) = loaded(&file(old)).unwrap();
    assert_eq!(kernel.initramfs_top, 0x8000_0000);
}

#[test]
fn each_kernel_that_cannot_be_entered_is_told_apart() {
    let mut old = header();
    old.version = 0x20b;
    let problem = refusal(old);
    assert!(problem.to_string().contains("2.11"), "{problem}");
    let mut of_32_bits = header();
    of_32_bits.xloadflags = 0;
    assert!(matches!(refusal(of_32_bits), KernelProblem::WrongMachine));
    let mut low = header();
    low.loadflags = 0;
    assert!(matches!(refusal(low), KernelProblem::Damaged(_)));
    let mut alignment = header();
    alignment.kernel_alignment = 3;
    assert!(matches!(refusal(alignment), KernelProblem::Damaged(_)));
    alignment.kernel_alignment = 0;
    assert!(matches!(refusal(alignment), KernelProblem::Damaged(_)));
    let mut at_zero = header();
    at_zero.pref_address = 0;
    assert!(matches!(refusal(at_zero), KernelProblem::Damaged(_)));
    let mut nothing = header();
    nothing.syssize = 0;
    assert!(matches!(refusal(nothing), KernelProblem::Damaged(_)));
    let mut larger_than_said = header();
    larger_than_said.init_size = 1024;
    assert!(matches!(
        refusal(larger_than_said),
        KernelProblem::Damaged(_)
    ));
}

#[test]
fn sizes_from_a_hostile_file_are_only_numbers() {
    let mut vast = header();
    vast.init_size = u32::MAX;
    vast.pref_address = u64::MAX;
    assert!(matches!(refusal(vast), KernelProblem::NeedsMemory { .. }));
    let mut long = header();
    long.syssize = u32::MAX;
    assert!(matches!(refusal(long), KernelProblem::CutShort { .. }));
    let mut setup = header();
    setup.setup_sects = 255;
    assert!(matches!(refusal(setup), KernelProblem::CutShort { .. }));
}

#[test]
fn a_file_that_ends_too_early_is_cut_short_wherever_it_ends() {
    let whole = file(header());
    for len in (0x206..whole.len()).step_by(61) {
        match loaded(&whole[..len]).unwrap_err() {
            KernelProblem::CutShort {
                len: said,
                expected,
            } => assert!(said == len as u64 && expected > said),
            other => panic!("{len} bytes: {other}"),
        }
    }
}

#[test]
fn a_header_of_an_older_version_ends_where_it_says() {
    let mut short = header();
    short.version = 0x20c;
    short.jump = 0x66eb; // to 0x268
    short.kernel_info_offset = 0xdead;
    let (kernel, _) = loaded(&file(short)).unwrap();
    let Protocol::Linux64 { header: passed, .. } = kernel.protocol else {
        panic!();
    };
    assert_eq!({ passed.kernel_info_offset }, 0);
}

#[test]
fn it_is_entered_in_64_bit_mode_and_finds_its_header_in_the_zero_page() {
    if let Err(error) = crate::kvm::open() {
        eprintln!("skipped: {error}");
        return;
    }
    // Prints the first letter of the header's magic: mov al, [rsi + 0x202]; mov dx, 0x3f8; out.
    let magic = [0x8a, 0x86, 0x02, 0x02, 0, 0, 0x66, 0xba, 0xf8, 0x03, 0xee];
    // mov al, 'A'; then what is a prefix without effect in 64-bit mode and `dec eax` in 32-bit mode.
    let mode = [0xb0, b'A', 0x48, 0x90, 0x66, 0xba, 0xf8, 0x03, 0xee];
    let code = [&magic[..], &mode, &out(0x600, 0x34), &[0xeb, 0xfe]].concat();
    let mut bytes = file(header());
    let entry = ((SETUP_SECTORS + 1) * SECTOR + ENTRY_64) as usize;
    bytes[entry..entry + code.len()].copy_from_slice(&code);
    let (_dir, path) = stored(&bytes);
    let spec = VmBuilder::default().kernel(path).memory_mib(64).spec();
    let machine =
        Machine::start_probed(spec.unwrap(), Arc::new(NoAgent), Probing::not_needed()).unwrap();
    let end = machine.wait_blocking(Some(Duration::from_secs(60)));
    assert_eq!(end, Some(StopReason::PowerOff));
    assert_eq!(machine.console_log().text(), "HA");
}
