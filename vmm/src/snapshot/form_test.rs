use super::super::RecordProblem;
use super::*;
use kvm_bindings::kvm_regs;

#[derive(Debug, PartialEq, Encode, Decode)]
struct Two {
    #[n(0)]
    a: u8,
    #[n(1)]
    #[cbor(with = "minicbor::bytes")]
    b: Vec<u8>,
}

fn read(bytes: &[u8]) -> Result<Two, RestoreError> {
    decode("two", bytes)
}

#[test]
fn only_what_would_be_written_is_read() {
    let bytes = encode(&Two { a: 7, b: vec![1] });
    assert_eq!(bytes, [0x82, 7, 0x41, 1]);
    assert_eq!(read(&bytes).unwrap(), Two { a: 7, b: vec![1] });
    let wrong: [&[u8]; 7] = [
        &[],
        &[0x82, 7, 0x41],          // cut
        &[0x82, 7, 0x41, 1, 0],    // something behind it
        &[0x83, 7, 0x41, 1, 9],    // a field more
        &[0x81, 7],                // a field less
        &[0x82, 0x18, 7, 0x41, 1], // a longer form of the same
        &[0x9f, 7, 0x41, 1, 0xff], // another
    ];
    for bytes in wrong {
        match read(bytes) {
            Err(RestoreError::Record { record, problem }) => {
                assert_eq!(record, "two");
                assert!(matches!(problem, RecordProblem::Malformed(_)), "{problem}");
            }
            other => panic!("{bytes:x?}: {other:?}"),
        }
    }
}

#[test]
fn a_length_that_the_bytes_do_not_have_allocates_nothing() {
    // A byte string of 2⁶³ bytes, and an array of as many.
    for kind in [0x5b, 0x9b] {
        let mut bytes = vec![0x82, 7, kind];
        bytes.extend((1u64 << 63).to_be_bytes());
        assert!(read(&bytes).is_err());
    }
}

#[test]
fn a_struct_of_kvms_has_its_length_and_no_other() {
    let len = size_of::<kvm_regs>();
    assert!(one::<kvm_regs>("r", "regs", &vec![0; len]).is_ok());
    for wrong in [0, 1, len - 1, len + 1, 2 * len] {
        let error = one::<kvm_regs>("r", "regs", &vec![0; wrong]).unwrap_err();
        assert!(
            error.to_string().contains(&format!("{wrong} bytes")),
            "{error}"
        );
    }
    assert_eq!(
        several::<kvm_regs>("r", "regs", &vec![0; 3 * len])
            .unwrap()
            .len(),
        3
    );
    assert!(several::<kvm_regs>("r", "regs", &vec![0; 3 * len - 1]).is_err());
}
