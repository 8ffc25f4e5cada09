//! Commands that run as somebody. They need root, as PID 1 is; other testers leave them to the
//! guest, and say so.

use std::ffi::CString;
use std::fs;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;

use forebay_exec_proto::{EnvVar, Request, Rlimit};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::io::Errno;
use tempfile::TempDir;

use super::{command, failed_of, request, settle, spawn_with, stdout_of, wait};
use crate::failure::{Found, Report, Stage};
use crate::reaper::Exit;
use crate::signals::{self, Reach};
use crate::spawn::{Child, Progress, Spawner};
use crate::user::{Fault, Files};

/// A system with users of its own, who may enter it.
struct System {
    dir: TempDir,
    spawner: Spawner,
}

impl System {
    /// `None` without the privilege to become somebody else.
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("not root: commands that run as somebody are tested in the guest only");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let path = |name| CString::new(dir.path().join(name).as_os_str().as_bytes()).unwrap();
        let users = Files {
            passwd: path("passwd"),
            group: path("group"),
        };
        let system = Self {
            spawner: Spawner {
                users,
                ..Spawner::new().unwrap()
            },
            dir,
        };
        system.write("passwd", "app:x:4000:4000::/home/app:/bin/ash\n");
        system.write("group", "app:x:4000:\nred:x:4001:app\nblue:x:4002:app\n");
        Some(system)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.dir.path().join(name), text).unwrap();
    }

    fn spawn(&self, request: &Request) -> Child {
        spawn_with(&self.spawner, &command(request), request)
    }
}

fn shell(user: &str, script: &str) -> Request {
    Request {
        user: Some(user.as_bytes().to_vec().into()),
        ..request(&["sh", "-c", script])
    }
}

fn report(stage: Stage, errno: Errno, detail: u8) -> Report {
    Report {
        stage,
        errno,
        detail,
    }
}

// B17: nothing of root is left.
#[test]
fn a_command_has_its_users_ids_and_groups_and_no_privilege() {
    let Some(system) = System::new() else { return };
    let script = "grep -E '^(Uid|Gid|Groups|CapEff|CapPrm|CapInh|CapAmb)' /proc/self/status";
    let status = |user: &str| {
        let text = stdout_of(system.spawn(&shell(user, script)));
        let lines = text.lines().map(|line| line.trim_end().replace('\t', " "));
        lines.collect::<Vec<_>>()
    };
    let expected = |uid: u32, gid: u32, groups: &str| {
        let mut lines = vec![
            format!("Uid: {uid} {uid} {uid} {uid}"),
            format!("Gid: {gid} {gid} {gid} {gid}"),
            format!("Groups: {groups}"),
        ];
        for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            lines.push(format!("{set}: 0000000000000000"));
        }
        lines
    };
    assert_eq!(status("app"), expected(4000, 4000, "4000 4001 4002"));
    assert_eq!(status("4000"), status("app"));
    assert_eq!(status("app:blue"), expected(4000, 4002, "4002"));
    assert_eq!(status("5000"), expected(5000, 5000, "5000"));
    assert_eq!(status("5000:5001"), expected(5000, 5001, "5001"));
    let root = status("0:4001");
    assert_eq!(root[..3], expected(0, 4001, "4001")[..3]);
}

// B17
#[test]
fn a_command_has_its_users_home_name_and_shell_unless_told_otherwise() {
    let Some(system) = System::new() else { return };
    let script = "echo \"$HOME,$USER,$LOGNAME,${SHELL-unset}\"";
    let told = |request: &Request| stdout_of(system.spawn(request));
    assert_eq!(told(&shell("app", script)), "/home/app,app,app,/bin/ash\n");
    // A shell sets none of these but, maybe, its own SHELL.
    let nobody = told(&shell("5000", script));
    assert!(nobody.starts_with("/,,,"), "{nobody}");
    let mut own = shell("app", script);
    own.env = vec![EnvVar {
        key: b"HOME".to_vec().into(),
        value: b"/own".to_vec().into(),
    }];
    assert_eq!(told(&own), "/own,app,app,/bin/ash\n");
}

#[test]
fn a_user_can_open_the_streams_that_it_was_given() {
    let Some(system) = System::new() else { return };
    let mut request = shell(
        "app",
        "cat /proc/self/fd/0; echo err 2> /proc/self/fd/2 >&2; echo out > /proc/self/fd/1",
    );
    assert_eq!(stdout_of(system.spawn(&request)), "out\n");
    // /dev/null is not the user's now.
    let null = fs::metadata("/dev/null").unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&null), 0);
    request.user = Some(b"5000".to_vec().into());
    assert_eq!(stdout_of(system.spawn(&request)), "out\n");
}

#[test]
fn a_name_that_nobody_has_is_told_before_anything_runs() {
    let Some(system) = System::new() else { return };
    let told = |user| failed_of(system.spawn(&shell(user, "true")));
    let unknown = |fault| report(Stage::User, Errno::NOENT, fault as u8);
    assert_eq!(told("ghost"), unknown(Fault::UnknownUser));
    assert_eq!(told("app:ghost"), unknown(Fault::UnknownGroup));
}

#[test]
fn users_are_looked_up_anew_for_each_command() {
    let Some(system) = System::new() else { return };
    let ghost = shell("ghost", "grep ^Uid /proc/self/status");
    assert_eq!(failed_of(system.spawn(&ghost)).stage, Stage::User);
    system.write("passwd", "ghost:x:4004:4004::/:/bin/sh\n");
    let uid = stdout_of(system.spawn(&ghost));
    assert!(uid.contains("4004"), "{uid}");
}

// A hostile image: nobody waits for it, and what needs no file goes on.
#[test]
fn a_fifo_in_place_of_the_users_fails_the_command_that_asked_for_one() {
    let Some(system) = System::new() else { return };
    let passwd = system.dir.path().join("passwd");
    fs::remove_file(&passwd).unwrap();
    mknodat(CWD, &passwd, FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
    let told = failed_of(system.spawn(&shell("app", "true")));
    assert_eq!(told, report(Stage::User, Errno::INVAL, Fault::Passwd as u8));
    assert_eq!(
        stdout_of(system.spawn(&request(&["echo", "root"]))),
        "root\n"
    );
}

// B10: it is the user who enters the directory, not root.
#[test]
fn a_directory_that_the_user_may_not_enter_is_blamed_on_the_directory() {
    let Some(system) = System::new() else { return };
    let closed = system.dir.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    let cwd = || Some(closed.as_os_str().as_bytes().to_vec().into());
    let told = failed_of(system.spawn(&Request {
        cwd: cwd(),
        ..shell("app", "true")
    }));
    assert_eq!(told, report(Stage::Cwd, Errno::ACCESS, 0));
    std::os::unix::fs::chown(&closed, Some(4000), Some(4000)).unwrap();
    let own = Request {
        cwd: cwd(),
        ..shell("app", "pwd")
    };
    assert_eq!(
        stdout_of(system.spawn(&own)).trim(),
        closed.to_str().unwrap()
    );
}

#[test]
fn a_program_that_the_user_may_not_execute_is_told_as_that() {
    let Some(system) = System::new() else { return };
    let program = super::file(system.dir.path(), "own", 0o700, "#!/bin/sh\n");
    let asked = Request {
        user: Some(b"app".to_vec().into()),
        ..request(&[&program])
    };
    let told = failed_of(system.spawn(&asked));
    assert_eq!(told, report(Stage::Exec, Errno::ACCESS, Found::File as u8));
}

// The kernel looks at it when the program begins.
#[test]
fn a_user_with_too_many_processes_starts_no_program() {
    let Some(system) = System::new() else { return };
    let limited = |user| Request {
        rlimits: vec![Rlimit {
            resource: 6,
            soft: 0,
            hard: 0,
        }],
        ..shell(user, "true")
    };
    let other = system.spawn(&shell("app", "exec sleep 1000"));
    assert_eq!(settle(&other), Progress::Started);
    let told = failed_of(system.spawn(&limited("app")));
    assert_eq!((told.stage, told.errno), (Stage::Exec, Errno::AGAIN));
    signals::send(other.pidfd.as_fd(), 9, Reach::Process).unwrap();
    assert_eq!(wait(&other), Exit::Signal(9));
}
