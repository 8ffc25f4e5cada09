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

#[test]
fn a_forked_child_and_a_core_dump_do_not_get_it() {
    let memory = map(64 * MIB).unwrap();
    let start = memory.iter().next().unwrap().as_ptr() as u64;
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let flags = smaps
        .lines()
        .skip_while(|line| {
            // The mapping may have been merged with a neighbour below it.
            let Some((from, rest)) = line.split_once('-') else {
                return true;
            };
            let to = rest.split(' ').next().unwrap_or_default();
            match (u64::from_str_radix(from, 16), u64::from_str_radix(to, 16)) {
                (Ok(from), Ok(to)) => !(from..to).contains(&start),
                _ => true,
            }
        })
        .find(|line| line.starts_with("VmFlags:"))
        .unwrap();
    let has = |flag| flags.split_whitespace().any(|word| word == flag);
    assert!(has("dc") && has("dd") && has("nr"), "{flags}");
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
