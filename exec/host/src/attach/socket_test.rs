use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};

use super::*;

const PATH_MAX: usize = AttachSocket::PATH_MAX;

#[test]
fn only_the_owner_may_connect_whatever_the_umask() {
    // The umask is the process's: other tests make files meanwhile, which is why it is changed
    // in a child.
    const CHILD: &str = "FOREBAY_TEST_UMASK";
    if let Some(umask) = std::env::var_os(CHILD) {
        let umask = u32::from_str_radix(umask.to_str().unwrap(), 8).unwrap();
        rustix::process::umask(Mode::empty());
        let directory = tempfile::tempdir().unwrap();
        rustix::process::umask(Mode::from_raw_mode(umask));
        let socket = AttachSocket::bind(&directory.path().join("s")).unwrap();
        let metadata = std::fs::symlink_metadata(socket.path()).unwrap();
        assert!(metadata.file_type().is_socket());
        assert_eq!(metadata.mode() & 0o7777, 0o600, "umask {umask:o}");
        return;
    }
    for umask in ["0", "22", "77", "177", "777"] {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "attach::socket::tests::only_the_owner_may_connect_whatever_the_umask",
            ])
            .env(CHILD, umask)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{text}");
        assert!(text.contains("1 passed"), "{text}");
    }
}

#[test]
fn a_path_that_no_socket_can_have_is_refused_before_anything_is_made() {
    let directory = tempfile::tempdir().unwrap();
    let fits = directory.path().join("x".repeat(PATH_MAX));
    let fits = Path::new(std::ffi::OsStr::from_bytes(
        &fits.as_os_str().as_bytes()[..PATH_MAX],
    ))
    .to_owned();
    drop(AttachSocket::bind(&fits).unwrap());
    let mut long = fits.into_os_string();
    long.push("x");
    for path in [Path::new(&long), Path::new(""), Path::new("a\0b")] {
        let error = AttachSocket::bind(path).unwrap_err();
        assert!(
            matches!(error, AttachError::Path { max: 107, .. }),
            "{error}"
        );
    }
    let text = AttachSocket::check(Path::new(&long))
        .unwrap_err()
        .to_string();
    assert!(text.contains("108 bytes") && text.contains("107"), "{text}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn a_socket_that_nobody_listens_on_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let _socket = AttachSocket::bind(&path).unwrap();
    UnixStream::connect(&path).unwrap();
}

#[test]
fn a_socket_in_use_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let first = AttachSocket::bind(&path).unwrap();
    let error = AttachSocket::bind(&path).unwrap_err();
    assert!(matches!(error, AttachError::InUse { .. }), "{error}");
    assert!(
        error.to_string().contains(path.to_str().unwrap()),
        "{error}"
    );
    UnixStream::connect(&path).unwrap();
    drop(first);
    assert!(!path.exists());
}

#[test]
fn what_is_no_socket_of_ours_is_never_removed() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "precious").unwrap();
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    for path in [&file, &link, &directory.path().to_owned()] {
        let error = AttachSocket::bind(path).unwrap_err();
        assert!(matches!(error, AttachError::NotASocket { .. }), "{error}");
    }
    assert_eq!(std::fs::read(&link).unwrap(), b"precious");
    // A socket of another kind, somebody's.
    let other = directory.path().join("datagram");
    let _other = UnixDatagram::bind(&other).unwrap();
    assert!(AttachSocket::bind(&other).is_err());
    assert!(other.exists());
}

#[test]
fn a_file_that_took_its_place_is_not_removed_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let socket = AttachSocket::bind(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let _successor = UnixListener::bind(&path).unwrap();
    drop(socket);
    UnixStream::connect(&path).unwrap();
}

#[test]
fn a_successor_that_does_not_know_of_the_lock_keeps_its_socket_and_its_lock() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let socket = AttachSocket::bind(&path).unwrap();
    // Somebody cleans up behind a program that still runs.
    for entry in std::fs::read_dir(directory.path()).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let successor = AttachSocket::bind(&path).unwrap();
    drop(socket);
    UnixStream::connect(&path).unwrap();
    let error = AttachSocket::bind(&path).unwrap_err();
    assert!(matches!(error, AttachError::InUse { .. }), "{error}");
    drop(successor);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn a_socket_that_does_not_listen_yet_is_not_taken_for_a_stale_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    // As far as another program's set-up may be: it has the path and is bound.
    let _lock = Lock::take(lock_of(&path)).unwrap().unwrap();
    let bound = socket().unwrap();
    rustix::net::bind(&bound, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    let error = AttachSocket::bind(&path).unwrap_err();
    assert!(matches!(error, AttachError::InUse { .. }), "{error}");
    rustix::net::listen(&bound, 1).unwrap();
    UnixStream::connect(&path).unwrap();
}

#[test]
fn a_lock_on_the_directory_keeps_nobody_waiting() {
    let directory = tempfile::tempdir().unwrap();
    let file = std::fs::File::open(directory.path()).unwrap();
    file.lock().unwrap();
    AttachSocket::bind(&directory.path().join("s")).unwrap();
}

#[test]
fn what_a_program_that_died_left_behind_is_taken_over() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    drop(UnixListener::bind(&path).unwrap());
    std::fs::write(lock_of(&path), "").unwrap();
    let socket = AttachSocket::bind(&path).unwrap();
    UnixStream::connect(&path).unwrap();
    drop(socket);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn a_lock_that_cannot_be_a_file_is_an_error_and_not_a_wait() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    std::fs::create_dir(lock_of(&path)).unwrap();
    let error = AttachSocket::bind(&path).unwrap_err();
    assert!(error.to_string().contains("lock"), "{error}");
    assert!(!path.exists());
}

#[test]
fn many_that_want_one_path_at_once_get_it_one_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    for _ in 0..200 {
        drop(UnixListener::bind(&path).unwrap());
        let race: Vec<_> = (0..8)
            .map(|_| {
                let path = path.clone();
                std::thread::spawn(move || AttachSocket::bind(&path))
            })
            .collect();
        let outcomes: Vec<_> = race.into_iter().map(|t| t.join().unwrap()).collect();
        assert_eq!(outcomes.iter().filter(|o| o.is_ok()).count(), 1);
        for refused in outcomes.iter().filter_map(|o| o.as_ref().err()) {
            assert!(matches!(refused, AttachError::InUse { .. }), "{refused}");
        }
        UnixStream::connect(&path).unwrap();
    }
}
