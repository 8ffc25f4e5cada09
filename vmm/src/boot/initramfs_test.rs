use super::*;
use crate::memory::{self, MIB};

#[test]
fn it_lies_at_the_top_of_low_ram_on_a_mebibyte() {
    let at = |len, ram| {
        place([len].into_iter(), ram, 32 * MIB)
            .unwrap()
            .unwrap()
            .start
    };
    assert_eq!(at(1, 256 * MIB), 255 * MIB);
    assert_eq!(at(MIB, 256 * MIB), 255 * MIB);
    assert_eq!(at(MIB + 1, 256 * MIB), 254 * MIB);
}

#[test]
fn layers_follow_each_other_at_multiples_of_four() {
    let dir = tempfile::tempdir().unwrap();
    let layers: Vec<_> = [&b"abcde"[..], b"0123"]
        .iter()
        .enumerate()
        .map(|(i, content)| {
            let path = dir.path().join(i.to_string());
            std::fs::write(&path, content).unwrap();
            path
        })
        .collect();
    let memory = memory::map(64 * MIB).unwrap();
    let loaded = load(&layers, &memory, 64 * MIB, 32 * MIB).unwrap().unwrap();
    assert_eq!(
        loaded,
        LoadedInitramfs {
            start: 63 * MIB,
            len: 12
        }
    );
    let mut bytes = [0xff; 12];
    memory
        .read_slice(&mut bytes, GuestAddress(loaded.start))
        .unwrap();
    assert_eq!(&bytes, b"abcde\0\0\x000123");
}

#[test]
fn memory_above_four_gib_does_not_move_it_out_of_reach() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("layer");
    std::fs::write(&path, b"x").unwrap();
    let memory = memory::map(4096 * MIB).unwrap();
    let loaded = load(&[path], &memory, 4096 * MIB, 32 * MIB)
        .unwrap()
        .unwrap();
    assert_eq!(loaded.start, 3071 * MIB);
}

#[test]
fn one_that_does_not_fit_is_refused_with_both_numbers() {
    for len in [33 * MIB, u64::MAX] {
        let error = place([len].into_iter(), 64 * MIB, 32 * MIB).unwrap_err();
        assert!(
            matches!(error, StartError::InitramfsTooLarge { needed, available, .. }
                if needed >= 33 * MIB && available == 32 * MIB),
            "{error}"
        );
    }
    assert!(place([32 * MIB].into_iter(), 64 * MIB, 32 * MIB).is_ok());
}

#[test]
fn more_memory_is_advised_only_where_it_would_help() {
    let kernel_end = 32 * MIB;
    for (len, helps) in [(HOLE_START - kernel_end, true), (HOLE_START, false)] {
        let error = place([len].into_iter(), 64 * MIB, kernel_end).unwrap_err();
        let text = error.to_string();
        assert_eq!(text.contains("more memory"), helps, "{text}");
        assert!(text.contains("make the initramfs smaller"), "{text}");
        let largest = place([len].into_iter(), HOLE_START, kernel_end);
        assert_eq!(largest.is_ok(), helps);
    }
}

#[test]
fn what_is_said_to_be_free_is_what_can_be_used() {
    let error = place([u64::MAX].into_iter(), 64 * MIB, 32 * MIB + 1).unwrap_err();
    let StartError::InitramfsTooLarge { available, .. } = error else {
        panic!("{error}");
    };
    assert!(place([available].into_iter(), 64 * MIB, 32 * MIB + 1).is_ok());
    assert!(place([available + 1].into_iter(), 64 * MIB, 32 * MIB + 1).is_err());
}

#[test]
fn an_empty_layer_and_one_that_is_no_file_are_refused() {
    let memory = memory::map(64 * MIB).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().join("empty");
    std::fs::write(&empty, b"").unwrap();
    let fifo = dir.path().join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RUSR).unwrap();
    for (path, why) in [
        (empty, "empty"),
        (fifo, "not a regular file"),
        (dir.path().to_owned(), "not a regular file"),
    ] {
        let error = load(&[path], &memory, 64 * MIB, 32 * MIB).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[test]
fn none_is_allowed_and_a_missing_layer_is_named() {
    let memory = memory::map(64 * MIB).unwrap();
    assert_eq!(load(&[], &memory, 64 * MIB, 32 * MIB).unwrap(), None);
    let error = load(&["/nowhere/layer".into()], &memory, 64 * MIB, 32 * MIB).unwrap_err();
    assert!(error.to_string().contains("/nowhere/layer"), "{error}");
}
