//! Standing still for a snapshot, and going on.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use forebay_exec_proto::host::Event;
use forebay_exec_proto::{ExecId, Limits, Quiesce};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

use super::host::Host;
use super::{pidfd, wait_for_end};
use crate::agent::{Agent, Config, Rest};
use crate::boot::Clock;
use crate::cgroup::Parent;
use crate::cgroup::place::Place;
use crate::power::End;

/// More than any machine takes for what stops at once.
const LONG: Duration = Duration::from_secs(60);

/// Writes numbers, one a line and none left out, until it is killed.
const COUNT: &str = "i=0; while :; do echo $i; i=$((i + 1)); done";

/// What still comes of what a command had written. Nothing does after the second look without.
fn drain(host: &mut Host, id: ExecId) -> Vec<u8> {
    let mut output = host.take(id);
    let mut idle = 0;
    while idle < 2 {
        host.ping();
        let more = host.take(id);
        idle = if more.is_empty() { idle + 1 } else { 0 };
        output.extend(more);
    }
    output
}

fn await_output(host: &mut Host, id: ExecId, output: &mut Vec<u8>) {
    let before = output.len();
    while output.len() == before {
        host.ping();
        output.extend(host.take(id));
    }
}

/// Whether these are the first numbers, in order; the last may be cut.
fn counts(output: &[u8]) {
    let text = std::str::from_utf8(output).unwrap();
    let (whole, _) = text.rsplit_once('\n').unwrap();
    for (n, line) in whole.lines().enumerate() {
        assert_eq!(line, n.to_string());
    }
}

#[test]
fn what_is_frozen_writes_nothing_and_goes_on_where_it_was() {
    let Some((place, parent)) = Place::find("rest") else {
        return;
    };
    let mut host = Host::start_in(parent);
    let counter = host.exec(&["sh", "-c", COUNT]);
    let mut output = Vec::new();
    for _ in 0..50 {
        await_output(&mut host, counter, &mut output);
        host.quiesce(LONG).unwrap();
        assert!(place.is_frozen());
        output.extend(drain(&mut host, counter));
        assert_eq!(drain(&mut host, counter), b"");
        host.thaw().unwrap();
        await_output(&mut host, counter, &mut output);
    }
    assert!(!place.is_frozen());
    counts(&output);
    // Nobody is asked for entropy by a guest that goes on as it was.
    assert!(
        host.system()
            .renewed
            .iter()
            .all(|renew| renew.renewal.is_none())
    );
    host.put_down(counter);
}

#[test]
fn what_is_frozen_can_be_killed_and_its_group_goes() {
    let Some((place, parent)) = Place::find("rest-kill") else {
        return;
    };
    let mut host = Host::start_in(parent);
    let [busy, other] = [(); 2].map(|()| host.exec(&["sh", "-c", "while :; do :; done"]));
    host.quiesce(LONG).unwrap();
    host.put_down(busy);
    // A later turn of the agent has tidied up.
    host.ping();
    host.ping();
    assert!(!place.leaf(busy).exists() && place.leaf(other).exists());
    host.thaw().unwrap();
    let next = host.shell("echo next");
    assert_eq!(next.stdout, b"next\n");
    host.put_down(other);
}

#[test]
fn a_signal_to_what_is_frozen_has_its_effect_after_the_thaw() {
    let Some((_place, parent)) = Place::find("rest-signal") else {
        return;
    };
    let mut host = Host::start_in(parent);
    let id = host.exec(&[
        "sh",
        "-c",
        "trap 'echo got; exit 4' USR1; echo up; while :; do :; done",
    ]);
    assert!(matches!(host.next(id), Event::Stdout(_)));
    host.quiesce(LONG).unwrap();
    host.signal(id, 10);
    host.ping();
    assert_eq!(drain(&mut host, id), b"");
    host.thaw().unwrap();
    let output = host.collect(id);
    assert_eq!((output.stdout, output.code), (b"got\n".to_vec(), Some(4)));
}

#[test]
fn a_guest_that_cannot_be_renewed_stays_frozen() {
    let Some((place, parent)) = Place::find("rest-renew") else {
        return;
    };
    let mut host = Host::start_in(parent);
    let id = host.exec(&["sh", "-c", "while :; do :; done"]);
    host.quiesce(LONG).unwrap();
    host.system().fault = Some("the kernel takes no entropy".to_owned());
    assert_eq!(host.renew(), Err("the kernel takes no entropy".to_owned()));
    assert!(place.is_frozen());
    host.system().fault = None;
    host.renew().unwrap();
    assert!(!place.is_frozen());
    assert_eq!(
        host.system().renewed[1]
            .renewal
            .as_ref()
            .unwrap()
            .generation,
        [9; 16]
    );
    // One that was not quiesced is renewed as well.
    host.renew().unwrap();
    host.put_down(id);
}

#[test]
fn a_host_that_is_lost_takes_what_was_frozen_with_it() {
    let Some((place, parent)) = Place::find("rest-lost") else {
        return;
    };
    let mut host = Host::start_in(parent);
    let id = host.exec(&["sh", "-c", "while :; do :; done"]);
    let command = pidfd(host.pid(id));
    host.quiesce(LONG).unwrap();
    assert_eq!(host.hang_up(), End::Disconnected);
    wait_for_end(&command);
    let control = fs::read_to_string(place.group("cgroup.freeze")).unwrap();
    assert_eq!(control.trim(), "0");
}

#[test]
fn what_is_frozen_does_not_hold_up_the_end_of_the_guest() {
    let Some((place, parent)) = Place::find("rest-end") else {
        return;
    };
    let mut host = Host::start_in(parent);
    let id = host.exec(&[
        "sh",
        "-c",
        "trap 'echo never' TERM; echo up; while :; do :; done",
    ]);
    assert!(matches!(host.next(id), Event::Stdout(_)));
    host.quiesce(LONG).unwrap();
    // An hour, of which nothing is waited for.
    host.power_off(false, 3_600_000);
    let output = host.collect(id);
    assert_eq!((output.stdout, output.signal), (Vec::new(), Some(9)));
    assert_eq!(host.agent_end(), End::PowerOff);
    assert!(place.is_frozen(), "nothing of it ran");
}

#[test]
fn a_guest_without_control_groups_says_that_it_cannot_freeze() {
    let mut host = Host::start(Limits::default());
    let why = host.quiesce(LONG).unwrap_err();
    assert!(why.contains("no control groups"), "{why}");
    host.renew().unwrap();
}

/// A parent whose kernel is the test.
fn played(root: &Path) -> Parent {
    let group = root.join("forebay");
    fs::create_dir(&group).unwrap();
    for (file, content) in [("cgroup.freeze", ""), ("cgroup.events", "frozen 0\n")] {
        fs::write(group.join(file), content).unwrap();
    }
    Parent::create_in(root).unwrap()
}

/// A control that takes what is written to it until it [is sealed](seal).
fn sealable() -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    memfd_create("cgroup.freeze", flags).unwrap()
}

fn seal(control: &OwnedFd) {
    fcntl_add_seals(control, SealFlags::WRITE).unwrap();
}

#[test]
fn what_is_frozen_is_let_go_on_though_nothing_can_be_opened_any_more() {
    let dir = tempfile::tempdir().unwrap();
    let mut host = Host::start_in(played(dir.path()));
    fs::write(dir.path().join("forebay/cgroup.events"), "frozen 1\n").unwrap();
    host.quiesce(LONG).unwrap();
    let control = dir.path().join("forebay/cgroup.freeze");
    let kept = dir.path().join("kept");
    fs::rename(&control, &kept).unwrap();
    host.thaw().unwrap();
    assert_eq!(fs::read_to_string(kept).unwrap(), "0");
}

#[test]
fn a_thaw_that_fails_is_told_with_what_it_leaves() {
    let dir = tempfile::tempdir().unwrap();
    let (mut parent, control) = (played(dir.path()), sealable());
    parent.freeze_by(control.try_clone().unwrap());
    let mut host = Host::start_in(parent);
    let quiesce = host.begin_quiesce(LONG);
    // The agent has begun by the time at which it answers what was asked later.
    host.ping();
    seal(&control);
    let thaw = host.begin_thaw();
    let why = host.answered(quiesce).unwrap_err();
    assert!(why.contains("stands still"), "{why}");
    let why = host.answered(thaw).unwrap_err();
    assert!(why.contains("cannot be thawed"), "{why}");
}

#[test]
fn an_agent_that_cannot_thaw_waits_for_the_host_and_not_for_a_time_that_is_over() {
    let dir = tempfile::tempdir().unwrap();
    let (mut parent, control) = (played(dir.path()), sealable());
    parent.freeze_by(control.try_clone().unwrap());
    let (_host, port) = UnixStream::pair().unwrap();
    let config = Config {
        parent: Some(parent),
        renew: Box::new(|_| Ok(())),
        reopen: None,
        whole_system: false,
        test_crash: false,
        clock: Clock::at_entry(),
    };
    let mut agent = Agent::new(port.into(), config).unwrap();
    agent.quiesce(&Quiesce {
        seq: 1,
        limit_ms: 0,
    });
    seal(&control);
    agent.look_at_rest();
    assert_eq!(agent.rest.deadline(), None);
    assert_ne!(agent.rest, Rest::Running, "a renewal has something to try");
}

#[test]
fn the_answer_comes_when_the_kernel_says_that_all_has_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let mut host = Host::start_in(played(dir.path()));
    let quiesce = host.begin_quiesce(LONG);
    host.ping();
    assert!(!host.is_answered());
    let control = dir.path().join("forebay/cgroup.freeze");
    assert_eq!(fs::read_to_string(&control).unwrap(), "1");
    fs::write(dir.path().join("forebay/cgroup.events"), "frozen 1\n").unwrap();
    host.answered(quiesce).unwrap();
    host.thaw().unwrap();
    assert_eq!(fs::read_to_string(control).unwrap(), "0");
}

#[test]
fn what_does_not_stop_in_time_is_named_and_everything_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let mut host = Host::start_in(played(dir.path()));
    let why = host.quiesce(Duration::from_millis(1)).unwrap_err();
    assert!(
        why.contains("an ended execution left did not stop"),
        "{why}"
    );
    let control = dir.path().join("forebay/cgroup.freeze");
    assert_eq!(fs::read_to_string(control).unwrap(), "0");
}

#[test]
fn a_thaw_that_comes_before_all_has_stopped_ends_the_attempt() {
    let dir = tempfile::tempdir().unwrap();
    let mut host = Host::start_in(played(dir.path()));
    let quiesce = host.begin_quiesce(LONG);
    let thaw = host.begin_thaw();
    host.answered(quiesce).unwrap_err();
    host.answered(thaw).unwrap();
    let control = dir.path().join("forebay/cgroup.freeze");
    assert_eq!(fs::read_to_string(control).unwrap(), "0");
    // And the next one is as good as the first.
    fs::write(dir.path().join("forebay/cgroup.events"), "frozen 1\n").unwrap();
    host.quiesce(LONG).unwrap();
}

#[test]
fn a_leaf_says_whether_it_has_stopped() {
    let Some((place, mut parent)) = Place::find("rest-leaf") else {
        return;
    };
    let leaf = parent.leaf(ExecId::new(1).unwrap(), false).unwrap();
    assert!(!leaf.is_frozen());
    parent.freeze().unwrap();
    while !parent.is_frozen() {
        std::thread::yield_now();
    }
    assert!(leaf.is_frozen() && place.is_frozen());
    parent.thaw().unwrap();
    assert!(!parent.is_frozen(), "nobody waits for it");
}
