use std::ffi::{CStr, c_char};

use forebay_exec_proto::{EnvVar, FailureKind, Request, Rlimit};
use rustix::fs::{Gid, Uid};

use super::{Candidate, Command, DEFAULT_PATH, Defaults, Next, PATH_MAX};
use crate::user::{ENTRY_MAX, Identity};

fn var(key: &str, value: &str) -> EnvVar {
    EnvVar {
        key: key.as_bytes().to_vec().into(),
        value: value.as_bytes().to_vec().into(),
    }
}

fn request(argv: &[&[u8]], env: Vec<EnvVar>) -> Request {
    Request {
        argv: argv.iter().map(|word| word.to_vec().into()).collect(),
        env,
        ..Request::default()
    }
}

fn command(argv: &[&[u8]], env: Vec<EnvVar>) -> Command {
    Command::new(&request(argv, env), &Defaults::default()).unwrap()
}

fn refusal(argv: &[&[u8]], env: Vec<EnvVar>) -> String {
    let failure = Command::new(&request(argv, env), &Defaults::default())
        .err()
        .unwrap();
    assert_eq!(failure.kind, FailureKind::BadArgs);
    assert_eq!(failure.stage, "request");
    failure.message
}

/// Reads an array of strings as execve would.
#[allow(unsafe_code, reason = "the arrays are for the kernel")]
fn strings(mut array: *const *const c_char) -> Vec<Vec<u8>> {
    let mut strings = Vec::new();
    // SAFETY: the arrays under test end with a null pointer and their strings with a NUL; the
    // command that owns both is alive in the caller.
    unsafe {
        while !(*array).is_null() {
            strings.push(CStr::from_ptr(*array).to_bytes().to_vec());
            array = array.add(1);
        }
    }
    strings
}

fn candidates(command: &Command) -> Vec<Option<String>> {
    let mut found = Vec::new();
    command.for_each_candidate(&mut [0; PATH_MAX], |candidate| {
        found.push(match candidate {
            Candidate::File(file) => Some(file.to_str().unwrap().to_owned()),
            Candidate::TooLong => None,
        });
        Next::Continue
    });
    found
}

#[test]
fn arguments_arrive_as_they_were_given() {
    let argv: [&[u8]; 5] = [b"p", b"", b"a b\n\"", b"\xff\x80=", b"-"];
    assert_eq!(strings(command(&argv, vec![]).argv()), argv);
}

#[test]
fn a_later_key_wins_over_the_vms_and_the_defaults() {
    let defaults = Defaults {
        env: vec![var("A", "vm"), var("B", "vm"), var("HOME", "/vm")],
        cwd: None,
    };
    let request = request(
        &[b"p"],
        vec![var("B", "1"), var("C", ""), var("B", "x=2\n")],
    );
    let command = Command::new(&request, &defaults).unwrap();
    let expected = [
        "A=vm",
        "B=x=2\n",
        "C=",
        "HOME=/vm",
        &format!("PATH={DEFAULT_PATH}"),
    ];
    assert_eq!(
        strings(command.env()),
        expected.map(|line| line.as_bytes().to_vec())
    );
}

#[test]
fn a_program_is_looked_for_in_the_requests_own_path() {
    let found = candidates(&command(&[b"hi"], vec![var("PATH", "/opt/x:rel")]));
    assert_eq!(
        found,
        [Some("/opt/x/hi".to_owned()), Some("rel/hi".to_owned())]
    );
}

#[test]
fn without_a_path_the_documented_one_holds() {
    let found = candidates(&command(&[b"hi"], vec![]));
    assert_eq!(found.len(), 6);
    assert_eq!(found[0].as_deref(), Some("/usr/local/sbin/hi"));
}

// B11: an empty PATH never falls back, and never means the current directory.
#[test]
fn empty_elements_of_a_path_name_no_directory() {
    assert_eq!(candidates(&command(&[b"hi"], vec![var("PATH", "")])), []);
    let found = candidates(&command(&[b"hi"], vec![var("PATH", ":/a::/b:")]));
    assert_eq!(found, [Some("/a/hi".to_owned()), Some("/b/hi".to_owned())]);
}

#[test]
fn a_program_with_a_slash_is_taken_as_it_is() {
    let given = command(&[b"./hi"], vec![]);
    assert_eq!(given.file(), Some(c"./hi"));
    assert_eq!(candidates(&given), []);
    assert!(given.shown_path().is_none());
    assert_eq!(command(&[b"hi"], vec![]).file(), None);
}

#[test]
fn a_program_without_a_name_is_nowhere() {
    assert_eq!(candidates(&command(&[b""], vec![])), []);
}

#[test]
fn a_path_beyond_the_kernels_limit_is_not_cut() {
    let long = "d".repeat(PATH_MAX);
    let found = candidates(&command(&[b"hi"], vec![var("PATH", &format!("{long}:/b"))]));
    assert_eq!(found, [None, Some("/b/hi".to_owned())]);
    // Exactly the limit, its NUL included.
    let fits = format!("/{}", "d".repeat(PATH_MAX - 5));
    let found = candidates(&command(&[b"hi"], vec![var("PATH", &fits)]));
    assert_eq!(found, [Some(format!("{fits}/hi"))]);
}

#[test]
fn what_no_program_can_be_given_is_refused() {
    assert!(refusal(&[], vec![]).contains("no program"));
    assert!(refusal(&[b"p", b"a\0b"], vec![]).contains("NUL"));
    assert!(refusal(&[b"p"], vec![var("", "x")]).contains("name"));
    assert!(refusal(&[b"p"], vec![var("A=B", "x")]).contains("A=B"));
    assert!(refusal(&[b"p"], vec![var("A", "x\0")]).contains("NUL"));
}

#[test]
fn the_working_directory_is_the_requests_then_the_vms_then_the_root() {
    let vm = Defaults {
        env: vec![],
        cwd: Some(c"/srv".to_owned()),
    };
    let mut request = request(&[b"p"], vec![]);
    assert_eq!(
        Command::new(&request, &Defaults::default()).unwrap().cwd(),
        c"/"
    );
    assert_eq!(Command::new(&request, &vm).unwrap().cwd(), c"/srv");
    request.cwd = Some(b"/tmp".to_vec().into());
    assert_eq!(Command::new(&request, &vm).unwrap().cwd(), c"/tmp");
}

#[test]
fn long_names_are_cut_in_messages_only() {
    let name = "n".repeat(10_000);
    let command = command(&[name.as_bytes()], vec![]);
    assert!(command.shown_program().len() < 300);
    assert_eq!(strings(command.argv())[0].len(), 10_000);
}

/// The environment of a command whose user was found to be this one.
fn env_of(command: &Command, user: &Identity<'_>) -> Vec<String> {
    let mut env = command.prepare_env().unwrap();
    let lines = strings(env.complete(user));
    let text = |line| String::from_utf8(line).unwrap();
    lines.into_iter().map(text).collect()
}

#[test]
fn what_the_user_brings_gives_way_to_the_vms_and_the_requests() {
    let defaults = Defaults {
        env: vec![var("USER", "vm")],
        cwd: None,
    };
    let mut request = request(&[b"p"], vec![var("SHELL", "")]);
    request.user = Some(b"app".to_vec().into());
    let command = Command::new(&request, &defaults).unwrap();
    let path = format!("PATH={DEFAULT_PATH}");
    let user = Identity {
        uid: Uid::from_raw(1000),
        gid: Gid::from_raw(1000),
        groups: &[],
        home: b"/home/app",
        name: Some(b"app"),
        shell: Some(b"/bin/ash"),
    };
    let declared = [path.as_str(), "SHELL=", "USER=vm"];
    assert_eq!(
        env_of(&command, &user),
        [&declared[..], &["HOME=/home/app", "LOGNAME=app"]].concat()
    );
    let nobody = Identity {
        home: b"/",
        name: None,
        shell: None,
        ..user
    };
    assert_eq!(
        env_of(&command, &nobody),
        [&declared[..], &["HOME=/"]].concat()
    );
}

#[test]
fn the_longest_entry_of_a_user_fits_into_the_environment() {
    let mut request = request(&[b"p"], vec![]);
    request.user = Some(b"app".to_vec().into());
    let command = Command::new(&request, &Defaults::default()).unwrap();
    let long = vec![b'x'; ENTRY_MAX];
    let user = Identity {
        uid: Uid::from_raw(1),
        gid: Gid::from_raw(1),
        groups: &[],
        home: &long,
        name: Some(&long),
        shell: Some(&long),
    };
    let mut env = command.prepare_env().unwrap();
    let room = (env.pointers.capacity(), env.bytes.capacity());
    let lines = strings(env.complete(&user));
    assert_eq!(lines.len(), 5);
    assert_eq!((env.pointers.capacity(), env.bytes.capacity()), room);
}

// B17, B18
#[test]
fn a_user_or_limit_that_makes_no_sense_is_refused_before_there_is_a_child() {
    let refusal = |request: &Request| Command::new(request, &Defaults::default()).err().unwrap();
    let mut request = request(&[b"p"], vec![]);
    request.user = Some(b"".to_vec().into());
    assert_eq!(refusal(&request).kind, FailureKind::UserSetup);
    request.user = None;
    request.rlimits = vec![Rlimit {
        resource: 7,
        soft: 2,
        hard: 1,
    }];
    assert_eq!(refusal(&request).kind, FailureKind::ResourceLimit);
}
