use serde_json::json;

use super::*;

fn pair(ours: &[f64], floor: &[f64]) -> Pair {
    Pair {
        ours: Samples::new("ours", ours.to_vec()).unwrap(),
        floor: Samples::new("floor", floor.to_vec()).unwrap(),
    }
}

#[test]
fn the_aims_are_judged_by_the_floors_median_and_the_own_tail() {
    // Median 1.6, tail 4; median of the floor 1.
    let aims = pair(&[1.6, 1.6, 1.0, 1.6, 4.0], &[0.5, 1.0, 9.0]).aims();
    let found: Vec<_> = aims
        .records()
        .iter()
        .map(|row| (row["found"].clone(), row[""].clone()))
        .collect();
    assert_eq!(
        found,
        [(json!(1.6), json!("met")), (json!(2.5), json!("not met"))]
    );
}
