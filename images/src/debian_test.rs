use super::*;

#[test]
fn madison_lists_versions_once_and_without_sources() {
    let table = "\
 linux-source-6.12 | 6.12.117-1~deb12u1 | http://deb.example.org bookworm-security/main amd64 Packages
 linux-source-6.12 | 6.12.117-1~deb12u1 | http://deb.example.org bookworm/main amd64 Packages
 linux-source-6.12 | 6.12.115-2~deb12u1 | http://deb.example.org bookworm-security/main amd64 Packages
 linux-6.12 | 6.12.117-1~deb12u1 | http://deb.example.org bookworm-security/main Sources
";
    let found = parse_madison(table, "linux-source-6.12", &Archive::default());
    let versions: Vec<_> = found
        .iter()
        .map(|package| package.version.as_str())
        .collect();
    assert_eq!(versions, ["6.12.117-1~deb12u1", "6.12.115-2~deb12u1"]);
}

#[test]
fn the_newest_name_is_by_number_and_never_a_metapackage() {
    let names = "\
linux-image-6.12-cloud-amd64
linux-image-6.12.9+deb12-cloud-amd64
linux-image-6.12.117+deb12-cloud-amd64
linux-image-6.12.117+deb12-cloud-amd64-dbg
linux-image-6.12.101+deb12-cloud-amd64
";
    assert_eq!(
        newest_name(names, "linux-image-6.12", "-cloud-amd64"),
        Some("linux-image-6.12.117+deb12-cloud-amd64")
    );
    assert_eq!(newest_name(names, "linux-image-6.13", "-cloud-amd64"), None);
}

#[test]
fn a_system_without_the_package_manager_is_told_apart_from_a_failure() {
    let missing = apt(&mut Command::new("/nowhere/apt-cache"), "linux-source");
    let text = missing.unwrap_err().to_string();
    assert!(
        text.contains("linux-source") && text.contains("/nowhere/apt-cache"),
        "{text}"
    );
    let failed = apt(&mut Command::new("false"), "linux-source");
    assert!(matches!(failed, Err(Error::Command { .. })), "{failed:?}");
}

#[test]
fn mirror_and_release_are_read_from_what_is_offered_where() {
    let policy = "\
qemu-system-x86:
  Installed: (none)
  Candidate: 1:7.2+dfsg-7+deb12u18
  Version table:
     1:7.2+dfsg-7+deb12u18 500
        500 http://security.example.org bookworm-security/main amd64 Packages
        500 http://deb.example.org/debian bookworm/main amd64 Packages
        100 /var/lib/dpkg/status
";
    let found = Some((
        "http://deb.example.org/debian".to_owned(),
        "bookworm".to_owned(),
    ));
    assert_eq!(parse_policy(policy), found);
    assert_eq!(
        parse_policy("     1:7.2 500\n  100 /var/lib/dpkg/status\n"),
        None
    );
}

#[test]
fn debian_s_own_suites_are_told_from_others() {
    let policy = "\
Package files:
 100 /var/lib/dpkg/status
     release a=now
 500 https://packages.example.com/apt other-bookworm/main amd64 Packages
     release o=other-bookworm,a=other-bookworm,n=other-bookworm,c=main,b=amd64
 500 http://deb.example.org/debian-security bookworm-security/main amd64 Packages
     release v=12,o=Debian,a=oldstable-security,n=bookworm-security,l=Debian-Security,c=main,b=amd64
     origin deb.example.org
 500 http://deb.example.org/debian bookworm/main amd64 Packages
     release v=12.11,o=Debian,a=oldstable,n=bookworm,l=Debian,c=main,b=amd64
     origin deb.example.org
 500 http://deb.example.org/debian bookworm/contrib amd64 Packages
     release v=12.11,o=Debian,a=oldstable,n=bookworm,l=Debian,c=contrib,b=amd64
Pinned packages:
";
    let expected = [
        ("http://deb.example.org/debian", "bookworm"),
        (
            "http://deb.example.org/debian-security",
            "bookworm-security",
        ),
    ]
    .map(|(mirror, suite)| (mirror.to_owned(), suite.to_owned()));
    assert_eq!(parse_offered(policy), expected);
}

#[test]
fn a_package_that_was_kept_is_not_fetched_again() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::at(dir.path().join("cache"));
    let package = Package {
        name: "no-such-package".to_owned(),
        version: "1:2~3".to_owned(),
        archive: Archive::default(),
    };
    let kept = cache.path("packages", "no-such-package_1:2~3");
    fs::create_dir_all(&kept).unwrap();
    fs::write(kept.join("kept.deb"), "no package").unwrap();
    let error = package.unpack_kept_into(&cache, dir.path()).unwrap_err();
    // It got as far as to look into the file, where there is somebody who can.
    assert!(error.to_string().contains("dpkg-deb"), "{error}");
}
