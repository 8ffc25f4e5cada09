use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, SystemTime};

use super::ANSWER_WITHIN;
use crate::fake_guest::{ByHand, FakeVm};
use crate::{Config, Hub, QuiesceError, RenewError, Renewal, Secret, clock};

const LIMIT: Duration = Duration::from_secs(3);
const NONE: [&str; 0] = [];

fn renewal(hostname: Option<&str>) -> Renewal {
    Renewal {
        entropy: Secret([7; 32]),
        generation: [9; 16],
        hostname: hostname.map(str::to_owned),
    }
}

#[test]
fn what_is_started_while_the_guest_is_quiesced_starts_at_the_thaw() {
    let vm = FakeVm::new();
    let ticket = vm.run(vm.hub.quiesce(LIMIT)).unwrap();
    assert!(vm.hub.is_quiesced());
    let mut start = ByHand::new(vm.client.exec("echo", ["late"]).output());
    assert!(start.poll().is_pending());
    vm.settle();
    assert!(start.poll().is_pending());
    assert_eq!(vm.hub.active(), 1);
    vm.hub.thaw(ticket);
    let output = vm.run(start.into_inner()).unwrap();
    assert_eq!(output.stdout(), b"late");
    assert!(!vm.hub.is_quiesced());
}

#[test]
fn a_quiesced_guest_is_quiesced_once_and_again_after_a_thaw() {
    let vm = FakeVm::new();
    for _ in 0..3 {
        let ticket = vm.run(vm.hub.quiesce(LIMIT)).unwrap();
        let again = vm.run(vm.hub.quiesce(LIMIT));
        assert!(matches!(again, Err(QuiesceError::Busy)));
        assert!(vm.hub.is_quiesced(), "another's refusal changes nothing");
        // The next one waits for it by itself.
        vm.hub.thaw(ticket);
    }
}

#[test]
fn a_guest_that_cannot_freeze_says_why_and_goes_on() {
    let vm = FakeVm::new();
    vm.with_agent(|agent| agent.at_quiesce = Some(Err("4 waits for a disk".to_owned())));
    let error = vm.run(vm.hub.quiesce(LIMIT)).unwrap_err();
    assert!(error.to_string().contains("4 waits for a disk"), "{error}");
    assert!(!vm.hub.is_quiesced());
    vm.run(vm.client.exec("echo", NONE).output()).unwrap();
}

#[test]
fn a_dropped_quiesce_thaws_whenever_that_is() {
    let vm = FakeVm::new();
    // Before it has left.
    let mut quiesce = ByHand::new(vm.hub.quiesce(LIMIT));
    assert!(quiesce.poll().is_pending());
    drop(quiesce);
    vm.settle();
    vm.with_agent(|agent| assert!(!agent.frozen && agent.renewed.is_empty()));
    // Before the guest answers, and before its answer was looked at.
    for answer in [None, Some(Ok(()))] {
        vm.with_agent(|agent| agent.at_quiesce = answer);
        let mut quiesce = ByHand::new(vm.hub.quiesce(LIMIT));
        assert!(quiesce.poll().is_pending());
        vm.settle();
        drop(quiesce);
        vm.settle();
        vm.with_agent(|agent| {
            assert!(!agent.frozen);
            assert!(agent.renewed.pop().unwrap().renewal.is_none());
        });
        assert!(!vm.hub.is_quiesced());
    }
}

#[test]
fn a_quiesce_that_somebody_else_ended_ends_no_later_one() {
    let vm = FakeVm::new();
    vm.with_agent(|agent| agent.at_quiesce = None);
    let mut first = ByHand::new(vm.hub.quiesce(LIMIT));
    assert!(first.poll().is_pending());
    vm.settle();
    let mut renew = ByHand::new(vm.hub.renew(renewal(None), LIMIT));
    assert!(renew.poll().is_pending());
    vm.with_agent(|agent| agent.at_quiesce = Some(Ok(())));
    let mut second = ByHand::new(vm.hub.quiesce(LIMIT));
    assert!(second.poll().is_pending());
    vm.settle();
    let Poll::Ready(Err(error)) = first.poll() else {
        panic!("it was let go on");
    };
    assert!(error.to_string().contains("let go on"), "{error}");
    drop(first);
    vm.settle();
    assert!(matches!(second.poll(), Poll::Ready(Ok(_))));
    assert!(vm.hub.is_quiesced());
}

#[test]
fn the_ticket_of_a_quiesce_that_is_over_thaws_no_later_one() {
    let vm = FakeVm::new();
    let first = vm.run(vm.hub.quiesce(LIMIT)).unwrap();
    vm.run(vm.hub.renew(renewal(None), LIMIT)).unwrap();
    vm.hub.thaw(first);
    let second = vm.run(vm.hub.quiesce(LIMIT)).unwrap();
    vm.hub.thaw(first);
    vm.settle();
    assert!(vm.hub.is_quiesced());
    vm.hub.thaw(second);
    vm.settle();
    assert!(!vm.hub.is_quiesced());
}

#[test]
fn a_guest_that_does_not_say_in_time_that_it_stands_still_is_let_go_on() {
    let vm = FakeVm::new();
    vm.with_agent(|agent| agent.at_quiesce = None);
    let mut quiesce = ByHand::new(vm.hub.quiesce(LIMIT));
    assert!(quiesce.poll().is_pending());
    vm.settle();
    let alarm = *vm.alarms().last().unwrap();
    assert_eq!(vm.hub.expire(), Some(alarm));
    assert!(quiesce.poll().is_pending());
    vm.hub.expire_by(clock::now() + LIMIT + ANSWER_WITHIN);
    assert!(quiesce.woken.is_set());
    let Poll::Ready(Err(error)) = quiesce.poll() else {
        panic!("its time is over");
    };
    assert!(matches!(error, QuiesceError::TimedOut { limit } if limit == LIMIT));
    vm.settle();
    vm.with_agent(|agent| assert_eq!(agent.renewed.len(), 1));
    assert_eq!(vm.hub.expire(), None);
    vm.with_agent(|agent| agent.at_quiesce = Some(Ok(())));
    vm.run(vm.hub.quiesce(LIMIT)).unwrap();
}

#[test]
fn whoever_waits_learns_that_the_vm_is_gone() {
    let vm = FakeVm::new();
    vm.with_agent(|agent| agent.at_quiesce = None);
    let mut quiesce = ByHand::new(vm.hub.quiesce(LIMIT));
    assert!(quiesce.poll().is_pending());
    vm.settle();
    let mut renew = ByHand::new(vm.hub.renew(renewal(None), LIMIT));
    assert!(renew.poll().is_pending());
    vm.hub.vm_gone("stopped");
    assert!(quiesce.woken.is_set() && renew.woken.is_set());
    let Poll::Ready(Err(error)) = quiesce.poll() else {
        panic!("there is nobody to wait for");
    };
    assert!(error.to_string().contains("stopped"), "{error}");
    let Poll::Ready(Err(error)) = renew.poll() else {
        panic!("there is nobody to wait for");
    };
    assert!(error.to_string().contains("stopped"), "{error}");
    let error = vm.run(vm.hub.quiesce(LIMIT)).unwrap_err();
    assert!(matches!(error, QuiesceError::VmGone { reason } if reason == "stopped"));
}

#[test]
fn a_renewed_guest_has_the_time_and_what_it_was_given() {
    let vm = FakeVm::new();
    vm.run(vm.hub.quiesce(LIMIT)).unwrap();
    vm.run(vm.hub.renew(renewal(Some("copy")), LIMIT)).unwrap();
    assert!(!vm.hub.is_quiesced());
    let renewed = vm.with_agent(|agent| agent.renewed.pop().unwrap());
    assert_eq!(renewed.renewal, Some(renewal(Some("copy"))));
    let wall = SystemTime::UNIX_EPOCH + Duration::from_nanos(renewed.wall_ns);
    let ago = SystemTime::now().duration_since(wall).unwrap();
    assert!(ago < Duration::from_secs(3600));
}

#[test]
fn a_guest_that_cannot_be_renewed_stays_quiesced() {
    let vm = FakeVm::new();
    vm.run(vm.hub.quiesce(LIMIT)).unwrap();
    vm.with_agent(|agent| agent.at_renewal = Err("no entropy".to_owned()));
    let error = vm.run(vm.hub.renew(renewal(None), LIMIT)).unwrap_err();
    assert!(error.to_string().contains("no entropy"), "{error}");
    assert!(vm.hub.is_quiesced());
    let error = vm.run(vm.hub.renew(renewal(Some("")), LIMIT)).unwrap_err();
    assert!(matches!(error, RenewError::Hostname { .. }));
    vm.with_agent(|agent| agent.at_renewal = Ok(()));
    vm.run(vm.hub.renew(renewal(None), LIMIT)).unwrap();
    assert!(!vm.hub.is_quiesced());
}

#[test]
fn renewals_are_made_one_at_a_time() {
    let vm = FakeVm::new();
    let mut first = ByHand::new(vm.hub.renew(renewal(None), LIMIT));
    assert!(first.poll().is_pending());
    let second = vm.run(vm.hub.renew(renewal(None), LIMIT));
    assert!(matches!(second, Err(RenewError::Busy)));
    vm.run(first.into_inner()).unwrap();
}

#[test]
fn a_client_of_anothers_vm_is_sent_to_that_program_and_not_to_its_image() {
    let vm = FakeVm::attached();
    let quiesce = vm.run(vm.hub.quiesce(LIMIT)).unwrap_err();
    let renew = vm.run(vm.hub.renew(renewal(None), LIMIT)).unwrap_err();
    for error in [quiesce.to_string(), renew.to_string()] {
        assert!(error.contains("another program's"), "{error}");
        assert!(!error.contains("rebuild"), "{error}");
    }
}

#[test]
fn an_agent_that_is_too_old_is_refused_by_what_it_lacks() {
    let vm = FakeVm::legacy();
    let error = vm.run(vm.hub.quiesce(LIMIT)).unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("\"quiesce\"") && !error.contains("program"),
        "{error}"
    );
    let error = vm.run(vm.hub.renew(renewal(None), LIMIT)).unwrap_err();
    assert!(matches!(error, RenewError::Unsupported));
    let other: Arc<Hub> = Hub::new(Config::default()).unwrap();
    let error = vm.run(other.quiesce(LIMIT)).unwrap_err();
    assert!(matches!(error, QuiesceError::VmGone { .. }), "not up yet");
}
