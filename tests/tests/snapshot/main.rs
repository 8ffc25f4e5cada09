//! Machines and VMs that are paused, saved, restored and forked.

mod copies;
mod counting;
mod crew;
mod cuts;
mod pauses;
mod streams;
mod vms;

use std::time::Duration;

use forebay::Vm;
use forebay_tests::{CEILING, Within as _};

/// What a shell line prints on stdout, without the line's end. It has to succeed.
pub(crate) async fn says(vm: &Vm, line: &str) -> String {
    let out = vm.shell(line).within(CEILING).await.unwrap();
    assert!(out.status().success(), "{line}: {out:?}");
    out.stdout_str().unwrap().trim_end().to_owned()
}

/// The guest's clock, since 1970.
pub(crate) async fn guest_time(vm: &Vm) -> Duration {
    let seconds: u64 = says(vm, "date +%s").await.parse().unwrap();
    Duration::from_secs(seconds)
}
