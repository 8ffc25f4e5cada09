use super::*;

fn split(text: &str) -> Result<(OsString, OsString), &'static str> {
    variable(OsString::from(text))
}

#[test]
fn a_variable_is_split_at_its_first_equals_sign() {
    assert_eq!(split("A=b=c"), Ok(("A".into(), "b=c".into())));
    assert_eq!(split("A="), Ok(("A".into(), "".into())));
}

#[test]
fn a_variable_without_a_name_or_an_equals_sign_is_refused() {
    assert!(split("=x").is_err());
    assert!(split("A").is_err());
    assert!(split("").is_err());
}

#[test]
fn a_variable_may_hold_any_bytes() {
    let odd = OsString::from_vec(b"K=\xff\n".to_vec());
    assert_eq!(
        variable(odd),
        Ok(("K".into(), OsString::from_vec(b"\xff\n".to_vec())))
    );
}

#[test]
fn a_size_is_bytes_or_a_power_of_1024_of_them() {
    for (text, bytes) in [
        ("0", 0),
        ("1048576", 1 << 20),
        ("512k", 512 << 10),
        ("64m", 64 << 20),
        ("64M", 64 << 20),
        ("2g", 2 << 30),
        ("1t", 1 << 40),
        ("18446744073709551615", u64::MAX),
    ] {
        assert_eq!(size(text), Ok(bytes), "{text}");
    }
    for text in ["", "m", "-1", "+1", "1.5g", "64 m", "64mb", "0x10", "ä"] {
        assert!(size(text).is_err(), "{text}");
    }
    assert!(size("18446744073709551616").is_err());
    assert!(size("16777216t").is_err());
}

#[test]
fn a_time_is_seconds_or_has_its_unit() {
    for (text, millis) in [
        ("5", 5_000),
        ("5s", 5_000),
        ("500ms", 500),
        ("2m", 120_000),
        ("1h", 3_600_000),
        ("0", 0),
    ] {
        assert_eq!(time(text), Ok(Duration::from_millis(millis)), "{text}");
    }
    for text in ["", "s", "ms", "-5", "1.5s", "5 s", "5d", "1h30m"] {
        assert!(time(text).is_err(), "{text}");
    }
    assert!(time("18446744073709551615h").is_err());
}

#[test]
fn a_ulimit_has_a_name_and_one_limit_or_two() {
    let limits = |text| ulimit(text).map(|limit| (limit.resource, limit.soft, limit.hard));
    assert_eq!(limits("nofile=10:20"), Ok((Resource::Nofile, 10, 20)));
    assert_eq!(limits("nproc=7"), Ok((Resource::Nproc, 7, 7)));
    assert_eq!(
        limits("core=0:unlimited"),
        Ok((Resource::Core, 0, Resource::UNLIMITED))
    );
    for text in [
        "nofile",
        "nofile=",
        "nofile=1:",
        "nofile=-1",
        "nofile=1:2:3",
    ] {
        assert!(limits(text).is_err(), "{text}");
    }
    let unknown = limits("nofiles=1").unwrap_err();
    assert!(
        unknown.contains("nofiles") && unknown.contains("nofile,"),
        "{unknown}"
    );
}
