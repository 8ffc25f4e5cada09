use std::os::fd::AsFd as _;

use rustix::fs::{Mode, OFlags};

use super::Figures;

fn figures(text: &str) -> Figures {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("file"), text).unwrap();
    let dir = rustix::fs::open(place.path(), OFlags::PATH, Mode::empty()).unwrap();
    Figures::open(dir.as_fd(), "file").unwrap()
}

#[test]
fn a_number_is_found_by_its_whole_label() {
    let text = figures("oom 1\noom_kill 22\nusage_usec 7\nuser_usec 3\nbad x\n");
    assert_eq!(text.get("oom "), Some(1));
    assert_eq!(text.get("oom_kill "), Some(22));
    assert_eq!(text.get("usec "), None);
    assert_eq!(text.get("bad "), None);
    assert_eq!(figures("4096\n").get(""), Some(4096));
    assert_eq!(figures("max\n").get(""), None);
    assert_eq!(figures("").get(""), None);
}

#[test]
fn what_a_command_put_over_a_file_is_not_read() {
    let place = tempfile::tempdir().unwrap();
    for (name, text) in [("file", "a 1\n"), ("other", "a 2\n")] {
        std::fs::write(place.path().join(name), text).unwrap();
    }
    let dir = rustix::fs::open(place.path(), OFlags::PATH, Mode::empty()).unwrap();
    let over = place.path().join("file");
    if let Err(error) = rustix::mount::mount_bind(place.path().join("other"), &over) {
        return eprintln!("nothing can be mounted here ({error}): not tested");
    }
    let read = Figures::open(dir.as_fd(), "file").is_some();
    rustix::mount::unmount(&over, rustix::mount::UnmountFlags::DETACH).unwrap();
    assert!(!read);
    assert_eq!(
        Figures::open(dir.as_fd(), "file").unwrap().get("a "),
        Some(1)
    );
}
