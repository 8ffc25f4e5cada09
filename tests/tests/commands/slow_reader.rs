//! A reader that takes little at a time, pauses and stands still: it gets every byte, and meanwhile
//! the host holds no more than the allowance and the command sleeps in its write.

use std::time::Duration;

use forebay_guest_helper::pattern::Pattern;
use forebay_tests::{CEILING, HELPER, MemoryWatch, Seed, Within as _, scaled};
use tokio::io::AsyncReadExt as _;
use tokio::time::sleep;

use super::{LONG, assert_answers, assert_slots_come_free, blocked_in_write, shared};

const MIB: usize = 1024 * 1024;
const TOTAL: usize = 64 * MIB;
/// The reader's appetite.
const AT_A_TIME: usize = 1000;
/// What the process may grow by, the allowance of 1 MiB included.
const GROWTH: u64 = 4 * MIB as u64;
/// How often that is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

// B03
#[tokio::test]
async fn a_slow_reader_gets_every_byte_and_the_host_holds_one_allowance() {
    let vm = &*shared().await;
    let seed = Seed::announced("the pattern");
    // The first executions fill the allocator's pools.
    for _ in 0..4 {
        assert_answers(vm).await;
    }
    let watch = MemoryWatch::start(scaled(LOOK_EVERY));
    let arguments = [
        "random".to_owned(),
        seed.start().to_string(),
        TOTAL.to_string(),
    ];
    let command = vm.exec(HELPER, arguments).spawn().within(CEILING).await;
    let command = command.unwrap();
    let pid = command.pid();
    let mut parts = command.split();

    let mut pattern = Pattern::new(seed.start());
    let mut piece = [0; AT_A_TIME];
    let (mut seen, mut mibs) = (0, 0);
    while seen < TOTAL {
        let piece = &mut piece[..AT_A_TIME.min(TOTAL - seen)];
        parts
            .stdout
            .read_exact(piece)
            .within(CEILING)
            .await
            .unwrap();
        assert_eq!(pattern.first_difference(piece), None, "after {seen} bytes");
        seen += piece.len();
        if seen / MIB == mibs {
            continue;
        }
        mibs = seen / MIB;
        match mibs {
            1..8 => sleep(Duration::from_secs(1)).await,
            8 => {
                let asleep = blocked_in_write(vm, pid).await;
                sleep(Duration::from_secs(10)).await;
                assert_eq!(
                    blocked_in_write(vm, pid).await,
                    asleep,
                    "it used the processor"
                );
            }
            _ => {}
        }
    }
    assert_eq!(
        parts.stdout.read(&mut piece).within(CEILING).await.unwrap(),
        0
    );
    let status = parts.exit.wait().within(LONG).await.unwrap();
    assert_eq!(status.code(), Some(0));
    let grown = watch.grown();
    assert!(grown < GROWTH, "{grown} bytes more than before");
    drop(parts);
    assert_slots_come_free(vm).await;
}
