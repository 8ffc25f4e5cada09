use super::*;

#[test]
fn a_byte_that_is_lost_twice_or_wrong_is_noticed() {
    let whole = counted(0..1000);
    assert_eq!(whole[..20], *b"0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n");
    assert_eq!(counted(7..1000), whole[7..]);
    assert!(assert_counts(&whole) > 100);
    let notices = |output: Vec<u8>| {
        std::panic::catch_unwind(|| assert_counts(&output)).expect_err("it is wrong");
    };
    for at in [0, 1, 500, 998] {
        let (before, after) = whole.split_at(at);
        notices([before, &after[1..]].concat());
        notices([before, &after[..1], after].concat());
    }
    notices(Vec::new());
}
