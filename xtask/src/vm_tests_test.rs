use super::*;

fn void() -> Ended {
    Ended {
        status: None,
        void: Some("the emulator".to_owned()),
    }
}

fn fair(code: i32) -> Ended {
    Ended {
        status: Some(forebay_rig::Status::Code(code)),
        void: None,
    }
}

const TWO_OF_THREE: &str = "running 3 tests\ntest a ... ok\ntest b ... FAILED\ntest c ... ok\n\
    test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out";

#[test]
fn a_failure_in_a_fair_run_is_one() {
    let mut tally = Tally::new(&[]);
    assert_eq!(tally.take(TWO_OF_THREE, &fair(101)), Step::Done);
    assert_eq!((tally.verdict.passed, tally.verdict.failed), (2, 1));
}

#[test]
fn after_a_void_run_everything_runs_again_that_was_not_seen_to_pass() {
    let mut tally = Tally::new(&[]);
    // It died in c: d was never begun.
    let died = "running 4 tests\ntest a ... ok\ntest b ... FAILED\ntest c ... ";
    assert_eq!(
        tally.take(died, &void()),
        Step::Again("the emulator".into())
    );
    assert_eq!(
        tally.arguments(),
        ["--test-threads=1", "--exact", "--skip", "a"]
    );
    assert!(tally.verdict.repeated[0].contains("the emulator; until then: b"));
    let rest = "test b ... ok\ntest c ... ok\ntest d ... FAILED\n\
        test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 1 filtered out";
    assert_eq!(tally.take(rest, &fair(101)), Step::Done);
    assert_eq!((tally.verdict.passed, tally.verdict.failed), (3, 1));
    // Whatever comes of it, that there was such a run is not forgotten.
    assert_eq!(tally.verdict.repeated.len(), 1);
}

#[test]
fn a_void_run_in_which_all_passed_is_good() {
    let mut tally = Tally::new(&[]);
    let all = "test a ... ok\ntest result: ok. 1 passed; 0 failed; 0 ignored";
    let ended = Ended {
        void: void().void,
        ..fair(0)
    };
    assert_eq!(tally.take(all, &ended), Step::Done);
    assert_eq!((tally.verdict.passed, tally.verdict.failed), (1, 0));
}

#[test]
fn with_a_filter_all_of_it_runs_again() {
    let mut tally = Tally::new(&["some".to_owned()]);
    assert!(matches!(tally.take(TWO_OF_THREE, &void()), Step::Again(_)));
    assert_eq!(tally.arguments(), ["--test-threads=1", "some"]);
    let all = "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out";
    assert_eq!(tally.take(all, &fair(0)), Step::Done);
    assert_eq!((tally.verdict.passed, tally.verdict.failed), (3, 0));
}

#[test]
fn a_last_run_that_is_void_keeps_its_failures() {
    let mut tally = Tally::new(&[]);
    tally.take(TWO_OF_THREE, &void());
    assert_eq!((tally.verdict.passed, tally.verdict.failed), (2, 1));
}

#[test]
fn a_failure_with_a_processor_whose_interrupts_stay_off_is_tried_again_in_the_rig() {
    let shown = format!("{TWO_OF_THREE}\n{INTERRUPTS_OFF}\n");
    let mut tally = Tally::new(&[]);
    let step = tally.take(&shown, &doubted(fair(101), &shown));
    assert!(matches!(step, Step::Again(why) if why.contains("interrupts off")));
    let on = format!("{TWO_OF_THREE}\ninterrupts: false");
    assert_eq!(doubted(fair(101), &on).void, None);
    assert_eq!(doubted(void(), &shown).void, void().void);
}
