//! The times of an image's files.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};

use forebay::Vm;
use forebay_images::Source;
use forebay_tests::{CEILING, TestVm, Within, scaled, turn};

use super::fixture::Place;

/// What the guest says: the directory keeps its time though files were put into it, and the names of
/// one file have one time.
const TIMES: &str = "\
/srv 1000000000
/srv/late 2000000000
/srv/module 1111111111
/srv/twin 1111111111
";

#[tokio::test]
async fn a_file_of_an_image_has_its_own_time_in_the_guest() {
    let _turn = turn().await;
    let place = Place::new();
    let root = place.root(&["sh", "stat"]);
    fs::create_dir(root.join("srv")).unwrap();
    for (name, seconds) in [
        ("module", 1_111_111_111),
        // No file system of this host cuts it.
        ("late", 2_000_000_000),
    ] {
        fs::write(root.join("srv").join(name), name).unwrap();
        touch(&root.join("srv").join(name), seconds);
    }
    fs::hard_link(root.join("srv/module"), root.join("srv/twin")).unwrap();
    touch(&root.join("srv"), 1_000_000_000);

    let built = place.build(&Source::Directory(root));
    assert!(built.notes.is_empty(), "{:?}", built.notes);
    let builder = Vm::builder().image(built.image);
    let vm = TestVm::start(builder.boot_deadline(scaled(CEILING))).await;
    let out = vm
        .shell("stat -c '%n %Y' /srv /srv/*")
        .within(CEILING)
        .await;
    assert_eq!(out.unwrap().stdout_str().unwrap(), TIMES);
    vm.close().await;
}

/// Gives a file or directory this time, in seconds since 1970.
fn touch(path: &Path, seconds: u64) {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    File::open(path).unwrap().set_modified(time).unwrap();
}
