//! A command that does not read its stdin is nobody else's trouble.

use forebay::{ExecEvent, Signal, Stdin, WriteError};
use forebay_guest_helper::pattern::Pattern;
use forebay_tests::{CEILING, HELPER, Within as _, rounds};

use super::{LONG, assert_slots_come_free, shared};

const BLOCKED: usize = 8;
const STREAMED: usize = 20 * 1024 * 1024;

// B27
#[tokio::test]
async fn blocked_stdins_stop_neither_kill_nor_output_nor_other_commands() {
    let vm = &*shared().await;
    let limit = vm.client().limits().input_limit as usize;
    let mut sleepers = Vec::new();
    for _ in 0..BLOCKED {
        let exec = vm.exec("sleep", ["1000"]).stdin(Stdin::piped());
        let mut sleeper = exec.spawn().within(CEILING).await.unwrap();
        let sink = sleeper.take_stdin().unwrap();
        // The allowance takes this much though nobody reads.
        sink.write(vec![0; limit]).within(CEILING).await.unwrap();
        // Far beyond the allowance and the guest's pipe: it waits until the command is killed.
        let waiting = tokio::spawn(async move { sink.write(vec![0; 1024 * 1024]).await });
        sleepers.push((sleeper, waiting));
    }

    let (mut victim, waiting) = sleepers.pop().unwrap();
    victim.signal(Signal::KILL).within(CEILING).await.unwrap();
    assert_eq!(
        victim.wait().within(CEILING).await.unwrap().signal(),
        Some(Signal::KILL)
    );
    let broken = waiting.within(CEILING).await.unwrap();
    assert!(
        matches!(broken, Err(WriteError::Broken(_) | WriteError::Ended)),
        "{broken:?}"
    );

    let stream = async {
        let arguments = ["random".to_owned(), "27".to_owned(), STREAMED.to_string()];
        let mut command = vm.exec(HELPER, arguments).spawn().await.unwrap();
        let (mut pattern, mut seen) = (Pattern::new(27), 0);
        loop {
            match command.recv().await.unwrap() {
                ExecEvent::Stdout(chunk) => {
                    assert_eq!(pattern.first_difference(&chunk), None, "after {seen} bytes");
                    seen += chunk.len();
                }
                ExecEvent::Exited(status) => break assert!(status.success(), "{status}"),
                ExecEvent::Started { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(seen, STREAMED);
    };
    let echoes = async {
        for _ in 0..rounds(200) {
            let out = vm.exec("echo", ["hi"]).within(CEILING).await.unwrap();
            assert_eq!(out.stdout(), b"hi\n");
        }
    };
    async { tokio::join!(stream, echoes) }.within(LONG).await;

    for (sleeper, waiting) in sleepers {
        assert!(!waiting.is_finished(), "a write ended though nobody read");
        sleeper.kill();
        let broken = waiting.within(CEILING).await.unwrap();
        assert!(
            matches!(broken, Err(WriteError::Broken(_) | WriteError::Ended)),
            "{broken:?}"
        );
    }
    assert_slots_come_free(vm).await;
}
