//! Stacks of children between clone and execve.
//!
//! A child that shares the agent's memory needs one of its own. Each has a page below it that cannot
//! be touched, so that one that is too small ends the child and not the agent.
#![allow(unsafe_code, reason = "mappings have no safe wrapper")]

use std::cell::RefCell;
use std::ffi::c_void;
use std::ptr;

use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

/// A path of 4 KiB and the system calls around it need a small part of this.
const SIZE: usize = 64 * 1024;

const GUARD: usize = 4096;

/// Stacks kept for starts to come.
const SPARES: usize = 16;

/// Memory for one child at a time.
pub(crate) struct Stack {
    /// Of the guard.
    base: *mut c_void,
}

impl Stack {
    fn map() -> Result<Self, Errno> {
        // SAFETY: where nobody asks for a place, the kernel finds one that is free.
        let base = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                GUARD + SIZE,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )?
        };
        let stack = Self { base };
        // SAFETY: the page is of the mapping that was just made.
        unsafe { mprotect(base, GUARD, MprotectFlags::empty())? };
        Ok(stack)
    }

    /// Where it begins, and its size in bytes, as `clone3` takes it.
    pub(crate) fn span(&self) -> (u64, u64) {
        ((self.base as usize + GUARD) as u64, SIZE as u64)
    }

    /// Whether anything but zeros is there.
    #[cfg(test)]
    pub(crate) fn was_used(&self) -> bool {
        // SAFETY: the mapping lives as long as this, and its child has left it.
        let bytes = unsafe { std::slice::from_raw_parts(self.base.byte_add(GUARD).cast(), SIZE) };
        bytes.iter().any(|byte: &u8| *byte != 0)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and whoever drops it knows that no child is on it.
        let _ = unsafe { munmap(self.base, GUARD + SIZE) };
    }
}

/// Stacks that no child is on.
#[derive(Default)]
pub(crate) struct Spares(RefCell<Vec<Stack>>);

impl Spares {
    /// One for a child.
    pub(crate) fn take(&self) -> Result<Stack, Errno> {
        match self.0.borrow_mut().pop() {
            Some(stack) => Ok(stack),
            None => Stack::map(),
        }
    }

    /// Takes one back that no child is on any more.
    pub(crate) fn give_back(&self, stack: Stack) {
        let mut spares = self.0.borrow_mut();
        if spares.len() < SPARES {
            spares.push(stack);
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.borrow().len()
    }
}
