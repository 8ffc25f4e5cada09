//! Honest executions in the VM of one that is not: whatever that does, their bytes stay right.

use forebay::{ExecError, ExecExit, ExecHandle, ExecReader, ExecSink, ExecutionView, Stdin};
use forebay_guest_helper::pattern::Pattern;
use forebay_tests::{CEILING, TestVm, Within as _};
use tokio::io::AsyncReadExt as _;

use super::{CHUNK_CHARGE, LONG, LOOK_AGAIN, assert_cut};

/// What is echoed at a time: more than a chunk, less than an allowance.
const ECHO: usize = 40_000;

/// What the unread one writes: it stands still at its allowance.
const UNREAD: usize = 3 * 1024 * 1024;
const UNREAD_SEED: u64 = 77;

/// One that echoes what it is sent, and one of which nothing is read until the end.
pub(crate) struct Neighbours {
    sink: ExecSink,
    echo: ExecReader,
    exit: ExecExit,
    pattern: Pattern,
    unread: ExecHandle,
}

impl Neighbours {
    /// Slots that they hold.
    pub(crate) const SLOTS: u32 = 2;

    /// Starts both, and waits until the second stands still.
    pub(crate) async fn start(vm: &TestVm) -> Self {
        let cat = vm.exec("cat", [""; 0]).stdin(Stdin::piped());
        let cat = cat.spawn().within(CEILING).await.unwrap().split();
        let words = [UNREAD_SEED.to_string(), UNREAD.to_string()];
        let unread = vm.exec("random", words).spawn();
        let unread = unread.within(CEILING).await.unwrap();
        let limits = vm.client().limits();
        let full = u64::from(limits.output_limit - limits.output_chunk_size - CHUNK_CHARGE);
        let stands_still = async {
            let full =
                |one: &ExecutionView| one.id == unread.id().get() && one.output_received >= full;
            while !vm.inspect().executions.executions.iter().any(full) {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        stands_still.within(CEILING).await;
        Self {
            sink: cat.stdin.expect("it is piped"),
            echo: cat.stdout,
            exit: cat.exit,
            pattern: Pattern::new(1),
            unread,
        }
    }

    /// Fails unless the first answers with the right bytes.
    pub(crate) async fn assert_well(&mut self) {
        let sent = self.pattern.take(ECHO);
        let mut back = vec![0; ECHO];
        let both = async {
            tokio::join!(
                self.sink.write(sent.clone()),
                self.echo.read_exact(&mut back)
            )
        };
        let (written, read) = both.within(CEILING).await;
        written.unwrap();
        read.unwrap();
        assert!(sent == back, "the echo is not what was sent");
    }

    /// Ends both, and fails unless each has all its bytes and ends well.
    pub(crate) async fn finish(mut self) {
        self.assert_well().await;
        self.sink.close().within(CEILING).await.unwrap();
        let mut rest = Vec::new();
        let end = self.echo.read_to_end(&mut rest).within(CEILING).await;
        assert_eq!(end.unwrap(), 0, "more came back than was sent");
        assert!(self.exit.wait().within(CEILING).await.unwrap().success());
        let out = self.unread.collect().within(LONG).await.unwrap();
        assert!(out.status().success(), "{}", out.status());
        assert_eq!(out.stdout().len(), UNREAD);
        let differs = Pattern::new(UNREAD_SEED).first_difference(out.stdout());
        assert_eq!(differs, None);
    }

    /// Fails unless the connection was cut under both for the reason that `why` is a part of, and
    /// what had come before can still be read.
    pub(crate) async fn assert_cut_off(mut self, rule: &str, why: &str) {
        let end = self.exit.wait().within(CEILING).await;
        assert_cut(&end.unwrap_err(), rule, why);
        let mut parts = self.unread.split();
        drop(parts.stderr);
        let mut bytes = Vec::new();
        let end = parts.stdout.read_to_end(&mut bytes).within(CEILING).await;
        let error = end.expect_err("the end of a stream was invented");
        let source = error.get_ref().and_then(|source| source.downcast_ref());
        assert_cut(source.expect("an ExecError"), rule, why);
        assert!(!bytes.is_empty(), "what had been accepted is gone");
        let differs = Pattern::new(UNREAD_SEED).first_difference(&bytes);
        assert_eq!(differs, None);
        let end: Result<_, ExecError> = parts.exit.wait().within(CEILING).await;
        assert_cut(&end.unwrap_err(), rule, why);
    }
}
