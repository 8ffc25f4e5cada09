use super::*;

#[test]
fn memory_that_outgrows_its_bound_by_a_byte_is_broken_and_named() {
    let mut table = Table::new("memory", "", &["memory", "grown", "at most", "", "held"]);
    let mut judged = |grown| {
        let bound = Bound {
            what: "host".to_owned(),
            grown,
            at_most: MIB,
            held: String::new(),
        };
        judge(bound, &mut table)
    };
    assert_eq!(judged(MIB), None);
    assert_eq!(judged(MIB + 1), Some("host".to_owned()));
    let verdicts: Vec<_> = table.records().iter().map(|row| row[""].clone()).collect();
    assert_eq!(verdicts, ["kept", "broken"]);
}
