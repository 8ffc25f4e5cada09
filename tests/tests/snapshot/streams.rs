//! Executions that live through a snapshot.

use forebay::{Adopted, Survivors};
use forebay_tests::{CEILING, TestVm, Within as _, builder, turn};
use tokio::io::AsyncReadExt as _;

use super::says;

/// Prints numbers for ever, a line each.
const COUNT: &str = "i=0; while :; do echo $i; i=$((i+1)); done";

#[tokio::test]
async fn a_stream_goes_on_in_source_and_copy_without_a_byte_lost_or_twice() {
    let _turn = turn().await;
    let vm = TestVm::start(builder().forkable(true)).await;
    let mut source = vm.shell(COUNT).spawn().await.unwrap().split();
    let id = source.exit.id();
    let mut read = vec![0; 100_000];
    source.stdout.read_exact(&mut read).await.unwrap();
    let template = vm.template().await.unwrap();
    assert_eq!(template.executions(), [id]);
    let fork = TestVm::restore(template.fork().survivors(Survivors::Adopt)).await;
    assert_eq!(fork.survivors(), [id]);
    let Adopted {
        handle, progress, ..
    } = fork.adopt(id).unwrap();
    assert_eq!(progress.stdout_consumed, 100_000);
    let mut copy = handle.split();
    let mut expected = String::new();
    for number in 0.. {
        if expected.len() > 1_200_000 {
            break;
        }
        expected += &format!("{number}\n");
    }
    let mut rest = vec![0; 1_000_000];
    for stdout in [&mut copy.stdout, &mut source.stdout] {
        stdout.read_exact(&mut rest).within(CEILING).await.unwrap();
        assert!(
            rest == expected.as_bytes()[100_000..1_100_000],
            "bytes differ"
        );
    }
    drop(copy);
    drop(source);
    assert_eq!(says(&fork, "echo alive").await, "alive");
    assert_eq!(says(&vm, "echo alive").await, "alive");
}
