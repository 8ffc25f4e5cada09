#[path = "spawn_test/limits.rs"]
mod limits;
#[path = "spawn_test/users.rs"]
mod users;

use std::fs;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::path::Path;

use forebay_exec_proto::{EnvVar, Request, StdinMode};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;

use super::{Child, Progress, Spawner, progress};
use crate::command::{Command, Defaults};
use crate::failure::{Found, Report, Stage};
use crate::reaper::{Exit, reap};
use crate::streams::{AgentStreams, Pipe};

fn request(argv: &[&str]) -> Request {
    Request {
        argv: argv
            .iter()
            .map(|word| word.as_bytes().to_vec().into())
            .collect(),
        ..Request::default()
    }
}

fn command(request: &Request) -> Command {
    Command::new(request, &Defaults::default()).unwrap()
}

fn spawn(request: &Request) -> Child {
    spawn_with(&Spawner::new().unwrap(), &command(request), request)
}

fn spawn_with(spawner: &Spawner, command: &Command, request: &Request) -> Child {
    spawner
        .spawn(command, request.stdin, request.terminal, None)
        .unwrap()
}

/// Waits until the start succeeded or failed.
fn settle(child: &Child) -> Progress {
    poll(&mut [PollFd::new(&child.status, PollFlags::IN)], None).unwrap();
    progress(child.status.as_fd())
}

fn wait(child: &Child) -> Exit {
    poll(&mut [PollFd::new(&child.pidfd, PollFlags::IN)], None).unwrap();
    reap(child.pidfd.as_fd()).expect("it has ended").exit
}

/// Runs a command to its end and returns its stdout.
fn stdout(request: &Request) -> String {
    stdout_of(spawn(request))
}

fn stdout_of(child: Child) -> String {
    assert_eq!(settle(&child), Progress::Started);
    let pipe = child.streams.stdout.as_fd().unwrap();
    fcntl_setfl(pipe, OFlags::empty()).unwrap();
    let mut text = String::new();
    fs::File::from(pipe.try_clone_to_owned().unwrap())
        .read_to_string(&mut text)
        .unwrap();
    assert_eq!(wait(&child), Exit::Code(0), "{text}");
    text
}

fn failed(request: &Request) -> (Stage, Errno, Found) {
    let report = failed_of(spawn(request));
    (report.stage, report.errno, Found::from_wire(report.detail))
}

fn failed_of(child: Child) -> Report {
    let progress = settle(&child);
    assert_eq!(wait(&child), Exit::Code(127), "the child ends by itself");
    match progress {
        Progress::Failed(report) => report,
        other => panic!("it should not have started: {other:?}"),
    }
}

/// Makes a file. Another process writes it: here other tests may be making children, and each has a
/// copy of what is open for writing, which keeps a program from being executed.
fn file(dir: &Path, name: &str, mode: u32, text: &str) -> String {
    let path = dir.join(name).to_str().unwrap().to_owned();
    let script = "printf %s \"$2\" > \"$0\" && chmod \"$1\" \"$0\"";
    run("sh", &["-c", script, &path, &format!("{mode:o}"), text]);
    path
}

/// Runs a program of the host to its end.
fn run(program: &str, args: &[&str]) {
    let status = std::process::Command::new(program).args(args).status();
    assert!(status.unwrap().success(), "{program} {args:?}");
}

/// The value of a signal set in the text of `/proc/PID/status`.
fn signals(status: &str, field: &str) -> u64 {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(field))
        .unwrap();
    u64::from_str_radix(line.trim(), 16).unwrap()
}

// B14, B15: inherited state.
#[test]
fn a_command_inherits_neither_the_agents_mask_nor_any_ignored_signal() {
    let (own, status) = std::thread::spawn(|| {
        crate::signals::block_all();
        // As if whoever started this process had.
        // SAFETY: SIG_IGN runs no code.
        unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
        let own = fs::read_to_string("/proc/thread-self/status").unwrap();
        (own, stdout(&request(&["cat", "/proc/self/status"])))
    })
    .join()
    .unwrap();
    let ignored = 1 << (libc::SIGPIPE - 1) | 1 << (libc::SIGHUP - 1);
    assert_ne!(signals(&own, "SigBlk:"), 0, "the agent blocks signals");
    assert_eq!(signals(&own, "SigIgn:") & ignored, ignored);
    assert_eq!(signals(&status, "SigBlk:"), 0);
    // Signals 32 and 33 are the C library's own; it lets nobody change them.
    let theirs = 0b11 << 31;
    assert_eq!(signals(&status, "SigIgn:") & !theirs, 0);
}

// B16: inherited descriptors.
#[test]
fn a_command_has_three_descriptors_even_if_the_agent_leaked_one() {
    let leak = rustix::io::dup(fs::File::open("/dev/null").unwrap()).unwrap();
    rustix::io::fcntl_setfd(&leak, rustix::io::FdFlags::empty()).unwrap();
    // Looked up by number: listing the directory would open one more.
    let script = "n=0; while [ $n -lt 300 ]; do [ -e /proc/$$/fd/$n ] && echo $n; n=$((n+1)); done";
    let listing = stdout(&request(&["sh", "-c", script]));
    assert_eq!(listing, "0\n1\n2\n");
}

#[test]
fn a_command_leads_its_own_session_and_group() {
    let text = stdout(&request(&[
        "sh",
        "-c",
        "read -r line < /proc/$$/stat; echo $$ $line",
    ]));
    let words: Vec<&str> = text.split_whitespace().collect();
    // own pid, then pid, (name), state, parent, group, session
    let pid = words[0];
    assert_eq!((words[5], words[6]), (pid, pid), "{text}");
}

#[test]
fn umask_directory_and_environment_are_declared_not_inherited() {
    let mut request = request(&["sh", "-c", "umask; pwd; env"]);
    request.env = vec![EnvVar {
        key: b"K".to_vec().into(),
        value: b"v".to_vec().into(),
    }];
    let text = stdout(&request);
    let mut lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.drain(..2).collect::<Vec<_>>(), ["0022", "/"]);
    // What a shell adds by itself.
    lines.retain(|line| {
        !["PWD=", "_=", "SHLVL=", "OLDPWD="]
            .iter()
            .any(|own| line.starts_with(own))
    });
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "HOME=/root",
            "K=v",
            &format!("PATH={}", crate::command::DEFAULT_PATH)
        ]
    );
}

#[test]
fn the_limit_on_open_files_is_not_the_agents() {
    let before = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let text = stdout(&request(&["sh", "-c", "ulimit -S -n"]));
    let expected = before.current.unwrap().to_string();
    assert_eq!(text.trim(), expected);
}

// B09: each kind of program that cannot be run.
#[test]
fn a_program_that_cannot_run_says_which_step_failed_and_what_was_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let exec = |errno, found| (Stage::Exec, errno, found);
    assert_eq!(
        failed(&request(&["nosuch"])),
        exec(Errno::NOENT, Found::Nothing)
    );
    assert_eq!(
        failed(&request(&[&path("nosuch")])),
        exec(Errno::NOENT, Found::Nothing)
    );
    assert_eq!(
        failed(&request(&[&path("")])),
        exec(Errno::ACCESS, Found::Directory)
    );
    assert_eq!(
        failed(&request(&["/etc/passwd/nosuch"])),
        exec(Errno::NOTDIR, Found::Nothing)
    );
    let plain = file(dir.path(), "plain", 0o644, "#!/bin/sh\n");
    assert_eq!(
        failed(&request(&[&plain])),
        exec(Errno::ACCESS, Found::File)
    );
    let orphan = file(dir.path(), "orphan", 0o755, "#!/no/such/interpreter\n");
    assert_eq!(
        failed(&request(&[&orphan])),
        exec(Errno::NOENT, Found::File)
    );
    let empty = file(dir.path(), "empty", 0o755, "");
    assert_eq!(
        failed(&request(&[&empty])),
        exec(Errno::NOEXEC, Found::File)
    );
    let text = file(dir.path(), "text", 0o755, "echo hi\n");
    assert_eq!(failed(&request(&[&text])), exec(Errno::NOEXEC, Found::File));
}

// B10: the directory is blamed, not the program.
#[test]
fn a_bad_working_directory_fails_before_the_program_is_looked_for() {
    for (cwd, errno) in [("/nosuch", Errno::NOENT), ("/etc/passwd", Errno::NOTDIR)] {
        let mut request = request(&["nosuch"]);
        request.cwd = Some(cwd.as_bytes().to_vec().into());
        assert_eq!(failed(&request), (Stage::Cwd, errno, Found::Nothing));
    }
}

// B11: the second directory has the one that can be run.
#[test]
fn the_search_goes_past_a_file_that_may_not_be_executed() {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    file(first.path(), "hi", 0o644, "#!/bin/sh\necho wrong\n");
    file(second.path(), "hi", 0o755, "#!/bin/sh\necho right\n");
    let path = format!(
        "/nosuch:{}:{}",
        first.path().display(),
        second.path().display()
    );
    let mut request = request(&["hi"]);
    let var = EnvVar {
        key: b"PATH".to_vec().into(),
        value: path.into_bytes().into(),
    };
    request.env = vec![var];
    assert_eq!(stdout(&request), "right\n");
    fs::remove_file(second.path().join("hi")).unwrap();
    assert_eq!(failed(&request), (Stage::Exec, Errno::ACCESS, Found::File));
}

#[test]
fn a_search_that_finds_nothing_says_so_whatever_the_directories_are() {
    for path in [
        "/etc/passwd:/nosuch",
        "/nosuch:/etc/passwd",
        "/etc/passwd",
        "",
    ] {
        let mut request = request(&["nosuch"]);
        request.env = vec![EnvVar {
            key: b"PATH".to_vec().into(),
            value: path.as_bytes().to_vec().into(),
        }];
        assert_eq!(
            failed(&request),
            (Stage::Exec, Errno::NOENT, Found::Nothing)
        );
    }
}

// B13: what another process really has open for writing is busy, as long as it has.
#[test]
fn a_program_that_is_being_written_is_busy_until_it_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("busy").to_str().unwrap().to_owned();
    run("cp", &["/bin/true", &path]);
    let mut hold = request(&["sh", "-c", "exec 3>>\"$0\"; echo open; read line", &path]);
    hold.stdin = StdinMode::Pipe;
    let holder = spawn(&hold);
    let AgentStreams {
        stdin,
        stdout: told,
        ..
    } = holder.streams;
    poll(
        &mut [PollFd::from_borrowed_fd(
            told.as_fd().unwrap(),
            PollFlags::IN,
        )],
        None,
    )
    .unwrap();
    assert_eq!(
        failed(&request(&[&path])),
        (Stage::Exec, Errno::TXTBSY, Found::File)
    );
    drop(stdin);
    poll(&mut [PollFd::new(&holder.pidfd, PollFlags::IN)], None).unwrap();
    assert!(reap(holder.pidfd.as_fd()).is_some());
    assert_eq!(stdout(&request(&[&path])), "");
}

// B12: beyond what the kernel takes.
#[test]
fn arguments_beyond_the_kernels_limit_are_its_error() {
    let word = "x".repeat(200_000);
    assert_eq!(
        failed(&request(&["true", &word])),
        (Stage::Exec, Errno::TOOBIG, Found::File)
    );
}

#[test]
fn stdin_is_a_pipe_only_if_asked_for() {
    assert_eq!(
        stdout(&request(&["readlink", "/proc/self/fd/0"])),
        "/dev/null\n"
    );
    let mut request = request(&["cat"]);
    request.stdin = StdinMode::Pipe;
    let child = spawn(&request);
    let AgentStreams { stdin, stdout, .. } = child.streams;
    rustix::io::write(stdin.as_ref().unwrap().as_fd(), b"abc").unwrap();
    drop(stdin);
    poll(&mut [PollFd::new(&child.pidfd, PollFlags::IN)], None).unwrap();
    let mut room = [0; 10];
    let pipe = stdout.as_fd().unwrap();
    assert_eq!(rustix::io::read(pipe, &mut room).unwrap(), 3);
    assert_eq!(reap(child.pidfd.as_fd()).unwrap().exit, Exit::Code(0));
}

// What is left of a child that was killed on its way is what execve leaves: a closed pipe.
#[test]
fn a_start_that_ends_without_a_word_counts_as_started() {
    let status = Pipe::from_child().unwrap();
    assert_eq!(progress(status.agent.as_fd()), Progress::Pending);
    drop(status.child);
    assert_eq!(progress(status.agent.as_fd()), Progress::Started);
}
