use serde_json::json;

use super::*;

fn factor(name: &str, levels: &[Value]) -> Factor {
    Factor {
        name: name.to_owned(),
        levels: levels.to_vec(),
    }
}

#[test]
fn points_are_all_combinations_of_the_levels() {
    let factors = [
        factor("memory", &[json!(64), json!(128)]),
        factor("how", &[json!("cold"), json!("fork")]),
    ];
    assert_eq!(
        json!(points(&factors).unwrap()),
        json!([
            { "memory": 64, "how": "cold" },
            { "memory": 64, "how": "fork" },
            { "memory": 128, "how": "cold" },
            { "memory": 128, "how": "fork" },
        ])
    );
}

#[test]
fn no_points_come_of_no_factor_of_one_without_levels_or_of_two_with_one_name() {
    let one = factor("one", &[json!(1)]);
    assert!(points(&[]).is_err());
    assert!(points(&[one.clone(), factor("none", &[])]).is_err());
    assert!(points(&[one.clone(), one]).is_err());
}

#[test]
fn a_level_is_read_as_what_it_is_and_as_nothing_else() {
    let factors = [factor("memory", &[json!(64)])];
    let points = points(&factors).unwrap();
    assert_eq!(points[0].get::<u32>("memory").unwrap(), 64);
    assert!(points[0].get::<String>("memory").is_err());
    assert!(points[0].get::<u32>("memroy").is_err());
}

#[test]
fn each_repetition_visits_every_point_once_after_one_visit_that_does_not_count() {
    let visits = visits(5, 3, &mut Seed::new(7));
    assert_eq!(visits.len(), 1 + 3 * 5);
    assert_eq!(visits[0].round, 0);
    for round in 1..=3 {
        let mut points: Vec<_> = visits.iter().filter(|visit| visit.round == round).collect();
        points.sort_by_key(|visit| visit.point);
        let points: Vec<_> = points.iter().map(|visit| visit.point).collect();
        assert_eq!(points, [0, 1, 2, 3, 4]);
    }
}

#[test]
fn repetitions_differ_in_their_order_and_a_seed_repeats_them() {
    let of = |seed| visits(20, 2, &mut Seed::new(seed));
    let (visits, again) = (of(1), of(1));
    assert_eq!(visits, again);
    assert_ne!(visits, of(2));
    let order = |round| -> Vec<usize> {
        let visits = visits.iter().filter(|visit| visit.round == round);
        visits.map(|visit| visit.point).collect()
    };
    assert_ne!(order(1), order(2));
}
