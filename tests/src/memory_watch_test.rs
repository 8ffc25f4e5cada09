use std::time::Instant;

use super::*;
use crate::turn::turn;

const MUCH: usize = 64 << 20;
/// What the tests beside this one may give back meanwhile.
const SLACK: usize = 8 << 20;
const OFTEN: Duration = Duration::from_millis(1);

/// One test with a turn, since the tests of a program share its memory.
#[tokio::test]
async fn what_was_given_back_meanwhile_counts_and_what_is_held_at_the_end() {
    let _turn = turn().await;
    let watch = MemoryWatch::start(OFTEN);
    let held = vec![1_u8; MUCH + SLACK];
    let deadline = Instant::now() + Duration::from_secs(60);
    while watch.most.load(Ordering::Relaxed) < watch.before + MUCH as u64 {
        assert!(Instant::now() < deadline, "nobody looks");
        std::thread::sleep(OFTEN);
    }
    drop(std::hint::black_box(held));
    let grown = watch.grown();
    assert!(grown >= MUCH as u64, "{grown}");

    let watch = MemoryWatch::start(Duration::from_secs(3600));
    let held = vec![1_u8; MUCH + SLACK];
    let grown = watch.grown();
    drop(std::hint::black_box(held));
    assert!(grown >= MUCH as u64, "{grown}");
}
