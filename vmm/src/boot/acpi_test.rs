use super::*;
use crate::memory::{self, MIB};

/// Reads the tables back the way a guest finds them.
struct Guest(GuestMemoryMmap);

impl Guest {
    fn new(cpus: u8) -> Self {
        let memory = memory::map(64 * MIB).unwrap();
        assert_eq!(write(&memory, cpus).unwrap(), ACPI_TABLES);
        Self(memory)
    }

    fn bytes(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.0.read_slice(&mut bytes, GuestAddress(at)).unwrap();
        bytes
    }

    /// A whole table, its checksum and length verified.
    fn table(&self, at: u64, signature: &[u8; 4]) -> Vec<u8> {
        let header = self.bytes(at, SDT_HEADER as usize);
        assert_eq!(&header[..4], signature);
        let len = u32::from_le_bytes(header[4..8].try_into().unwrap());
        let table = self.bytes(at, len as usize);
        assert_eq!(sum(&table), 0, "checksum of {signature:?}");
        table
    }

    /// FADT, MADT and DSDT.
    fn all(&self) -> [Vec<u8>; 3] {
        let rsdp = self.bytes(ACPI_TABLES, 36);
        assert_eq!(&rsdp[..8], b"RSD PTR ");
        assert_eq!((sum(&rsdp[..20]), sum(&rsdp)), (0, 0));
        assert_eq!(rsdp[15], 2);
        let xsdt = self.table(long(&rsdp, 24), b"XSDT");
        assert_eq!(xsdt.len(), 52);
        let fadt = self.table(long(&xsdt, 36), b"FACP");
        let madt = self.table(long(&xsdt, 44), b"APIC");
        let dsdt = self.table(long(&fadt, 140), b"DSDT");
        [fadt, madt, dsdt]
    }
}

fn sum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn holds(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|part| part == needle)
}

#[test]
fn the_fadt_is_hardware_reduced_and_names_the_registers() {
    let [fadt, ..] = Guest::new(1).all();
    assert_eq!(fadt.len(), 276);
    assert_eq!(fadt[8], 6);
    assert_eq!(
        word(&fadt, 112),
        1 << 20 | 1 << 10 | 1 << 5 | 1 << 4 | 1,
        "flags"
    );
    assert_eq!(fadt[109..111], [0b10_1100, 0], "boot architecture");
    for (at, number) in [(116, 0x602u64), (244, 0x600), (256, 0x601)] {
        assert_eq!(fadt[at..at + 4], [1, 8, 0, 1], "an 8-bit I/O register");
        assert_eq!(long(&fadt, at + 4), number);
    }
    assert_eq!(fadt[128], 1, "reset value");
    assert_eq!(word(&fadt, 36), 0, "no FACS");
}

#[test]
fn the_madt_lists_every_vcpu_one_io_apic_and_no_8259() {
    for cpus in [1, 2, 4, 254] {
        let [_, madt, _] = Guest::new(cpus).all();
        assert_eq!(madt.len(), 44 + 8 * usize::from(cpus) + 12);
        assert_eq!(word(&madt, 36), LOCAL_APIC);
        assert_eq!(word(&madt, 40), 0, "flags");
        for id in 0..cpus {
            let at = 44 + 8 * usize::from(id);
            assert_eq!(madt[at..at + 8], [0, 8, id, id, 1, 0, 0, 0]);
        }
        let io = 44 + 8 * usize::from(cpus);
        assert_eq!(madt[io..io + 2], [1, 12]);
        assert_eq!((word(&madt, io + 4), word(&madt, io + 8)), (IO_APIC, 0));
    }
}

#[test]
fn the_dsdt_describes_every_device() {
    let [.., dsdt] = Guest::new(1).all();
    // Name (_S5_, Package (4) { 5, 0, 0, 0 })
    assert!(holds(&dsdt, b"\x08_S5_\x12\x07\x04\x0a\x05\x00\x00\x00"));
    for name in ["LNRO0005", "VM_Gen_Counter", "ACPI0013", "QEMU0001", "_EVT"] {
        assert!(holds(&dsdt, name.as_bytes()), "{name}");
    }
    // Memory32Fixed (ReadWrite, 0xd0000000, 0x1000), then Interrupt (Edge, ActiveHigh) { 6 }
    assert!(holds(
        &dsdt,
        b"\x86\x09\x00\x01\x00\x00\x00\xd0\x00\x10\x00\x00\x89\x06\x00\x03\x01\x06\x00\x00\x00"
    ));
    // IO (Decode16, 0x505, 0x505, 1, 1)
    assert!(holds(&dsdt, b"\x47\x01\x05\x05\x05\x05\x01\x01"));
    // PNP0C0C and PNP0501
    assert!(holds(&dsdt, b"\x0c\x41\xd0\x0c\x0c"));
    assert!(holds(&dsdt, b"\x0c\x41\xd0\x05\x01"));
    // ADDR: Package { 0xf0000, 0 }
    assert!(holds(&dsdt, b"ADDR\x12\x08\x02\x0c\x00\x00\x0f\x00\x00"));
}

#[test]
fn two_guests_have_different_generation_ids() {
    let id = |guest: Guest| guest.bytes(GENERATION_ID, 16);
    assert_ne!(id(Guest::new(1)), id(Guest::new(1)));
}

#[test]
fn the_largest_set_of_tables_fits() {
    assert!(tables(254).len() <= ACPI_TABLES_LEN);
}
