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
