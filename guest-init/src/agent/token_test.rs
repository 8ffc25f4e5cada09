use forebay_exec_proto::ExecId;

use super::{ID_MAX, Token};

#[test]
fn every_source_comes_back_as_itself() {
    for number in [1, 2, 1 << 40, ID_MAX] {
        let id = ExecId::new(number).unwrap();
        for token in [
            Token::Port,
            Token::Signals,
            Token::Leaves,
            Token::Status(id),
            Token::Leader(id),
            Token::Stdout(id),
            Token::Stderr(id),
            Token::Stdin(id),
            Token::Lingering(number),
        ] {
            assert_eq!(Token::decode(token.encode()), Some(token));
        }
    }
}

#[test]
fn bits_that_mean_nothing_are_no_source() {
    assert_eq!(Token::decode(15), None);
    // An execution's source without an execution.
    assert_eq!(Token::decode(5), None);
}
