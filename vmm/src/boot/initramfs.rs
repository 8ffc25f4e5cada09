//! Placing the initramfs: several archives, one after the other, as the kernel takes them.

use std::io;
use std::path::PathBuf;

use vm_memory::{Bytes as _, GuestAddress, GuestMemoryMmap};

use crate::error::{HostError, StartError};
use crate::layout::HOLE_START;

/// Where an initramfs may begin: the kernel gives whole pages back when it has unpacked it, and
/// huge pages stay whole if it shares none with what remains.
const ALIGNMENT: u64 = 1 << 20;
/// The kernel looks for the next archive at multiples of this.
const LAYER_ALIGNMENT: u64 = 4;

/// The initramfs in guest memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LoadedInitramfs {
    /// Guest-physical address.
    pub(crate) start: u64,
    /// Length of all layers with their padding, in bytes.
    pub(crate) len: u64,
}

/// Reads `layers` into the top of the RAM below `top`, at most 3 GiB; `None` if there are none.
/// `kernel_end` is where the kernel's memory ends.
pub(crate) fn load(
    layers: &[PathBuf],
    memory: &GuestMemoryMmap,
    top: u64,
    kernel_end: u64,
) -> Result<Option<LoadedInitramfs>, StartError> {
    let mut files = Vec::with_capacity(layers.len());
    for path in layers {
        let failed = |e| HostError::on("read initramfs", path.display(), e);
        let (file, len) = super::open(path).map_err(failed)?;
        if len == 0 {
            return Err(failed(io::Error::other("it is empty")).into());
        }
        files.push((path, file, len));
    }
    let Some(place) = place(
        files.iter().map(|(_, _, len)| *len),
        top.min(HOLE_START),
        kernel_end,
    )?
    else {
        return Ok(None);
    };
    let mut at = place.start;
    for (path, mut file, len) in files {
        // `len` is at most what fits below 3 GiB, by place().
        memory
            .read_exact_volatile_from(GuestAddress(at), &mut file, len as usize)
            .map_err(|e| HostError::on("read initramfs", path.display(), io::Error::other(e)))?;
        at += padded(len);
    }
    Ok(Some(place))
}

fn padded(len: u64) -> u64 {
    len.next_multiple_of(LAYER_ALIGNMENT)
}

fn place(
    layers: impl Iterator<Item = u64>,
    low_ram: u64,
    kernel_end: u64,
) -> Result<Option<LoadedInitramfs>, StartError> {
    let free_below = |top: u64| top.saturating_sub(kernel_end.next_multiple_of(ALIGNMENT));
    let mut needed = 0u64;
    for len in layers {
        // Saturating, since a sparse file can be of any length; padding cannot overflow below this.
        needed = needed.saturating_add(padded(len.min(u64::MAX - LAYER_ALIGNMENT)));
    }
    if needed == 0 {
        return Ok(None);
    }
    low_ram
        .checked_sub(needed)
        .map(|start| start & !(ALIGNMENT - 1))
        .filter(|start| *start >= kernel_end)
        .map(|start| Some(LoadedInitramfs { start, len: needed }))
        .ok_or_else(|| StartError::InitramfsTooLarge {
            needed,
            available: free_below(low_ram),
            possible: free_below(HOLE_START),
        })
}

#[cfg(test)]
#[path = "initramfs_test.rs"]
mod tests;
