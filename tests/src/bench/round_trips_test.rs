use super::*;

#[test]
fn the_floors_samples_are_taken_from_its_line() {
    let line = "min_ns=1000000 median_ns=2500000 samples_ns=1000000,2500000,3000000\n";
    assert_eq!(floor_times(line).unwrap(), [1.0, 2.5, 3.0]);
}

#[test]
fn a_floor_that_says_anything_else_is_refused() {
    assert!(floor_times("min_ns=1000000").is_err());
    assert!(floor_times("samples_ns=1,x").is_err());
    assert!(floor_times("samples_ns=").is_err());
}
