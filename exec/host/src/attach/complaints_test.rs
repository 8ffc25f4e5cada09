use super::*;

#[test]
fn a_flood_of_complaints_is_one_warning_and_a_number() {
    let mut complaints = Complaints::default();
    let begin = Instant::now();
    assert_eq!(complaints.due(begin), Some(0));
    for _ in 0..1000 {
        assert_eq!(complaints.due(begin), None);
    }
    assert_eq!(complaints.due(begin + PAUSE), Some(1000));
    assert_eq!(complaints.due(begin + PAUSE), None);
    assert_eq!(complaints.due(begin + 2 * PAUSE), Some(1));
}
