//! A snapshot's state file, changed anywhere under a right checksum, against all that reads it before
//! KVM or the guest's memory has a part in it; and files of any bytes.
//!
//! What was not changed is accepted. The executions and the console device's registers are changed
//! deeper, and what is taken for them goes on, in `saved_state` and `chains`.
#![no_main]

use std::sync::Arc;

use arbitrary::{Result, Unstructured};
use forebay::test_support::judge_state;
use forebay_exec_proto::Limits;
use forebay_exec_proto::host::SaveError;
use forebay_exec_proto::model::World;
use forebay_fuzz::{change, op};
use forebay_virtio::MmioTransport;
use forebay_virtio::mock::{self, Bell};
use forebay_virtio_console::{Closed, Console, ConsoleSink, Gate, HEADER_LEN, Outgoing, Verdict};
use minicbor::Encoder;
use sha2::{Digest as _, Sha256};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut u = Unstructured::new(data);
    if u.ratio(1, 16).unwrap_or(false) {
        let _ = judge_state(u.take_rest());
        return;
    }
    // An input that ends within a step is shorter by that one.
    let _ = run(&mut u);
});

/// Changes to one state at most.
const CHANGES: u8 = 12;

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let Some(mut records) = records(u)? else {
        return Ok(());
    };
    let mut header = Header::default();
    let changes = u.int_in_range(0..=CHANGES)?;
    for _ in 0..changes {
        match u.int_in_range(0..=15u8)? {
            0 => change_list(u, &mut records)?,
            1 => header.change(u)?,
            _ => {
                let at = u.choose_index(records.len())?;
                let bytes = &mut records[at].bytes;
                if !bytes.is_empty() {
                    change(u, bytes)?;
                }
            }
        }
    }
    match judge_state(&header.before(&records)) {
        Err(error) if changes == 0 => panic!("refused as it was written: {error}"),
        _ => Ok(()),
    }
}

struct Record {
    name: &'static [u8],
    version: u32,
    bytes: Vec<u8>,
}

/// Those of a VM of one vCPU that had got so far; `None` in a moment in which none is saved.
fn records(u: &mut Unstructured<'_>) -> Result<Option<Vec<Record>>> {
    let mut world = World::new(Limits::default());
    for _ in 0..u.int_in_range(0..=10u8)? {
        world.apply(&op(u)?);
    }
    let exec = match world.host().save() {
        Err(SaveError::Quiescing) => return Ok(None),
        saved => saved.expect("both ends are honest").encode(),
    };
    let console = Console::new(
        Arc::new(Nobody),
        Arc::new(Nobody),
        Arc::new(Bell::default()),
        Arc::new(Bell::default()),
    );
    let bell = Arc::new(Bell::default());
    let transport = MmioTransport::new(mock::memory(), console.clone(), bell);
    let record = |name, bytes| Record {
        name,
        version: 1,
        bytes,
    };
    Ok(Some(vec![
        record(b"kvm", kvm()),
        record(b"exec", exec),
        record(
            b"platform",
            cbor(|to| to.array(3)?.bytes(&[0; 9])?.bytes(b"fifo")?.bool(true)),
        ),
        record(
            b"snapshot",
            cbor(|to| to.array(2)?.bytes(&[7; 16])?.u64(1 << 30)),
        ),
        record(b"vm", forebay::test_support::origin_record()),
        record(b"transport", transport.save().encode()),
        record(b"console", console.hold().save().encode()),
    ]))
}

/// KVM's structs, all zeros but for what tells the interrupt controllers apart.
fn kvm() -> Vec<u8> {
    /// Bytes of `kvm_regs`, `kvm_sregs`, `kvm_xsave`, `kvm_xcrs`, `kvm_debugregs`, `kvm_lapic_state`.
    const REGISTERS: [usize; 6] = [144, 312, 4096, 392, 128, 1024];
    /// Two of `kvm_cpuid_entry2`, three of `kvm_msr_entry`, `kvm_vcpu_events`.
    const LISTS: [usize; 3] = [2 * 40, 3 * 16, 64];
    const CHIP: usize = 520;
    let mut chips = vec![0; 3 * CHIP];
    for (id, chip) in (0..).zip(chips.chunks_mut(CHIP)) {
        chip[0] = id;
    }
    cbor(|to| {
        to.array(3)?.array(1)?.array(11)?.u32(0)?;
        for len in REGISTERS {
            to.bytes(&vec![0; len])?;
        }
        to.null()?;
        for len in LISTS {
            to.bytes(&vec![0; len])?;
        }
        to.bytes(&chips)?.u64(1)
    })
}

type Encoding<'a> = std::result::Result<
    &'a mut Encoder<Vec<u8>>,
    minicbor::encode::Error<std::convert::Infallible>,
>;

fn cbor(write: impl FnOnce(&mut Encoder<Vec<u8>>) -> Encoding<'_>) -> Vec<u8> {
    let mut to = Encoder::new(Vec::new());
    write(&mut to).expect("a vector takes everything");
    to.into_writer()
}

/// One change to which records there are.
fn change_list(u: &mut Unstructured<'_>, records: &mut Vec<Record>) -> Result<()> {
    let at = u.choose_index(records.len())?;
    match u.int_in_range(0..=4u8)? {
        0 if records.len() > 1 => drop(records.remove(at)),
        0 | 1 => {
            let bytes = records[at].bytes.clone();
            let Record { name, version, .. } = records[at];
            records.push(Record {
                name,
                version,
                bytes,
            });
        }
        2 => records[at].name = b"\0unknown\xff",
        3 => records[at].version = u.arbitrary()?,
        _ => {
            let to = u.choose_index(records.len())?;
            records.swap(at, to);
        }
    }
    Ok(())
}

/// What the header says, where it is not what it should be.
#[derive(Default)]
struct Header {
    count: Option<u32>,
    len: Option<u64>,
    other: Option<(usize, u8)>,
}

impl Header {
    /// Where the checksum begins, and with it what it is not of.
    const SUMMED: usize = 64;

    fn change(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        match u.int_in_range(0..=2u8)? {
            0 => self.count = Some(u.arbitrary()?),
            1 => self.len = Some(u.arbitrary()?),
            _ => self.other = Some((u.choose_index(Self::SUMMED)?, u.arbitrary()?)),
        }
        Ok(())
    }

    /// A file with a right checksum.
    fn before(&self, records: &[Record]) -> Vec<u8> {
        let mut body = Vec::new();
        for Record {
            name,
            version,
            bytes,
        } in records
        {
            let mut letters = [0; 12];
            letters[..name.len()].copy_from_slice(name);
            body.extend(letters);
            body.extend(version.to_le_bytes());
            body.extend((bytes.len() as u64).to_le_bytes());
            body.extend(bytes);
        }
        let count = u32::try_from(records.len()).expect("a few");
        let mut file = b"\x89FOREBAY\x01\0\0\0".to_vec();
        file.extend(self.count.unwrap_or(count).to_le_bytes());
        file.extend(b"x86_64\0\0AuthenticAMD");
        file.extend(0x00a1_0f11u32.to_le_bytes());
        file.extend((256u64 << 20).to_le_bytes());
        file.extend(1u32.to_le_bytes());
        file.extend(0u32.to_le_bytes());
        file.extend(self.len.unwrap_or(body.len() as u64).to_le_bytes());
        if let Some((at, byte)) = self.other {
            file[at] = byte;
        }
        let sum = Sha256::new().chain_update(&file).chain_update(&body);
        file.extend(sum.finalize());
        file.extend(body);
        file
    }
}

/// Stands behind a device that nobody drives.
struct Nobody;

impl Gate for Nobody {
    fn judge(&self, _head: &[u8; HEADER_LEN], rest: usize) -> Verdict {
        Verdict::Discard(rest)
    }

    fn deliver(&self, _payload: Vec<u8>) -> std::result::Result<(), &'static str> {
        Ok(())
    }

    fn next_to_guest(&self) -> Option<Outgoing> {
        None
    }

    fn opened(&self) {}

    fn closed(&self, _why: Closed) {}
}

impl ConsoleSink for Nobody {
    fn write(&self, _bytes: &[u8]) {}
}
