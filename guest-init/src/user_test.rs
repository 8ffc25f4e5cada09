use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::Path;

use forebay_exec_proto::FailureKind;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::io::Errno;

use super::{ENTRY_MAX, FILE_MAX, Fault, Files, GROUPS_MAX, Lookup, Who};

const PASSWD: &str = "\
# who is who
root:x:0:0:root:/root:/bin/bash
+::::::
no entry at all
nan:x:one:1::/:/bin/sh
app:x:1000:1000:App,,,:/home/app:/bin/ash
app:x:1:1::/second:/bin/second
bare:x:1001:100
empty:x:1002:1002:::
777:x:5:5::/named:/bin/named
last:x:1003:1003::/home/last:/bin/ash";

const GROUP: &str = "\
root:x:0:root
nan:x:many:app
app:x:1000:app
audio:x:29:app,bare
staff:x:50:
video:x:44:bare,app
sapp:x:45:sapp,ap,app2
";

/// Who was found, as far as tests look at it.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    uid: u32,
    groups: Vec<u32>,
    home: String,
    name: Option<String>,
    shell: Option<String>,
}

fn found(uid: u32, groups: &[u32], home: &str, entry: Option<(&str, &str)>) -> Found {
    Found {
        uid,
        groups: groups.to_vec(),
        home: home.to_owned(),
        name: entry.map(|(name, _)| name.to_owned()),
        shell: entry.map(|(_, shell)| shell.to_owned()),
    }
}

fn files(dir: &Path) -> Files {
    let path = |name| CString::new(dir.join(name).as_os_str().as_bytes()).unwrap();
    Files {
        passwd: path("passwd"),
        group: path("group"),
    }
}

fn find_in(dir: &Path, who: &str) -> Result<Found, (Fault, Errno)> {
    let (who, files) = (Who::parse(who.as_bytes()).unwrap(), files(dir));
    let mut lookup = Lookup::prepare(&who, &files).unwrap();
    let room = |lookup: &Lookup<'_>| {
        let (passwd, group) = (&lookup.passwd, &lookup.group);
        let groups = &lookup.groups;
        (passwd.as_ptr(), group.as_ptr(), groups.as_ptr())
    };
    let before = room(&lookup);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let found = lookup.find().map(|user| {
        assert_eq!(user.groups.first(), Some(&user.gid));
        Found {
            uid: user.uid.as_raw(),
            groups: user.groups.iter().map(|gid| gid.as_raw()).collect(),
            home: text(user.home),
            name: user.name.map(text),
            shell: user.shell.map(text),
        }
    });
    assert_eq!(room(&lookup), before, "the room never grows");
    found
}

fn find(who: &str) -> Result<Found, (Fault, Errno)> {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("passwd"), PASSWD).unwrap();
    fs::write(dir.path().join("group"), GROUP).unwrap();
    find_in(dir.path(), who)
}

// B17
#[test]
fn a_name_gets_its_group_and_all_groups_that_list_it() {
    let app = found(
        1000,
        &[1000, 29, 44],
        "/home/app",
        Some(("app", "/bin/ash")),
    );
    assert_eq!(find("app"), Ok(app));
    let root = found(0, &[0], "/root", Some(("root", "/bin/bash")));
    assert_eq!(find("root"), Ok(root));
    let last = found(1003, &[1003], "/home/last", Some(("last", "/bin/ash")));
    assert_eq!(find("last"), Ok(last));
}

#[test]
fn a_number_with_an_entry_is_that_user_and_without_one_has_its_own_number_as_group() {
    assert_eq!(find("1000"), find("app"));
    assert_eq!(find("0"), find("root"));
    assert_eq!(find("4242"), Ok(found(4242, &[4242], "/", None)));
    assert_eq!(find("0004242"), find("4242"));
}

#[test]
fn what_consists_of_digits_is_never_a_name() {
    assert_eq!(find("777"), Ok(found(777, &[777], "/", None)));
    assert_eq!(find("app:777"), find("1000:777"));
}

#[test]
fn an_explicit_group_stands_in_place_of_all_others() {
    let app = |groups: &[u32]| Ok(found(1000, groups, "/home/app", Some(("app", "/bin/ash"))));
    assert_eq!(find("app:staff"), app(&[50]));
    assert_eq!(find("1000:1001"), app(&[1001]));
    assert_eq!(find("1000:video"), app(&[44]));
    assert_eq!(find("4242:7"), Ok(found(4242, &[7], "/", None)));
    assert_eq!(find("0:7").unwrap().groups, [7], "root too");
}

#[test]
fn an_entry_without_home_or_shell_has_the_usual_ones() {
    let entry = Some(("bare", "/bin/sh"));
    assert_eq!(find("bare"), Ok(found(1001, &[100, 29, 44], "/", entry)));
    let entry = Some(("empty", "/bin/sh"));
    assert_eq!(find("empty"), Ok(found(1002, &[1002], "/", entry)));
}

#[test]
fn names_that_nobody_has_are_told_as_user_or_group() {
    for who in [
        "ghost",
        "nan",
        "+",
        "ap",
        "-1",
        "+1",
        "App",
        "#",
        "ghost:staff",
        "ghost:ghost",
    ] {
        assert_eq!(find(who), Err((Fault::UnknownUser, Errno::NOENT)), "{who}");
    }
    for who in ["app:ghost", "4242:nan", "0:sta"] {
        assert_eq!(find(who), Err((Fault::UnknownGroup, Errno::NOENT)), "{who}");
    }
}

#[test]
fn what_names_nobody_is_refused_before_anything_is_looked_up() {
    for who in [
        "",
        ":",
        "app:",
        ":staff",
        "a:b:c",
        "4294967295",
        "99999999999999999999",
        "1:4294967295",
    ] {
        let failure = Who::parse(who.as_bytes()).unwrap_err();
        assert_eq!(failure.kind, FailureKind::UserSetup, "{who}");
        assert_eq!((failure.stage.as_str(), failure.errno), ("user", None));
        assert!(
            failure.message.contains(&format!("{who:?}")),
            "{}",
            failure.message
        );
    }
    assert!(Who::parse(b"4294967294:4294967294").is_ok());
}

// B17
#[test]
fn numbers_work_without_the_files() {
    let dir = tempfile::tempdir().unwrap();
    let find = |who| find_in(dir.path(), who);
    assert_eq!(find("1000"), Ok(found(1000, &[1000], "/", None)));
    assert_eq!(find("1000:1001"), Ok(found(1000, &[1001], "/", None)));
    assert_eq!(find("0"), Ok(found(0, &[0], "/root", None)));
    assert_eq!(find("app"), Err((Fault::UnknownUser, Errno::NOENT)));
    assert_eq!(find("0:staff"), Err((Fault::UnknownGroup, Errno::NOENT)));
    fs::write(dir.path().join("passwd"), PASSWD).unwrap();
    assert_eq!(
        find("app").unwrap().groups,
        [1000],
        "no file of groups lists it"
    );
}

#[test]
fn files_that_are_no_regular_ones_are_refused_without_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let passwd = dir.path().join("passwd");
    mknodat(CWD, &passwd, FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
    let find = |who| find_in(dir.path(), who);
    assert_eq!(find("app"), Err((Fault::Passwd, Errno::INVAL)));
    fs::remove_file(&passwd).unwrap();
    symlink("/dev/zero", &passwd).unwrap();
    assert_eq!(find("1000"), Err((Fault::Passwd, Errno::INVAL)));
    fs::remove_file(&passwd).unwrap();
    symlink("passwd", &passwd).unwrap();
    assert_eq!(find("1000"), Err((Fault::Passwd, Errno::LOOP)));
    fs::remove_file(&passwd).unwrap();
    fs::write(&passwd, PASSWD).unwrap();
    fs::create_dir(dir.path().join("group")).unwrap();
    assert_eq!(find("app"), Err((Fault::Group, Errno::INVAL)));
    assert_eq!(
        find("app:50").unwrap().groups,
        [50],
        "a number needs no file"
    );
}

#[test]
fn a_file_is_read_up_to_its_bound_and_no_further() {
    let dir = tempfile::tempdir().unwrap();
    let mut text = format!("{PASSWD}\n").into_bytes();
    // One long line, which is nobody's entry.
    text.resize(FILE_MAX - 1, b'#');
    text.push(b'\n');
    fs::write(dir.path().join("passwd"), &text).unwrap();
    assert_eq!(find_in(dir.path(), "app").unwrap().uid, 1000);
    text.push(b'\n');
    fs::write(dir.path().join("passwd"), &text).unwrap();
    assert_eq!(
        find_in(dir.path(), "app"),
        Err((Fault::Passwd, Errno::FBIG))
    );
    // Endless, as far as anybody can tell.
    fs::File::options()
        .write(true)
        .open(dir.path().join("passwd"))
        .unwrap()
        .set_len(1 << 40)
        .unwrap();
    assert_eq!(
        find_in(dir.path(), "1000"),
        Err((Fault::Passwd, Errno::FBIG))
    );
}

#[test]
fn an_entry_of_any_length_is_taken_whole_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let entry = |home: usize| format!("app:x:1:1::/{}:/bin/sh", "h".repeat(home));
    let fits = ENTRY_MAX - entry(0).len();
    for (home, expected) in [
        (fits, Ok(fits + 1)),
        (fits + 1, Err((Fault::Passwd, Errno::RANGE))),
    ] {
        fs::write(dir.path().join("passwd"), entry(home)).unwrap();
        assert_eq!(
            find_in(dir.path(), "app").map(|user| user.home.len()),
            expected
        );
    }
}

#[test]
fn a_line_with_a_nul_is_no_entry() {
    let dir = tempfile::tempdir().unwrap();
    let text = "app:x:0:0::/root\0:/bin/sh\napp:x:7:7::/home:/bin/sh\n";
    fs::write(dir.path().join("passwd"), text).unwrap();
    assert_eq!(find_in(dir.path(), "app").unwrap().uid, 7);
}

#[test]
fn more_groups_than_a_process_can_have_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("passwd"), "u:x:9:9::/:/bin/sh\n").unwrap();
    let groups = |n: usize| fs::write(dir.path().join("group"), "g:x:1:u\n".repeat(n)).unwrap();
    groups(GROUPS_MAX - 1);
    assert_eq!(find_in(dir.path(), "u").unwrap().groups.len(), GROUPS_MAX);
    groups(GROUPS_MAX);
    assert_eq!(find_in(dir.path(), "u"), Err((Fault::Group, Errno::TOOBIG)));
}

#[test]
fn every_fault_survives_the_status_pipe() {
    for fault in Fault::ALL {
        assert_eq!(Fault::from_wire(fault as u8), Some(fault));
    }
    assert_eq!(Fault::from_wire(200), None);
}
