//! Filling the guest's memory so that a kernel can start in it.
//!
//! | part | where | module |
//! |---|---|---|
//! | kernel | where it wants to be, from 1 MiB (usually 16 MiB) up | [`kernel`], `vmlinux`, `bzimage` |
//! | initramfs layers | together, at the top of the RAM below 3 GiB | [`initramfs`] |
//! | ACPI tables | in the reserved megabyte | [`acpi`] |
//! | command line | below 640 KiB | [`cmdline`] |
//! | for a `vmlinux` by PVH: start info and memory map | below 640 KiB | [`start_info`] |
//! | for a `bzImage` by the 64-bit protocol: zero page, segment table, page tables | below 640 KiB | [`zero_page`], [`long_mode`] |
//!
//! Owns the content of memory before the first instruction. The registers that go with it are
//! [`crate::vcpu`]'s. Called once per boot by [`crate::machine`].

pub(crate) mod acpi;
mod bzimage;
pub(crate) mod cmdline;
pub(crate) mod initramfs;
pub(crate) mod kernel;
pub(crate) mod long_mode;
mod memory_map;
mod start_info;
mod vmlinux;
mod zero_page;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use vm_memory::{Bytes as _, GuestAddress, GuestMemoryMmap};

use crate::error::{HostError, StartError};
use crate::layout::COMMAND_LINE;
use kernel::{LoadedKernel, Protocol};

/// What is to be booted.
#[derive(Debug, Clone)]
pub(crate) struct BootSource {
    /// A `vmlinux` or a `bzImage`.
    pub(crate) kernel: PathBuf,
    /// Initramfs layers in order: the kernel unpacks later ones over earlier ones.
    pub(crate) initramfs: Vec<PathBuf>,
    /// The whole command line.
    pub(crate) cmdline: cmdline::CommandLine,
    /// Number of vCPUs the tables announce.
    pub(crate) cpus: u8,
}

/// The first instruction, and the state in which it is to be executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    /// 32-bit mode without paging, by the PVH protocol.
    Pvh(u64),
    /// 64-bit mode, by Linux's boot protocol.
    Linux64(u64),
}

/// Opens what the caller says is a kernel or a layer, and tells its length. Nothing but a regular
/// file will do: another kind may keep us waiting for ever, or says nothing of its length.
fn open(path: &Path) -> io::Result<(File, u64)> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(io::Error::other("not a regular file: it is a directory"));
    }
    if !metadata.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    Ok((file, metadata.len()))
}

/// Puts everything into `memory` of `memory_len` bytes, and says where it begins.
pub(crate) fn load(
    source: &BootSource,
    memory: &GuestMemoryMmap,
    memory_len: u64,
) -> Result<Entry, StartError> {
    let LoadedKernel {
        protocol,
        end,
        initramfs_top,
    } = kernel::load(&source.kernel, memory)?;
    let top = memory_len.min(initramfs_top);
    let initramfs = initramfs::load(&source.initramfs, memory, top, end)?;
    let rsdp = acpi::write(memory, source.cpus)?;
    memory
        .write_slice(
            source.cmdline.as_bytes_with_nul(),
            GuestAddress(COMMAND_LINE),
        )
        .map_err(|e| HostError::on("write boot data", "command line", io::Error::other(e)))?;
    let map = memory_map::of(memory_len);
    match protocol {
        Protocol::Pvh { entry } => {
            start_info::write(memory, &map, initramfs, rsdp)?;
            Ok(Entry::Pvh(entry))
        }
        Protocol::Linux64 { entry, header } => {
            zero_page::write(memory, *header, &map, initramfs, rsdp)?;
            long_mode::write_tables(memory)?;
            Ok(Entry::Linux64(entry))
        }
    }
}

// The parts in low memory do not overlap.
const _: () = {
    use crate::layout::{
        COMMAND_LINE_MAX, GDT, MEMORY_MAP, MODULE_LIST, PAGE_TABLES, RESERVED_START, START_INFO,
        ZERO_PAGE,
    };
    assert!(START_INFO + 56 <= MODULE_LIST);
    assert!(MODULE_LIST + 32 <= MEMORY_MAP);
    assert!(MEMORY_MAP + 24 * 8 <= ZERO_PAGE);
    assert!(ZERO_PAGE + 4096 <= GDT);
    assert!(GDT + long_mode::GDT_LEN <= PAGE_TABLES);
    assert!(PAGE_TABLES + long_mode::PAGE_TABLES_LEN <= COMMAND_LINE);
    assert!(COMMAND_LINE + (COMMAND_LINE_MAX as u64) < RESERVED_START);
};
