//! Surviving that a file whose pages a VM runs on is cut short.
//!
//! An access to a mapped page beyond the file's end raises `SIGBUS`, also where the page was private
//! already; it would end the process for what somebody else did to one VM's file. KVM's own accesses
//! fail with `EFAULT` and end the VM, but devices access guest memory from ordinary threads. So the
//! first VM that is restored from a *file* installs a handler, for good: the one thing of this
//! library that is the whole process's. In a VM's range it maps a page of zeros and notes that the VM
//! is damaged, for its event loop to end it; every other `SIGBUS` goes where it went before. VMs that
//! run on memfds need none of this: those are sealed and cannot be cut.
//!
//! A program that installs a handler of its own later must pass on what it does not know, as this
//! one does; a thread that blocks `SIGBUS` is not protected. [`crate::threads`] does not block it.
//!
//! # The table
//! The handler runs in whatever thread faulted, whatever locks it holds: it reads a table of atomics
//! and makes system calls, nothing else. A slot is filled before its `start` says so. It is emptied by
//! clearing `start` and then waiting until no handler is `inside`: a handler enters, and only then
//! believes what it reads. Blocks of slots are added and never freed.

#![allow(unsafe_code)] // a signal handler

use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::{io, mem, thread};

use vmm_sys_util::eventfd::EventFd;

use super::PAGE;
use crate::error::HostError;
use crate::stop::eventfd;

/// What was lost of one VM's memory.
#[derive(Debug)]
pub(crate) struct Damage {
    done: AtomicBool,
    event: EventFd,
}

impl Damage {
    pub(super) fn new() -> Result<Self, HostError> {
        Ok(Self {
            done: AtomicBool::new(false),
            event: eventfd()?,
        })
    }

    /// Whether the VM has read zeros, or lost what it wrote, because its memory file was cut.
    pub(crate) fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    /// Readable once it [`is_done`](Self::is_done).
    pub(crate) fn event(&self) -> &EventFd {
        &self.event
    }

    /// From a signal handler.
    fn note(&self) {
        self.done.store(true, Ordering::Release);
        // It does not block, and fails only if it is readable anyway.
        let _ = self.event.write(1);
    }
}

/// While it lives, faults in its ranges are answered. Must be dropped before anything else can be
/// mapped there, and when nothing accesses them any more or nothing there can fault.
pub(super) struct Guard {
    slots: Vec<&'static Slot>,
    /// What the slots point to.
    _damage: Arc<Damage>,
}

impl Guard {
    /// Watches over `ranges` of addresses, which are the caller's own mappings.
    pub(super) fn new(
        ranges: impl Iterator<Item = Range<usize>>,
        damage: Arc<Damage>,
    ) -> Result<Self, HostError> {
        // One writer at a time, and the handler stands before the first range does.
        let mut installed = WRITER.lock().unwrap_or_else(PoisonError::into_inner);
        install(&mut installed).map_err(|e| HostError::on("sigaction", "SIGBUS", e))?;
        let slots = ranges
            .map(|range| {
                let slot = TABLE.free_slot();
                slot.fill(range, &damage);
                slot
            })
            .collect();
        Ok(Self {
            slots,
            _damage: damage,
        })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _writer = WRITER.lock().unwrap_or_else(PoisonError::into_inner);
        for slot in &self.slots {
            slot.clear();
        }
    }
}

/// Held by whoever changes the table. Whether the handler is installed.
static WRITER: Mutex<bool> = Mutex::new(false);
static TABLE: Block = Block::new();
/// What was done on `SIGBUS` before. Set before our handler is.
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// A range of addresses and whose it is. Free if `start` is 0.
struct Slot {
    start: AtomicUsize,
    end: AtomicUsize,
    damage: AtomicPtr<Damage>,
    /// Handlers that are reading this slot.
    inside: AtomicUsize,
}

impl Slot {
    const fn new() -> Self {
        Self {
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            damage: AtomicPtr::new(ptr::null_mut()),
            inside: AtomicUsize::new(0),
        }
    }

    fn fill(&self, range: Range<usize>, damage: &Arc<Damage>) {
        self.end.store(range.end, Ordering::SeqCst);
        self.damage
            .store(Arc::as_ptr(damage).cast_mut(), Ordering::SeqCst);
        self.start.store(range.start, Ordering::SeqCst);
    }

    fn clear(&self) {
        self.start.store(0, Ordering::SeqCst);
        while self.inside.load(Ordering::SeqCst) != 0 {
            thread::yield_now();
        }
    }

    /// From a signal handler: whether the page at `address` is of this range, and was replaced.
    fn answer(&self, address: usize) -> bool {
        if !self.covers(address) {
            return false;
        }
        self.inside.fetch_add(1, Ordering::SeqCst);
        let answered = self.covers(address) && put_zeros(address) && {
            // SAFETY: the slot was in use after `inside` was raised, so its guard, which keeps the
            // damage alive, waits until it is lowered.
            unsafe { &*self.damage.load(Ordering::SeqCst) }.note();
            true
        };
        self.inside.fetch_sub(1, Ordering::SeqCst);
        answered
    }

    fn covers(&self, address: usize) -> bool {
        let start = self.start.load(Ordering::SeqCst);
        start != 0 && (start..self.end.load(Ordering::SeqCst)).contains(&address)
    }
}

/// Slots, and those that were needed beyond them.
struct Block {
    slots: [Slot; Self::SLOTS],
    next: AtomicPtr<Block>,
}

impl Block {
    /// For as many ranges; a VM has one or two.
    const SLOTS: usize = 64;

    const fn new() -> Self {
        Self {
            slots: [const { Slot::new() }; Self::SLOTS],
            next: AtomicPtr::new(ptr::null_mut()),
        }
    }

    fn next(&self) -> Option<&'static Self> {
        // SAFETY: null, or a block that was leaked before it was stored.
        unsafe { self.next.load(Ordering::SeqCst).as_ref() }
    }

    /// For the one writer.
    fn free_slot(&'static self) -> &'static Slot {
        let mut block = self;
        loop {
            let is_free = |slot: &&Slot| slot.start.load(Ordering::SeqCst) == 0;
            if let Some(slot) = block.slots.iter().find(is_free) {
                return slot;
            }
            block = block.next().unwrap_or_else(|| {
                let more: &'static Self = Box::leak(Box::new(Self::new()));
                block
                    .next
                    .store(ptr::from_ref(more).cast_mut(), Ordering::SeqCst);
                more
            });
        }
    }

    /// From a signal handler.
    fn answer(&self, address: usize) -> bool {
        let mut block = Some(self);
        while let Some(this) = block {
            if this.slots.iter().any(|slot| slot.answer(address)) {
                return true;
            }
            block = this.next();
        }
        false
    }
}

/// Maps a page of zeros at `address`, which lies in a range of ours. From a signal handler.
fn put_zeros(address: usize) -> bool {
    let page = address / PAGE as usize * PAGE as usize;
    // SAFETY: the page lies in a mapping of guest memory, whose content may change at any time. The
    // system call is made directly, since it must be safe in a signal handler.
    let at = unsafe {
        libc::syscall(
            libc::SYS_mmap,
            page,
            PAGE as usize,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    at != -1
}

/// Installs the handler, the first time. For the one writer.
fn install(installed: &mut bool) -> io::Result<()> {
    if *installed {
        return Ok(());
    }
    let previous = action(None)?;
    let mut ours = previous;
    ours.sa_sigaction = on_sigbus as *const () as usize;
    // The stack on which the program wants its handlers to run may be too small for what follows in
    // its own handler, but not for this one.
    ours.sa_flags |= libc::SA_SIGINFO | libc::SA_ONSTACK;
    // Or the first fault of ours would be the last.
    ours.sa_flags &= !libc::SA_RESETHAND;
    // Nobody else sets it: there is one writer.
    let _ = PREVIOUS.set(previous);
    action(Some(&ours))?;
    *installed = true;
    Ok(())
}

/// Sets what is done on `SIGBUS`, if given, and returns what was.
fn action(new: Option<&libc::sigaction>) -> io::Result<libc::sigaction> {
    // SAFETY: all zeros are a valid value: the default action, no flags, an empty mask.
    let mut old: libc::sigaction = unsafe { mem::zeroed() };
    let new = new.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: both pointers are null or valid; what a new action points to is a handler.
    match unsafe { libc::sigaction(libc::SIGBUS, new, &raw mut old) } {
        0 => Ok(old),
        _ => Err(io::Error::last_os_error()),
    }
}

extern "C" fn on_sigbus(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel passes valid information; for a fault it has the address. The C library's
    // error number is this thread's own, and what was interrupted must find it as it was.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let is_ours =
            (*info).si_code == libc::BUS_ADRERR && TABLE.answer((*info).si_addr() as usize);
        if !is_ours {
            pass_on(signal, info, context);
        }
        *errno = before;
    }
}

/// Does what would have been done without our handler.
///
/// # Safety
/// Only from within the handler, with its arguments.
unsafe fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let Some(previous) = PREVIOUS.get() else {
        return; // it is set before the handler is installed
    };
    match previous.sa_sigaction {
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: as this function's.
            let was_sent = unsafe { (*info).si_code } <= 0;
            if was_sent && previous.sa_sigaction == libc::SIG_IGN {
                return;
            }
            // A fault cannot be ignored. On return it comes again; what was sent does not.
            let mut default = *previous;
            default.sa_sigaction = libc::SIG_DFL;
            let _ = action(Some(&default));
            if was_sent {
                // SAFETY: no memory is involved.
                unsafe { libc::raise(signal) };
            }
        }
        handler if previous.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: with this flag the program gave a function of this type.
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                unsafe { mem::transmute(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: without it, one of this type.
            let handler: extern "C" fn(libc::c_int) = unsafe { mem::transmute(handler) };
            handler(signal);
        }
    }
}

#[cfg(test)]
#[path = "sigbus_test.rs"]
mod tests;
