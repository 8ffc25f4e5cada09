//! Frame header and frame kinds.
//!
//! ```text
//!  0        4      5       6          8                16
//!  ┌────────┬──────┬───────┬──────────┬────────────────┬───────────────┐
//!  │ length │ kind │ flags │ reserved │ execution id   │ payload …     │
//!  │ u32 LE │ u8   │ u8    │ zero     │ u64 LE, or 0   │ length bytes  │
//!  └────────┴──────┴───────┴──────────┴────────────────┴───────────────┘
//! ```
//!
//! `length` counts the payload alone. A frame is at most [`FRAME_MAX`] bytes, header included.
//! Each direction has kinds of its own, so that an end cannot even name a frame of the other.

use crate::id::ExecId;

/// Bytes of a frame header.
pub const HEADER_LEN: usize = 16;

/// Largest frame in bytes, header included: one `write` to a virtio-console port makes one
/// descriptor of at most 32 KiB (Linux `drivers/char/virtio_console.c`).
pub const FRAME_MAX: usize = 32 * 1024;

/// What a chunk of output costs beside its bytes: it pays for the receiver's bookkeeping, so
/// that a flood of tiny chunks cannot hold more memory than the window says.
pub const CHUNK_CHARGE: u32 = 256;

/// Flag: last part of a request.
pub(crate) const LAST: u8 = 0x01;
/// Flag: a receiver that does not know the kind may skip the frame.
pub const OPTIONAL: u8 = 0x80;

/// One of a command's two output streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stream {
    /// File descriptor 1 of the command.
    Stdout,
    /// File descriptor 2 of the command.
    Stderr,
}

impl Stream {
    /// Both streams.
    pub const ALL: [Self; 2] = [Self::Stdout, Self::Stderr];
}

/// A decoded header. Decoding checks nothing; the ends judge it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Payload bytes that follow.
    pub len: u32,
    /// Frame kind; see the kinds of each direction.
    pub kind: u8,
    /// Flag bits.
    pub flags: u8,
    /// Zero on the wire of this generation.
    pub reserved: u16,
    /// Raw execution id, zero for frames of the connection itself.
    pub exec: u64,
}

impl Header {
    /// Reads a header.
    #[must_use]
    pub fn decode(bytes: &[u8; HEADER_LEN]) -> Self {
        let [
            l0,
            l1,
            l2,
            l3,
            kind,
            flags,
            r0,
            r1,
            e0,
            e1,
            e2,
            e3,
            e4,
            e5,
            e6,
            e7,
        ] = *bytes;
        Self {
            len: u32::from_le_bytes([l0, l1, l2, l3]),
            kind,
            flags,
            reserved: u16::from_le_bytes([r0, r1]),
            exec: u64::from_le_bytes([e0, e1, e2, e3, e4, e5, e6, e7]),
        }
    }

    /// Writes the header as it stands on the wire.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let [l0, l1, l2, l3] = self.len.to_le_bytes();
        let [r0, r1] = self.reserved.to_le_bytes();
        let [e0, e1, e2, e3, e4, e5, e6, e7] = self.exec.to_le_bytes();
        [
            l0, l1, l2, l3, self.kind, self.flags, r0, r1, e0, e1, e2, e3, e4, e5, e6, e7,
        ]
    }

    /// The execution that the frame names, `None` for zero.
    #[must_use]
    pub fn exec_id(&self) -> Option<ExecId> {
        ExecId::new(self.exec)
    }

    pub(crate) fn new(kind: u8, exec: Option<ExecId>, len: usize) -> Self {
        Self {
            // Callers build payloads of at most FRAME_MAX bytes; saturating keeps a mistake a
            // refused frame instead of a wrapped length.
            len: u32::try_from(len).unwrap_or(u32::MAX),
            kind,
            flags: 0,
            reserved: 0,
            exec: exec.map_or(0, ExecId::get),
        }
    }

    pub(crate) fn with_flags(mut self, flags: u8) -> Self {
        self.flags = flags;
        self
    }
}

macro_rules! kinds {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $value:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub enum $name { $($(#[$vdoc])* $variant = $value,)* }

        impl $name {
            /// The kind that stands on the wire as `value`, `None` if this end does not know it.
            #[must_use]
            pub const fn from_wire(value: u8) -> Option<Self> {
                match value { $($value => Some(Self::$variant),)* _ => None }
            }

            /// The kind as it stands on the wire.
            #[must_use]
            pub const fn to_wire(self) -> u8 {
                self as u8
            }
        }
    };
}

kinds! {
    /// Frames that the host sends.
    ToGuest {
        /// First frame of a connection: limits and defaults ([`crate::Bootstrap`]).
        Bootstrap = 0x01,
        /// Asks for a `Pong`; payload is a `u64`.
        Ping = 0x02,
        /// Ends the guest; payload is a reboot flag (`u8`) and a grace in ms (`u32`).
        PowerOff = 0x03,
        /// Asks a relay for a page of a look at its VM ([`crate::host::Inspection`]); payload is
        /// the id (`u64`) above which it begins. An agent does not know it: always optional.
        Inspect = 0x04,
        /// Asks the agent to freeze every execution ([`crate::Quiesce`]). To agents alone that
        /// announce [`crate::QUIESCE`].
        Quiesce = 0x05,
        /// Steps the guest's clock, may give it a new identity, and ends what `Quiesce` began
        /// ([`crate::Renew`]). To agents alone that announce [`crate::QUIESCE`].
        Renew = 0x06,
        /// A part of an encoded [`crate::Request`]; flag bit 0 marks the last.
        Request = 0x10,
        /// Stdin bytes.
        Stdin = 0x11,
        /// No more stdin; no payload.
        StdinEof = 0x12,
        /// A signal for the execution's process group; payload is its number (`u32`).
        Signal = 0x13,
        /// Kill everything in the execution; no payload.
        Kill = 0x14,
        /// Cumulative output units released; payload is a `u64`. To a relay two more follow: how many
        /// bytes of stdout and of stderr that are, counted from the execution's start.
        OutputAck = 0x15,
        /// The terminal's new size; payload is rows and columns (`u16` each).
        Resize = 0x16,
        /// Asks a relay to let the execution go on for whoever adopts it ([`crate::Leave`]). An
        /// agent does not know it.
        Leave = 0x17,
        /// Asks a relay for an execution of its VM that nobody holds, by its id there (`u64`); in
        /// the place of a request, with a new id of this connection. An agent does not know it.
        Adopt = 0x18,
    }
}

kinds! {
    /// Frames that the guest sends.
    FromGuest {
        /// Answer to the bootstrap ([`crate::Ready`]).
        Ready = 0x81,
        /// Answer to a ping; payload is its `u64`.
        Pong = 0x82,
        /// A relay's answer to `Inspect` ([`crate::host::Inspection`]).
        Inspection = 0x83,
        /// Answer to `Quiesce` ([`crate::Answer`]): everything is frozen, or nothing is.
        Quiesced = 0x84,
        /// Answer to `Renew` ([`crate::Answer`]): nothing is frozen any more, or all is as before.
        Renewed = 0x85,
        /// The program runs; payload is its pid in the guest (`u32`).
        Started = 0x90,
        /// Bytes of the command's stdout.
        Stdout = 0x91,
        /// Bytes of the command's stderr.
        Stderr = 0x92,
        /// Cumulative stdin bytes written into the command's stdin; payload is a `u64`.
        StdinAck = 0x93,
        /// The command no longer reads its stdin ([`crate::StdinError`]).
        StdinError = 0x94,
        /// The command ended ([`crate::ExitStatus`]); last frame of the execution.
        Exited = 0x95,
        /// The program never ran ([`crate::Failure`]); last frame of the execution.
        Failed = 0x96,
        /// A relay's answer to `Leave`: the execution's id in the VM (`u64`); last frame of the
        /// execution.
        Left = 0x97,
        /// A relay's answer to `Adopt` ([`crate::Adopted`]); first frame of the execution. `Started`
        /// follows if nobody was told of it yet.
        Adopted = 0x98,
        /// The command ended by a deadline that the relay's VM keeps ([`crate::TimedOut`]); last
        /// frame of the execution.
        TimedOut = 0x99,
    }
}

impl FromGuest {
    pub(crate) const fn output(stream: Stream) -> Self {
        match stream {
            Stream::Stdout => Self::Stdout,
            Stream::Stderr => Self::Stderr,
        }
    }
}
