//! The rig on itself: what a run gives back, and what it says when L1 breaks.
//!
//! Every test boots an L1 of its own. `FOREBAY_RIG_INIT` names the static `forebay-rig-init`.

use std::time::Duration;

use forebay_images::Cache;
use forebay_images::progress::Quiet;
use forebay_rig::{Assets, Clock, Error, Event, RigCommand, RigOutcome, Status, run};

fn assets() -> Assets {
    let init = std::env::var_os("FOREBAY_RIG_INIT").expect("run by `cargo xtask test`");
    Assets::get_or_fetch(&Cache::of_user().unwrap(), init.as_ref(), &Quiet).unwrap()
}

fn shell(script: &str) -> RigCommand {
    RigCommand::new("sh").args(["-c", script]).memory_mib(1024)
}

fn outcome(command: &RigCommand) -> RigOutcome {
    run(command, &assets(), &mut |_| ()).unwrap()
}

#[test]
fn code_streams_and_files_come_back() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("given"), "from the host").unwrap();
    let command = shell(
        "cat /given/given > /tmp/returned; pwd; echo $COLOUR; echo complaint >&2; \
         test -c /dev/kvm && exit 42",
    )
    .file(dir.path(), "/given")
    .output("/tmp/returned")
    .output("/tmp/never-written")
    .env("COLOUR", "green")
    .cwd("/somewhere/else");
    let outcome = outcome(&command);
    assert_eq!(outcome.status, Status::Code(42));
    assert_eq!(outcome.stdout, b"/somewhere/else\ngreen\n");
    assert_eq!(outcome.stderr, b"complaint\n");
    let returned = outcome.file("/tmp/returned").unwrap();
    assert_eq!(std::fs::read(returned).unwrap(), b"from the host");
    assert_eq!(outcome.file("/tmp/never-written"), None);
}

#[test]
fn a_programs_death_by_a_signal_is_no_exit_code() {
    let outcome = outcome(&shell("kill -9 $$"));
    assert_eq!(outcome.status, Status::Signal(9));
    assert_eq!(outcome.status.shell_code(), 137);
}

#[test]
fn much_output_arrives_whole_while_it_is_written() {
    let command = shell("seq 1 300000");
    let mut pieces = 0;
    let outcome = run(&command, &assets(), &mut |event| {
        pieces += usize::from(matches!(event, Event::Stdout(_)));
    })
    .unwrap();
    let expected: String = (1..=300_000).map(|n| format!("{n}\n")).collect();
    assert!(outcome.stdout == expected.as_bytes());
    assert!(pieces > 1);
}

#[test]
fn output_held_open_by_something_left_behind_does_not_hold_the_run() {
    let outcome = outcome(&shell("sleep 1000 & echo done"));
    assert_eq!(outcome.status, Status::Code(0));
    assert_eq!(outcome.stdout, b"done\n");
}

#[test]
fn a_panic_of_l1_is_told_with_its_first_words() {
    let command = shell("echo c > /proc/sysrq-trigger; sleep 60");
    let error = run(&command, &assets(), &mut |_| ()).unwrap_err();
    assert!(matches!(error, Error::Ended { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("Kernel panic - not syncing: sysrq"), "{text}");
}

#[test]
fn a_hang_ends_at_its_deadline() {
    let command = shell("sleep 10000").deadline(Duration::from_secs(3));
    let error = run(&command, &assets(), &mut |_| ()).unwrap_err();
    assert!(matches!(error, Error::Deadline { .. }), "{error}");
    assert!(error.to_string().contains("after 3 s"), "{error}");
}

#[test]
fn an_l1_that_does_not_come_up_is_booted_again_before_that_is_an_error() {
    let command = shell("true").boot_deadline(Duration::from_millis(1));
    let mut again = 0;
    let error = run(&command, &assets(), &mut |event| {
        again += u32::from(matches!(event, Event::BootAgain(_)));
    })
    .unwrap_err();
    assert_eq!(again, 2);
    assert!(error.to_string().contains("still booting"), "{error}");
    assert!(!error.emulator_at_fault(), "{error}");
}

#[test]
fn a_command_that_is_not_there_is_named() {
    let command = RigCommand::new("no-such-command").memory_mib(1024);
    let error = run(&command, &assets(), &mut |_| ()).unwrap_err();
    assert!(matches!(error, Error::NotRun { .. }), "{error}");
    assert!(error.to_string().contains("no-such-command"), "{error}");
}

#[test]
fn counted_time_passes_by_instructions() {
    // Asleep, nothing is executed: ten virtual minutes pass at once.
    let command = shell("sleep 600; echo woke")
        .clock(Clock::Instructions)
        .deadline(Duration::from_secs(300));
    assert_eq!(outcome(&command).stdout, b"woke\n");
}
