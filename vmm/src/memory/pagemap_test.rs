use super::*;
use crate::memory::image::memfd;
use crate::memory::mapping::{Shown, reserve, show};
use proptest::prelude::*;
use vm_memory::{Bytes as _, GuestAddress};

const PAGES: u64 = 300;
const LEN: u64 = PAGES * PAGE;

fn runs(memory: &GuestMemoryMmap, owner: Owner, scanner: Scanner) -> Runs {
    scan_with(&File::open(PATH).unwrap(), memory, owner, scanner).unwrap()
}

/// `None` where the host's kernel is older than the request.
fn by_request(memory: &GuestMemoryMmap, owner: Owner) -> Option<Runs> {
    match scan_with(&File::open(PATH).unwrap(), memory, owner, scan_ioctl) {
        Err(e) if e.raw_os_error() == Some(libc::ENOTTY) => None,
        other => Some(other.unwrap()),
    }
}

proptest! {
    #[test]
    fn both_ways_find_the_pages_that_were_written_to_a_private_mapping(
        written in prop::collection::btree_set(0..PAGES, 0..40),
        read in prop::collection::btree_set(0..PAGES, 0..40),
    ) {
        let file = memfd(LEN).unwrap();
        let memory = reserve(LEN).unwrap();
        show(&memory, 0..LEN, Shown::Private(&file)).unwrap();
        for page in &read {
            memory.read_obj::<u8>(GuestAddress(page * PAGE)).unwrap();
        }
        let mut expected = Runs::default();
        for page in &written {
            memory.write_obj(1_u8, GuestAddress(page * PAGE + 9)).unwrap();
            expected.push(page * PAGE..(page + 1) * PAGE);
        }
        prop_assert_eq!(&runs(&memory, Owner::Vm, scan_table), &expected);
        if let Some(found) = by_request(&memory, Owner::Vm) {
            prop_assert_eq!(&found, &expected);
        }
        let shared = runs(&memory, Owner::PageCache, scan_table);
        prop_assert_eq!(&shared.without(&expected), &shared);
        for page in read.difference(&written) {
            let page = page * PAGE..(page + 1) * PAGE;
            prop_assert!(shared.iter().any(|run| run.start <= page.start && page.end <= run.end));
        }
        if let Some(found) = by_request(&memory, Owner::PageCache) {
            prop_assert_eq!(found, shared);
        }
    }
}

#[test]
fn a_page_of_zeros_that_was_only_read_is_nobodys() {
    let memory = reserve(LEN).unwrap();
    memory.read_obj::<u8>(GuestAddress(5 * PAGE)).unwrap();
    if let Some(found) = by_request(&memory, Owner::Vm) {
        assert!(found.is_empty(), "{found:?}");
    }
    memory.write_obj(0_u8, GuestAddress(5 * PAGE)).unwrap();
    let found = scan(&memory, Owner::Vm).unwrap();
    assert_eq!(found.bytes(), PAGE);
}

#[test]
fn more_runs_than_one_answer_holds_are_all_found() {
    let len = 4096 * PAGE;
    let memory = reserve(len).unwrap();
    for page in (0..4096).step_by(2) {
        memory.write_obj(1_u8, GuestAddress(page * PAGE)).unwrap();
    }
    let found = scan(&memory, Owner::Vm).unwrap();
    assert_eq!((found.count(), found.bytes()), (2048, 2048 * PAGE));
}
