use super::*;

#[derive(Debug, PartialEq, Eq, Encode, Decode)]
struct State {
    #[n(0)]
    small: u16,
    #[n(1)]
    list: Vec<u32>,
}

fn state() -> State {
    State {
        small: 300,
        list: vec![1, 2, 70_000],
    }
}

fn read(bytes: &[u8]) -> Result<State, RestoreError> {
    decode("state", 3, bytes)
}

#[test]
fn a_record_comes_back_as_it_was() {
    assert_eq!(read(&encode(3, &state())), Ok(state()));
}

#[test]
fn another_version_is_refused_by_name() {
    let refused = read(&encode(4, &state())).unwrap_err();
    let expected = RestoreError::Version {
        what: "state",
        found: 4,
        supported: 3,
    };
    assert_eq!(refused, expected);
}

#[test]
fn a_record_that_is_cut_off_anywhere_or_goes_on_is_refused() {
    let bytes = encode(3, &state());
    for len in 0..bytes.len() {
        let cut = read(&bytes[..len]);
        assert!(matches!(cut, Err(RestoreError::Malformed { .. })), "{len}");
    }
    let mut more = bytes;
    more.push(0);
    let error = read(&more).unwrap_err().to_string();
    assert!(error.contains("1 bytes follow it"), "{error}");
}

#[test]
fn what_would_be_forgotten_is_refused() {
    let bytes = encode(3, &state());
    assert_eq!(
        bytes[..3],
        [0x82, 3, 0x82],
        "arrays of two around version 3"
    );
    // A third field in the state; the version in two bytes; an array without its length.
    let mut field = bytes.clone();
    field[2] = 0x83;
    field.push(0);
    let mut longer = bytes.clone();
    longer.splice(1..2, [0x18, 3]);
    let mut open = bytes;
    open[2] = 0x9f;
    open.push(0xff);
    for bytes in [field, longer, open] {
        let error = read(&bytes).unwrap_err().to_string();
        assert!(error.contains("does not know"), "{error}");
    }
}

#[test]
fn a_length_that_is_only_announced_allocates_nothing() {
    // A list of 2⁶⁴ − 1 elements; allocating it would abort.
    let mut bytes = vec![0x82, 3, 0x82, 1, 0x9b];
    bytes.extend([0xff; 8]);
    assert!(read(&bytes).is_err());
}
