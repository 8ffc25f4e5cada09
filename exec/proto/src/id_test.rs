use super::*;

#[test]
fn ids_begin_at_one_rise_and_end_before_they_repeat() {
    assert_eq!(ExecId::new(0), None);
    let mut ids = IdSource::new();
    assert_eq!(ids.next().map(ExecId::get), Ok(1));
    assert_eq!(ids.next().map(ExecId::get), Ok(2));
    let mut ids = IdSource { last: u64::MAX - 1 };
    assert_eq!(ids.next().map(ExecId::get), Ok(u64::MAX));
    for _ in 0..2 {
        assert_eq!(ids.next(), Err(IdSpaceExhausted));
    }
}
