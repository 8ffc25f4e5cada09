use super::Signal;

#[test]
fn constants_and_names_agree_with_linux_numbers() {
    for (signal, number, name) in [
        (Signal::HUP, 1, "SIGHUP"),
        (Signal::INT, 2, "SIGINT"),
        (Signal::QUIT, 3, "SIGQUIT"),
        (Signal::KILL, 9, "SIGKILL"),
        (Signal::USR1, 10, "SIGUSR1"),
        (Signal::USR2, 12, "SIGUSR2"),
        (Signal::PIPE, 13, "SIGPIPE"),
        (Signal::ALRM, 14, "SIGALRM"),
        (Signal::TERM, 15, "SIGTERM"),
        (Signal::CONT, 18, "SIGCONT"),
        (Signal::STOP, 19, "SIGSTOP"),
    ] {
        assert_eq!(signal.number(), number);
        assert_eq!(signal.name(), Some(name));
    }
    assert_eq!(Signal::new(31).and_then(Signal::name), Some("SIGSYS"));
}

#[test]
fn only_one_to_sixty_four_are_signals() {
    assert_eq!(Signal::new(0), None);
    assert_eq!(Signal::new(65), None);
    assert_eq!(Signal::new(u32::MAX), None);
    assert_eq!(Signal::new(64).map(Signal::number), Some(64));
}

#[test]
fn real_time_signals_have_a_number_for_a_name() {
    let signal = Signal::new(40).unwrap();
    assert_eq!(signal.name(), None);
    assert_eq!(signal.to_string(), "SIG40");
}

#[test]
fn names_are_found_in_either_form_and_any_case() {
    assert_eq!(Signal::from_name("SIGTERM"), Some(Signal::TERM));
    assert_eq!(Signal::from_name("term"), Some(Signal::TERM));
    assert_eq!(Signal::from_name("SIG"), None);
    assert_eq!(Signal::from_name(""), None);
}

#[test]
fn every_signal_is_found_by_the_name_that_it_is_shown_by_and_read_as_it_was_written() {
    for number in 1..=64 {
        let signal = Signal::new(number).unwrap();
        assert_eq!(Signal::from_name(&signal.to_string()), Some(signal));
        let text = serde_json::to_string(&signal).unwrap();
        assert_eq!(
            serde_json::from_str::<Signal>(&text).unwrap(),
            signal,
            "{text}"
        );
    }
    assert!(serde_json::from_str::<Signal>("\"SIG65\"").is_err());
    assert!(serde_json::from_str::<Signal>("9").is_err());
}
