//! What a kernel that is entered by Linux's boot protocol is told: the "zero page", `boot_params`,
//! with the header of its own file, memory map, command line, initramfs, ACPI root.
//!
//! Its counterpart for a `vmlinux` is [`super::start_info`].

use linux_loader::configurator::linux::LinuxBootConfigurator;
use linux_loader::configurator::{BootConfigurator as _, BootParams};
use linux_loader::loader::bootparam::{boot_e820_entry, boot_params, setup_header};
use vm_memory::{GuestAddress, GuestMemoryMmap};

use super::initramfs::LoadedInitramfs;
use super::memory_map::Entry;
use crate::error::HostError;
use crate::layout::{COMMAND_LINE, ZERO_PAGE};

/// A boot loader without a number of its own.
const LOADER_UNDEFINED: u8 = 0xff;

/// Writes it; the entry point finds it by its address in `rsi`.
pub(crate) fn write(
    memory: &GuestMemoryMmap,
    header: setup_header,
    map: &[Entry],
    initramfs: Option<LoadedInitramfs>,
    rsdp: u64,
) -> Result<(), HostError> {
    let mut params = boot_params {
        hdr: header,
        acpi_rsdp_addr: rsdp,
        // Four at most, see memory_map.rs.
        e820_entries: map.len() as u8,
        ..Default::default()
    };
    params.hdr.type_of_loader = LOADER_UNDEFINED;
    // Command line and initramfs lie below 4 GiB.
    params.hdr.cmd_line_ptr = COMMAND_LINE as u32;
    if let Some(LoadedInitramfs { start, len }) = initramfs {
        params.hdr.ramdisk_image = start as u32;
        params.hdr.ramdisk_size = len as u32;
    }
    // Copied out and back: the table in the packed structure is not aligned.
    let mut table = params.e820_table;
    for (to, from) in table.iter_mut().zip(map) {
        *to = boot_e820_entry {
            addr: from.start,
            size: from.len,
            r#type: from.kind as u32,
        };
    }
    params.e820_table = table;
    LinuxBootConfigurator::write_bootparams(
        &BootParams::new(&params, GuestAddress(ZERO_PAGE)),
        memory,
    )
    .map_err(|e| HostError::on("write boot data", "zero page", std::io::Error::other(e)))
}

#[cfg(test)]
#[path = "zero_page_test.rs"]
mod tests;
