//! A failing list is shrunk and printed by proptest; to replay a seed, set `PROPTEST_RNG_SEED`.

use super::*;
use crate::layout::HOLE_START;
use crate::memory::MIB;
use crate::memory::image::tests::open;
use crate::memory::ram::Backing;
use crate::memory::ram::tests::{fill, get, put};
use proptest::prelude::*;
use rustix::fs::SealFlags;

#[test]
fn the_first_freeze_of_a_memfd_copies_nothing_and_seals_it() {
    let ram = GuestRam::new(MIB, Backing::Shareable).unwrap();
    let memfd = match &*ram.source() {
        Source::Shared(memfd) => memfd.try_clone().unwrap(),
        _ => panic!("not shared"),
    };
    put(&ram, 3, 33);
    let frozen = ram.freeze().unwrap();
    assert_eq!((frozen.copied, frozen.scanned), (0, 0));
    assert_eq!(frozen.image.identity(), None);
    let seals = rustix::fs::fcntl_get_seals(&memfd).unwrap();
    assert!(seals.contains(SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW));
    // The VM goes on; the image does not.
    put(&ram, 3, 44);
    put(&ram, 4, 45);
    let child = GuestRam::from_image(&frozen.image).unwrap();
    assert_eq!((get(&ram, 3), get(&ram, 4)), (44, 45));
    assert_eq!((get(&child, 3), get(&child, 4)), (33, 0));
}

#[test]
fn a_memfd_that_somebody_else_may_write_is_not_frozen_and_the_vm_goes_on() {
    let ram = GuestRam::new(MIB, Backing::Shareable).unwrap();
    let other = super::super::mapping::reserve(MIB).unwrap();
    match &*ram.source() {
        Source::Shared(memfd) => show(&other, 0..MIB, Shown::Shared(memfd)).unwrap(),
        _ => panic!("not shared"),
    }
    put(&ram, 3, 33);
    match ram.freeze().unwrap_err() {
        FreezeError::Intact(error) => {
            assert_eq!(error.source.raw_os_error(), Some(libc::EBUSY), "{error}");
        }
        FreezeError::Lost(error) => panic!("{error}"),
    }
    put(&ram, 4, 44);
    drop(other);
    let frozen = ram.freeze().unwrap();
    let child = GuestRam::from_image(&frozen.image).unwrap();
    assert_eq!((get(&child, 3), get(&child, 4)), (33, 44));
}

#[test]
fn a_freeze_that_fails_anywhere_leaves_the_vm_as_it_was_or_says_that_its_memory_is_lost() {
    const NAME: &str = "memory::freeze::tests::\
        a_freeze_that_fails_anywhere_leaves_the_vm_as_it_was_or_says_that_its_memory_is_lost";
    const LEN: u64 = 8 * MIB;
    crate::testing::alone(NAME, || {
        // Of each, what is frozen has a hole, which takes mappings of its own.
        let first = || {
            let ram = GuestRam::new(LEN, Backing::Shareable).unwrap();
            fill(&ram, 0..10, 1);
            fill(&ram, 2038..2048, 1);
            ram
        };
        let changed = || {
            let ram = GuestRam::new(LEN, Backing::Shareable).unwrap();
            fill(&ram, 0..2048, 1);
            ram.freeze().unwrap();
            fill(&ram, 10..2038, 0);
            ram
        };
        let kinds: [&dyn Fn() -> GuestRam; 2] = [&first, &changed];
        for make in kinds {
            let rams: [GuestRam; 6] = std::array::from_fn(|_| make());
            let Some(mut taken) = crate::testing::take_mappings() else {
                return;
            };
            let frozen = rams.map(|ram| {
                // With one more each time.
                taken.pop();
                (ram.freeze(), ram)
            });
            drop(taken);
            let (mut made, mut lost) = (0, 0);
            for (frozen, ram) in frozen {
                match frozen {
                    Ok(_) => made += 1,
                    Err(FreezeError::Intact(_)) => {}
                    Err(FreezeError::Lost(_)) => {
                        lost += 1;
                        let again = ram.freeze().unwrap_err();
                        assert!(matches!(again, FreezeError::Lost(_)), "{again}");
                        let to = image::memfd(0).unwrap();
                        ram.write_to(&to, &mut |_, _| Ok(())).unwrap_err();
                        assert_eq!(get(&ram, 0), 0);
                        continue;
                    }
                }
                // What it writes from now on is in the next image.
                put(&ram, 3, 44);
                let child = GuestRam::from_image(&ram.freeze().unwrap().image).unwrap();
                let pages = [0, 3, 100, 2047].map(|page| get(&child, page));
                assert_eq!(pages, [1, 44, 0, 1]);
            }
            assert!(made > 0 && lost > 0, "{made} made, {lost} lost");
        }
    });
}

#[test]
fn later_freezes_copy_what_the_vm_wrote_and_a_grandchild_has_all_of_it() {
    let ram = GuestRam::new(MIB, Backing::Shareable).unwrap();
    fill(&ram, 0..256, 1);
    let first = ram.freeze().unwrap().image;
    let child = GuestRam::from_image(&first).unwrap();
    put(&child, 10, 2);
    put(&child, 12, 0);
    // Page 11 lies between and may come along; page 12 is zero and need not be stored.
    let second = child.freeze().unwrap();
    assert_eq!(second.copied, PAGE);
    assert_eq!(second.scanned, 256);
    let grandchild = GuestRam::from_image(&second.image).unwrap();
    put(&grandchild, 20, 3);
    let third = grandchild.freeze().unwrap();
    // The overlay before, and what is new.
    assert_eq!(third.copied, 2 * PAGE);
    let last = GuestRam::from_image(&third.image).unwrap();
    for ram in [&grandchild, &last] {
        let pages = [9, 10, 11, 12, 13, 20].map(|page| get(ram, page));
        assert_eq!(pages, [1, 2, 1, 0, 1, 3]);
    }
    assert_eq!((get(&ram, 10), get(&ram, 12), get(&child, 20)), (1, 1, 1));
}

#[test]
fn a_vm_that_wrote_nothing_has_the_image_it_was_started_from() {
    let ram = GuestRam::new(MIB, Backing::Shareable).unwrap();
    put(&ram, 1, 1);
    let first = ram.freeze().unwrap().image;
    let child = GuestRam::from_image(&first).unwrap();
    assert_eq!(get(&child, 1), 1);
    let second = child.freeze().unwrap();
    assert_eq!(second.copied, 0);
    assert!(second.image.overlay_runs().is_empty());
}

#[test]
fn where_much_was_changed_a_new_base_is_made_and_the_next_freeze_is_small_again() {
    let ram = GuestRam::new(2 * MIB, Backing::Shareable).unwrap();
    fill(&ram, 0..256, 1);
    ram.freeze().unwrap();
    fill(&ram, 0..70, 2);
    let small = ram.freeze().unwrap();
    assert_eq!(small.copied, 70 * PAGE);
    assert_eq!(small.image.overlay_runs().bytes(), 70 * PAGE);
    fill(&ram, 70..80, 3);
    let large = ram.freeze().unwrap();
    assert!(large.image.overlay_runs().is_empty());
    assert_eq!(large.copied, 256 * PAGE);
    // The VM's own pages are gone: it runs on the new base.
    assert_eq!(ram.usage().unwrap().private, 0);
    put(&ram, 200, 4);
    let next = ram.freeze().unwrap();
    assert_eq!(next.copied, PAGE);
    let child = GuestRam::from_image(&next.image).unwrap();
    let pages = [69, 70, 79, 80, 200, 256].map(|page| get(&child, page));
    assert_eq!(pages, [2, 3, 3, 1, 4, 0]);
}

#[test]
fn an_overlay_has_few_runs_however_scattered_its_pages_are() {
    let ram = GuestRam::new(16 * MIB, Backing::Shareable).unwrap();
    fill(&ram, 0..4096, 1);
    ram.freeze().unwrap();
    let runs = OVERLAY_RUNS as u64;
    let scattered = || (0..runs).flat_map(|n| [n * 25, n * 25 + 3]);
    for page in scattered() {
        put(&ram, page, page + 2);
    }
    let frozen = ram.freeze().unwrap();
    assert_eq!(frozen.image.overlay_runs().count(), OVERLAY_RUNS);
    // With what lies between two of them.
    assert_eq!(frozen.copied, 4 * runs * PAGE);
    let child = GuestRam::from_image(&frozen.image).unwrap();
    for page in scattered() {
        assert_eq!(get(&child, page), page + 2);
        assert_eq!(get(&child, page + 1), 1);
    }
}

#[test]
fn what_lies_between_scattered_pages_is_not_copied_where_there_is_nothing() {
    let ram = GuestRam::new(64 * MIB, Backing::Shareable).unwrap();
    fill(&ram, 0..2048, 1);
    ram.freeze().unwrap();
    let scattered = || (0..200).map(|n| 2048 + n * 60);
    for page in scattered() {
        put(&ram, page, page);
    }
    let frozen = ram.freeze().unwrap();
    assert!(frozen.image.overlay_runs().count() <= OVERLAY_RUNS);
    assert_eq!(frozen.copied, 200 * PAGE);
    let child = GuestRam::from_image(&frozen.image).unwrap();
    for page in scattered() {
        assert_eq!((get(&child, page), get(&child, page + 1)), (page, 0));
    }
}

#[test]
fn memory_of_the_processs_own_is_copied_without_its_zeros_and_stays() {
    let ram = GuestRam::new(8 * MIB, Backing::Anonymous).unwrap();
    put(&ram, 5, 55);
    put(&ram, 6, 0);
    let frozen = ram.freeze().unwrap();
    assert_eq!(frozen.copied, PAGE);
    put(&ram, 5, 56);
    let child = GuestRam::from_image(&frozen.image).unwrap();
    assert_eq!((get(&child, 5), get(&ram, 5)), (55, 56));
    let again = ram.freeze().unwrap();
    let child = GuestRam::from_image(&again.image).unwrap();
    assert_eq!(get(&child, 5), 56);
}

#[test]
fn memory_on_both_sides_of_the_hole_is_frozen_in_every_way() {
    let len = HOLE_START + 64 * MIB;
    let edge = HOLE_START / PAGE;
    for backing in [Backing::Anonymous, Backing::Shareable] {
        let ram = GuestRam::new(len, backing).unwrap();
        fill(&ram, edge - 10..edge + 10, 7);
        put(&ram, len / PAGE - 1, 8);
        let image = ram.freeze().unwrap().image;
        assert_eq!(image.len(), len);
        let child = GuestRam::from_image(&image).unwrap();
        fill(&child, edge - 1..edge + 1, 9);
        let image = child.freeze().unwrap().image;
        assert_eq!(image.overlay_runs().bytes(), 2 * PAGE);
        let child = GuestRam::from_image(&image).unwrap();
        let pages = [edge - 2, edge - 1, edge, edge + 1, len / PAGE - 1];
        assert_eq!(pages.map(|page| get(&child, page)), [7, 9, 9, 7, 8]);
    }
}

#[test]
fn a_hundred_generations_leave_no_descriptor_and_no_mapping() {
    const NAME: &str =
        "memory::freeze::tests::a_hundred_generations_leave_no_descriptor_and_no_mapping";
    crate::testing::alone(NAME, || {
        let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let mappings = || {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            maps.lines()
                .filter(|line| line.contains("forebay-memory"))
                .count()
        };
        let before = (descriptors(), mappings());
        let first = GuestRam::new(MIB, Backing::Shareable).unwrap();
        let mut image = first.freeze().unwrap().image;
        drop(first);
        let mut most = (0, 0);
        for generation in 0..100 {
            let ram = GuestRam::from_image(&image).unwrap();
            put(&ram, generation * 37 % 256, generation + 1);
            image = ram.freeze().unwrap().image;
            most = (most.0.max(descriptors()), most.1.max(mappings()));
        }
        // A base, an overlay, and the ones that are being replaced.
        assert!(most.0 <= before.0 + 4, "{most:?} after {before:?}");
        assert!(most.1 <= 2 * OVERLAY_RUNS + 1, "{most:?}");
        drop(image);
        assert_eq!((descriptors(), mappings()), before);
    });
}

const PAGES: u64 = 64;

#[derive(Debug, Clone)]
enum Op {
    /// A VM writes this value to so many pages from one on.
    Write(usize, u64, u64, u64),
    /// A VM only looks.
    Read(usize, u64),
    Freeze(usize),
    /// A VM is started from an image.
    Start(usize),
    /// An image is written to a file, and opened from there.
    Store(usize),
    /// What a VM has is written to a file, and that is an image.
    Save(usize),
    End(usize),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let which = || any::<prop::sample::Index>().prop_map(|index| index.index(1 << 20));
    let op = prop_oneof![
        6 => (which(), 0..PAGES, 1_u64..6, 0_u64..1000)
            .prop_map(|(vm, page, count, value)| Op::Write(vm, page, count, value % 990)),
        1 => (which(), 0..PAGES).prop_map(|(vm, page)| Op::Read(vm, page)),
        3 => which().prop_map(Op::Freeze),
        3 => which().prop_map(Op::Start),
        1 => which().prop_map(Op::Store),
        1 => which().prop_map(Op::Save),
        1 => which().prop_map(Op::End),
    ];
    prop::collection::vec(op, 1..60)
}

type Model = [u64; PAGES as usize];

fn pages(ram: &GuestRam) -> Model {
    std::array::from_fn(|page| get(ram, page as u64))
}

proptest! {
    #[test]
    fn generations_of_vms_and_images_hold_what_was_written(
        backing in prop_oneof![Just(Backing::Anonymous), Just(Backing::Shareable)],
        ops in ops(),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let len = PAGES * PAGE;
        let mut vms = vec![(GuestRam::new(len, backing).unwrap(), [0; PAGES as usize])];
        let mut images: Vec<(MemoryImage, Model)> = Vec::new();
        for (step, op) in ops.into_iter().enumerate() {
            let path = directory.path().join(step.to_string());
            let stored = |write: &dyn Fn(&std::fs::File)| {
                write(&std::fs::File::create(&path).unwrap());
                open(&path, len).unwrap()
            };
            match op {
                Op::Write(vm, page, count, value) => {
                    let at = vm % vms.len();
                    let (ram, model) = &mut vms[at];
                    for page in page..(page + count).min(PAGES) {
                        put(ram, page, value);
                        model[page as usize] = value;
                    }
                }
                Op::Read(vm, page) => {
                    let (ram, model) = &vms[vm % vms.len()];
                    prop_assert_eq!(get(ram, page), model[page as usize]);
                }
                Op::Freeze(vm) => {
                    let (ram, model) = &vms[vm % vms.len()];
                    let frozen = ram.freeze().unwrap();
                    prop_assert!(frozen.copied <= len);
                    images.push((frozen.image, *model));
                }
                Op::Start(image) => {
                    if let Some((image, model)) = images.get(image % images.len().max(1)) {
                        vms.push((GuestRam::from_image(image).unwrap(), *model));
                    }
                }
                Op::Store(image) => {
                    if let Some((image, model)) = images.get(image % images.len().max(1)) {
                        let stored = stored(&|file| image.write_to(file, &mut |_, _| Ok(())).unwrap());
                        images.push((stored, *model));
                    }
                }
                Op::Save(vm) => {
                    let (ram, model) = &vms[vm % vms.len()];
                    let saved = stored(&|file| ram.write_to(file, &mut |_, _| Ok(())).unwrap());
                    images.push((saved, *model));
                }
                Op::End(vm) => {
                    if vms.len() > 1 {
                        vms.swap_remove(vm % vms.len());
                    }
                }
            }
        }
        for (ram, model) in &vms {
            prop_assert_eq!(pages(ram), *model);
        }
        for (image, model) in &images {
            prop_assert_eq!(pages(&GuestRam::from_image(image).unwrap()), *model);
        }
    }
}
