use super::*;

#[test]
fn memory_up_to_three_gib_is_one_range() {
    for mib in [64, 256, 3072] {
        assert_eq!(
            ranges(mib * MIB),
            [Range {
                start: 0,
                len: mib * MIB
            }]
        );
    }
}

#[test]
fn memory_beyond_three_gib_goes_on_above_the_hole() {
    assert_eq!(
        ranges(3073 * MIB),
        [
            Range {
                start: 0,
                len: 3072 * MIB
            },
            Range {
                start: 4096 * MIB,
                len: MIB
            }
        ]
    );
}
