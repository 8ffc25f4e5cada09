//! Something to be done on a vCPU's own thread.
//!
//! Only a vCPU's own thread may read its state, and only outside the guest. So what is asked is left
//! here, the thread is called, and it does it before it goes back in. A guest that halted with
//! interrupts off never exits again: this is the only way to find it.

use std::sync::mpsc::{self, Receiver};
use std::sync::{Mutex, PoisonError};

use kvm_ioctls::VcpuFd;

type Work = Box<dyn FnOnce(&VcpuFd) + Send>;

/// What one vCPU's thread is asked for: one thing at a time, the newest.
#[derive(Default)]
pub(crate) struct Errand {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    work: Option<Work>,
    /// The thread will do nothing any more.
    closed: bool,
}

impl Errand {
    /// Leaves `question` for the thread, which must be called afterwards. The answer comes out of
    /// the receiver; none ever does if the thread has ended.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&VcpuFd) -> T + Send + 'static,
    ) -> Receiver<T> {
        let (sender, answer) = mpsc::channel();
        let work: Work = Box::new(move |vcpu| {
            // Whoever asked may have given up.
            let _ = sender.send(question(vcpu));
        });
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.closed {
            state.work = Some(work);
        }
        answer
    }

    /// Called by the vCPU's thread outside the guest: does what was asked, if anything was.
    pub(crate) fn run(&self, vcpu: &VcpuFd) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let work = state.work.take();
        drop(state);
        if let Some(work) = work {
            work(vcpu);
        }
    }

    /// The thread does nothing any more: whoever waits learns of it.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.closed = true;
        state.work = None;
    }
}

impl std::fmt::Debug for Errand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Errand").finish_non_exhaustive()
    }
}
