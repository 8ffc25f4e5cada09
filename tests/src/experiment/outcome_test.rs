use serde_json::json;

use super::*;

/// Two levels of one factor: at `a` three samples count, at `b` the only one failed.
fn outcome() -> Outcome {
    let taken = |round, how: &str, values: &[f64], failure: Option<&str>| Taken {
        round,
        point: serde_json::from_value(json!({ "how": how })).unwrap(),
        values: [("time".to_owned(), values.to_vec())].into(),
        failure: failure.map(str::to_owned),
    };
    Outcome {
        experiment: "made-up".to_owned(),
        about: "Nothing.".to_owned(),
        forebay: "0".to_owned(),
        image: None,
        clock: Clock::Wall,
        quick: false,
        seed: "0x1".to_owned(),
        repetitions: 2,
        machine: Machine::here(),
        factors: vec![Factor {
            name: "how".to_owned(),
            levels: vec![json!("a"), json!("b")],
        }],
        measures: vec![Measure {
            name: "time".to_owned(),
            unit: "ms".to_owned(),
        }],
        samples: vec![
            taken(0, "a", &[1000.0], None),
            taken(1, "a", &[3.0, 1.0], None),
            taken(1, "b", &[7.0], Some("it broke")),
            taken(2, "a", &[8.0], None),
        ],
    }
}

#[test]
fn neither_the_first_sample_nor_a_failed_one_counts_in_a_figure() {
    let figures = outcome().figures();
    assert_eq!(
        figures[0].values,
        Some(Values {
            n: 3,
            min: 1.0,
            median: 3.0,
            p95: 8.0,
            max: 8.0,
        })
    );
    assert_eq!((figures[0].failed, figures[1].failed), (0, 1));
    assert_eq!(figures[1].values, None);
}

#[test]
fn what_is_written_is_read_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("new/measured.json");
    outcome().write(&path).unwrap();
    let read = Outcome::read(&path).unwrap();
    assert_eq!(json!(read), json!(outcome()));
}

#[test]
fn a_point_is_said_in_the_order_of_the_factors() {
    let mut outcome = outcome();
    outcome.factors.push(Factor {
        name: "cpus".to_owned(),
        levels: vec![json!(2)],
    });
    let point = serde_json::from_value(json!({ "cpus": 2, "how": "a" })).unwrap();
    assert_eq!(outcome.shown(&point), "how a, cpus 2");
}
