use super::*;

#[test]
fn what_is_encoded_decodes_to_the_same() {
    let limits = Limits {
        max_executions: 1,
        input_limit: 2,
        output_limit: 3,
        stdin_chunk_size: 4,
        output_chunk_size: 5,
    };
    for preamble in [Preamble::Welcome(limits), Preamble::Full { most: 64 }] {
        assert_eq!(Preamble::decode(&preamble.encode()), Ok(preamble));
    }
}

#[test]
fn another_service_and_another_generation_are_told_apart() {
    let good = Preamble::Full { most: 1 }.encode();
    let mut foreign = good;
    foreign[0] = b'F';
    assert_eq!(Preamble::decode(&foreign), Err(Unusable::Foreign));
    let mut newer = good;
    newer[8] = 99;
    assert_eq!(Preamble::decode(&newer), Err(Unusable::Generation(99)));
    let mut answer = good;
    answer[12] = 7;
    assert_eq!(Preamble::decode(&answer), Err(Unusable::Foreign));
}
