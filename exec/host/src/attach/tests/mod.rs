//! Both ends of the attach socket, joined by a real one, with a scripted guest behind.

mod adoption;
mod by_hand;
mod clients;
mod credit;
mod deadlines;
mod endings;
mod handshake;
mod inspect;
mod last_words;
mod leaving;
mod villain;
mod villains;

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::fake_guest::{FakeVm, Loop};
use crate::{AttachServer, AttachSocket, Client, Limits};

/// After this a test hangs. Nothing is expected to take a noticeable part of it.
const CEILING: Duration = Duration::from_secs(120);

/// A VM with its loop running and its attach socket served.
struct Attached {
    server: Option<AttachServer>,
    vm: Arc<FakeVm>,
    _loop: Loop,
    path: PathBuf,
    _directory: TempDir,
}

impl Attached {
    fn new() -> Self {
        Self::with_limits(Limits::default())
    }

    fn with_limits(limits: Limits) -> Self {
        Self::around(FakeVm::with_limits(limits))
    }

    fn around(vm: Arc<FakeVm>) -> Self {
        let client = vm.client.clone();
        Self::serving(vm, client)
    }

    /// Served for a program that has this client.
    fn serving(vm: Arc<FakeVm>, client: Client) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vm.sock");
        let socket = AttachSocket::bind(&path).unwrap();
        Self {
            server: Some(socket.serve(client).unwrap()),
            _loop: vm.spawn_loop(),
            vm,
            path,
            _directory: directory,
        }
    }

    async fn client(&self) -> Client {
        Client::connect(&self.path).await.unwrap()
    }

    fn clients(&self) -> usize {
        self.server.as_ref().unwrap().clients()
    }

    /// That an uninvolved client, old or new, is served as if nothing had happened.
    async fn goes_on(&self, bystander: &Client) {
        for client in [bystander, &self.client().await] {
            let out = client.exec("echo", ["undisturbed"]).await.unwrap();
            assert_eq!(out.stdout(), b"undisturbed");
        }
    }
}

/// Drives a test; fails it when it hangs.
fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        tokio::time::timeout(CEILING, test)
            .await
            .expect("hang: the test has not ended");
    });
}

/// Waits for what other threads bring about.
fn wait_until(what: &str, mut seen: impl FnMut() -> bool) {
    let started = Instant::now();
    while !seen() {
        assert!(started.elapsed() < CEILING, "hang: {what} has not come");
        std::thread::sleep(Duration::from_millis(1));
    }
}
