use super::*;

#[test]
fn moments_are_kept_once_and_in_order() {
    let clock = BootClock::start();
    clock.note(Moment::SetUp);
    clock.note(Moment::Entered);
    let first = clock.report();
    clock.note(Moment::SetUp);
    assert_eq!(clock.report(), first);
    assert!(first.set_up <= first.first_instruction);
    assert_eq!(first.ready, None);
}

#[test]
fn the_report_shows_only_what_was_reached() {
    let mut report = BootClock::start().report();
    report.set_up = Some(Duration::from_micros(1500));
    report.first_instruction = Some(Duration::from_millis(4));
    assert_eq!(
        report.to_string(),
        "     1.50 ms  (+1.50 ms)  VM set up\n     4.00 ms  (+2.50 ms)  first instruction\n"
    );
}
