//! Taking a stopped VM apart, off everybody's way.
//!
//! Closing a VM's descriptors and unmapping its memory takes KVM and the host kernel tens of
//! milliseconds. Whoever drops a VM wants it stopped and gone, not to wait for that; so one
//! short-lived thread per VM does it.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use forebay_virtio_console::Console;
use kvm_ioctls::VmFd;
use tokio::sync::oneshot;
use vm_memory::GuestMemoryMmap;
use vmm_sys_util::eventfd::EventFd;

use crate::bus::Bus;
use crate::threads;

/// What is left of a VM, in the order in which it must go: threads before what they use, the
/// descriptors before the memory that KVM was shown.
pub(crate) struct Remains {
    pub(crate) threads: Vec<JoinHandle<()>>,
    pub(crate) bus: Arc<Bus>,
    pub(crate) console: Arc<Console>,
    /// Takes the guest's interrupt acknowledgements and is never read.
    pub(crate) acknowledge: EventFd,
    pub(crate) vm: VmFd,
    pub(crate) memory: GuestMemoryMmap,
}

impl Remains {
    fn clear(self) {
        let Self {
            threads,
            bus,
            console,
            acknowledge,
            vm,
            memory,
        } = self;
        for thread in threads {
            threads::join(thread);
        }
        drop((bus, console, acknowledge));
        drop(vm);
        drop(memory);
    }
}

/// A VM that is being taken apart. Dropping this does not stop it.
pub(crate) struct Reaping {
    done: oneshot::Receiver<()>,
    /// `None` if there was no thread to be had and it has been done already.
    thread: Option<JoinHandle<()>>,
}

impl Reaping {
    /// Waits until nothing is left, the reaper itself included.
    pub(crate) async fn wait(self) {
        // An error means that the reaper panicked; it ends all the same.
        let _ = self.done.await;
        if let Some(thread) = self.thread {
            // That was the last thing it did: the join does not hold up the caller.
            threads::join(thread);
        }
    }
}

/// Frees `remains`. The VM's end must have begun.
pub(crate) fn reap(remains: Remains) -> Reaping {
    let (sender, done) = oneshot::channel();
    // Behind a lock, so that they are still here if no thread can be started.
    let parcel = Arc::new(Mutex::new(Some((remains, sender))));
    let clear = {
        let parcel = Arc::clone(&parcel);
        move || {
            let taken = parcel.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some((remains, sender)) = taken {
                remains.clear();
                // Nobody listens if the VM was dropped rather than closed.
                let _ = sender.send(());
            }
        }
    };
    let thread = threads::spawn("forebay-reaper".into(), clear.clone()).ok();
    if thread.is_none() {
        // Then it takes the caller's time, rather than the host's memory for ever.
        clear();
    }
    Reaping { done, thread }
}
