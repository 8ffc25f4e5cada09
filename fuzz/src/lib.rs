//! What the fuzz targets share: frames as a hostile guest would write them, and what must hold of
//! the host's end whatever it was given.
//!
//! Run them with `cargo xtask fuzz`. An input is a recipe that [`arbitrary::Unstructured`] reads
//! from front to back, so that a saved input replays exactly and a mutation changes one step.

use arbitrary::{Result, Unstructured};
use forebay_exec_proto::host::{self, Verdict, View};
use forebay_exec_proto::model::Op;
use forebay_exec_proto::{CHUNK_CHARGE, FRAME_MAX, HEADER_LEN, Header, Limits};

mod commands;

pub use commands::Commands;

/// Kinds that a host, or a client, sends.
pub const KINDS_TO_GUEST: [u8; 15] = [
    0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18,
];

/// Kinds that a guest, or a relay, sends.
pub const KINDS_FROM_GUEST: [u8; 15] = [
    0x81, 0x82, 0x83, 0x84, 0x85, 0x90, 0x91, 0x92, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99,
];

/// Most executions that a frame names; the first is 1.
const IDS: u64 = 8;

/// Small limits, so that every bound is near.
///
/// # Errors
/// None in practice: an input that is used up gives the smallest values.
pub fn limits(u: &mut Unstructured<'_>) -> Result<Limits> {
    let stdin_chunk_size = u.int_in_range(1..=100)?;
    let output_chunk_size = u.int_in_range(1..=300)?;
    Ok(Limits {
        max_executions: u.int_in_range(1..=5)?,
        input_limit: stdin_chunk_size + u.int_in_range(0..=300)?,
        output_limit: output_chunk_size + CHUNK_CHARGE + u.int_in_range(0..=3000)?,
        stdin_chunk_size,
        output_chunk_size,
    })
}

/// The next frames of an honest host's or client's end, perhaps with one byte changed, and whether one
/// was.
///
/// # Errors
/// The input ends within it.
pub fn perhaps_spoilt(u: &mut Unstructured<'_>, conn: &mut host::Conn) -> Result<(Vec<u8>, bool)> {
    let mut bytes = Vec::new();
    for _ in 0..u.int_in_range(1..=4u8)? {
        if let Some(frame) = conn.poll_transmit() {
            bytes.extend(frame.head);
            bytes.extend(frame.body);
        }
    }
    let mut spoilt = false;
    if u.ratio(1, 8)? && !bytes.is_empty() {
        let at = u.choose_index(bytes.len())?;
        let by: u8 = u.arbitrary()?;
        bytes[at] ^= by;
        spoilt = by != 0;
    }
    Ok((bytes, spoilt))
}

/// One step of the model.
///
/// # Errors
/// The input ends within it.
pub fn op(u: &mut Unstructured<'_>) -> Result<Op> {
    let op = u.int_in_range(0..=32u8)?;
    let exec = u.int_in_range(0..=5usize)?;
    let stream = u.arbitrary()?;
    let n = u.int_in_range(1..=2000usize)?;
    Ok(match op {
        0 => Op::Start {
            piped: stream,
            size: if exec == 0 { n * 30 } else { 0 },
        },
        1 => Op::Write { exec, n },
        2 => Op::CancelWrite { exec },
        3 => Op::Close { exec },
        4 => Op::Signal { exec },
        5 => Op::Kill { exec },
        6 => Op::Take { exec, stream },
        7 => Op::Read { exec, stream, n },
        8 => Op::Discard { exec, stream },
        9 => Op::Forget { exec },
        10 => Op::Produce { exec, stream, n },
        11 => Op::Eat { exec, n },
        12 => Op::Exit { exec },
        13 => Op::HostSends { frames: exec },
        14 => Op::GuestReceives { n },
        15 => Op::GuestWrites {
            size: FRAME_MAX / 3 + n * 10,
        },
        16 => Op::HostReceives { frames: exec },
        17 => Op::StartWithBytes { n },
        18 => Op::FailNextStart,
        19 => Op::BreakStdin { exec },
        20 => Op::Ping,
        21 => Op::StartWithin { ms: n * exec },
        22 => Op::Pass { ms: n * 4 },
        23 => Op::Quiesce,
        24 => Op::Freeze { done: stream },
        25 => Op::Renew { dull: stream },
        26 => Op::Thaw,
        27 => Op::PassOn { exec, stream },
        28 => Op::Consume { exec, stream, n },
        29 => Op::Leave { exec },
        30 => Op::TakeUp { exec },
        31 => Op::ConsumeTooMuch { exec, stream, n },
        _ => Op::Restore,
    })
}

/// A frame: its length is mostly right, its payload often makes sense.
///
/// # Errors
/// None in practice, as above.
pub fn frame(u: &mut Unstructured<'_>, kinds: &[u8]) -> Result<Vec<u8>> {
    let kind = if u.ratio(9, 10)? {
        *u.choose(kinds)?
    } else {
        u.arbitrary()?
    };
    let payload = payload(u)?;
    let mut header = Header {
        len: u32::try_from(payload.len()).unwrap_or(u32::MAX),
        kind,
        flags: *u.choose(&[0, 0, 0, 1, 0x80, 0xff])?,
        reserved: 0,
        exec: u.int_in_range(0..=IDS)?,
    };
    match u.int_in_range(0..=31u8)? {
        31 => header.len = u.arbitrary()?,
        30 => header.len = header.len.wrapping_add(1),
        29 => header.len = header.len.wrapping_sub(1),
        28 => header.reserved = u.arbitrary()?,
        27 => header.exec = u.arbitrary()?,
        _ => {}
    }
    let mut frame = header.encode().to_vec();
    frame.extend(payload);
    Ok(frame)
}

/// Bodies that some kind of frame can have.
fn payload(u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    /// An exit with a code, one by a signal, a failure, a stdin error, answers to the first
    /// question, a quiesce, a renewal, a leave with and without a deadline, an adoption, an end by a
    /// deadline.
    const BODIES: [&[u8]; 12] = [
        b"\xa2\x00\x03\x02\x05",
        b"\xa2\x01\x09\x02\x05",
        b"\xa3\x00\x01\x02\x61s\x03\x61m",
        b"\xa3\x00\x18\x20\x01\x61n\x02\x61m",
        b"\xa1\x00\x01",
        b"\xa2\x00\x01\x01\x61e",
        b"\xa2\x00\x01\x01\x05",
        b"\xa2\x00\x02\x01\x05",
        b"\xa0",
        b"\xa1\x00\xa3\x00\x82\x05\x00\x01\x82\x01\x00\x02\x82\x05\x00",
        b"\xa6\x00\x07\x01\xf4\x02\xf5\x04\x05\x05\x06\x06\x00",
        b"\xa2\x00\x82\x05\x00\x01\xa2\x01\x09\x02\x05",
    ];
    Ok(match u.int_in_range(0..=7u8)? {
        0 => Vec::new(),
        1 => u.arbitrary::<u32>()?.to_le_bytes().to_vec(),
        2 => u64::from(u.arbitrary::<u16>()?).to_le_bytes().to_vec(),
        3 => u.arbitrary::<u64>()?.to_le_bytes().to_vec(),
        4 => u.choose(&BODIES)?.to_vec(),
        // What a client acknowledges.
        5 => {
            let totals = [(); 3].map(|()| u.int_in_range(0..=2000u64));
            let mut body = Vec::new();
            for total in totals {
                body.extend(total?.to_le_bytes());
            }
            body
        }
        6 => vec![u.arbitrary()?; u.int_in_range(0..=FRAME_MAX)?],
        _ => {
            let len = u.int_in_range(0..=64)?;
            u.bytes(len.min(u.len()))?.to_vec()
        }
    })
}

/// One change to bytes that are not none, at one place.
///
/// # Errors
/// The input ends within it.
pub fn change(u: &mut Unstructured<'_>, bytes: &mut Vec<u8>) -> Result<()> {
    let at = u.choose_index(bytes.len())?;
    match u.int_in_range(0..=3u8)? {
        0 => bytes[at] = bytes[at].wrapping_add_signed(u.int_in_range(-2..=2)?),
        1 => bytes[at] = u.arbitrary()?,
        2 => bytes.insert(at, u.arbitrary()?),
        _ => drop(bytes.remove(at)),
    }
    Ok(())
}

/// What takes a guest's frames: a connection, or the hub around one.
pub trait HostEnd {
    /// Judges a frame by its header.
    fn judge(&mut self, head: &[u8; HEADER_LEN], rest: usize) -> Verdict;
    /// Takes the payload of the frame that was accepted last.
    ///
    /// # Errors
    /// The connection cannot go on.
    fn take(&mut self, payload: Vec<u8>) -> std::result::Result<(), &'static str>;
}

impl HostEnd for host::Conn {
    fn judge(&mut self, head: &[u8; HEADER_LEN], rest: usize) -> Verdict {
        host::Conn::judge(self, head, rest)
    }

    fn take(&mut self, payload: Vec<u8>) -> std::result::Result<(), &'static str> {
        self.deliver(payload)
    }
}

impl HostEnd for &forebay_exec::Hub {
    fn judge(&mut self, head: &[u8; HEADER_LEN], rest: usize) -> Verdict {
        forebay_exec::Hub::judge(self, head, rest)
    }

    fn take(&mut self, payload: Vec<u8>) -> std::result::Result<(), &'static str> {
        self.deliver(payload)
    }
}

/// Hands one chain to the host's end as the device does, and checks each verdict. Gives the
/// reason if the connection has to end.
pub fn deliver(host: &mut impl HostEnd, mut chain: &[u8]) -> Option<&'static str> {
    while let Some((head, rest)) = chain.split_first_chunk::<HEADER_LEN>() {
        let skip = match host.judge(head, rest.len()) {
            Verdict::Accept(n) => {
                assert!(n <= rest.len(), "accepted more than the chain holds");
                if let Err(reason) = host.take(rest[..n].to_vec()) {
                    return Some(reason);
                }
                n
            }
            Verdict::Discard(n) => n,
            Verdict::Close(reason) => return Some(reason),
        };
        assert!(
            skip <= rest.len(),
            "a verdict over more than the chain holds"
        );
        chain = &rest[skip..];
    }
    (!chain.is_empty()).then_some("a chain ends within a header")
}

/// What must hold of the host's end at any time, with `handles` executions that the application
/// has not let go of.
pub fn check_host(host: &host::Conn, handles: usize) {
    check_view(&host.inspect(), host.limits(), handles);
}

/// The same of what is seen of it.
pub fn check_view(view: &View, limits: &Limits, handles: usize) {
    let admitted = view.executions.iter().filter(|e| e.admitted).count();
    assert_eq!(admitted, view.active as usize, "the count is off: {view:?}");
    assert!(view.active <= limits.max_executions, "{view:?}");
    assert!(
        view.executions.len() <= handles + admitted,
        "entries stay behind: {view:?}"
    );
    for exec in &view.executions {
        let output = u64::from(limits.output_limit);
        let held = exec.output_held as u64
            + exec.chunks_held as u64 * u64::from(CHUNK_CHARGE)
            + exec.output_forwarded;
        assert!(held <= output, "holds too much: {exec:?}");
        assert!(
            exec.output_received - exec.output_released <= output,
            "{exec:?}"
        );
        let stdin = exec.stdin_sent - exec.stdin_acked;
        assert!(stdin <= u64::from(limits.input_limit), "{exec:?}");
    }
}
