//! Commands of other processes, by the attach socket and a real guest.
//!
//! The other processes are `forebay exec --attach`; where it takes many clients, they are clients
//! in this process, which the server cannot tell from others.

mod crowd;
mod deadlines;
mod departure;
mod leaving;
mod other_process;
mod top;

use std::panic::resume_unwind;
use std::path::Path;
use std::process::{Child, Command, Output};
use std::time::Duration;

use forebay::{Client, Vm};
use forebay_tests::{CEILING, Running, TestVm, Within as _, builder, command};
use tempfile::TempDir;

/// For much data, or many commands, on hardware.
const LONG: Duration = Duration::from_secs(60);

/// A VM with an attach socket.
struct Attached {
    vm: TestVm,
    directory: TempDir,
}

impl std::ops::Deref for Attached {
    type Target = Vm;

    fn deref(&self) -> &Vm {
        &self.vm
    }
}

impl Attached {
    async fn boot() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vm.sock");
        let builder = builder().cpus(2).memory_mib(512).attach_socket(&path);
        Self {
            vm: TestVm::start(builder).await,
            directory,
        }
    }

    fn path(&self) -> &Path {
        self.vm.attach_socket().expect("it was asked for")
    }

    async fn client(&self) -> Client {
        let connect = Client::connect(self.path());
        connect.within(CEILING).await.expect("it is served")
    }

    /// `forebay exec` of a command in this VM.
    fn exec(&self, words: &[&str]) -> Command {
        let mut exec = command();
        exec.args(["exec", "--attach"]).arg(self.path());
        exec.arg("--").args(words);
        exec
    }

    /// Waits until this many executions hold a slot.
    async fn active(&self, number: u32) {
        let wait = async {
            while self.client_of_library().active() != number {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        wait.within(CEILING).await;
    }

    fn client_of_library(&self) -> &Client {
        self.vm.client()
    }

    /// Ends the VM; the socket goes with it.
    async fn close(self) {
        let path = self.path().to_owned();
        self.vm.close().await;
        assert!(!path.exists(), "the socket stays behind");
        drop(self.directory);
    }
}

/// A child's end, with what it wrote; meanwhile the runtime goes on.
async fn end(child: Child) -> Output {
    let child = Running::from(child);
    let end = tokio::task::spawn_blocking(move || child.end(LONG));
    end.await
        .unwrap_or_else(|hang| resume_unwind(hang.into_panic()))
}
