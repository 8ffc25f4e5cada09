//! The device: one lock per group of queues, and which kick leads where.
//!
//! What happens on port 1 is in `agent_port`; here are the console, control, and the door to the
//! transport.
//!
//! # Interrupts
//!
//! What was sent and is done with raises fewer than the driver asks for, which departs from the letter
//! of the specification and doubles the rate. It is safe with Linux, which looks at the used ring by
//! itself before it sends and before it waits for room (`drivers/char/virtio_console.c`,
//! `reclaim_consumed_buffers`):
//!
//! * on the agent's port an interrupt comes only if the driver may have found the ring full
//!   ([`Virtqueue::take_interrupt_for_room`]). This holds while one guest thread at a time writes to the
//!   port, as the agent does; another that sleeps until the ring has room would not be woken;
//! * on the console and control queues none comes for a lone chain that was consumed inside its own
//!   kick, which the driver spins for.
//!
//! What is sent to the guest is signalled as the ring asks, but for frames that
//! [can wait](crate::Outgoing::can_wait).

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use forebay_virtio::spec::{F_EVENT_IDX, F_INDIRECT_DESC, F_VERSION_1};
use forebay_virtio::{Activation, Doorbell, Interrupt, QueueSpec, VirtioDevice, Virtqueue};
use virtio_bindings::virtio_ids::VIRTIO_ID_CONSOLE;

use crate::agent_from_guest::AgentFromGuest;
use crate::agent_to_guest::AgentToGuest;
use crate::console_port::ConsolePort;
use crate::control::{Control, GuestWish};
use crate::gate::{ConsoleSink, Gate};
use crate::queues::{AGENT_FROM_GUEST_SIZE, QueueIndex, SPECS};
use crate::spec::{CONFIG_SPACE, F_MULTIPORT};

/// How much one turn may take from a queue before others get theirs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Chains.
    pub chains: u32,
    /// Bytes, of which each frame counts for 256 more than it has. The chain that crosses the
    /// bound is still finished.
    pub bytes: usize,
}

/// Bytes that a frame counts for on top of its own: about what could be copied in the time that
/// its judgement takes.
pub(crate) const FRAME_COST: usize = 256;

impl Budget {
    /// A turn of the event loop: two rings full, or 1 MiB.
    pub const TURN: Budget = Budget {
        chains: 128,
        bytes: 1 << 20,
    };
    /// A kick on a vCPU thread: shorter, since the guest's processor stands still meanwhile.
    pub const INLINE: Budget = Budget {
        chains: 64,
        bytes: 256 << 10,
    };
    /// One call of [`Console::transmit`], on anybody's thread: four rings full of pages.
    pub(crate) const TRANSMIT: Budget = Budget {
        chains: 512,
        bytes: 2 << 20,
    };
    /// What lies in the agent's ring when the port is opened or closed: as many of the agent's
    /// chains as the ring holds, each of 32 KiB that are nothing but headers.
    pub(crate) const WRITTEN: Budget = Budget {
        chains: AGENT_FROM_GUEST_SIZE as u32,
        bytes: AGENT_FROM_GUEST_SIZE as usize * ((32 << 10) + 2048 * FRAME_COST),
    };

    pub(crate) fn spent(self) -> bool {
        self.chains == 0 || self.bytes == 0
    }

    pub(crate) fn charge(&mut self, bytes: usize) {
        self.chains = self.chains.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

/// What is left after a turn of the event loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "what is left is served only if the loop calls again"]
pub enum Drained {
    /// Nothing: the next chain brings a kick.
    Everything,
    /// A budget ran out: call again, after the other sources had their turn.
    More,
}

/// The dual-port console. See the [crate's description](crate).
pub struct Console {
    pub(crate) gate: Arc<dyn Gate>,
    pub(crate) sink: Arc<dyn ConsoleSink>,
    pub(crate) interrupt: Arc<dyn Interrupt>,
    pub(crate) doorbell: Arc<dyn Doorbell>,

    // In the order in which they are taken.
    pub(crate) control: Mutex<Control>,
    pub(crate) console: Mutex<ConsolePort>,
    pub(crate) from_guest: Mutex<AgentFromGuest>,
    pub(crate) to_guest: Mutex<AgentToGuest>,

    /// Who holds the device still. Rises only with all four locks held, so whoever has one of them
    /// and finds none may go on; see `held`.
    pub(crate) holds: AtomicU32,
    /// Calls of `transmit` that the one at work has to cover.
    pub(crate) transmit_calls: AtomicU32,
    /// Something was placed towards the guest since the last kick of queue 5.
    pub(crate) placed: AtomicBool,
    /// Console output was left over by a kick whose budget ran out, or may have come unseen.
    pub(crate) console_left: AtomicBool,
    /// Control messages were left over likewise.
    pub(crate) control_left: AtomicBool,
}

impl Console {
    /// Makes the device.
    ///
    /// `interrupt` is the device's line. `doorbell` must lead to a call of
    /// [`drain_from_guest`](Self::drain_from_guest) on the event loop, soon.
    #[must_use]
    pub fn new(
        gate: Arc<dyn Gate>,
        sink: Arc<dyn ConsoleSink>,
        interrupt: Arc<dyn Interrupt>,
        doorbell: Arc<dyn Doorbell>,
    ) -> Arc<Self> {
        Arc::new(Self {
            gate,
            sink,
            interrupt,
            doorbell,
            control: Mutex::default(),
            console: Mutex::default(),
            from_guest: Mutex::default(),
            to_guest: Mutex::default(),
            holds: AtomicU32::new(0),
            transmit_calls: AtomicU32::new(0),
            placed: AtomicBool::new(false),
            console_left: AtomicBool::new(false),
            control_left: AtomicBool::new(false),
        })
    }

    /// Serves what the guest sent, for the event loop: port 1 first, then whatever kicks of the
    /// other queues left over, each within `budget`.
    ///
    /// Before it asks for the next kick of port 1 it looks whether another chain comes, if any had
    /// come at all or the ring was just handed over: for `least_look`, or longer where rings of the
    /// doorbell are found to take long, but 1 ms at most. A turn that looks goes on to no further look
    /// after 2 ms. Between two glances the processor is yielded, which on a busy host may take longer
    /// than the look. Sensible are 5 to 20 µs, and zero, which is no look, where the host has a single
    /// processor.
    ///
    /// What the gate has for the guest is placed before this returns, its answers and all else: no
    /// call of [`transmit`](Self::transmit) is needed besides, whatever the doorbell was rung for.
    pub fn drain_from_guest(&self, budget: Budget, least_look: Duration) -> Drained {
        let left_over = [
            self.drain_agent(budget, least_look),
            if self.console_left.swap(false, Ordering::AcqRel) {
                self.serve_console(budget, Turn::EventLoop)
            } else {
                Drained::Everything
            },
            if self.control_left.swap(false, Ordering::AcqRel) {
                self.serve_control(budget, Turn::EventLoop)
            } else {
                Drained::Everything
            },
        ];
        self.gate.settle();
        if left_over.contains(&Drained::More) {
            Drained::More
        } else {
            Drained::Everything
        }
    }

    /// Moves console output to the sink.
    fn serve_console(&self, mut budget: Budget, turn: Turn) -> Drained {
        let Some(mut port) = self.lock_unless_held(&self.console) else {
            return Drained::Everything;
        };
        let mut taken = 0;
        let drained = loop {
            if budget.spent() {
                self.console_left.store(true, Ordering::Release);
                break Drained::More;
            }
            match port.serve_one(&*self.sink) {
                Ok(Some(bytes)) => {
                    taken += 1;
                    budget.charge(bytes);
                }
                Ok(None) if rearm(&mut port.from_guest) => {}
                // Empty, or dead: either way nothing more comes without a kick.
                Ok(None) | Err(_) => break Drained::Everything,
            }
        };
        self.signal(&mut port.from_guest, taken, turn);
        drained
    }

    /// Acts on control messages and answers them. The caller owes the gate a
    /// [`settle`](Gate::settle).
    fn serve_control(&self, mut budget: Budget, turn: Turn) -> Drained {
        let Some(mut control) = self.lock_unless_held(&self.control) else {
            return Drained::Everything;
        };
        let mut taken = 0;
        // Opening and closing judge what lies in the agent's ring, so one of them is a turn's work.
        let mut acted = false;
        let drained = loop {
            if budget.spent() || acted {
                // After the budget's end somebody looks again; after a lone open nobody need.
                if acted && !rearm(&mut control.from_guest) {
                    break Drained::Everything;
                }
                self.control_left.store(true, Ordering::Release);
                break Drained::More;
            }
            let served = control.serve_one(|wish| {
                acted = wish != GuestWish::None;
                match wish {
                    GuestWish::None => {}
                    GuestWish::OpenAgent => self.open_agent(),
                    GuestWish::CloseAgent => self.close_agent(),
                }
            });
            match served {
                Ok(true) => {
                    taken += 1;
                    budget.charge(0);
                }
                Ok(false) if rearm(&mut control.from_guest) => {}
                Ok(false) | Err(_) => break Drained::Everything,
            }
        };
        self.signal(&mut control.from_guest, taken, turn);
        self.flush_control(&mut control);
        drained
    }

    /// Places due control messages.
    fn flush_control(&self, control: &mut Control) {
        let used = control.flush();
        self.signal(&mut control.to_guest, used, Turn::EventLoop);
    }

    /// Raises the interrupt for the chains completed on a queue, by the rule in the module's
    /// description.
    pub(crate) fn signal(&self, queue: &mut Option<Virtqueue>, chains: u32, turn: Turn) {
        let Some(queue) = queue else {
            return;
        };
        match (turn, chains) {
            (_, 0) => {}
            (Turn::Inline, 1) => queue.forget_interrupt(),
            _ if queue.take_interrupt() => self.interrupt.signal_queue(),
            _ => {}
        }
    }
}

/// On whose time a queue is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The vCPU thread's, inside the kick.
    Inline,
    /// The event loop's, or that of a kick of another queue.
    EventLoop,
}

impl VirtioDevice for Console {
    fn device_type(&self) -> u32 {
        VIRTIO_ID_CONSOLE
    }

    fn features(&self) -> u64 {
        F_VERSION_1 | F_MULTIPORT | F_EVENT_IDX | F_INDIRECT_DESC
    }

    fn queues(&self) -> &[QueueSpec] {
        &SPECS
    }

    fn read_config(&self, offset: u64, data: &mut [u8]) {
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let field = CONFIG_SPACE.get(from..).unwrap_or_default();
        for (to, byte) in data.iter_mut().zip(field) {
            *to = *byte;
        }
    }

    fn activate(&self, activation: Activation) {
        let mut queues = activation.queues;
        let mut take = |index: QueueIndex| index.take(&mut queues);
        {
            let mut control = lock(&self.control);
            control.to_guest = take(QueueIndex::ControlToGuest);
            control.from_guest = take(QueueIndex::ControlFromGuest);
        }
        lock(&self.console).from_guest = take(QueueIndex::ConsoleFromGuest);
        lock(&self.from_guest).queue = take(QueueIndex::AgentFromGuest);
        lock(&self.to_guest).queue = take(QueueIndex::AgentToGuest);
    }

    fn notify(&self, queue: u16) {
        let drained = match QueueIndex::from_index(queue) {
            Some(QueueIndex::ConsoleFromGuest) => self.serve_console(Budget::INLINE, Turn::Inline),
            Some(QueueIndex::ControlFromGuest) => {
                let drained = self.serve_control(Budget::INLINE, Turn::Inline);
                self.gate.settle();
                drained
            }
            Some(QueueIndex::ControlToGuest) => {
                if let Some(mut control) = self.lock_unless_held(&self.control) {
                    self.flush_control(&mut control);
                }
                return;
            }
            Some(QueueIndex::AgentToGuest) => return self.transmit(),
            Some(QueueIndex::AgentFromGuest) => return self.kick_agent(),
            // Console input is not sent, so its buffers are of no interest.
            Some(QueueIndex::ConsoleToGuest) | None => return,
        };
        // The driver spins for these chains and will not kick again, so somebody must go on.
        if drained == Drained::More {
            self.doorbell.ring();
        }
    }

    fn reset(&self) {
        lock(&self.control).reset();
        lock(&self.console).from_guest = None;
        if self.reset_agent() {
            // The transport's lock is held, so the gate is settled by the loop.
            self.doorbell.ring();
        }
        self.console_left.store(false, Ordering::Release);
        self.control_left.store(false, Ordering::Release);
    }
}

impl std::fmt::Debug for Console {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Console")
            .field("state", &self.inspect())
            .finish_non_exhaustive()
    }
}

/// Asks a queue for the next kick. `true` if there are chains already.
fn rearm(queue: &mut Option<Virtqueue>) -> bool {
    queue
        .as_mut()
        .is_some_and(|queue| queue.rearm().unwrap_or(false))
}

/// Locks, whoever panicked before. Every step leaves these structures valid; a panic in the gate or
/// sink is the machine's to deal with.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "device_test.rs"]
mod tests;
