//! All vCPUs of one VM, for those who ask something of them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kvm_ioctls::VcpuFd;

use crate::stop::Lifecycle;
use crate::vcpu::errand::Errand;
use crate::vcpu::look::{self, VcpuView};

/// A vCPU that has not answered by then is in the middle of a long exit.
const ANSWER_WITHIN: Duration = Duration::from_millis(200);

/// The vCPUs of one VM.
#[derive(Debug)]
pub(crate) struct Vcpus {
    errands: Vec<Arc<Errand>>,
    lifecycle: Arc<Lifecycle>,
    /// One question at a time.
    asking: Mutex<()>,
}

impl Vcpus {
    pub(crate) fn new(errands: Vec<Arc<Errand>>, lifecycle: Arc<Lifecycle>) -> Self {
        Self {
            errands,
            lifecycle,
            asking: Mutex::default(),
        }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.errands.len()
    }

    /// Has each vCPU's thread answer `question`, in order; `None` for one that did not within
    /// `limit`, as none does whose VM has ended. Costs each an exit.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        question: impl Fn(&VcpuFd) -> T + Clone + Send + 'static,
        limit: Duration,
    ) -> Vec<Option<T>> {
        let _one = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        let answers: Vec<_> = self
            .errands
            .iter()
            .map(|errand| errand.ask(question.clone()))
            .collect();
        self.lifecycle.kick_all();
        self.lifecycle.standstill().nudge();
        let deadline = Instant::now() + limit;
        answers
            .into_iter()
            .map(|answer| {
                let left = deadline.saturating_duration_since(Instant::now());
                answer.recv_timeout(left).ok()
            })
            .collect()
    }

    /// What each vCPU is doing, in order; `None` for one that did not say.
    pub(crate) fn look(&self) -> Vec<Option<VcpuView>> {
        let views = self.ask(look::view, ANSWER_WITHIN);
        views.into_iter().map(Option::flatten).collect()
    }

    /// Whether nothing can wake any of them: the guest has halted for good.
    pub(crate) fn are_all_dead(&self) -> bool {
        self.look()
            .iter()
            .all(|view| view.as_ref().is_some_and(VcpuView::is_dead))
    }
}
