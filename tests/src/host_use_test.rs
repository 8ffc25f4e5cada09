use super::*;
use crate::turn::turn;

#[test]
fn guests_memory_is_told_from_our_own() {
    let smaps = "\
7f00-7f10 rw-p 00000000 00:00 0
Size:            1048576 kB
Rss:              200000 kB
Anonymous:         50000 kB
VmFlags: rd wr mr mw me ac dc dd hg nr
7f20-7f30 rw-p 00000000 00:00 0
Rss:                  12 kB
VmFlags: rd wr mr mw me ac
";
    let mappings = Mapping::parse(smaps);
    let facts: Vec<_> = mappings
        .iter()
        .map(|m| (m.resident, m.private, m.guest))
        .collect();
    assert_eq!(
        facts,
        [(200_000 * 1024, 50_000 * 1024, true), (12 * 1024, 0, false)]
    );
}

#[test]
fn a_mapping_that_grew_while_it_was_told_counts_once() {
    let smaps = "\
7f00-7f10 rw-p 00000000 00:00 0
Rss:                  40 kB
VmFlags: rd wr mr mw me nr sd
7f20-7f28 rw-p 00000000 00:00 0
Rss:                  32 kB
VmFlags: rd wr mr mw me nr sd
7f20-7f2a rw-p 00000000 00:00 0
Rss:                  36 kB
VmFlags: rd wr mr mw me nr sd
7f2a-7f30 ---p 00000000 00:00 0
Rss:                   0 kB
VmFlags: mr mw me nr sd
";
    let resident: Vec<_> = Mapping::parse(smaps).iter().map(|m| m.resident).collect();
    assert_eq!(resident, [40 * 1024, 36 * 1024, 0]);
}

#[test]
fn a_descriptor_and_a_thread_more_are_seen() {
    let before = HostUse::now();
    let file = fs::File::open("/dev/null").unwrap();
    let (sender, receiver) = std::sync::mpsc::channel::<()>();
    let (started, runs) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::Builder::new()
        .name("forebay-test".to_owned())
        .spawn(move || {
            started.send(()).unwrap();
            receiver.recv()
        })
        .unwrap();
    // A thread gives itself its name when it begins to run.
    runs.recv().unwrap();
    let during = HostUse::now();
    let nulls = |used: &HostUse| {
        used.descriptors
            .iter()
            .filter(|d| *d == "/dev/null")
            .count()
    };
    assert_eq!(nulls(&during), nulls(&before) + 1);
    assert!(during.threads.contains(&"forebay-test".to_owned()));
    drop((file, sender));
    assert!(thread.join().unwrap().is_err());
}

#[tokio::test]
async fn touched_memory_counts_as_resident() {
    let _turn = turn().await;
    let before = resident_beyond_guests();
    let block = vec![1_u8; 32 << 20];
    assert!(
        resident_beyond_guests() >= before + (24 << 20),
        "{}",
        block.len()
    );
}
