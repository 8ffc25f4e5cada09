use super::*;
use forebay_exec::Config;

#[test]
fn an_agent_that_answers_is_never_silent() {
    let mut pulse = Pulse::default();
    for _ in 0..100 {
        let answer = pulse.sent.checked_sub(1);
        assert_eq!(pulse.beat(answer), Tick::Again(PING_EVERY));
    }
}

#[test]
fn silence_is_noticed_and_in_the_end_is_a_loss() {
    let mut pulse = Pulse::default();
    let ticks: Vec<_> = (0..=LOST_AFTER).map(|_| pulse.beat(None)).collect();
    assert_eq!(ticks[0], Tick::Again(PING_EVERY));
    assert_eq!(ticks[1], Tick::Again(PING_EVERY));
    assert!(ticks[2..30].iter().all(|t| *t == Tick::Silent(PING_EVERY)));
    assert!(matches!(&ticks[30], Tick::Lost(why) if why.contains("30 pings")));
}

#[test]
fn one_late_answer_ends_the_silence() {
    let mut pulse = Pulse::default();
    for _ in 0..10 {
        pulse.beat(None);
    }
    assert_eq!(pulse.beat(Some(1)), Tick::Again(PING_EVERY));
}

#[test]
fn the_end_of_the_vm_reaches_whoever_waits_for_the_agent() {
    let hub = Hub::new(Config::default()).unwrap();
    let side = HubSide::new(Arc::clone(&hub));
    assert!(!side.is_ready());
    side.vm_stopped(&StopReason::PowerOff);
    let waiting = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(hub.ready());
    assert!(
        waiting
            .unwrap_err()
            .to_string()
            .contains("switched itself off")
    );
}

#[test]
fn an_agent_that_was_never_ready_is_the_boot_deadlines_affair() {
    let side = HubSide::new(Hub::new(Config::default()).unwrap());
    side.opened();
    for _ in 0..2 * LOST_AFTER {
        assert_eq!(side.tick(), Tick::Again(PING_EVERY));
    }
}

#[test]
fn an_agent_that_opens_its_port_again_begins_anew() {
    let side = HubSide::new(Hub::new(Config::default()).unwrap());
    side.pulse().begun = true;
    for _ in 0..LOST_AFTER {
        assert!(!matches!(side.tick(), Tick::Lost(_)));
    }
    side.opened();
    assert_eq!(side.tick(), Tick::Again(PING_EVERY));
}

#[test]
fn a_reset_that_the_vms_end_follows_is_told_as_that_end() {
    let hub = Hub::new(Config::default()).unwrap();
    let side = HubSide::new(Arc::clone(&hub));
    side.opened();
    side.closed(Closed::Reset);
    assert_eq!(hub.inspect().state, "greeting", "not told yet");
    side.vm_stopped(&StopReason::Reboot);
    side.reset_stands();
    assert!(refusal(&hub).contains("rebooted"), "{}", refusal(&hub));
}

#[test]
fn a_reset_that_nothing_follows_is_told_as_it_is() {
    let hub = Hub::new(Config::default()).unwrap();
    let side = HubSide::new(Arc::clone(&hub));
    side.opened();
    side.closed(Closed::Reset);
    side.reset_stands();
    assert!(refusal(&hub).contains("reset"), "{}", refusal(&hub));
    // And one that a new opening follows, before that.
    side.opened();
    side.closed(Closed::Reset);
    side.opened();
    let view = hub.inspect();
    assert_eq!((view.state, view.connection), ("greeting", 3));
    side.reset_stands();
    assert_eq!(hub.inspect().state, "greeting", "nothing is kept back");
}

/// Why the hub does not become ready.
fn refusal(hub: &Hub) -> String {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(hub.ready())
        .unwrap_err()
        .to_string()
}
