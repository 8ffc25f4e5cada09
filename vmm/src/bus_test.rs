use super::*;
use crate::agent::NoAgent;
use crate::deadline::Deadlines;
use crate::stop::{Lifecycle, StopReason, eventfd};
use forebay_virtio::{Doorbell, Interrupt};
use forebay_virtio_console::Console;
use vm_memory::{GuestAddress, GuestMemoryMmap};

struct Nothing;

impl Interrupt for Nothing {
    fn signal_queue(&self) {}
}

impl Doorbell for Nothing {
    fn ring(&self) {}
}

struct Board {
    bus: Bus,
    log: Arc<ConsoleLog>,
    lifecycle: Arc<Lifecycle>,
    interrupt: EventFd,
}

fn board() -> Board {
    let log = ConsoleLog::new(4096);
    let lifecycle = Arc::new(Lifecycle::new(eventfd().unwrap()));
    let deadlines = Arc::new(Deadlines::new().unwrap());
    let power = Power::new(Arc::clone(&lifecycle), deadlines, Arc::clone(&log));
    let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 1 << 20)]).unwrap();
    let console = Console::new(
        Arc::new(NoAgent),
        Arc::clone(&log) as _,
        Arc::new(Nothing),
        Arc::new(Nothing),
    );
    let transport = MmioTransport::new(memory, console, Arc::new(Nothing));
    let interrupt = eventfd().unwrap();
    let line = SerialInterrupt(interrupt.try_clone().unwrap());
    Board {
        bus: Bus::new(
            line,
            &SerialState::default(),
            Arc::clone(&log),
            power,
            transport,
        )
        .unwrap(),
        log,
        lifecycle,
        interrupt,
    }
}

#[test]
fn the_serial_port_writes_into_the_log_also_by_string_instruction() {
    let board = board();
    board.bus.write_port(0x3f8, b"e");
    board.bus.write_port(0x3f8, b"arly\n");
    assert_eq!(board.log.text(), "early\n");
    let mut status = [0];
    board.bus.read_port(0x3fd, &mut status);
    assert_eq!(status[0] & 0x20, 0x20, "ready for the next byte");
}

#[test]
fn the_serial_port_interrupts_only_when_asked_to() {
    let board = board();
    board.bus.write_port(0x3f8, b"x");
    assert!(board.interrupt.read().is_err());
    board.bus.write_port(0x3f9, &[0x02]);
    board.bus.write_port(0x3f8, b"x");
    assert!(board.interrupt.read().is_ok());
}

#[test]
fn the_console_device_answers_at_its_address_and_only_there() {
    let board = board();
    let mut word = [0; 4];
    board.bus.read_memory(VIRTIO_MMIO, &mut word);
    assert_eq!(&word, b"virt");
    board.bus.read_memory(VIRTIO_MMIO + 8, &mut word);
    assert_eq!(u32::from_le_bytes(word), 3, "a console");
    for address in [VIRTIO_MMIO - 4, VIRTIO_MMIO + VIRTIO_MMIO_LEN, 0, u64::MAX] {
        board.bus.read_memory(address, &mut word);
        assert_eq!(word, [NOTHING; 4], "{address:#x}");
        board.bus.write_memory(address, &word);
    }
}

#[test]
fn power_registers_are_reached_and_the_rest_reads_as_ones() {
    let board = board();
    let mut bytes = [0; 2];
    board.bus.read_port(0x80, &mut bytes);
    assert_eq!(bytes, [NOTHING; 2]);
    board.bus.write_port(0x80, &[1, 2]);
    board.bus.read_port(0x505, &mut bytes);
    assert_eq!(bytes, [1, 1]);
    board.bus.write_port(0x600, &[0x34]);
    assert_eq!(board.lifecycle.reason(), Some(StopReason::PowerOff));
}
