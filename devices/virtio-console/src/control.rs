//! The control queues: which ports there are, what they are called, who has opened them.
//!
//! ```text
//! guest                              host
//! DEVICE_READY          ──►
//!                       ◄──          PORT_ADD 0, PORT_ADD 1
//! PORT_READY 0          ──►
//!                       ◄──          CONSOLE_PORT 0, PORT_OPEN 0
//! PORT_READY 1          ──►
//!                       ◄──          PORT_NAME 1, PORT_OPEN 1
//! PORT_OPEN 1 (1 or 0)  ──►          a connection begins or ends
//! ```
//!
//! The driver spins until the host has used a control buffer, so a message is acted upon before
//! its chain is completed. What the host has to say is a set, not a queue: each message is sent
//! once per life of the device, so a guest that repeats itself gets no second answer and costs no
//! memory. The host's `PORT_OPEN` is never taken back, since the driver would then report a hang-up
//! on the port for ever.

use forebay_virtio::{ChainVerdict, RingFault, Virtqueue};

use crate::spec::{
    AGENT_PORT, AGENT_PORT_NAME, CONSOLE_PORT, CONTROL_LEN, ControlMessage, MAX_PORTS, event,
};

/// A message of the host. The discriminant is its bit in a [`Outbox`], and the order of sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum HostMessage {
    AddConsole,
    AddAgent,
    MarkConsole,
    OpenConsole,
    NameAgent,
    OpenAgent,
}

impl HostMessage {
    const ALL: [HostMessage; 6] = [
        HostMessage::AddConsole,
        HostMessage::AddAgent,
        HostMessage::MarkConsole,
        HostMessage::OpenConsole,
        HostMessage::NameAgent,
        HostMessage::OpenAgent,
    ];

    fn bit(self) -> u8 {
        1 << self as u8
    }

    /// The fixed part, and the name behind it.
    fn encode(self) -> ([u8; CONTROL_LEN], &'static [u8]) {
        let (port, event, name) = match self {
            HostMessage::AddConsole => (CONSOLE_PORT, event::PORT_ADD, ""),
            HostMessage::AddAgent => (AGENT_PORT, event::PORT_ADD, ""),
            HostMessage::MarkConsole => (CONSOLE_PORT, event::CONSOLE_PORT, ""),
            HostMessage::OpenConsole => (CONSOLE_PORT, event::PORT_OPEN, ""),
            HostMessage::NameAgent => (AGENT_PORT, event::PORT_NAME, AGENT_PORT_NAME),
            HostMessage::OpenAgent => (AGENT_PORT, event::PORT_OPEN, ""),
        };
        let value = 1;
        let message = ControlMessage { port, event, value };
        (message.to_bytes(), name.as_bytes())
    }
}

/// What the host still has to say, and what it has said.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    pub(crate) due: u8,
    pub(crate) sent: u8,
}

impl Outbox {
    /// What was saved; `None` if it is no outbox that there could be: messages are wanted in pairs,
    /// and the first of a pair is sent first.
    pub(crate) fn restore(due: u8, sent: u8) -> Option<Self> {
        const PAIRS: [[HostMessage; 2]; 3] = [
            [HostMessage::AddConsole, HostMessage::AddAgent],
            [HostMessage::MarkConsole, HostMessage::OpenConsole],
            [HostMessage::NameAgent, HostMessage::OpenAgent],
        ];
        let mut left = (due, sent);
        for pair in PAIRS {
            let [first, second] = pair.map(HostMessage::bit);
            let both = first | second;
            match (due & both, sent & both) {
                (0, 0) => {}
                (due, 0) if due == both => {}
                (0, sent) if sent == both => {}
                (due, sent) if due == second && sent == first => {}
                _ => return None,
            }
            left = (left.0 & !both, left.1 & !both);
        }
        (left == (0, 0)).then_some(Self { due, sent })
    }

    fn want(&mut self, message: HostMessage) {
        self.due |= message.bit() & !self.sent;
    }

    fn first(&self) -> Option<HostMessage> {
        HostMessage::ALL
            .into_iter()
            .find(|message| self.due & message.bit() != 0)
    }

    fn mark_sent(&mut self, message: HostMessage) {
        self.due &= !message.bit();
        self.sent |= message.bit();
    }
}

/// What a guest's message means for the agent port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GuestWish {
    /// Nothing.
    None,
    /// The guest opened the port.
    OpenAgent,
    /// The guest closed it.
    CloseAgent,
}

/// The control queues and the state behind them.
#[derive(Debug, Default)]
pub(crate) struct Control {
    pub(crate) from_guest: Option<Virtqueue>,
    pub(crate) to_guest: Option<Virtqueue>,
    pub(crate) outbox: Outbox,
    /// Messages the guest sent.
    pub(crate) received: u64,
    /// Those of them that meant nothing: short, malformed, or unknown.
    pub(crate) ignored: u64,
    /// Messages the host placed.
    pub(crate) placed: u64,
}

impl Control {
    /// Forgets the queues and all that was said.
    pub(crate) fn reset(&mut self) {
        self.from_guest = None;
        self.to_guest = None;
        self.outbox = Outbox::default();
    }

    /// Whether a message waits for a buffer of the guest.
    pub(crate) fn is_due(&self) -> bool {
        self.outbox.first().is_some()
    }

    /// Reads the guest's next message, lets `act` act on it, and completes its chain. `Ok(false)`
    /// if there is none.
    pub(crate) fn serve_one(&mut self, act: impl FnOnce(GuestWish)) -> Result<bool, RingFault> {
        let Some(queue) = &mut self.from_guest else {
            return Ok(false);
        };
        let Some(mut chain) = queue.peek()? else {
            return Ok(false);
        };
        let mut bytes = [0; CONTROL_LEN];
        // A malformed chain has no bytes. What is behind the fixed part has no meaning.
        let whole = chain.read(&mut bytes);
        let taken = chain.consume(ChainVerdict::Drop);
        self.received += 1;
        let understood = if whole {
            understand(&mut self.outbox, ControlMessage::from_bytes(bytes))
        } else {
            None
        };
        match understood {
            Some(wish) => act(wish),
            None => self.ignored += 1,
        }
        taken.complete();
        Ok(true)
    }

    /// Places what is due into the buffers the guest has posted. Returns how many buffers it gave
    /// back, with a message or as too small for one.
    pub(crate) fn flush(&mut self) -> u32 {
        let mut used = 0;
        let Some(queue) = &mut self.to_guest else {
            return used;
        };
        // Each turn uses up a posted buffer. The messages are few, but buffers that are too small
        // may be many: no more turns than the ring has entries, plus one look for each re-arm.
        for _ in 0..=queue.size() {
            let Some(message) = self.outbox.first() else {
                break;
            };
            // A dead ring cannot be told anything; the view shows it.
            let Ok(posted) = queue.peek() else {
                break;
            };
            let Some(chain) = posted else {
                if queue.rearm().unwrap_or(false) {
                    continue;
                }
                break;
            };
            used += 1;
            let (fixed, name) = message.encode();
            if chain.remaining() < fixed.len() + name.len() {
                chain.consume(ChainVerdict::Drop).complete();
                continue;
            }
            let mut taken = chain.consume(ChainVerdict::Use);
            taken.write(&fixed);
            taken.write(name);
            taken.complete();
            self.outbox.mark_sent(message);
            self.placed += 1;
        }
        used
    }
}

/// Takes note of what the guest's message makes due. `None` if the message means nothing.
fn understand(outbox: &mut Outbox, message: ControlMessage) -> Option<GuestWish> {
    let ControlMessage { port, event, value } = message;
    match event {
        // A value of 0 says that the guest failed to set up the device or port: nothing to add.
        event::DEVICE_READY if value == 1 => {
            outbox.want(HostMessage::AddConsole);
            outbox.want(HostMessage::AddAgent);
        }
        event::PORT_READY if value == 1 && port == CONSOLE_PORT => {
            outbox.want(HostMessage::MarkConsole);
            outbox.want(HostMessage::OpenConsole);
        }
        event::PORT_READY if value == 1 && port == AGENT_PORT => {
            outbox.want(HostMessage::NameAgent);
            outbox.want(HostMessage::OpenAgent);
        }
        event::PORT_OPEN if port == AGENT_PORT => {
            return Some(match value {
                0 => GuestWish::CloseAgent,
                _ => GuestWish::OpenAgent,
            });
        }
        event::DEVICE_READY => {}
        event::PORT_READY | event::PORT_OPEN if port < MAX_PORTS => {}
        _ => return None,
    }
    Some(GuestWish::None)
}
