//! Which queue is which.

use forebay_virtio::{Direction, QueueSpec, Virtqueue};

/// A queue of the device. The numbers are the specification's (section 5.3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum QueueIndex {
    /// Console input. Its buffers stay posted.
    ConsoleToGuest = 0,
    /// Console output.
    ConsoleFromGuest = 1,
    /// Port life, towards the guest.
    ControlToGuest = 2,
    /// Port life, from the guest.
    ControlFromGuest = 3,
    /// The agent port, towards the guest. Its kick says that buffers were posted: an ioeventfd may
    /// take it to whoever calls [`Console::transmit`](crate::Console::transmit).
    AgentToGuest = 4,
    /// The agent port, from the guest. See [`Console::drain_from_guest`](crate::Console::drain_from_guest).
    AgentFromGuest = 5,
}

impl QueueIndex {
    /// All queues, in the order of their indexes.
    pub const ALL: [QueueIndex; 6] = [
        QueueIndex::ConsoleToGuest,
        QueueIndex::ConsoleFromGuest,
        QueueIndex::ControlToGuest,
        QueueIndex::ControlFromGuest,
        QueueIndex::AgentToGuest,
        QueueIndex::AgentFromGuest,
    ];

    /// The queue with this index.
    #[must_use]
    pub fn from_index(index: u16) -> Option<Self> {
        Self::ALL.get(usize::from(index)).copied()
    }

    /// Takes this queue out of those of an activation.
    pub(crate) fn take(self, queues: &mut [Option<Virtqueue>]) -> Option<Virtqueue> {
        queues
            .get_mut(usize::from(self.index()))
            .and_then(Option::take)
    }

    /// The queue's index, as a kick carries it.
    #[must_use]
    pub const fn index(self) -> u16 {
        self as u16
    }
}

/// What the driver is offered, by index.
///
/// A full ring delays by its bytes over the consumer's rate, but the host always consumes, so the
/// agent's rings only have to cover a wake-up. Towards the guest each entry is one 4 KiB buffer
/// and a larger ring means fewer wake-ups; from the guest an entry holds up to 32 KiB.
pub(crate) const SPECS: [QueueSpec; 6] = [
    spec(16, Direction::ToGuest),
    spec(16, Direction::FromGuest),
    spec(16, Direction::ToGuest),
    spec(16, Direction::FromGuest),
    spec(128, Direction::ToGuest),
    spec(AGENT_FROM_GUEST_SIZE, Direction::FromGuest),
];

/// Entries of queue 5.
pub(crate) const AGENT_FROM_GUEST_SIZE: u16 = 64;

const fn spec(max_size: u16, direction: Direction) -> QueueSpec {
    QueueSpec {
        max_size,
        direction,
    }
}

/// Longest chain the device works on, in bytes, either way. The driver makes chains of 32 KiB at most; a
/// splice makes one of the pipe it comes from, 1 MiB at most unless root raised the limit.
/// Descriptors may all name the same memory, so without a bound a chain could keep a thread
/// busy for 4 GiB.
pub(crate) const MAX_CHAIN_BYTES: usize = 2 << 20;

/// Most frames the device looks at in one chain. The agent's chains of 32 KiB hold 2048 headers
/// at most.
pub(crate) const MAX_CHAIN_FRAMES: usize = 4096;
