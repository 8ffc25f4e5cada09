//! What is typed into a terminal: it arrives whole, it ends as a user would end it, and who does not
//! read it stops nobody else.

use forebay::{Signal, Stdin};
use forebay_guest_helper::pattern::Pattern;
use forebay_tests::{CEILING, Within as _, rounds};

use super::terminal::{SIZE, Seat, shown};
use super::{LONG, answer, assert_slots_come_free, shared, to_its_exit};

// B31
#[tokio::test]
async fn what_is_typed_reaches_the_terminal_by_name_too() {
    let vm = &*shared().await;
    let mut seat = Seat::take(vm.shell("stty -echo; echo ready; head -n 1 < /dev/tty")).await;
    seat.until("ready\r\n").await;
    seat.press("a line\n").await;
    let (text, status) = seat.rest().await;
    assert_eq!((text.as_str(), status.code()), ("a line\r\n", Some(0)));
}

#[tokio::test]
async fn closing_the_stdin_of_a_terminal_types_its_end_of_file() {
    let vm = &*shared().await;
    for (keys, bytes) in [("", 0), ("abc\n", 4), ("abc\nde", 6)] {
        let mut seat = Seat::take(vm.shell("stty -echo; echo ready; wc -c")).await;
        seat.until("ready\r\n").await;
        seat.press(keys).await;
        let (text, status) = seat.close().await;
        assert_eq!(text.trim(), bytes.to_string(), "{keys:?}");
        assert!(status.success(), "{status}");
    }
    // Bytes that are known beforehand are typed, and end likewise.
    let cat = vm.exec("cat", [""; 0]).stdin(Stdin::bytes("typed\n"));
    assert_eq!(shown(cat).await, "typed\r\ntyped\r\n");
}

#[tokio::test]
async fn closing_the_stdin_of_a_raw_terminal_types_nothing() {
    let vm = &*shared().await;
    let script = "stty raw -echo; echo ready; dd bs=1 count=4 2>/dev/null | od -An -c";
    let mut seat = Seat::take(vm.shell(script)).await;
    seat.until("ready\n").await;
    seat.press("abc").await;
    seat.keys.close().within(CEILING).await.unwrap();
    // What waits for a fourth byte is still there when other commands have come and gone.
    let look = format!("sleep .5; kill -0 {} && echo waits", seat.command.pid());
    assert_eq!(answer(vm, &look).await, "waits");
    seat.command.kill();
    let (text, status) = seat.rest().await;
    assert_eq!((text.as_str(), status.signal()), ("", Some(Signal::KILL)));
}

// A null stdin of a terminal is a user who does nothing.
#[tokio::test]
async fn nothing_is_typed_into_a_terminal_without_stdin() {
    let vm = &*shared().await;
    let cat = vm.exec("cat", [""; 0]).terminal(SIZE);
    let mut cat = cat.spawn().within(CEILING).await.unwrap();
    let look = format!("sleep .5; kill -0 {} && echo waits", cat.pid());
    assert_eq!(answer(vm, &look).await, "waits");
    cat.kill();
    let (stdout, _, status) = to_its_exit(&mut cat).await;
    assert_eq!(
        (stdout.as_slice(), status.signal()),
        (&b""[..], Some(Signal::KILL))
    );
}

#[tokio::test]
async fn a_raw_terminal_carries_all_bytes_both_ways() {
    const BYTES: usize = 512 * 1024;
    let vm = &*shared().await;
    let script = format!("stty raw -echo; echo ready; head -c {BYTES}");
    let mut seat = Seat::take(vm.shell(script)).await;
    seat.until("ready\n").await;
    let data = Pattern::new(31).take(BYTES);
    let Seat {
        mut command, keys, ..
    } = seat;
    let (fed, (stdout, _, status)) =
        async { tokio::join!(keys.write(data.clone()), to_its_exit(&mut command)) }
            .within(LONG)
            .await;
    fed.unwrap();
    assert!(status.success(), "{status}");
    assert_eq!(stdout.len(), BYTES);
    assert!(stdout == data, "other bytes");
}

/// The kernel's exception: a line has at most 4095 bytes, what is typed beyond is dropped. It must
/// not stop what comes behind it.
#[tokio::test]
async fn a_line_that_is_too_long_is_cut_and_ends_all_the_same() {
    let vm = &*shared().await;
    let mut seat = Seat::take(vm.shell("stty -echo; echo ready; wc -c")).await;
    seat.until("ready\r\n").await;
    seat.press([b'x'; 100_000]).await;
    let (text, status) = seat.close().await;
    assert_eq!(text.trim(), "4095");
    assert!(status.success(), "{status}");
}

// B27: neither output that nobody reads nor keys that nobody takes stop anything else.
#[tokio::test]
async fn a_stalled_terminal_stops_nobody_else() {
    let vm = &*shared().await;
    let endless = vm.exec("yes", [""; 0]).terminal(SIZE);
    let mut endless = endless.spawn().within(CEILING).await.unwrap();
    let deaf = Seat::take(vm.exec("sleep", ["1000"])).await;
    deaf.press("line\n".repeat(10_000)).await;
    for n in 0..rounds(100) {
        assert_eq!(answer(vm, &format!("echo {n}")).await, n.to_string());
    }
    for command in [&mut endless, &mut { deaf }.command] {
        command.kill();
        let status = command.wait().within(CEILING).await.unwrap();
        assert_eq!(status.signal(), Some(Signal::KILL));
    }
    assert_slots_come_free(vm).await;
}
