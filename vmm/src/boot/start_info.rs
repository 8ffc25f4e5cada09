//! What the PVH entry point is told: memory map, command line, initramfs, ACPI root.
//!
//! Its counterpart for a bzImage is [`super::zero_page`].

use linux_loader::configurator::pvh::PvhBootConfigurator;
use linux_loader::configurator::{BootConfigurator as _, BootParams};
use linux_loader::loader::elf::start_info::{
    hvm_memmap_table_entry, hvm_modlist_entry, hvm_start_info,
};
use vm_memory::{GuestAddress, GuestMemoryMmap};

use super::initramfs::LoadedInitramfs;
use super::memory_map::Entry;
use crate::error::HostError;
use crate::layout::{COMMAND_LINE, MEMORY_MAP, MODULE_LIST, START_INFO};

const MAGIC: u32 = 0x336e_c578;
/// The first version with a memory map.
const VERSION: u32 = 1;

/// Writes it; the entry point finds it by its address in `ebx`.
pub(crate) fn write(
    memory: &GuestMemoryMmap,
    map: &[Entry],
    initramfs: Option<LoadedInitramfs>,
    rsdp: u64,
) -> Result<(), HostError> {
    let map: Vec<_> = map
        .iter()
        .map(|entry| hvm_memmap_table_entry {
            addr: entry.start,
            size: entry.len,
            type_: entry.kind as u32,
            reserved: 0,
        })
        .collect();
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

#[cfg(test)]
#[path = "start_info_test.rs"]
mod tests;
