//! Filling the guest's memory so that a kernel can start in it, by the PVH boot protocol.
//!
//! | part | where | module |
//! |---|---|---|
//! | kernel | where its ELF headers say, from 1 MiB (usually 16 MiB) up | [`kernel`] |
//! | initramfs layers | together, at the top of the RAM below 3 GiB | [`initramfs`] |
//! | ACPI tables | in the reserved megabyte | [`acpi`] |
//! | command line, memory map, start info | below 640 KiB | [`start_info`] |
//!
//! Owns the content of memory before the first instruction. The registers that go with it are
//! [`crate::vcpu`]'s. Called once per boot by [`crate::machine`].

pub(crate) mod acpi;
pub(crate) mod cmdline;
pub(crate) mod initramfs;
pub(crate) mod kernel;
pub(crate) mod start_info;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use vm_memory::GuestMemoryMmap;

use crate::error::StartError;

/// What is to be booted.
#[derive(Debug, Clone)]
pub(crate) struct BootSource {
    /// Uncompressed `vmlinux`.
    pub(crate) kernel: PathBuf,
    /// Initramfs layers in order: the kernel unpacks later ones over earlier ones.
    pub(crate) initramfs: Vec<PathBuf>,
    /// The whole command line.
    pub(crate) cmdline: cmdline::CommandLine,
    /// Number of vCPUs the tables announce.
    pub(crate) cpus: u8,
}

/// Opens what the caller says is a kernel or a layer, and tells its length. Nothing but a regular
/// file will do: another kind may keep us waiting for ever, or says nothing of its length.
fn open(path: &Path) -> io::Result<(File, u64)> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    Ok((file, metadata.len()))
}

/// Puts everything into `memory` of `memory_len` bytes. Returns the address of the first
/// instruction, to be entered in 32-bit mode.
pub(crate) fn load(
    source: &BootSource,
    memory: &GuestMemoryMmap,
    memory_len: u64,
) -> Result<u64, StartError> {
    let kernel = kernel::load(&source.kernel, memory)?;
    let initramfs = initramfs::load(&source.initramfs, memory, memory_len, kernel.end)?;
    let rsdp = acpi::write(memory, source.cpus)?;
    start_info::write(memory, memory_len, &source.cmdline, initramfs, rsdp)?;
    Ok(kernel.entry)
}
