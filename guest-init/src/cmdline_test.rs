use super::Switches;

#[test]
fn switches_are_whole_words() {
    let on = Switches::parse("console=hvc0 forebay.trace quiet\n");
    assert_eq!(
        on,
        Switches {
            trace: true,
            test_crash: false
        }
    );
    assert_eq!(
        Switches::parse("xforebay.trace forebay.tracer"),
        Switches::default()
    );
}

#[test]
fn words_after_the_double_dash_are_not_switches() {
    assert_eq!(
        Switches::parse("quiet -- forebay.test_crash"),
        Switches::default()
    );
    assert!(Switches::parse("forebay.test_crash -- x").test_crash);
}
