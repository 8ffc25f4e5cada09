//! What the PVH entry point is told: memory map, command line, initramfs, ACPI root.

use linux_loader::configurator::pvh::PvhBootConfigurator;
use linux_loader::configurator::{BootConfigurator as _, BootParams};
use linux_loader::loader::elf::start_info::{
    hvm_memmap_table_entry, hvm_modlist_entry, hvm_start_info,
};
use vm_memory::{Bytes as _, GuestAddress, GuestMemoryMmap};

use super::cmdline::CommandLine;
use super::initramfs::LoadedInitramfs;
use crate::error::HostError;
use crate::layout::{
    COMMAND_LINE, HIGH_MEMORY_START, MEMORY_MAP, MODULE_LIST, RESERVED_START, START_INFO,
};
use crate::memory::{self, Range};

const MAGIC: u32 = 0x336e_c578;
/// The first version with a memory map.
const VERSION: u32 = 1;
const RAM: u32 = 1;
const RESERVED: u32 = 2;

/// Writes it; the entry point finds it by its address in `ebx`.
pub(crate) fn write(
    memory: &GuestMemoryMmap,
    memory_len: u64,
    cmdline: &CommandLine,
    initramfs: Option<LoadedInitramfs>,
    rsdp: u64,
) -> Result<(), HostError> {
    let failed = |e: vm_memory::GuestMemoryError| {
        HostError::on("write boot data", "command line", std::io::Error::other(e))
    };
    memory
        .write_slice(cmdline.as_bytes_with_nul(), GuestAddress(COMMAND_LINE))
        .map_err(failed)?;
    let map = memory_map(memory_len);
    let modules: Vec<_> = initramfs
        .map(|initramfs| hvm_modlist_entry {
            paddr: initramfs.start,
            size: initramfs.len,
            ..Default::default()
        })
        .into_iter()
        .collect();
    let info = hvm_start_info {
        magic: MAGIC,
        version: VERSION,
        nr_modules: modules.len() as u32,
        modlist_paddr: if modules.is_empty() { 0 } else { MODULE_LIST },
        cmdline_paddr: COMMAND_LINE,
        rsdp_paddr: rsdp,
        memmap_paddr: MEMORY_MAP,
        memmap_entries: map.len() as u32,
        ..Default::default()
    };
    let mut params = BootParams::new(&info, GuestAddress(START_INFO));
    params.set_sections(&map, GuestAddress(MEMORY_MAP));
    if !modules.is_empty() {
        params.set_modules(&modules, GuestAddress(MODULE_LIST));
    }
    PvhBootConfigurator::write_bootparams(&params, memory)
        .map_err(|e| HostError::on("write boot data", "start info", std::io::Error::other(e)))
}

/// RAM as the guest may use it: all but what lies behind its back below 1 MiB.
fn memory_map(memory_len: u64) -> Vec<hvm_memmap_table_entry> {
    let entry = |start: u64, end: u64, type_| hvm_memmap_table_entry {
        addr: start,
        size: end - start,
        type_,
        reserved: 0,
    };
    let mut map = vec![
        entry(0, RESERVED_START, RAM),
        entry(RESERVED_START, HIGH_MEMORY_START, RESERVED),
    ];
    for Range { start, len } in memory::ranges(memory_len) {
        map.push(entry(start.max(HIGH_MEMORY_START), start + len, RAM));
    }
    map
}

#[cfg(test)]
#[path = "start_info_test.rs"]
mod tests;
