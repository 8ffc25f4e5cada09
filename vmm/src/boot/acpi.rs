//! Hardware-reduced ACPI: how the guest learns of processors, devices, and how to switch off.
//!
//! Hardware-reduced means: none of the PC's legacy (8259, PIT, CMOS clock, SCI) is there to look
//! for. The description is the same for a minimal kernel and a distribution's, and it is what makes
//! power-off, reboot and panic three different events for us.
//!
//! | table | says |
//! |---|---|
//! | RSDP → XSDT | where the others are |
//! | FADT | hardware-reduced; sleep control, sleep status and reset registers |
//! | MADT | one local APIC per vCPU, one I/O APIC, no 8259 |
//! | DSDT | `_S5`, the console device, generation id, event device, power button, COM1, pvpanic |

use acpi_tables::Aml;
use acpi_tables::aml::{
    Arg, Device, EISAName, Equal, IO, If, Interrupt, Memory32Fixed, Method, Name, Notify, Package,
    Path, ResourceTemplate, Scope,
};
use acpi_tables::fadt::{FADT, FADTBuilder, Flags};
use acpi_tables::gas::{AccessSize, AddressSpace, GAS};
use acpi_tables::madt::{
    EnabledStatus, IoApic, LocalInterruptController, MADT, ProcessorLocalApic,
};
use acpi_tables::rsdp::Rsdp;
use acpi_tables::sdt::Sdt;
use acpi_tables::xsdt::XSDT;
use vm_memory::{Bytes as _, GuestAddress, GuestMemoryMmap};

use crate::error::HostError;
use crate::layout::{
    ACPI_TABLES, ACPI_TABLES_LEN, GENERATION_ID, GSI_GENERATION_ID, GSI_POWER_BUTTON, GSI_SERIAL,
    GSI_VIRTIO, IO_APIC, LOCAL_APIC, PORT_PVPANIC, PORT_RESET, PORT_SERIAL, PORT_SLEEP_CONTROL,
    PORT_SLEEP_STATUS, RESET_VALUE, SLEEP_TYPE_SOFT_OFF, VIRTIO_MMIO, VIRTIO_MMIO_LEN,
};
use crate::random;

const OEM: [u8; 6] = *b"FOREBY";
const OEM_TABLE: [u8; 8] = *b"FOREBAY ";
const OEM_REVISION: u32 = 1;
/// Tables begin at multiples of this.
const ALIGNMENT: usize = 16;
/// Length of an SDT header, in bytes.
const SDT_HEADER: u32 = 36;

/// Boot architecture flags: what of a PC is not there.
const NO_VGA: u16 = 1 << 2;
const NO_MSI: u16 = 1 << 3;
const NO_CMOS_CLOCK: u16 = 1 << 5;

/// Writes the tables for `cpus` vCPUs and a first generation id; returns the RSDP's address.
pub(crate) fn write(memory: &GuestMemoryMmap, cpus: u8) -> Result<u64, HostError> {
    let tables = tables(cpus);
    let failed = |e: vm_memory::GuestMemoryError| {
        HostError::new("write ACPI tables", std::io::Error::other(e))
    };
    if tables.len() > ACPI_TABLES_LEN {
        return Err(HostError::on(
            "write ACPI tables",
            format!("{} bytes", tables.len()),
            std::io::ErrorKind::StorageFull,
        ));
    }
    memory
        .write_slice(&tables, GuestAddress(ACPI_TABLES))
        .map_err(failed)?;
    write_generation_id(memory, &random::bytes()?)?;
    Ok(ACPI_TABLES)
}

/// Has the guest find `id` as its generation id. One that runs is told by an interrupt on
/// [`GSI_GENERATION_ID`].
pub(crate) fn write_generation_id(
    memory: &GuestMemoryMmap,
    id: &[u8; 16],
) -> Result<(), HostError> {
    memory
        .write_slice(id, GuestAddress(GENERATION_ID))
        .map_err(|e| HostError::new("write the generation id", std::io::Error::other(e)))
}

/// All tables as they lie from [`ACPI_TABLES`] on, the RSDP first.
fn tables(cpus: u8) -> Vec<u8> {
    let mut image = vec![0; Rsdp::len().next_multiple_of(ALIGNMENT)];
    let mut place = |table: &dyn Aml| {
        let address = ACPI_TABLES + image.len() as u64;
        table.to_aml_bytes(&mut image);
        image.resize(image.len().next_multiple_of(ALIGNMENT), 0);
        address
    };
    let dsdt = place(&Bytes(dsdt()));
    let fadt = place(&fadt(dsdt));
    let madt = place(&madt(cpus));
    let mut xsdt = XSDT::new(OEM, OEM_TABLE, OEM_REVISION);
    xsdt.add_entry(fadt);
    xsdt.add_entry(madt);
    let xsdt = place(&xsdt);
    let mut rsdp = Vec::new();
    Rsdp::new(OEM, xsdt).to_aml_bytes(&mut rsdp);
    for (to, from) in image.iter_mut().zip(rsdp) {
        *to = from;
    }
    image
}

/// A table that is bytes already.
struct Bytes(Vec<u8>);

impl Aml for Bytes {
    fn to_aml_bytes(&self, sink: &mut dyn acpi_tables::AmlSink) {
        sink.vec(&self.0);
    }
}

/// One 8-bit I/O port as a register.
fn port(number: u16) -> GAS {
    GAS::new(
        AddressSpace::SystemIo,
        8,
        0,
        AccessSize::ByteAccess,
        number.into(),
    )
}

fn fadt(dsdt: u64) -> FADT {
    let mut fadt = FADTBuilder::new(OEM, OEM_TABLE, OEM_REVISION)
        .dsdt_64(dsdt)
        .flag(Flags::HwReducedAcpi)
        .flag(Flags::ResetRegSup)
        .flag(Flags::PwrButton)
        .flag(Flags::SlpButton)
        .flag(Flags::Wbinvd);
    fadt.iapc_boot_arch = (NO_VGA | NO_MSI | NO_CMOS_CLOCK).into();
    fadt.reset_reg = port(PORT_RESET);
    fadt.reset_value = RESET_VALUE;
    fadt.sleep_control_reg = port(PORT_SLEEP_CONTROL);
    fadt.sleep_status_reg = port(PORT_SLEEP_STATUS);
    fadt.finalize()
}

fn madt(cpus: u8) -> MADT {
    let controller = LocalInterruptController::Address(LOCAL_APIC);
    let mut madt = MADT::new(OEM, OEM_TABLE, OEM_REVISION, controller);
    for id in 0..cpus {
        madt.add_structure(ProcessorLocalApic::new(id, id, EnabledStatus::Enabled));
    }
    madt.add_structure(IoApic::new(0, IO_APIC, 0));
    madt
}

/// An interrupt line as all of ours are: edge-triggered, active high, not shared.
fn line(gsi: u32) -> Interrupt {
    Interrupt::new(true, true, false, false, gsi)
}

fn dsdt() -> Vec<u8> {
    let mut body = Vec::new();
    Name::new(
        "_S5_".into(),
        &Package::new(vec![&SLEEP_TYPE_SOFT_OFF, &0u8, &0u8, &0u8]),
    )
    .to_aml_bytes(&mut body);
    Scope::new(
        "_SB_".into(),
        vec![
            &console(),
            &generation_id(),
            &events(),
            &power_button(),
            &serial(),
            &pvpanic(),
        ],
    )
    .to_aml_bytes(&mut body);
    let mut dsdt = Sdt::new(*b"DSDT", SDT_HEADER, 2, OEM, OEM_TABLE, OEM_REVISION);
    dsdt.append_slice(&body);
    dsdt.as_slice().to_vec()
}

/// Encodes a device at once, so that its parts need not outlive the call.
fn device(name: &str, children: Vec<&dyn Aml>) -> Bytes {
    let mut bytes = Vec::new();
    Device::new(name.into(), children).to_aml_bytes(&mut bytes);
    Bytes(bytes)
}

fn console() -> Bytes {
    device(
        "V000",
        vec![
            &Name::new("_HID".into(), &"LNRO0005"),
            &Name::new("_UID".into(), &0u8),
            &Name::new("_CCA".into(), &1u8),
            &Name::new(
                "_CRS".into(),
                &ResourceTemplate::new(vec![
                    // Both below 4 GiB, see the map in layout.rs.
                    &Memory32Fixed::new(true, VIRTIO_MMIO as u32, VIRTIO_MMIO_LEN as u32),
                    &line(GSI_VIRTIO),
                ]),
            ),
        ],
    )
}

fn generation_id() -> Bytes {
    device(
        "VGEN",
        vec![
            &Name::new("_HID".into(), &"FRBY0001"),
            &Name::new("_CID".into(), &"VM_Gen_Counter"),
            &Name::new("_DDN".into(), &"VM_Gen_Counter"),
            &Name::new(
                "ADDR".into(),
                &Package::new(vec![&(GENERATION_ID as u32), &0u8]),
            ),
        ],
    )
}

/// The event device: each of its lines notifies the device it belongs to.
fn events() -> Bytes {
    const CHANGED: u8 = 0x80;
    let notify = |gsi: u32, path: &str| {
        let mut bytes = Vec::new();
        If::new(
            &Equal::new(&Arg(0), &gsi),
            vec![&Notify::new(&Path::new(path), &CHANGED)],
        )
        .to_aml_bytes(&mut bytes);
        Bytes(bytes)
    };
    device(
        "GED_",
        vec![
            &Name::new("_HID".into(), &"ACPI0013"),
            &Name::new("_UID".into(), &0u8),
            &Name::new(
                "_CRS".into(),
                &ResourceTemplate::new(vec![&line(GSI_GENERATION_ID), &line(GSI_POWER_BUTTON)]),
            ),
            &Method::new(
                "_EVT".into(),
                1,
                true,
                vec![
                    &notify(GSI_GENERATION_ID, "\\_SB_.VGEN"),
                    &notify(GSI_POWER_BUTTON, "\\_SB_.PWRB"),
                ],
            ),
        ],
    )
}

fn power_button() -> Bytes {
    device(
        "PWRB",
        vec![&Name::new("_HID".into(), &EISAName::new("PNP0C0C"))],
    )
}

fn serial() -> Bytes {
    device(
        "COM1",
        vec![
            &Name::new("_HID".into(), &EISAName::new("PNP0501")),
            &Name::new("_UID".into(), &0u8),
            &Name::new(
                "_CRS".into(),
                &ResourceTemplate::new(vec![
                    &IO::new(PORT_SERIAL, PORT_SERIAL, 0, 8),
                    &line(GSI_SERIAL),
                ]),
            ),
        ],
    )
}

fn pvpanic() -> Bytes {
    /// Present, enabled, shown, functioning.
    const STATUS: u8 = 0x0f;
    device(
        "PEVT",
        vec![
            &Name::new("_HID".into(), &"QEMU0001"),
            &Name::new("_STA".into(), &STATUS),
            &Name::new(
                "_CRS".into(),
                &ResourceTemplate::new(vec![&IO::new(PORT_PVPANIC, PORT_PVPANIC, 1, 1)]),
            ),
        ],
    )
}

#[cfg(test)]
#[path = "acpi_test.rs"]
mod tests;
