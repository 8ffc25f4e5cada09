use super::*;
use crate::memory::image::tests::open;
use crate::memory::{MIB, PAGE};
use std::ops::Range;
use vm_memory::{Bytes as _, GuestAddress};

/// Where in the guest page `page` of an image begins.
fn address(page: u64) -> GuestAddress {
    use crate::layout::{HOLE_END, HOLE_START};
    let offset = page * PAGE;
    GuestAddress(match offset.checked_sub(HOLE_START) {
        Some(above) => HOLE_END + above,
        None => offset,
    })
}

/// Writes `value` to both ends of a page.
pub(in crate::memory) fn put(ram: &GuestRam, page: u64, value: u64) {
    let start = address(page);
    let end = GuestAddress(start.0 + PAGE - 8);
    ram.guest().write_obj(value, start).unwrap();
    ram.guest().write_obj(value, end).unwrap();
}

/// What `put` wrote.
pub(in crate::memory) fn get(ram: &GuestRam, page: u64) -> u64 {
    let start = address(page);
    let value = ram.guest().read_obj(start).unwrap();
    let end: u64 = ram
        .guest()
        .read_obj(GuestAddress(start.0 + PAGE - 8))
        .unwrap();
    assert_eq!(value, end, "page {page} is torn");
    value
}

pub(in crate::memory) fn fill(ram: &GuestRam, pages: Range<u64>, value: u64) {
    for page in pages {
        put(ram, page, value);
    }
}

#[test]
fn clones_do_not_see_what_the_others_write() {
    let parent = GuestRam::new(MIB, Backing::Shareable).unwrap();
    fill(&parent, 0..10, 1);
    let image = parent.freeze().unwrap().image;
    let [first, second] = [(); 2].map(|()| GuestRam::from_image(&image).unwrap());
    put(&parent, 0, 100);
    put(&first, 1, 101);
    put(&second, 2, 102);
    let seen = |ram: &GuestRam| [0, 1, 2, 3].map(|page| get(ram, page));
    assert_eq!(seen(&parent), [100, 1, 1, 1]);
    assert_eq!(seen(&first), [1, 101, 1, 1]);
    assert_eq!(seen(&second), [1, 1, 102, 1]);
    // Nor do those that come later.
    assert_eq!(seen(&GuestRam::from_image(&image).unwrap()), [1; 4]);
}

#[test]
fn usage_counts_the_pages_that_were_written_and_those_that_are_shared() {
    let parent = GuestRam::new(4 * MIB, Backing::Shareable).unwrap();
    fill(&parent, 0..1024, 1);
    assert_eq!(
        parent.usage().unwrap(),
        MemoryUsage {
            private: 0,
            shared: 4 * MIB
        }
    );
    let image = parent.freeze().unwrap().image;
    let child = GuestRam::from_image(&image).unwrap();
    assert_eq!(child.usage().unwrap().private, 0);
    fill(&child, 100..103, 2);
    put(&child, 500, 3);
    get(&child, 700);
    let usage = child.usage().unwrap();
    assert_eq!(usage.private, 4 * PAGE);
    // The kernel maps some around the one that was read.
    assert!(usage.shared >= PAGE && usage.shared < 4 * MIB, "{usage:?}");
}

#[test]
fn memory_that_nobody_wrote_costs_a_clone_no_page_of_the_image() {
    let parent = GuestRam::new(32 * MIB, Backing::Shareable).unwrap();
    put(&parent, 0, 1);
    let image = parent.freeze().unwrap().image;
    let child = GuestRam::from_image(&image).unwrap();
    for page in [2000, 3000, 8000] {
        assert_eq!(get(&child, page), 0);
        put(&child, page, 5);
    }
    // This one is only read: it is the kernel's page of zeros.
    assert_eq!(get(&child, 5000), 0);
    let usage = child.usage().unwrap();
    assert_eq!((usage.private, usage.shared), (3 * PAGE, 0));
}

#[test]
fn what_a_vm_holds_is_written_as_a_sparse_file_whatever_is_behind_it() {
    use std::os::unix::fs::MetadataExt as _;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("memory");
    let anonymous = GuestRam::new(32 * MIB, Backing::Anonymous).unwrap();
    let shared = GuestRam::new(32 * MIB, Backing::Shareable).unwrap();
    for ram in [&anonymous, &shared] {
        fill(ram, 100..200, 6);
        fill(ram, 200..300, 0);
    }
    let restored = GuestRam::from_image(&shared.freeze().unwrap().image).unwrap();
    put(&restored, 8191, 7);
    put(&restored, 100, 0);
    for ram in [&anonymous, &shared, &restored] {
        let file = std::fs::File::create(&path).unwrap();
        let mut last = (0, 0);
        ram.write_to(&file, &mut |done, total| {
            assert!(done > last.0 && done <= total);
            last = (done, total);
            Ok(())
        })
        .unwrap();
        assert_eq!(last.0, last.1);
        let metadata = file.metadata().unwrap();
        assert_eq!(metadata.len(), 32 * MIB);
        assert!(metadata.blocks() * 512 <= 128 * PAGE, "{metadata:?}");
        let image = open(&path, 32 * MIB).unwrap();
        let read = GuestRam::from_image(&image).unwrap();
        for page in [0, 99, 100, 101, 199, 200, 299, 300, 8190, 8191] {
            assert_eq!(get(&read, page), get(ram, page), "page {page}");
        }
    }
}

#[test]
fn a_clone_of_the_memory_outlives_its_vm() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("memory");
    let ram = GuestRam::new(MIB, Backing::Anonymous).unwrap();
    put(&ram, 1, 1);
    let file = std::fs::File::create(&path).unwrap();
    ram.write_to(&file, &mut |_, _| Ok(())).unwrap();
    let image = open(&path, MIB).unwrap();
    let restored = GuestRam::from_image(&image).unwrap();
    let memory = restored.guest().clone();
    drop(restored);
    // Cut now, it must not matter: nobody watches over the range any more.
    file.set_len(0).unwrap();
    assert_eq!(memory.read_obj::<u64>(address(1)).unwrap(), 0);
}

#[test]
fn huge_pages_that_the_pool_does_not_have_are_named_with_what_to_do() {
    let error = GuestRam::new(1 << 40, Backing::HugePages).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("huge pages of 2 MiB are needed"), "{text}");
    assert!(text.contains("vm.nr_hugepages"), "{text}");
    let error = GuestRam::new(3 * MIB, Backing::HugePages).unwrap_err();
    assert!(error.to_string().contains("even number"), "{error}");
}

#[test]
fn memory_in_huge_pages_is_frozen_and_written_without_its_zeros() {
    let Ok(ram) = GuestRam::new(4 * MIB, Backing::HugePages) else {
        eprintln!("the host's pool has no two huge pages: not tested");
        return;
    };
    put(&ram, 5, 55);
    put(&ram, 1023, 56);
    let frozen = ram.freeze().unwrap();
    assert_eq!(frozen.copied, 2 * PAGE);
    let child = GuestRam::from_image(&frozen.image).unwrap();
    put(&ram, 5, 0);
    let pages = [4, 5, 6, 1023].map(|page| get(&child, page));
    assert_eq!(pages, [0, 55, 0, 56]);
}
