//! All vCPUs of one VM, for those who ask what they are doing.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::stop::Lifecycle;
use crate::vcpu::look::{LookSlot, VcpuView};

/// A vCPU that has not answered by then is in the middle of a long exit.
const ANSWER_WITHIN: Duration = Duration::from_millis(200);

/// The vCPUs of one VM.
#[derive(Debug)]
pub(crate) struct Vcpus {
    slots: Vec<Arc<LookSlot>>,
    lifecycle: Arc<Lifecycle>,
    /// One question at a time.
    asking: Mutex<()>,
}

impl Vcpus {
    pub(crate) fn new(slots: Vec<Arc<LookSlot>>, lifecycle: Arc<Lifecycle>) -> Self {
        Self {
            slots,
            lifecycle,
            asking: Mutex::default(),
        }
    }

    /// What each vCPU is doing, in order; `None` for one that did not answer, as none does whose VM
    /// has ended. Costs each an exit.
    pub(crate) fn look(&self) -> Vec<Option<VcpuView>> {
        if self.lifecycle.is_stopping() {
            return vec![None; self.slots.len()];
        }
        let _one = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        for slot in &self.slots {
            slot.ask();
        }
        self.lifecycle.kick_all();
        let deadline = Instant::now() + ANSWER_WITHIN;
        self.slots.iter().map(|slot| slot.wait(deadline)).collect()
    }

    /// Whether nothing can wake any of them: the guest has halted for good.
    pub(crate) fn are_all_dead(&self) -> bool {
        self.look()
            .iter()
            .all(|view| view.as_ref().is_some_and(VcpuView::is_dead))
    }
}
