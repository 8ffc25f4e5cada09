//! What a command writes arrives whole, in order, and on the stream that it was written to.

use forebay::ExecParts;
use forebay_tests::{CEILING, HELPER, Sha256, TestVm, Within as _, rounds, sha256};

use super::{LONG, assert_answers, next, shared};

// B02
#[tokio::test]
async fn half_a_million_single_bytes_all_arrive() {
    let vm = &*shared().await;
    for _ in 0..rounds(30) {
        let out = vm
            .exec("dd", ["if=/dev/zero", "bs=1", "count=500000"])
            .within(LONG)
            .await
            .unwrap();
        assert!(out.status().success(), "{}", out.status());
        assert_eq!(out.stdout().len(), 500_000);
        assert!(out.stdout().iter().all(|byte| *byte == 0));
    }
}

// B02
#[tokio::test]
async fn a_million_lines_all_arrive() {
    let vm = &*shared().await;
    let mut expected = Sha256::new();
    for number in 1..=1_000_000 {
        expected.update(format!("{number}\n").as_bytes());
    }
    assert_eq!(expected.seen(), 6_888_896);
    let expected = expected.finish();
    for _ in 0..rounds(20) {
        let out = vm.exec("seq", ["1", "1000000"]).within(LONG).await.unwrap();
        assert!(out.status().success(), "{}", out.status());
        assert_eq!(out.stdout().len(), 6_888_896);
        assert_eq!(sha256(out.stdout()), expected);
    }
}

// B02
#[tokio::test]
async fn a_line_of_twenty_megabytes_keeps_its_end() {
    let vm = &*shared().await;
    let script = "head -c 19999997 /dev/zero | tr '\\0' x; printf END";
    let out = vm.shell(script).within(LONG).await.unwrap();
    assert!(out.status().success(), "{}", out.status());
    assert_eq!(out.stdout().len(), 20_000_000);
    let (line, end) = out.stdout().split_at(19_999_997);
    assert_eq!(end, b"END");
    assert!(line.iter().all(|byte| *byte == b'x'));
}

// B04
#[tokio::test]
async fn files_of_sizes_around_every_buffer_arrive_unchanged() {
    let vm = &*shared().await;
    let sizes = [
        0, 1, 4095, 4096, 4097, 16_367, 16_368, 16_369, 16_383, 16_384, 16_385, 32_767, 32_768,
        65_535, 65_536, 65_537, 99_328, 1_032_192, 1_032_193, 1_048_576, 1_048_577, 5_000_000,
    ];
    for size in sizes {
        let make = format!("head -c {size} /dev/urandom > /tmp/f; sha256sum < /tmp/f");
        let made = vm.shell(make).within(LONG).await.unwrap();
        let expected = made
            .stdout_str()
            .unwrap()
            .split_whitespace()
            .next()
            .unwrap()
            .to_owned();
        let out = vm.exec("cat", ["/tmp/f"]).within(LONG).await.unwrap();
        assert_eq!(out.stdout().len(), size);
        assert_eq!(sha256(out.stdout()), expected, "of {size} bytes");
        assert_answers(vm).await;
    }
    vm.exec("rm", ["/tmp/f"]).within(CEILING).await.unwrap();
}

/// Runs a script of which only stdout is looked at; gives stdout and the exit code.
async fn without_stderr(vm: &TestVm, script: &str) -> (Vec<u8>, Option<i32>) {
    let command = vm.shell(script).spawn().within(CEILING).await.unwrap();
    let ExecParts {
        mut stdout,
        stderr,
        mut exit,
        ..
    } = command.split();
    drop(stderr);
    let mut seen = Vec::new();
    let read = async {
        while let Some(chunk) = next(&mut stdout).await {
            seen.extend_from_slice(&chunk.unwrap());
        }
    };
    read.within(LONG).await;
    (seen, exit.wait().within(CEILING).await.unwrap().code())
}

// B05
#[tokio::test]
async fn three_megabytes_on_a_dropped_stderr_do_not_hold_stdout_back() {
    let (stdout, code) =
        without_stderr(&*shared().await, "head -c 3145728 /dev/zero >&2; echo ok").await;
    assert_eq!((stdout.as_slice(), code), (&b"ok\n"[..], Some(0)));
}

// B05
#[tokio::test]
async fn three_megabytes_of_stdout_arrive_beside_a_dropped_stderr() {
    let (stdout, code) =
        without_stderr(&*shared().await, "head -c 3145728 /dev/zero; echo ok >&2").await;
    assert_eq!((stdout.len(), code), (3_145_728, Some(0)));
}

// B05
#[tokio::test]
async fn streams_written_in_turn_each_keep_their_order() {
    let vm = &*shared().await;
    let expected: Vec<u8> = (0..4000_u32)
        .flat_map(|n| [b'a' + (n % 26) as u8; 1024])
        .collect();
    let alternate = [HELPER, "alternate", "1024", "4000"].join(" ");
    let (stdout, code) = without_stderr(vm, &alternate).await;
    assert_eq!(code, Some(0));
    assert!(
        stdout == expected,
        "with stderr dropped: {} bytes or other ones",
        stdout.len()
    );

    let out = vm.shell(&alternate).within(LONG).await.unwrap();
    assert!(
        out.stdout() == expected,
        "stdout: {} bytes or other ones",
        out.stdout().len()
    );
    assert!(
        out.stderr() == expected,
        "stderr: {} bytes or other ones",
        out.stderr().len()
    );
}

// B06
#[tokio::test]
async fn a_character_written_in_three_pieces_arrives_as_its_bytes() {
    let vm = &*shared().await;
    let pieces = "printf '\\342'; sleep .1; printf '\\211'; sleep .1; printf '\\244\\n'";
    let out = vm.shell(pieces).within(CEILING).await.unwrap();
    assert_eq!(
        (out.stdout(), out.stderr()),
        (&b"\xe2\x89\xa4\n"[..], &b""[..])
    );
    assert_eq!(out.stdout_str().unwrap(), "\u{2264}\n");

    let out = vm
        .shell(format!("{{ {pieces}; }} >&2"))
        .within(CEILING)
        .await
        .unwrap();
    assert_eq!(
        (out.stdout(), out.stderr()),
        (&b""[..], &b"\xe2\x89\xa4\n"[..])
    );
}

// B06
#[tokio::test]
async fn every_byte_value_arrives_on_the_stream_it_was_written_to() {
    let vm = &*shared().await;
    let every: Vec<u8> = (0..65_536_u32).map(|n| (n % 256) as u8).collect();
    for to in ["stdout", "stderr"] {
        let stdin = forebay::Stdin::bytes(every.clone());
        let script = if to == "stdout" { "cat" } else { "cat >&2" };
        let out = vm.shell(script).stdin(stdin).within(CEILING).await.unwrap();
        let (there, elsewhere) = match to {
            "stdout" => (out.stdout(), out.stderr()),
            _ => (out.stderr(), out.stdout()),
        };
        assert!(there == every, "{to}: {} bytes, or other ones", there.len());
        assert!(elsewhere.is_empty());
        assert!(std::str::from_utf8(there).is_err());
    }
}

// B06
#[tokio::test]
async fn text_of_three_byte_characters_is_whole_across_chunks() {
    let vm = &*shared().await;
    let script = "i=0; while [ $i -lt 1000 ]; do printf '%s' \
                  '\u{2264}\u{2264}\u{2264}\u{2264}\u{2264}\u{2264}\u{2264}\u{2264}\u{2264}\u{2264}\
                  \u{2264}\u{2264}\u{2264}\u{2264}\u{2264}\u{2264}\u{2264}\u{2264}\u{2264}\u{2264}\
                  \u{2264}\u{2264}\u{2264}\u{2264}\u{2264}\u{2264}\u{2264}\u{2264}\u{2264}\u{2264}\
                  \u{2264}\u{2264}\u{2264}\u{2264}\u{2264}\u{2264}\u{2264}\u{2264}\u{2264}\u{2264}\
                  \u{2264}\u{2264}\u{2264}\u{2264}\u{2264}\u{2264}\u{2264}\u{2264}\u{2264}\u{2264}\
                  '; i=$((i+1)); done";
    let out = vm.shell(script).within(LONG).await.unwrap();
    assert_eq!(out.stdout().len(), 150_000);
    assert_eq!(out.stdout_str().unwrap(), "\u{2264}".repeat(50_000));
}
