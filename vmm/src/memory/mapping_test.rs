use super::*;
use crate::layout::{HOLE_END, HOLE_START};

#[test]
fn the_whole_of_it_is_there_and_zero_and_none_of_it_resident() {
    let memory = map(3080 * MIB).unwrap();
    assert_eq!(memory.read_obj::<u64>(GuestAddress(0)).unwrap(), 0);
    assert!(memory.read_obj::<u64>(GuestAddress(HOLE_START - 8)).is_ok());
    assert!(
        memory
            .read_obj::<u64>(GuestAddress(HOLE_START - 4))
            .is_err()
    );
    assert!(
        memory
            .read_obj::<u64>(GuestAddress(HOLE_END + 8 * MIB - 8))
            .is_ok()
    );
    assert!(
        memory
            .read_obj::<u64>(GuestAddress(HOLE_END + 8 * MIB))
            .is_err()
    );
}

/// The flags of every mapping that has a part of `memory`.
fn flags(memory: &GuestMemoryMmap) -> Vec<String> {
    let ranges: Vec<_> = memory
        .iter()
        .map(|region| region.as_ptr() as u64..region.as_ptr() as u64 + region.len())
        .collect();
    let address = |text: &str| u64::from_str_radix(text, 16).ok();
    let range = |line: &str| {
        let (from, to) = line.split(' ').next()?.split_once('-')?;
        Some(address(from)?..address(to)?)
    };
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut ours = false;
    let mut flags = Vec::new();
    for line in smaps.lines() {
        if let Some(mapping) = range(line) {
            // It may have been merged with a neighbour.
            let common =
                |range: &Range<u64>| range.start < mapping.end && mapping.start < range.end;
            ours = ranges.iter().any(common);
        } else if ours && line.starts_with("VmFlags:") {
            flags.push(line.to_owned());
        }
    }
    flags
}

fn has(flags: &str, flag: &str) -> bool {
    flags.split_whitespace().any(|word| word == flag)
}

#[test]
fn a_forked_child_and_a_core_dump_do_not_get_it() {
    let memory = map(64 * MIB).unwrap();
    let [flags] = &flags(&memory)[..] else {
        panic!("not one mapping");
    };
    assert!(
        has(flags, "dc") && has(flags, "dd") && has(flags, "nr"),
        "{flags}"
    );
}

#[test]
fn nor_do_they_get_what_is_mapped_in_its_place() {
    let file = super::super::image::memfd(64 * MIB).unwrap();
    let memory = reserve(64 * MIB).unwrap();
    show(&memory, 0..64 * MIB, Shown::Private(&file)).unwrap();
    show(&memory, 8 * MIB..9 * MIB, Shown::Shared(&file)).unwrap();
    show(&memory, 16 * MIB..17 * MIB, Shown::Zeros).unwrap();
    let flags = flags(&memory);
    assert_eq!(flags.len(), 5);
    for flags in flags {
        assert!(has(&flags, "dc") && has(&flags, "dd"), "{flags}");
    }
}

#[test]
fn mappings_of_any_size_lie_where_huge_pages_can() {
    // Other tests map memory at the same time, so one in a few may miss.
    let aligned = (0..8)
        .filter(|odd| {
            let region = map_for_huge_pages((65 + odd) << 20).unwrap();
            (region.as_ptr() as usize).is_multiple_of(HUGE_PAGE)
        })
        .count();
    assert!(aligned >= 4, "{aligned} of 8");
}
