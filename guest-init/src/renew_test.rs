use std::fs;

use rustix::fs::{FileType, mknodat};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_clock_goes_back_only_if_it_is_far_ahead() {
    let host = 1000 * SECOND;
    assert!(must_step(host - Duration::from_nanos(1), host));
    assert!(must_step(Duration::ZERO, host));
    assert!(!must_step(host, host));
    assert!(!must_step(host + SECOND - Duration::from_nanos(1), host));
    assert!(must_step(host + SECOND, host));
}

#[test]
fn the_generation_is_a_line_as_the_kernel_writes_its_ids() {
    let generation = core::array::from_fn(|n| u8::try_from(n * 17).unwrap());
    assert_eq!(text(generation), "00112233-4455-6677-8899-aabbccddeeff\n");
    assert_eq!(text([0; 16]), "00000000-0000-0000-0000-000000000000\n");
}

fn open(dir: &tempfile::TempDir) -> OwnedFd {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(dir.path(), flags, Mode::empty()).unwrap()
}

#[test]
fn the_generation_is_replaced_as_a_whole() {
    let dir = tempfile::tempdir().unwrap();
    let run = open(&dir);
    let told = || fs::read_to_string(dir.path().join("generation")).unwrap();
    tell_generation(&run, [1; 16]).unwrap();
    let before = fs::File::open(dir.path().join("generation")).unwrap();
    assert_eq!(told(), text([1; 16]));
    tell_generation(&run, [2; 16]).unwrap();
    assert_eq!(told(), text([2; 16]));
    let old = std::io::read_to_string(before).unwrap();
    assert_eq!(old, text([1; 16]), "whoever reads the old one goes on");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn what_a_command_left_in_place_of_the_new_file_makes_nobody_wait() {
    let dir = tempfile::tempdir().unwrap();
    let run = open(&dir);
    let elsewhere = dir.path().join("elsewhere");
    fs::write(&elsewhere, "kept").unwrap();
    std::os::unix::fs::symlink(&elsewhere, dir.path().join(".generation.new")).unwrap();
    tell_generation(&run, [1; 16]).unwrap();
    // Opening it for writing would wait for a reader.
    let mode = Mode::from_raw_mode(0o600);
    mknodat(&run, ".generation.new", FileType::Fifo, mode, 0).unwrap();
    tell_generation(&run, [2; 16]).unwrap();
    assert_eq!(fs::read_to_string(elsewhere).unwrap(), "kept");
    // A directory cannot be replaced, and that is said.
    fs::create_dir(dir.path().join(".generation.new")).unwrap();
    assert_eq!(tell_generation(&run, [3; 16]), Err(Errno::ISDIR));
}

#[test]
fn what_is_no_generator_takes_no_entropy() {
    let file = OwnedFd::from(tempfile::tempfile().unwrap());
    assert_eq!(reseed(&file, &[7; 32]), Err(Errno::NOTTY));
}
