//! Our machine with a bare guest: the device and nothing behind it but a counter.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use bytes::Bytes;
use forebay::agent_port::{Closed, Gate, HEADER_LEN, Outgoing, Verdict};
use forebay::{BootReport, Machine, Vm};

use crate::bench::PATIENCE;
use crate::bench::guest::{BareGuest, MEMORY_MIB};
use crate::bench::port::{Port, RECORD};

/// How often a waiting sample looks whether the guest has ended, of which the gate learns nothing.
const GLANCE: Duration = Duration::from_secs(1);

/// Frames towards the guest that wait at most; then a sender does.
const TO_GUEST_MAX: usize = 4;

/// A running machine whose guest has said hello.
pub(crate) struct Bare {
    machine: Machine,
    meter: Arc<Meter>,
    /// Taken so far.
    taken: Count,
    /// From the call that started it to the guest's hello.
    pub(crate) boot: Duration,
}

impl Bare {
    /// Boots the guest and waits for its hello.
    pub(crate) fn boot(guest: &BareGuest) -> Result<Self> {
        let meter = Arc::new(Meter::default());
        let started = Instant::now();
        let machine = Vm::builder()
            .kernel(&guest.kernel)
            .initramfs(&guest.initramfs)
            .cmdline(guest.words.as_str())
            .memory_mib(MEMORY_MIB)
            .start_machine_with(Arc::clone(&meter) as Arc<dyn Gate>)?;
        let mut bare = Self {
            machine,
            meter,
            taken: Count::default(),
            boot: Duration::ZERO,
        };
        bare.take(RECORD)?;
        bare.boot = started.elapsed();
        Ok(bare)
    }

    /// When it reached which point.
    pub(crate) fn boot_report(&self) -> BootReport {
        self.machine.boot_report()
    }

    /// Ends it, and waits until nothing of it is left.
    pub(crate) async fn close(self) {
        self.machine.close().await;
    }

    /// Waits until the guest has sent `bytes` more of payload, headers not counted.
    pub(crate) fn take_payload(&mut self, bytes: u64) -> Result<()> {
        let due = self.taken.payload + bytes;
        self.await_count(Due::Payload(due))?;
        // Of the last frame nothing is left over: the guest waits for its next command.
        self.taken = self.meter.lock().seen;
        Ok(())
    }

    fn await_count(&self, due: Due) -> Result<()> {
        let mut state = self.meter.lock();
        state.due = Some(due);
        let since = Instant::now();
        while !due.reached(state.seen) {
            self.check(&state, since)?;
            state = self.meter.wait(state);
        }
        state.due = None;
        Ok(())
    }

    /// Whether what was waited for since then may still come.
    fn check(&self, state: &State, since: Instant) -> Result<()> {
        let ended = || self.machine.stopped().map(|reason| reason.to_string());
        let silent = || {
            (since.elapsed() > PATIENCE).then(|| format!("the guest is silent for {PATIENCE:?}"))
        };
        if let Some(why) = state.over.clone().or_else(ended).or_else(silent) {
            bail!(
                "{why}; console:\n{}",
                self.machine.console_log().last_lines(20)
            );
        }
        Ok(())
    }
}

impl Port for Bare {
    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        let Some((head, body)) = bytes.split_first_chunk() else {
            bail!("a frame towards the guest has at least {HEADER_LEN} bytes");
        };
        let frame = Outgoing {
            head: *head,
            body: Bytes::copy_from_slice(body),
            can_wait: false,
        };
        let since = Instant::now();
        let mut state = self.meter.lock();
        while state.to_guest.len() >= TO_GUEST_MAX {
            self.check(&state, since)?;
            state = self.meter.wait(state);
        }
        state.to_guest.push_back(frame);
        drop(state);
        self.machine.transmit();
        Ok(())
    }

    fn take(&mut self, bytes: u64) -> Result<()> {
        self.taken.bytes += bytes;
        self.await_count(Due::Bytes(self.taken.bytes))?;
        self.taken = self.meter.lock().seen;
        Ok(())
    }
}

/// The gate: takes every frame whole, in one copy out of guest memory, and counts.
#[derive(Default)]
struct Meter {
    state: Mutex<State>,
    moved: Condvar,
}

#[derive(Default)]
struct State {
    to_guest: VecDeque<Outgoing>,
    seen: Count,
    /// What the other side waits for: it is woken once, not for each frame.
    due: Option<Due>,
    /// Why nothing more will come.
    over: Option<String>,
}

/// What has come from the guest.
#[derive(Debug, Clone, Copy, Default)]
struct Count {
    /// With headers.
    bytes: u64,
    /// Without.
    payload: u64,
}

#[derive(Debug, Clone, Copy)]
enum Due {
    Bytes(u64),
    Payload(u64),
}

impl Due {
    fn reached(self, seen: Count) -> bool {
        match self {
            Self::Bytes(due) => seen.bytes >= due,
            Self::Payload(due) => seen.payload >= due,
        }
    }
}

impl Meter {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let (state, _) = self
            .moved
            .wait_timeout(state, GLANCE)
            .unwrap_or_else(PoisonError::into_inner);
        state
    }

    fn end(&self, why: String) {
        self.lock().over.get_or_insert(why);
        self.moved.notify_all();
    }
}

impl Gate for Meter {
    fn judge(&self, _head: &[u8; HEADER_LEN], rest: usize) -> Verdict {
        Verdict::Accept(rest)
    }

    fn deliver(&self, payload: Vec<u8>) -> Result<(), &'static str> {
        let mut state = self.lock();
        state.seen.payload += payload.len() as u64;
        state.seen.bytes += (HEADER_LEN + payload.len()) as u64;
        if state.due.is_some_and(|due| due.reached(state.seen)) {
            self.moved.notify_all();
        }
        Ok(())
    }

    fn next_to_guest(&self) -> Option<Outgoing> {
        let mut state = self.lock();
        let frame = state.to_guest.pop_front();
        if state.to_guest.len() + 1 == TO_GUEST_MAX {
            self.moved.notify_all();
        }
        frame
    }

    fn opened(&self) {}

    fn closed(&self, why: Closed) {
        self.end(why.to_string());
    }
}
