use super::*;
use crate::memory::MIB;
use crate::memory::ram::tests::{fill, get, put};
use crate::memory::{Backing, GuestRam};

/// Opens a memory file to which the writer of a snapshot would have added its mark, and does so.
pub(in crate::memory) fn open(path: &Path, len: u64) -> Result<MemoryImage, MemoryFileError> {
    let mark = FileMark::from([7; FileMark::LEN]);
    let file = OpenOptions::new()
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path);
    if let Ok(file) = file
        && file.metadata().is_ok_and(|m| m.is_file() && m.len() == len)
    {
        mark.write(&file, len).unwrap();
    }
    MemoryImage::open(path, len, mark)
}

/// A base and an overlay: pages 0 to 9 and 12 are 1, pages 4 and 11 are 2, page 5 was set to zero.
fn layered() -> MemoryImage {
    let ram = GuestRam::new(MIB, Backing::Shareable).unwrap();
    fill(&ram, 0..10, 1);
    put(&ram, 12, 1);
    ram.freeze().unwrap();
    put(&ram, 4, 2);
    put(&ram, 5, 0);
    put(&ram, 11, 2);
    let image = ram.freeze().unwrap().image;
    assert!(!image.overlay_runs().is_empty());
    image
}

fn seen(image: &MemoryImage) -> [u64; 14] {
    let ram = GuestRam::from_image(image).unwrap();
    std::array::from_fn(|page| get(&ram, page as u64))
}

const SEEN: [u64; 14] = [1, 1, 1, 1, 2, 0, 1, 1, 1, 1, 0, 2, 1, 0];

#[test]
fn a_base_and_its_overlay_become_one_sparse_file_and_that_file_another() {
    let directory = tempfile::tempdir().unwrap();
    let paths = ["first", "second", "third"].map(|name| directory.path().join(name));
    let mut image = layered();
    assert_eq!(seen(&image), SEEN);
    for path in &paths {
        let file = File::create(path).unwrap();
        let mut last = (0, 0);
        image
            .write_to(&file, &mut |done, total| {
                last = (done, total);
                Ok(())
            })
            .unwrap();
        assert!(last.0 > 0 && last.0 == last.1, "{last:?}");
        let metadata = file.metadata().unwrap();
        assert_eq!(metadata.len(), MIB);
        assert!(metadata.blocks() * 512 <= 16 * PAGE, "{metadata:?}");
        image = open(path, MIB).unwrap();
        assert_eq!(image.identity().unwrap().ino, metadata.ino());
        assert_eq!(seen(&image), SEEN);
    }
}

#[test]
fn a_vm_from_a_file_is_frozen_over_that_file_and_its_images_are_written_whole() {
    let directory = tempfile::tempdir().unwrap();
    let [first, second] = ["first", "second"].map(|name| directory.path().join(name));
    layered()
        .write_to(&File::create(&first).unwrap(), &mut |_, _| Ok(()))
        .unwrap();
    let ram = GuestRam::from_image(&open(&first, MIB).unwrap()).unwrap();
    put(&ram, 13, 3);
    let frozen = ram.freeze().unwrap();
    assert_eq!(frozen.copied, PAGE);
    let image = frozen.image;
    image
        .write_to(&File::create(&second).unwrap(), &mut |_, _| Ok(()))
        .unwrap();
    let mut expected = SEEN;
    expected[13] = 3;
    assert_eq!(seen(&image), expected);
    assert_eq!(seen(&open(&second, MIB).unwrap()), expected);
    assert_eq!(seen(&open(&first, MIB).unwrap()), SEEN);
}

#[test]
fn a_memory_file_that_is_cut_or_too_long_is_refused_with_both_lengths() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("memory");
    let file = File::create(&path).unwrap();
    for len in [0, MIB - 1, MIB - PAGE, MIB + 1] {
        file.set_len(len).unwrap();
        let error = open(&path, MIB).unwrap_err();
        assert!(
            matches!(error, MemoryFileError::Length { found, expected, .. }
                if found == len && expected == MIB + PAGE),
            "{error}"
        );
        let text = error.to_string();
        assert!(
            text.contains(&format!("{len} bytes")) && text.contains("1052672"),
            "{text}"
        );
    }
}

#[test]
fn what_cannot_be_a_memory_file_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("memory");
    let error = open(&path, MIB).unwrap_err();
    assert!(matches!(error, MemoryFileError::Host(_)), "{error}");
    let error = open(directory.path(), MIB).unwrap_err();
    assert!(matches!(error, MemoryFileError::NotAFile { .. }), "{error}");
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR).unwrap();
    let error = open(&path, MIB).unwrap_err();
    assert!(matches!(error, MemoryFileError::NotAFile { .. }), "{error}");
    for expected in [0, 1, PAGE + 1, u64::MAX] {
        let error = open(&path, expected).unwrap_err();
        assert!(matches!(error, MemoryFileError::NotPages { .. }), "{error}");
    }
}

#[test]
fn a_base_that_was_cut_fails_the_write_and_leaves_nothing_usable() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("memory");
    let file = File::create(&path).unwrap();
    layered().write_to(&file, &mut |_, _| Ok(())).unwrap();
    let image = open(&path, MIB).unwrap();
    // To a memfd page by page, to a file by the file system.
    let other = File::create(directory.path().join("other")).unwrap();
    let mut first = true;
    for to in [memfd(0).unwrap(), other] {
        let mut cut = |_, _| {
            if first {
                file.set_len(2 * PAGE).unwrap();
            }
            first = false;
            Ok(())
        };
        image.write_to(&to, &mut cut).unwrap_err();
        assert_eq!(to.metadata().unwrap().len(), 0);
    }
    GuestRam::from_image(&image).unwrap_err();
}

#[test]
fn a_memory_file_that_was_written_again_under_its_name_is_not_used() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("memory");
    layered()
        .write_to(&File::create(&path).unwrap(), &mut |_, _| Ok(()))
        .unwrap();
    let image = open(&path, MIB).unwrap();
    let ram = GuestRam::from_image(&image).unwrap();
    // The clock by which files are stamped has ticks.
    while open(&path, MIB).unwrap().identity() == image.identity() {
        layered()
            .write_to(&File::create(&path).unwrap(), &mut |_, _| Ok(()))
            .unwrap();
    }
    for error in [
        ram.freeze().unwrap_err().to_string(),
        ram.write_to(&memfd(0).unwrap(), &mut |_, _| Ok(()))
            .unwrap_err()
            .to_string(),
        image
            .write_to(&memfd(0).unwrap(), &mut |_, _| Ok(()))
            .unwrap_err()
            .to_string(),
        GuestRam::from_image(&image).unwrap_err().to_string(),
    ] {
        assert!(error.contains("written or cut"), "{error}");
    }
}

#[test]
fn a_write_that_fails_in_the_middle_leaves_nothing_usable() {
    // Can be resized and not written.
    let to = memfd(MIB).unwrap();
    rustix::fs::fcntl_add_seals(&to, SealFlags::WRITE).unwrap();
    let error = layered().write_to(&to, &mut |_, _| Ok(())).unwrap_err();
    assert_eq!(error.source.raw_os_error(), Some(libc::EPERM), "{error}");
    assert_eq!(to.metadata().unwrap().len(), 0);
}

#[test]
fn a_full_disk_is_an_error_and_leaves_nothing_usable() {
    const NAME: &str = "memory::image::tests::a_full_disk_is_an_error_and_leaves_nothing_usable";
    crate::testing::alone(NAME, || {
        let Some(disk) = crate::testing::small_disk() else {
            eprintln!("this user may not mount a small disk: not tested");
            return;
        };
        let ram = GuestRam::new(MIB, Backing::Shareable).unwrap();
        fill(&ram, 0..200, 1);
        let image = ram.freeze().unwrap().image;
        let path = disk.path().join("memory");
        let file = File::create(&path).unwrap();
        for outcome in [
            image.write_to(&file, &mut |_, _| Ok(())),
            ram.write_to(&file, &mut |_, _| Ok(())),
        ] {
            let error = outcome.unwrap_err();
            assert_eq!(error.source.raw_os_error(), Some(libc::ENOSPC), "{error}");
            assert_eq!(file.metadata().unwrap().len(), 0);
        }
        assert!(open(&path, MIB).is_err());
        // With room again it works.
        let small = GuestRam::new(MIB, Backing::Shareable).unwrap();
        put(&small, 0, 1);
        small.write_to(&file, &mut |_, _| Ok(())).unwrap();
    });
}
