use super::*;

#[test]
fn jains_index_is_one_for_equal_shares_and_one_over_their_number_for_one_that_takes_all() {
    assert_eq!(jain(&[2.0, 2.0, 2.0, 2.0]), 1.0);
    assert_eq!(jain(&[8.0, 0.0, 0.0, 0.0]), 0.25);
}
