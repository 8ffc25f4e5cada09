use super::*;
use crate::stop::eventfd;

struct Registers {
    power: Power,
    lifecycle: Arc<Lifecycle>,
    deadlines: Arc<Deadlines>,
    console: Arc<ConsoleLog>,
}

impl Registers {
    fn new() -> Self {
        let lifecycle = Arc::new(Lifecycle::new(eventfd().unwrap()));
        let deadlines = Arc::new(Deadlines::new().unwrap());
        let console = ConsoleLog::new(4096);
        Self {
            power: Power::new(
                Arc::clone(&lifecycle),
                Arc::clone(&deadlines),
                Arc::clone(&console),
            ),
            lifecycle,
            deadlines,
            console,
        }
    }

    fn after(writes: &[(u16, u8)]) -> Option<StopReason> {
        let it = Self::new();
        for (port, value) in writes {
            assert!(it.power.write(*port, *value), "port {port:#x}");
        }
        it.lifecycle.reason()
    }
}

#[test]
fn power_off_is_the_sleep_register_with_type_five_and_enable() {
    assert_eq!(
        Registers::after(&[(0x601, 0x80), (0x600, 0x34)]),
        Some(StopReason::PowerOff)
    );
    assert_eq!(Registers::after(&[(0x600, 0x14)]), None, "without enable");
    assert_eq!(Registers::after(&[(0x600, 0x24)]), None, "another state");
}

#[test]
fn both_ways_of_reset_are_a_reboot_unless_a_panic_came_first() {
    assert_eq!(Registers::after(&[(0x602, 1)]), Some(StopReason::Reboot));
    assert_eq!(Registers::after(&[(0x64, 0xfe)]), Some(StopReason::Reboot));
    assert_eq!(Registers::after(&[(0x602, 0), (0x64, 0xd1)]), None);
    assert_eq!(
        Registers::after(&[(0x505, 1), (0x602, 1)]),
        Some(StopReason::Panic { message: None })
    );
}

#[test]
fn a_panic_alone_waits_for_the_reset_but_not_for_ever() {
    let it = Registers::new();
    it.power.write(0x505, 1);
    assert_eq!(it.lifecycle.reason(), None);
    assert_eq!(it.deadlines.take_due().unwrap(), [], "not yet due");
    std::thread::sleep(PANIC_GRACE);
    assert_eq!(it.deadlines.take_due().unwrap(), [Deadline::Panic]);
}

#[test]
fn the_reason_quotes_the_console() {
    let it = Registers::new();
    it.console.append(
        b"x\r\nKernel panic - not syncing: sysrq triggered crash\r\nCPU: 0\r\n---[ end Kernel panic - not syncing: sysrq triggered crash ]---\r\n",
    );
    it.power.write(0x505, 1);
    it.power.write(0x602, 1);
    assert_eq!(
        it.lifecycle.reason(),
        Some(StopReason::Panic {
            message: Some("sysrq triggered crash".into())
        })
    );
}

#[test]
fn a_panic_without_end_is_cut() {
    let it = Registers::new();
    let text = format!("{PANIC_TEXT}{}\n", "x".repeat(4000));
    it.console.append(text.as_bytes());
    it.power.write(0x505, 1);
    it.power.write(0x602, 1);
    let Some(StopReason::Panic {
        message: Some(message),
    }) = it.lifecycle.reason()
    else {
        panic!("no message");
    };
    assert!(message.len() < 1000, "{} bytes", message.len());
}

#[test]
fn other_ports_are_somebody_elses() {
    let it = Registers::new();
    assert!(!it.power.write(0x3f8, 1));
    assert_eq!(it.power.read(0x3f8), None);
    assert_eq!(it.power.read(0x505), Some(1));
    assert_eq!(it.power.read(0x64), Some(0));
}
