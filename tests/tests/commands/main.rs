//! Running commands in a guest: what they write, read, see and how they end.
//!
//! All share one VM, booted by the first that needs it, except those that need limits or values of
//! their own. One command's trouble must not reach the next: sharing is part of the test.

mod admission;
mod console_flood;
mod crowd;
mod environment;
mod exit_status;
mod flow;
mod memory_bounds;
mod not_started;
mod output;
mod reaping;
mod retained;
mod short_output;
mod slow_reader;
mod stdin;
mod stdin_pressure;

use std::pin::Pin;

use bytes::Bytes;
use forebay::{ExecOutput, ExecReader};
use forebay_tests::{
    CEILING, SharedVm, TestVm, Within as _, assert_answers, assert_slots_come_free, builder,
    to_its_exit,
};
use futures_core::Stream as _;
use tokio::sync::OnceCell;

/// For commands that move megabytes or run in great number, on hardware.
const LONG: std::time::Duration = std::time::Duration::from_secs(60);

/// The VM that the tests of this program share; a test has it for itself.
async fn shared() -> SharedVm {
    static SHARED: OnceCell<TestVm> = OnceCell::const_new();
    SharedVm::take(&SHARED, || builder().cpus(2).memory_mib(512)).await
}

/// The next chunk of a stream; `None` at its end.
async fn next(reader: &mut ExecReader) -> Option<std::io::Result<Bytes>> {
    std::future::poll_fn(|cx| Pin::new(&mut *reader).poll_next(cx)).await
}

/// Waits until a process of the guest is blocked: in a write to its stdout, asleep, and its
/// processor time stands still. Gives that time.
async fn blocked_in_write(vm: &TestVm, pid: u32) -> String {
    // `syscall` begins with the call's number and its first argument: write, and stdout.
    let script = format!(
        "look() {{ cut -d' ' -f3,14,15 /proc/{pid}/stat; cut -d' ' -f1,2 /proc/{pid}/syscall; }}; \
         a=$(look); sleep .3; b=$(look); [ \"$a\" = \"$b\" ] && echo $a"
    );
    let wait = async {
        loop {
            let seen = vm.shell(&script).within(CEILING).await.unwrap();
            let seen = seen.stdout_str().unwrap().trim_end();
            if let Some(time) = seen
                .strip_prefix("S ")
                .and_then(|t| t.strip_suffix(" 1 0x1"))
            {
                break time.to_owned();
            }
        }
    };
    wait.within(LONG).await
}

/// One number that a command printed.
fn number(out: &ExecOutput) -> u64 {
    let text = out.stdout_str().unwrap_or_default();
    text.trim()
        .parse()
        .unwrap_or_else(|_| panic!("not a number: {text:?}, {}", out.status()))
}
