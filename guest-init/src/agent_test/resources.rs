//! Limits and usage, as the host sees them.

use forebay_exec_proto::host::{Config, Event, Stdin, Terminal};
use forebay_exec_proto::{ExecId, ExitStatus, Failure, FailureKind, Limits, Request, Resources};

use super::host::Host;
use crate::cgroup::place::Place;

fn request(script: &str, resources: Option<Resources>) -> Request {
    Request {
        argv: ["sh", "-c", script]
            .map(|word| word.as_bytes().to_vec().into())
            .into(),
        resources,
        ..Request::default()
    }
}

fn end(host: &mut Host, id: ExecId) -> Result<ExitStatus, Failure> {
    loop {
        match host.next(id) {
            Event::End(Terminal::Exited(status)) => return Ok(status),
            Event::End(Terminal::Failed(failure)) => return Err(failure),
            Event::End(end) => panic!("{end:?}"),
            _ => {}
        }
    }
}

fn run(host: &mut Host, script: &str, resources: Option<Resources>) -> Result<ExitStatus, Failure> {
    let id = host.submit(request(script, resources), Stdin::Null);
    end(host, id)
}

const MEMORY: Resources = Resources {
    memory: Some(1 << 30),
    pids: None,
    cpu_weight: None,
    cpu_quota: None,
};

#[test]
fn without_control_groups_a_limit_refuses_the_start_and_nothing_else_does() {
    let mut host = Host::start(Limits::default());
    let failure = run(&mut host, "exit 0", Some(MEMORY)).unwrap_err();
    assert_eq!(failure.kind, FailureKind::ResourceLimit);
    assert_eq!(failure.stage, "cgroup(memory.max)");
    let status = run(&mut host, "exit 0", Some(Resources::default())).unwrap();
    assert_eq!(status.code, Some(0));
}

#[test]
fn a_limit_of_the_vm_refuses_the_start_of_requests_that_name_none() {
    let mut host = Host::with(Config {
        resources: MEMORY,
        ..Config::default()
    });
    let failure = run(&mut host, "exit 0", None).unwrap_err();
    assert_eq!(failure.stage, "cgroup(memory.max)");
}

#[test]
fn a_leaf_that_could_not_be_limited_is_removed() {
    let Some((place, parent)) = Place::find("refused") else {
        return;
    };
    let mut host = Host::start_in(parent);
    let id = host.submit(request("exit 0", Some(MEMORY)), Stdin::Null);
    // The hierarchy that tests may change has no controllers.
    let failure = end(&mut host, id).unwrap_err();
    assert_eq!(failure.kind, FailureKind::ResourceLimit);
    // A later command's end shows that the leaf was dealt with.
    assert!(run(&mut host, "exit 0", None).is_ok());
    assert!(!place.leaf(id).exists());
}

#[test]
fn what_the_leader_and_its_children_read_and_wrote_is_told_at_its_exit() {
    let mut host = Host::start(Limits::default());
    let quiet = run(&mut host, "exit 0", None).unwrap().usage.unwrap();
    let busy = "dd if=/dev/zero of=/dev/null bs=1000 count=1000 2>/dev/null; exit 3";
    let status = run(&mut host, busy, None).unwrap();
    assert_eq!(status.code, Some(3));
    let busy = status.usage.unwrap();
    assert!(busy.read_bytes.unwrap() - quiet.read_bytes.unwrap() >= 1_000_000);
    assert!(busy.written_bytes.unwrap() - quiet.written_bytes.unwrap() >= 1_000_000);
    assert!(busy.major_faults.is_some());
    assert!(busy.involuntary_switches.is_some());
    // Without a group nothing is known of all its processes together.
    assert_eq!((busy.user_us, busy.system_us), (None, None));
    assert_eq!(busy.peak_memory, None);
    assert_eq!(status.oom_killed, None);
}

#[test]
fn cpu_time_is_that_of_everything_in_the_leaf() {
    let Some((_place, parent)) = Place::find("cpu-time") else {
        return;
    };
    let mut host = Host::start_in(parent);
    // Ten ticks of ten milliseconds, of a process that the shell does not wait for.
    let script = "(while :; do :; done) & \
                  until [ $(cut -d' ' -f14 /proc/$!/stat) -ge 10 ]; do sleep .01; done; kill -9 $!";
    let status = run(&mut host, script, None).unwrap();
    assert!(status.usage.unwrap().user_us.unwrap() >= 50_000);
}
