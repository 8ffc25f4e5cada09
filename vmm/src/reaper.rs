//! Taking a stopped VM apart, off everybody's way.
//!
//! Closing a VM's descriptors and unmapping its memory takes KVM and the host kernel tens of
//! milliseconds. Whoever drops a VM wants it stopped and gone, not to wait for that. So the thread
//! of the VM's event loop, which has nothing left to do when the VM has ended, does it: it exists
//! already, so there is no moment at which a thread is needed and cannot be had.

use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use forebay_virtio_console::Console;
use kvm_ioctls::VmFd;
use tokio::sync::oneshot;
use vmm_sys_util::eventfd::EventFd;

use crate::bus::Bus;
use crate::memory::GuestRam;
use crate::threads;

/// What is left of a VM, in the order in which it must go: threads before what they use, the
/// descriptors before the memory that KVM was shown.
pub(crate) struct Remains {
    /// The vCPUs', and the probe's, which still closes its own VM, perhaps.
    pub(crate) threads: Vec<JoinHandle<()>>,
    pub(crate) bus: Arc<Bus>,
    pub(crate) console: Arc<Console>,
    /// Takes the guest's interrupt acknowledgements and is never read.
    pub(crate) acknowledge: EventFd,
    pub(crate) vm: VmFd,
    pub(crate) memory: GuestRam,
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

/// A VM's remains on their way to its reaper, and whom to tell.
struct Parcel {
    remains: Remains,
    done: oneshot::Sender<()>,
}

/// The reaper's end: where the remains arrive.
pub(crate) struct Inbox(mpsc::Receiver<Parcel>);

/// The way to the inbox.
pub(crate) struct Outbox(mpsc::Sender<Parcel>);

/// The way to a reaper that has yet to be started.
pub(crate) fn channel() -> (Outbox, Inbox) {
    let (sender, receiver) = mpsc::channel();
    (Outbox(sender), Inbox(receiver))
}

impl Inbox {
    /// The last thing a VM's thread does: waits until the VM is dropped, and clears it away.
    pub(crate) fn reap(self) {
        // An error means that nothing was left to be cleared.
        if let Ok(Parcel { remains, done }) = self.0.recv() {
            remains.clear();
            // Nobody listens if the VM was dropped rather than closed.
            let _ = done.send(());
        }
    }
}

/// A VM's reaper, waiting.
pub(crate) struct Reaper {
    pub(crate) outbox: Outbox,
    pub(crate) thread: JoinHandle<()>,
}

impl Reaper {
    /// Frees `remains`, once the VM has ended; its end must have begun. Does not wait.
    pub(crate) fn reap(self, remains: Remains) -> Reaping {
        let (sender, done) = oneshot::channel();
        let parcel = Parcel {
            remains,
            done: sender,
        };
        if let Err(mpsc::SendError(parcel)) = self.outbox.0.send(parcel) {
            // It died, for all that it does not panic. Then this thread has to.
            parcel.remains.clear();
        }
        Reaping {
            done,
            thread: self.thread,
        }
    }
}

/// A VM that is being taken apart. Dropping this does not stop it.
pub(crate) struct Reaping {
    done: oneshot::Receiver<()>,
    thread: JoinHandle<()>,
}

impl Reaping {
    /// Waits until nothing is left, the reaper itself included.
    pub(crate) async fn wait(self) {
        // An error means that the reaper panicked; it ends all the same.
        let _ = self.done.await;
        // That was the last thing it did: the join does not hold up the caller.
        threads::join(self.thread);
    }

    /// The same, blocking this thread.
    pub(crate) fn wait_blocking(self) {
        threads::join(self.thread);
    }
}
