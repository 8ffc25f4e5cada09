use std::time::Instant;

use super::*;

const LONG: Duration = Duration::from_secs(60);

/// Runs a line of shell, and gives what it printed and how it ended.
fn shell(line: &str, deadline: Duration) -> (String, Result<Status>) {
    let mut command = Command::new("sh");
    command.args(["-c", line]);
    let mut output = Vec::new();
    let ended = within(command, deadline, &mut |event| {
        if let Event::Stdout(bytes) = event {
            output.extend_from_slice(bytes);
        }
    });
    (String::from_utf8(output).unwrap(), ended)
}

/// Waits until a process is gone, or is only waited for by its parent.
fn is_gone(pid: &str) {
    let stat = format!("/proc/{}/stat", pid.trim());
    let runs = || std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z "));
    let deadline = Instant::now() + LONG;
    while runs() {
        assert!(Instant::now() < deadline, "{stat} goes on");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn output_and_end_are_the_programs() {
    let (output, ended) = shell("echo out; exit 3", LONG);
    assert_eq!(
        (output.as_str(), ended.unwrap()),
        ("out\n", Status::Code(3))
    );
    let (_, ended) = shell("kill -9 $$", LONG);
    assert_eq!(ended.unwrap(), Status::Signal(9));
}

#[test]
fn the_deadline_kills_the_program_and_its_process_group() {
    let (output, ended) = shell("sleep 1000 & echo $!; wait", Duration::from_millis(300));
    let error = ended.unwrap_err().to_string();
    assert!(error.contains("its deadline"), "{error}");
    is_gone(&output);
}

#[test]
fn what_a_program_leaves_behind_is_killed() {
    let (output, ended) = shell("sleep 1000 >&- & echo $!", LONG);
    assert_eq!(ended.unwrap(), Status::Code(0));
    is_gone(&output);
}
