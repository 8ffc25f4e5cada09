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
