//! Guests of a few instructions, for tests that need a vCPU and no Linux.
//!
//! They run wherever there is a `/dev/kvm`, also one that only emulates.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use vm_memory::MmapRegion;

use crate::agent::AgentSide;
use crate::builder::VmBuilder;
use crate::console_log::Tap;
use crate::machine::Machine;
use crate::probe::Probing;

/// Where [`elf`] is entered.
pub(crate) const ENTRY: u32 = 0x10_0040;
/// Where kernels are loaded in tests.
pub(crate) const LOAD_AT: u64 = 0x10_0000;

/// A minimal ELF kernel: one segment with `content`, and a PVH note if `note`.
pub(crate) fn elf(content: &[u8], load_at: u64, note: bool) -> Vec<u8> {
    let note_bytes = if note {
        let mut bytes = Vec::new();
        for word in [4u32, 4, 18] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(b"Xen\0");
        bytes.extend(ENTRY.to_le_bytes());
        bytes
    } else {
        Vec::new()
    };
    let content_at = 64 + 2 * 56u64;
    let note_at = content_at + content.len() as u64;
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    file.extend(2u16.to_le_bytes());
    file.extend(62u16.to_le_bytes());
    file.extend(1u32.to_le_bytes());
    file.extend(load_at.to_le_bytes()); // entry
    file.extend(64u64.to_le_bytes()); // program headers
    file.extend(0u64.to_le_bytes());
    file.extend(0u32.to_le_bytes());
    for field in [64u16, 56, 2, 0, 0, 0] {
        file.extend(field.to_le_bytes());
    }
    for (kind, offset, address, len, in_memory) in [
        (1u32, content_at, load_at, content.len() as u64, 0x2000),
        (4, note_at, 0, note_bytes.len() as u64, 0),
    ] {
        file.extend(kind.to_le_bytes());
        file.extend(5u32.to_le_bytes());
        for field in [offset, address, address, len, in_memory, 0] {
            file.extend(u64::to_le_bytes(field));
        }
    }
    file.extend(content);
    file.extend(note_bytes);
    file
}

/// 32-bit code that writes `value` to `port`.
pub(crate) fn out(port: u16, value: u8) -> Vec<u8> {
    let [low, high] = port.to_le_bytes();
    // mov al, value; mov dx, port; out dx, al
    vec![0xb0, value, 0x66, 0xba, low, high, 0xee]
}

/// Code that prints to the serial port.
pub(crate) fn print(text: &str) -> Vec<u8> {
    text.bytes().flat_map(|byte| out(0x3f8, byte)).collect()
}

/// Code that writes the numbers from 0 on, modulo 256, to the serial port for ever.
pub(crate) const COUNT: [u8; 12] = [
    0xba, 0xf8, 0x03, 0, 0, // mov edx, 0x3f8
    0x31, 0xc0, // xor eax, eax
    0xee, // again: out dx, al
    0xfe, 0xc0, // inc al
    0xeb, 0xfb, // jmp again
];
/// Code that never ends and never leaves the guest.
pub(crate) const SPIN: [u8; 2] = [0xeb, 0xfe];
/// Code that halts for good: cli; hlt; and again.
pub(crate) const HALT: [u8; 4] = [0xfa, 0xf4, 0xeb, 0xfd];
/// An exception without a handler for it or for what follows from it: int3.
pub(crate) const CRASH: [u8; 1] = [0xcc];

/// A kernel that consists of `code`, in a file.
pub(crate) fn kernel(code: &[&[u8]]) -> (TempDir, VmBuilder) {
    let entry = (u64::from(ENTRY) - LOAD_AT) as usize;
    let mut content = vec![0; entry];
    content.extend(code.concat());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vmlinux");
    std::fs::write(&path, elf(&content, LOAD_AT, true)).unwrap();
    (dir, VmBuilder::default().kernel(path).memory_mib(64))
}

/// Starts what was built. `None`, with a note, where there is no KVM to run it on.
pub(crate) fn start(mut builder: VmBuilder, agent: Arc<dyn AgentSide>) -> Option<Machine> {
    if let Err(error) = crate::kvm::open() {
        eprintln!("skipped: {error}");
        return None;
    }
    let spec = builder.spec().unwrap();
    Some(Machine::start_probed(spec, agent, Probing::not_needed()).unwrap())
}

/// Runs `code` as a kernel, as [`start`] does.
pub(crate) fn run(code: &[&[u8]], agent: Arc<dyn AgentSide>) -> Option<Machine> {
    let (_dir, builder) = kernel(code);
    start(builder, agent)
}

/// Listens to [`COUNT`] from the number `first` on, and says how far it has come. A number that is not
/// the one after the last ends the guest with a panic.
pub(crate) fn numbers_from(first: u64) -> (Tap, Arc<AtomicU64>) {
    let counted = Arc::new(AtomicU64::new(first));
    let tap = {
        let counted = Arc::clone(&counted);
        move |bytes: &[u8]| {
            for byte in bytes {
                let expected = counted.fetch_add(1, Ordering::SeqCst);
                assert_eq!(u64::from(*byte), expected % 256, "after {expected} numbers");
            }
        }
    };
    (Box::new(tap), counted)
}

/// Waits until the guest has counted to `goal`.
pub(crate) fn reaches(counted: &AtomicU64, goal: u64, machine: &Machine) {
    let limit = Instant::now() + Duration::from_secs(60);
    while counted.load(Ordering::SeqCst) < goal {
        assert_eq!(machine.stopped(), None);
        assert!(Instant::now() < limit, "the guest does not go on");
        std::thread::yield_now();
    }
}

/// Set in the process that runs a test alone.
const ALONE: &str = "FOREBAY_TEST_ALONE";

/// Runs the test `name` in a process of its own, unless this is that process already.
pub(crate) fn alone(name: &str, body: impl FnOnce()) {
    if let Some(out) = alone_to_its_end(name, body) {
        assert!(
            out.status.success() && String::from_utf8_lossy(&out.stdout).contains("1 passed"),
            "{out:?}"
        );
    }
}

/// The same, for one that may not end well. `None` in that process.
pub(crate) fn alone_to_its_end(name: &str, body: impl FnOnce()) -> Option<std::process::Output> {
    if std::env::var_os(ALONE).is_some() {
        body();
        return None;
    }
    let out = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(ALONE, "1")
        .output();
    Some(out.unwrap())
}

/// A disk of 64 KiB that this process alone sees; `None` where that is not allowed.
#[allow(unsafe_code)] // unshare
pub(crate) fn small_disk() -> Option<TempDir> {
    use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
    use rustix::thread::UnshareFlags;
    let directory = tempfile::tempdir().unwrap();
    // SAFETY: this thread alone sees other mounts; the others have no part in the test.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }.ok()?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).ok()?;
    let size = c"size=64k";
    mount(
        "tmpfs",
        directory.path(),
        "tmpfs",
        MountFlags::empty(),
        size,
    )
    .ok()?;
    Some(directory)
}

/// All mappings that the host kernel lets this process have: to be used in one that is alone. Each
/// that is dropped is one that can be had again. `None`, with a note, where it allows too many.
pub(crate) fn take_mappings() -> Option<Vec<MmapRegion>> {
    /// Distributions allow 65530, or a million.
    const MOST: usize = 1 << 21;
    // Neighbours that differ, or the kernel makes one of them.
    let map = |n: usize| {
        let protection = [libc::PROT_NONE, libc::PROT_READ][n % 2];
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        MmapRegion::build(None, 4096, protection, flags).ok()
    };
    let mut taken = Vec::with_capacity(MOST);
    taken.extend((0..MOST).map_while(map));
    if taken.len() == MOST {
        eprintln!("vm.max_map_count is too high to be reached: not tested");
        return None;
    }
    Some(taken)
}

/// Random numbers that can be had again.
pub(crate) struct Random(u64);

impl Random {
    /// Seeded from `FOREBAY_SEED`, else by this process. Prints the seed, so that a failure's output
    /// says how to repeat it.
    pub(crate) fn announced() -> Self {
        let seed = match std::env::var("FOREBAY_SEED") {
            Ok(seed) => seed.parse().expect("FOREBAY_SEED is no number"),
            Err(_) => u64::from(std::process::id()),
        };
        println!("FOREBAY_SEED={seed} repeats it");
        Self(seed)
    }

    /// A number below `bound`, which is not zero.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) as usize % bound
    }

    /// The same bytes, but for one that is different, missing or too much.
    pub(crate) fn change(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut changed = bytes.to_vec();
        let at = self.below(bytes.len());
        match self.below(8) {
            0 => drop(changed.remove(at)),
            1 => changed.insert(at, self.below(256) as u8),
            2 => changed[at] ^= 1 << self.below(8),
            _ => changed[at] = changed[at].wrapping_add(1 + self.below(255) as u8),
        }
        changed
    }
}
