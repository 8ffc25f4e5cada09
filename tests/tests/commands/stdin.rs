//! Stdin: null, fixed bytes, piped; its end; and a command that no longer reads it.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use forebay::{ExecEvent, ExecParts, Stdin, WriteError};
use forebay_guest_helper::pattern::Pattern;
use forebay_tests::{CEILING, Seed, Within as _};
use tokio::io::AsyncReadExt as _;

use super::{LONG, assert_answers, assert_slots_come_free, shared};

const MIB: usize = 1024 * 1024;

// B25
#[tokio::test]
async fn a_stdin_that_nobody_asked_for_has_ended() {
    let vm = &*shared().await;
    let out = vm.shell("cat; echo end").within(CEILING).await.unwrap();
    assert_eq!(out.stdout(), b"end\n");
    let out = vm.shell("read x; echo $?").within(CEILING).await.unwrap();
    assert_eq!(out.stdout(), b"1\n");
    let out = vm.exec("wc", ["-c"]).within(CEILING).await.unwrap();
    assert_eq!(out.stdout_str().unwrap().trim(), "0");
}

// B25
#[tokio::test]
async fn fixed_bytes_are_read_to_their_end() {
    let vm = &*shared().await;
    for bytes in ["abc", ""] {
        let out = vm
            .exec("wc", ["-c"])
            .stdin(Stdin::bytes(bytes))
            .within(CEILING)
            .await
            .unwrap();
        assert_eq!(out.stdout_str().unwrap().trim(), bytes.len().to_string());
    }
    let data = Pattern::new(25).take(3 * MIB);
    let out = vm
        .exec("cat", [""; 0])
        .stdin(Stdin::bytes(data.clone()))
        .within(LONG)
        .await
        .unwrap();
    assert!(
        out.stdout() == data,
        "{} bytes, or other ones",
        out.stdout().len()
    );
}

// B25
#[tokio::test]
async fn a_piped_stdin_that_nobody_takes_is_closed() {
    let vm = &*shared().await;
    let out = vm
        .exec("wc", ["-c"])
        .stdin(Stdin::piped())
        .within(CEILING)
        .await
        .unwrap();
    assert_eq!(out.stdout_str().unwrap().trim(), "0");
}

// B26
#[tokio::test]
async fn a_command_that_stops_reading_ends_as_it_likes() {
    let vm = &*shared().await;
    for (script, stdout, code) in [
        ("head -c 10 >/dev/null; exit 3", "", 3),
        ("exec 0<&-; sleep 1; echo out; exit 4", "out\n", 4),
    ] {
        let mut command = vm
            .shell(script)
            .stdin(Stdin::piped())
            .spawn()
            .within(CEILING)
            .await
            .unwrap();
        let sink = command.take_stdin().unwrap();
        let feed = sink.write(Pattern::new(26).take(MIB));
        let watch = async {
            let (mut notices, mut seen) = (0, Vec::new());
            loop {
                match command.recv().await.unwrap() {
                    ExecEvent::StdinError(error) => {
                        assert_eq!(error.name, "EPIPE");
                        notices += 1;
                    }
                    ExecEvent::Stdout(chunk) => seen.extend_from_slice(&chunk),
                    ExecEvent::Exited(status) => break (notices, seen, status),
                    ExecEvent::Started { .. } => {}
                    other => panic!("{script}: {other:?}"),
                }
            }
        };
        let (fed, (notices, seen, status)) =
            async { tokio::join!(feed, watch) }.within(CEILING).await;
        assert!(
            matches!(fed, Err(WriteError::Broken(_) | WriteError::Ended)),
            "{script}: {fed:?}"
        );
        assert!(notices <= 1, "{script}: {notices} notices");
        assert_eq!(status.code(), Some(code), "{script}");
        assert_eq!(seen, stdout.as_bytes(), "{script}");
        // After the end: plain errors for writes, nothing for closes.
        assert!(sink.write("late").within(CEILING).await.is_err());
        sink.close().within(CEILING).await.unwrap();
        sink.close().within(CEILING).await.unwrap();
        assert!(matches!(
            sink.write("later").within(CEILING).await,
            Err(WriteError::Closed | WriteError::Ended)
        ));
        drop((sink, command));
        assert_slots_come_free(vm).await;
        assert_answers(vm).await;
    }
}

// B28
#[tokio::test]
async fn eight_mebibytes_through_cat_come_back_whatever_the_sizes_of_the_writes() {
    let vm = &*shared().await;
    let seed = Seed::announced("data through cat");
    let data = Pattern::new(seed.start()).take(8 * MIB);
    let command = vm
        .exec("cat", [""; 0])
        .stdin(Stdin::piped())
        .spawn()
        .within(CEILING)
        .await
        .unwrap();
    let ExecParts {
        stdin,
        mut stdout,
        stderr,
        mut exit,
        ..
    } = command.split();
    drop(stderr);
    let sink = stdin.unwrap();
    let write = async {
        let mut rest = data.as_slice();
        // One byte each for the first 4 KiB, then these sizes in turn.
        let sizes =
            std::iter::repeat_n(1, 4096).chain([1000, 64 * 1024 + 1, MIB].into_iter().cycle());
        for size in sizes {
            if rest.is_empty() {
                break;
            }
            let (piece, after) = rest.split_at(size.min(rest.len()));
            sink.write_all(piece).await.unwrap();
            rest = after;
        }
        sink.close().await.unwrap();
    };
    let mut back = Vec::with_capacity(data.len());
    let ((), read) = async { tokio::join!(write, stdout.read_to_end(&mut back)) }
        .within(LONG)
        .await;
    read.unwrap();
    assert!(
        back == data,
        "{} bytes came back, or other ones",
        back.len()
    );
    assert_eq!(exit.wait().within(CEILING).await.unwrap().code(), Some(0));
    assert_eq!(stdout.read(&mut [0; 1]).within(CEILING).await.unwrap(), 0);
}

// B28
#[tokio::test]
async fn of_a_cancelled_write_a_prefix_arrives_and_then_the_end() {
    let vm = &*shared().await;
    let mut seed = Seed::announced("where the write is cancelled");
    let data = Pattern::new(seed.start()).take(MIB);
    for _ in 0..4 {
        let command = vm
            .exec("cat", [""; 0])
            .stdin(Stdin::piped())
            .spawn()
            .within(CEILING)
            .await
            .unwrap();
        let ExecParts {
            stdin,
            mut stdout,
            mut exit,
            ..
        } = command.split();
        let sink = stdin.unwrap();
        let mut back = vec![0; seed.below(300_000) as usize];
        {
            // Reads so much while the write is under way, then drops the write.
            let mut write = pin!(sink.write(data.clone()));
            let mut read = pin!(stdout.read_exact(&mut back));
            let both = poll_fn(|cx| {
                let written = write.as_mut().poll(cx);
                assert!(
                    written.is_pending(),
                    "1 MiB cannot be handed over: {written:?}"
                );
                match read.as_mut().poll(cx) {
                    Poll::Ready(read) => Poll::Ready(read.unwrap()),
                    Poll::Pending => Poll::Pending,
                }
            });
            both.within(CEILING).await;
        }
        sink.close().within(CEILING).await.unwrap();
        stdout.read_to_end(&mut back).within(CEILING).await.unwrap();
        assert!(
            back.len() < data.len() && data.starts_with(&back),
            "{} bytes",
            back.len()
        );
        assert_eq!(exit.wait().within(CEILING).await.unwrap().code(), Some(0));
    }
}
