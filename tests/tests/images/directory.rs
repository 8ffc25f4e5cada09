//! A directory as a guest, and how much memory it needs.

use std::fs;
use std::os::unix::fs::symlink;

use forebay::{StartError, Vm};
use forebay_images::Source;
use forebay_tests::{CEILING, TestVm, Within, scaled, sha256, turn};

use super::fixture::Place;

/// Much beside a kernel and little beside the memory of a test machine, in MiB.
const LARGE: usize = 48;

#[tokio::test]
async fn a_directory_boots_in_the_least_memory_that_is_said_and_is_refused_in_less() {
    let _turn = turn().await;
    let place = Place::new();
    let root = place.root(&["sh", "sha256sum", "cat"]);
    // Not its turn: the agent is PID 1.
    symlink("bin/busybox", root.join("init")).unwrap();
    let large: Vec<u8> = (0..LARGE << 18)
        .flat_map(|n: usize| (n as u32).to_le_bytes())
        .collect();
    fs::write(root.join("large"), &large).unwrap();
    let built = place.build(&Source::Directory(root));
    assert_eq!(built.notes.len(), 1, "{:?}", built.notes);

    let least = u32::try_from(built.image.memory_need().least_bytes().div_ceil(1 << 20)).unwrap();
    let builder = |mib| {
        let builder = Vm::builder().image(built.image.clone());
        builder.memory_mib(mib).boot_deadline(scaled(CEILING))
    };
    let refused = builder(least - 1).start().await.unwrap_err();
    assert!(matches!(refused, StartError::Usage(_)), "{refused}");
    assert!(
        refused.to_string().contains(&format!("{least} MiB")),
        "{refused}"
    );

    let vm = TestVm::start(builder(least)).await;
    let out = vm
        .shell("sha256sum </large; cat /proc/1/comm")
        .within(CEILING)
        .await
        .unwrap();
    let expected = format!("{}  -\ninit\n", sha256(&large));
    assert_eq!(out.stdout_str().unwrap(), expected);
    vm.close().await;
}
