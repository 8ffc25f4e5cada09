use super::*;
use crate::testing::Random;
use std::fs::{self, File};

fn shape() -> Shape {
    Shape {
        vendor: *b"AuthenticAMD",
        signature: 0xa1_0f11,
        memory: 256 << 20,
        cpus: 2,
    }
}

fn records() -> Records {
    let mut records = Records::default();
    records.put("kvm", 1, (0..=255).collect());
    records.put("empty", 3, Vec::new());
    records.put("twelve-chars", 7, vec![0; 3000]);
    records
}

/// With a checksum that is right for what stands there.
fn sealed(mut file: Vec<u8>) -> Vec<u8> {
    let body = file.split_off(HEADER_LEN);
    file.truncate(SUMMED);
    let sum = checksum(&file, &body);
    file.extend(sum);
    file.extend(body);
    file
}

/// A state file of one record's bytes as they are given.
fn with_body(count: u32, body: &[u8]) -> Vec<u8> {
    let mut file = encode(&shape(), &Records::default()).unwrap();
    file[12..16].copy_from_slice(&count.to_le_bytes());
    file[56..64].copy_from_slice(&(body.len() as u64).to_le_bytes());
    file.extend(body);
    sealed(file)
}

#[test]
fn what_is_read_is_what_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let file = encode(&shape(), &records()).unwrap();
    fs::write(dir.path().join(NAME), file).unwrap();
    let (found, mut found_records) = read(dir.path()).unwrap();
    assert_eq!(found, shape());
    assert_eq!(found_records, records());
    let kvm: Vec<u8> = (0..=255).collect();
    assert_eq!(found_records.take("kvm", 1).unwrap(), kvm);
    assert!(found_records.take("empty", 3).unwrap().is_empty());
    assert_eq!(found_records.take("twelve-chars", 7).unwrap(), [0; 3000]);
    found_records.finish().unwrap();
}

#[test]
fn the_layout_of_version_1_is_what_it_was() {
    let mut one = Records::default();
    one.put("kvm", 1, vec![0xab]);
    let file = encode(&shape(), &one).unwrap();
    assert_eq!(&file[..16], b"\x89FOREBAY\x01\0\0\0\x01\0\0\0");
    assert_eq!(&file[16..40], b"x86_64\0\0AuthenticAMD\x11\x0f\xa1\0");
    assert_eq!(&file[40..56], b"\0\0\0\x10\0\0\0\0\x02\0\0\0\0\0\0\0");
    assert_eq!(&file[56..64], b"\x19\0\0\0\0\0\0\0");
    assert_eq!(
        &file[HEADER_LEN..],
        b"kvm\0\0\0\0\0\0\0\0\0\x01\0\0\0\x01\0\0\0\0\0\0\0\xab"
    );
    assert_eq!(decode(&file).unwrap(), (shape(), one));
}

#[test]
fn no_change_of_one_byte_goes_unnoticed() {
    let file = encode(&shape(), &records()).unwrap();
    let mut random = Random::announced();
    let len = file.len();
    for round in 0..len + 2000 {
        // Each byte once, then any.
        let at = if round < len {
            round
        } else {
            random.below(len)
        };
        let mut changed = file.clone();
        let by = 1 + random.below(255) as u8;
        changed[at] = changed[at].wrapping_add(by);
        assert!(decode(&changed).is_err(), "byte {at} by {by}");
    }
}

#[test]
fn a_file_that_was_cut_or_continued_says_both_lengths() {
    let file = encode(&shape(), &records()).unwrap();
    for len in 0..file.len() {
        let error = decode(&file[..len]).unwrap_err();
        match error {
            RestoreError::NotASnapshot => assert!(len < 8),
            RestoreError::Length { found, expected } => {
                assert_eq!(found, len as u64);
                assert!(expected > found);
            }
            other => panic!("{len}: {other}"),
        }
    }
    let mut longer = file.clone();
    longer.push(0);
    let error = decode(&longer).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(&longer.len().to_string()), "{text}");
    assert!(text.contains(&file.len().to_string()), "{text}");
}

#[test]
fn what_is_foreign_or_newer_is_told_apart() {
    let file = encode(&shape(), &records()).unwrap();
    assert!(matches!(
        decode(b"#!/bin/sh\nexec true\n"),
        Err(RestoreError::NotASnapshot)
    ));
    // A newer version may have any layout behind its number.
    let newer = [&MAGIC[..], &9u32.to_le_bytes()].concat();
    assert!(matches!(
        decode(&newer),
        Err(RestoreError::Version {
            found: 9,
            supported: VERSION
        })
    ));
    let mut foreign = file;
    foreign[16..24].copy_from_slice(b"aarch64\0");
    match decode(&sealed(foreign)) {
        Err(RestoreError::Architecture { found, .. }) => assert_eq!(found, "aarch64"),
        other => panic!("{other:?}"),
    }
}

fn problem(result: Result<impl std::fmt::Debug, RestoreError>) -> (String, RecordProblem) {
    match result {
        Err(RestoreError::Record { record, problem }) => (record, problem),
        other => panic!("{other:?}"),
    }
}

#[test]
fn records_that_are_missing_unknown_of_another_version_or_there_twice_are_named() {
    let mut found = records();
    assert_eq!(
        problem(found.take("exec", 1)),
        ("exec".into(), RecordProblem::Missing)
    );
    let version = RecordProblem::Version {
        found: 1,
        supported: 2,
    };
    assert_eq!(problem(found.take("kvm", 2)), ("kvm".into(), version));
    let mut found = records();
    found.take("kvm", 1).unwrap();
    found.take("twelve-chars", 7).unwrap();
    assert_eq!(
        problem(found.finish()),
        ("empty".into(), RecordProblem::Unknown)
    );
    let twice = b"kvm\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0".repeat(2);
    assert_eq!(
        problem(decode(&with_body(2, &twice))),
        ("kvm".into(), RecordProblem::Duplicate)
    );
}

#[test]
fn records_that_do_not_add_up_are_refused() {
    let record = b"kvm\0\0\0\0\0\0\0\0\0\x01\0\0\0\x01\0\0\0\0\0\0\0\xab";
    decode(&with_body(1, record)).unwrap();
    let mut huge = record.to_vec();
    huge[16..24].copy_from_slice(&u64::MAX.to_le_bytes());
    let many: Vec<u8> = (0..=RECORDS_MAX as u8)
        .flat_map(|n| [&[n + 1; NAME_LEN][..], &[0; 12]].concat())
        .collect();
    for (count, body) in [
        (0, &record[..]),
        (2, &record[..]),
        (1, &record[..record.len() - 1]),
        (1, &record[..5]),
        (1, &huge[..]),
        (RECORDS_MAX as u32 + 1, &many[..]),
    ] {
        let result = decode(&with_body(count, body));
        assert!(
            matches!(result, Err(RestoreError::Machine { .. })),
            "{count} {body:x?}: {result:?}"
        );
    }
}

#[test]
fn a_name_that_is_no_text_is_shown_escaped() {
    let mut record = b"k\x1b[2J\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0".to_vec();
    let (_, mut found) = decode(&with_body(1, &record)).unwrap();
    let (name, _) = problem(found.clone().finish());
    assert_eq!(name, "k\\x1b[2J");
    found.0.clear();
    record[0] = 0;
    decode(&with_body(1, &record)).unwrap();
}

#[test]
fn something_else_in_its_place_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(NAME);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    assert!(matches!(read(dir.path()), Err(RestoreError::NotASnapshot)));
}

#[test]
fn a_file_larger_than_any_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let file = File::create(dir.path().join(NAME)).unwrap();
    file.set_len(LEN_MAX + 1).unwrap();
    assert!(matches!(
        read(dir.path()),
        Err(RestoreError::TooLarge { .. })
    ));
}
