//! The guest's physical address map: every fixed address and interrupt line in one table.
//!
//! | from | to | what |
//! |---|---|---|
//! | `0x0000_0000` | `0x0009_fc00` | RAM; what the kernel is told at its start lies here |
//! | `0x0009_fc00` | `0x0010_0000` | RAM behind the guest's back: ACPI tables, generation id |
//! | `0x0010_0000` | `0xc000_0000` | RAM: kernel at the bottom, initramfs at the top |
//! | `0xc000_0000` | `0x1_0000_0000` | hole: virtio-mmio, I/O APIC, local APIC, KVM's own pages |
//! | `0x1_0000_0000` | | RAM beyond 3 GiB |
//!
//! It owns numbers only; [`crate::memory`] maps them and [`crate::boot`] fills them.

/// Start of conventional memory that the BIOS of a PC would keep for itself.
pub(crate) const RESERVED_START: u64 = 0x9_fc00;
/// First byte above the legacy megabyte.
pub(crate) const HIGH_MEMORY_START: u64 = 0x10_0000;
/// Where low RAM ends at the latest and the device hole begins (3 GiB).
pub(crate) const HOLE_START: u64 = 0xc000_0000;
/// Where the device hole ends and RAM goes on (4 GiB).
pub(crate) const HOLE_END: u64 = 0x1_0000_0000;

/// `hvm_start_info` of the PVH boot protocol.
pub(crate) const START_INFO: u64 = 0x6000;
/// Module list of the PVH boot protocol: one entry, the initramfs.
pub(crate) const MODULE_LIST: u64 = 0x6100;
/// Memory map of the PVH boot protocol.
pub(crate) const MEMORY_MAP: u64 = 0x6200;
/// `boot_params` of Linux's boot protocol, one page.
pub(crate) const ZERO_PAGE: u64 = 0x7000;
/// Segment descriptors of a kernel that is entered in 64-bit mode.
pub(crate) const GDT: u64 = 0x8000;
/// Its page tables, the root first.
pub(crate) const PAGE_TABLES: u64 = 0x9000;
/// Kernel command line, NUL-terminated.
pub(crate) const COMMAND_LINE: u64 = 0x2_0000;
/// Longest command line an x86 Linux kernel takes, its NUL included (`COMMAND_LINE_SIZE`).
pub(crate) const COMMAND_LINE_MAX: usize = 2048;

/// ACPI tables, the RSDP first.
pub(crate) const ACPI_TABLES: u64 = 0xe_0000;
/// Room for the ACPI tables, in bytes.
pub(crate) const ACPI_TABLES_LEN: usize = 0x1_0000;
/// The 16 bytes of the VM generation id.
pub(crate) const GENERATION_ID: u64 = 0xf_0000;

/// Register file of the console device (virtio-mmio).
pub(crate) const VIRTIO_MMIO: u64 = 0xd000_0000;
/// Length of a virtio-mmio register file, in bytes.
pub(crate) const VIRTIO_MMIO_LEN: u64 = 0x1000;
/// I/O APIC, in KVM.
pub(crate) const IO_APIC: u32 = 0xfec0_0000;
/// Local APIC, in KVM.
pub(crate) const LOCAL_APIC: u32 = 0xfee0_0000;
/// Three pages that KVM needs on Intel to run real-mode code; the guest never looks at them.
pub(crate) const KVM_TSS: usize = 0xfffb_d000;

/// Interrupt line of the early serial port.
pub(crate) const GSI_SERIAL: u32 = 4;
/// Interrupt line that says "the generation id has changed".
pub(crate) const GSI_GENERATION_ID: u32 = 5;
/// Interrupt line of the console device.
pub(crate) const GSI_VIRTIO: u32 = 6;
/// Interrupt line of the power button.
pub(crate) const GSI_POWER_BUTTON: u32 = 9;

/// Command and status port of a keyboard controller, of which only the reset line exists.
pub(crate) const PORT_I8042: u16 = 0x64;
/// First of the eight ports of the serial device.
pub(crate) const PORT_SERIAL: u16 = 0x3f8;
/// pvpanic: the guest's panic notifier writes here.
pub(crate) const PORT_PVPANIC: u16 = 0x505;
/// ACPI sleep control register.
pub(crate) const PORT_SLEEP_CONTROL: u16 = 0x600;
/// ACPI sleep status register.
pub(crate) const PORT_SLEEP_STATUS: u16 = 0x601;
/// ACPI reset register.
pub(crate) const PORT_RESET: u16 = 0x602;
/// What the guest writes to [`PORT_RESET`].
pub(crate) const RESET_VALUE: u8 = 1;
/// Sleep type that `\_S5` names: soft off.
pub(crate) const SLEEP_TYPE_SOFT_OFF: u8 = 5;
