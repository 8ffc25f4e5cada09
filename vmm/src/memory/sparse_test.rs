//! A failing set is shrunk and printed by proptest; to replay a seed, set `PROPTEST_RNG_SEED`.

use super::*;
use crate::memory::image::memfd;
use proptest::prelude::*;

proptest! {
    #[test]
    fn a_copy_holds_the_runs_and_its_data_is_their_pages_that_are_not_zero(
        pages in prop::collection::vec((any::<bool>(), any::<bool>()), 1..100),
    ) {
        let len = pages.len() as u64 * PAGE;
        let mut bytes = vec![0; len as usize];
        let (mut runs, mut expected) = (Runs::default(), Runs::default());
        for (page, (wanted, zero)) in pages.iter().enumerate() {
            let at = page as u64 * PAGE;
            if !zero {
                // Anywhere in the page.
                bytes[at as usize + (page * 41) % PAGE as usize] = 7;
            }
            if *wanted {
                runs.push(at..at + PAGE);
                if !zero {
                    expected.push(at..at + PAGE);
                }
            }
        }
        let to = memfd(len).unwrap();
        let read = |piece: &mut [u8], at: u64| {
            piece.copy_from_slice(&bytes[at as usize..][..piece.len()]);
            Ok(())
        };
        let mut told = 0;
        let written = copy(&runs, &to, read, |step| {
            told += step;
            Ok(())
        }).unwrap();
        prop_assert_eq!(told, runs.bytes());
        prop_assert_eq!(written, expected.bytes());
        prop_assert_eq!(data(&to, len).unwrap(), expected.clone());
        for run in expected.iter() {
            let mut found = vec![0; (run.end - run.start) as usize];
            to.read_exact_at(&mut found, run.start).unwrap();
            prop_assert_eq!(&found[..], &bytes[run.start as usize..run.end as usize]);
        }
    }
}

proptest! {
    #[test]
    fn large_holes_are_holes_and_no_larger_one_is_missed(
        data_at in prop::collection::btree_set(0_u64..4096, 0..12),
        units in 1_u64..4096,
    ) {
        // Sizes up to 8 GiB, where the unit is larger.
        let len = units * (2 << 20);
        let file = memfd(len).unwrap();
        let mut data = Runs::default();
        for page in data_at {
            let at = page * (len / 4096 / PAGE) * PAGE;
            file.write_all_at(&[1], at).unwrap();
            data.push(at..at + PAGE);
        }
        let holes = large_holes(&file, len).unwrap();
        prop_assert!(holes.common(&data).is_empty());
        let unit = len.div_ceil(512).next_multiple_of(2 << 20);
        let mut all = Runs::default();
        all.push(0..len);
        for missed in all.without(&data).without(&holes).iter() {
            prop_assert!(missed.end - missed.start < 2 * unit, "{missed:?}");
        }
    }
}

#[test]
fn runs_that_the_file_system_copies_need_no_other_copy_and_the_rest_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let [from, to] = ["from", "to"].map(|name| {
        std::fs::File::options()
            .create(true)
            .truncate(true)
            .read(true)
            .write(true)
            .open(directory.path().join(name))
            .unwrap()
    });
    from.write_all_at(&[5; 3 * PAGE as usize], PAGE).unwrap();
    to.set_len(8 * PAGE).unwrap();
    let mut runs = Runs::default();
    runs.push(PAGE..2 * PAGE);
    runs.push(3 * PAGE..4 * PAGE);
    let mut told = 0;
    let rest = clone_data(&runs, &from, &to, |step| {
        told += step;
        Ok(())
    })
    .unwrap();
    assert_eq!(told + rest.bytes(), 2 * PAGE);
    let mut found = [0; 8 * PAGE as usize];
    to.read_exact_at(&mut found, 0).unwrap();
    for run in runs.without(&rest).iter() {
        assert!(
            found[run.start as usize..run.end as usize]
                .iter()
                .all(|byte| *byte == 5)
        );
    }
    assert_eq!(found[2 * PAGE as usize], 0);
    // Between a file system and memory there is no such way.
    let memory = memfd(8 * PAGE).unwrap();
    assert_eq!(clone_data(&runs, &from, &memory, |_| Ok(())).unwrap(), runs);
}
