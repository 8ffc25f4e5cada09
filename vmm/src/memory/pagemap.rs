//! Which pages of a VM's RAM are its own, and which it shares: asked of the host kernel.
//!
//! `PAGEMAP_SCAN` (Linux 6.7) answers in runs; before it, `/proc/self/pagemap` has 8 bytes per page.
//! Both tell pages of the page cache from anonymous ones, which is all that is needed: a private
//! mapping's page is anonymous from the first write on, be it in memory or swapped out.

#![allow(unsafe_code)] // PAGEMAP_SCAN

use std::fs::File;
use std::io;
use std::mem::size_of;
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;

use vm_memory::GuestMemoryMmap;

use super::PAGE;
use super::mapping::regions;
use super::runs::Runs;
use crate::error::HostError;

const PATH: &str = "/proc/self/pagemap";

/// Whose the pages are that are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// Anonymous pages, resident or swapped out: what was written to a private mapping. The kernel's
    /// page of zeros does not count where `PAGEMAP_SCAN` tells it apart.
    Vm,
    /// Pages of the page cache that are mapped here: of a file or a memfd.
    PageCache,
}

/// The pages of `memory` that belong to `owner`, as offsets in the image.
pub(super) fn scan(memory: &GuestMemoryMmap, owner: Owner) -> Result<Runs, HostError> {
    let pagemap = File::open(PATH).map_err(|e| HostError::on("open", PATH, e))?;
    match scan_with(&pagemap, memory, owner, scan_ioctl) {
        Err(e) if e.raw_os_error() == Some(libc::ENOTTY) => {
            scan_with(&pagemap, memory, owner, scan_table)
        }
        other => other,
    }
    .map_err(|e| HostError::on("find the guest's pages", PATH, e))
}

/// Finds pages in a range of addresses and reports their runs in ascending order.
type Scanner = fn(&File, Range<u64>, Owner, &mut dyn FnMut(Range<u64>)) -> io::Result<()>;

fn scan_with(
    pagemap: &File,
    memory: &GuestMemoryMmap,
    owner: Owner,
    scanner: Scanner,
) -> io::Result<Runs> {
    let mut runs = Runs::default();
    for (offset, region) in regions(memory) {
        let base = region.as_ptr() as u64;
        let range = base..base + region.size() as u64;
        scanner(pagemap, range, owner, &mut |found| {
            runs.push(found.start - base + offset..found.end - base + offset);
        })?;
    }
    Ok(runs)
}

/// `struct pm_scan_arg` of `linux/fs.h`.
#[repr(C)]
#[derive(Default)]
struct ScanArg {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct page_region` of `linux/fs.h`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: libc::Ioctl = 0xc060_6610_u32 as libc::Ioctl;
const PAGE_IS_FILE: u64 = 1 << 2;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_SWAPPED: u64 = 1 << 4;
const PAGE_IS_PFNZERO: u64 = 1 << 5;

fn scan_ioctl(
    pagemap: &File,
    range: Range<u64>,
    owner: Owner,
    found: &mut dyn FnMut(Range<u64>),
) -> io::Result<()> {
    let mut regions = [PageRegion::default(); 512];
    let (inverted, mask, any_of) = match owner {
        Owner::Vm => (
            PAGE_IS_FILE | PAGE_IS_PFNZERO,
            PAGE_IS_FILE | PAGE_IS_PFNZERO,
            PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
        ),
        Owner::PageCache => (0, PAGE_IS_FILE | PAGE_IS_PRESENT, 0),
    };
    let mut start = range.start;
    while start < range.end {
        let mut arg = ScanArg {
            size: size_of::<ScanArg>() as u64,
            start,
            end: range.end,
            vec: regions.as_mut_ptr() as u64,
            vec_len: regions.len() as u64,
            category_inverted: inverted,
            category_mask: mask,
            category_anyof_mask: any_of,
            // The same for all that is asked for, so that neighbours come as one run.
            return_mask: PAGE_IS_FILE,
            ..ScanArg::default()
        };
        // SAFETY: `arg` is the structure that this request takes; the kernel writes to it and, at
        // most `vec_len` entries, to `regions`, and both outlive the call.
        let filled = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN, &raw mut arg) };
        let Ok(filled) = usize::try_from(filled) else {
            return Err(io::Error::last_os_error());
        };
        for region in regions.iter().take(filled) {
            found(region.start..region.end);
        }
        if arg.walk_end <= start {
            return Err(io::Error::other("PAGEMAP_SCAN makes no progress"));
        }
        start = arg.walk_end;
    }
    Ok(())
}

fn scan_table(
    pagemap: &File,
    range: Range<u64>,
    owner: Owner,
    found: &mut dyn FnMut(Range<u64>),
) -> io::Result<()> {
    const ENTRY: u64 = size_of::<u64>() as u64;
    const FILE_OR_SHARED: u64 = 1 << 61;
    const SWAPPED: u64 = 1 << 62;
    const PRESENT: u64 = 1 << 63;
    let mut table = vec![0; 64 << 10];
    let mut at = range.start;
    while at < range.end {
        let entries = ((range.end - at) / PAGE).min(table.len() as u64 / ENTRY);
        let part = table
            .get_mut(..(entries * ENTRY) as usize)
            .unwrap_or_default();
        pagemap.read_exact_at(part, at / PAGE * ENTRY)?;
        for entry in part.as_chunks().0 {
            let entry = u64::from_ne_bytes(*entry);
            let shared = entry & FILE_OR_SHARED != 0;
            let is_there = match owner {
                Owner::Vm => !shared && entry & (PRESENT | SWAPPED) != 0,
                Owner::PageCache => shared && entry & PRESENT != 0,
            };
            if is_there {
                found(at..at + PAGE);
            }
            at += PAGE;
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "pagemap_test.rs"]
mod tests;
