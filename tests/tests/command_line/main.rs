//! The `forebay` command as a shell sees it: streams, exit codes, signals; and as a person at a
//! terminal does.

mod copies;
mod run;
mod seat;
mod terminal;

use std::io::Write as _;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use forebay_tests::{Running, scaled};

/// For one run with its boot, on hardware.
const CEILING: Duration = Duration::from_secs(20);

/// `forebay` with these arguments, its streams piped, and the test image for `run`.
fn forebay(arguments: &[&str]) -> Command {
    let mut command = forebay_tests::command();
    command.args(arguments);
    command
}

/// `forebay run` of a command in the test image.
fn run(command: &[&str]) -> Command {
    let image = forebay_tests::image();
    let mut run = forebay(&["run", "--image"]);
    run.arg(image.directory()).arg("--").args(command);
    run
}

/// Starts it.
fn start(mut command: Command) -> Running {
    command.spawn().expect("forebay starts").into()
}

/// Runs it to its end.
fn output(command: Command) -> Output {
    start(command).end(CEILING)
}

/// Runs it to its end with this on its stdin.
fn fed(mut command: Command, data: &[u8]) -> Output {
    command.stdin(Stdio::piped());
    let mut child = start(command);
    let mut stdin = child.stdin.take().expect("it is piped");
    let data = data.to_vec();
    // Ends with an error when the child stops reading, which is the child's right.
    std::thread::spawn(move || stdin.write_all(&data));
    child.end(CEILING)
}

/// Waits for something that the child brings about.
fn wait_for(what: &str, mut seen: impl FnMut() -> bool) {
    let started = Instant::now();
    while !seen() {
        assert!(
            started.elapsed() < scaled(CEILING),
            "hang: {what} has not come"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}
