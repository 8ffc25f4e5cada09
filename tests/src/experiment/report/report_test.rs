use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::experiment::outcome::{Factor, Measure};
use crate::measure::Clock;

fn report() -> Report {
    let machine = Machine {
        processor: "a processor".to_owned(),
        processors: 2,
        memory_mib: 4096,
        kernel: "6.12".to_owned(),
        emulated: true,
    };
    let taken = |round, how: &str, values: &[f64], failure: Option<&str>| Taken {
        round,
        point: serde_json::from_value(json!({ "how": how, "cpus": 2 })).unwrap(),
        values: if values.is_empty() {
            BTreeMap::new()
        } else {
            [("time".to_owned(), values.to_vec())].into()
        },
        failure: failure.map(str::to_owned),
    };
    let factor = |name: &str, levels| Factor {
        name: name.to_owned(),
        levels,
    };
    Report {
        outcome: Outcome {
            experiment: "made-up".to_owned(),
            about: "Compares <a> & b.".to_owned(),
            forebay: "0".to_owned(),
            image: None,
            clock: Clock::Wall,
            quick: true,
            seed: "0x1".to_owned(),
            repetitions: 1,
            machine: machine.clone(),
            factors: vec![
                factor("how", vec![json!("cold"), json!("fork")]),
                factor("cpus", vec![json!(2)]),
            ],
            measures: vec![Measure {
                name: "time".to_owned(),
                unit: "ms".to_owned(),
            }],
            samples: vec![
                taken(0, "cold", &[9.0], None),
                taken(1, "cold", &[2.0, 4.0], None),
                taken(1, "fork", &[], Some("no \"fork\", sorry\n")),
            ],
        },
        host: Host {
            place: "in the rig".to_owned(),
            profile: "rig".to_owned(),
            began: "2026-01-02 03:04:05 UTC".to_owned(),
            commit: "abc1234".to_owned(),
            load_before: "1.00 1.10 1.20".to_owned(),
            load_after: "2.00 2.10 2.20".to_owned(),
            notes: vec!["Beware: something.".to_owned()],
            machine: Machine {
                emulated: false,
                ..machine
            },
        },
    }
}

fn written(name: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    report().write(directory.path()).unwrap();
    fs::read_to_string(directory.path().join(name)).unwrap()
}

#[test]
fn the_table_has_a_row_per_point_failed_ones_too() {
    let text = report().text();
    let rows: Vec<_> = text.lines().filter(|line| line.starts_with('|')).collect();
    assert_eq!(
        rows,
        [
            "| how  | cpus | n | min  | median | p95  | max  | failed |",
            "|------|------|---|------|--------|------|------|--------|",
            "| cold | 2    | 2 | 2.00 | 3.00   | 4.00 | 4.00 | 0      |",
            "| fork | 2    | 0 | –    | –      | –    | –    | 1      |",
        ]
    );
    assert!(text.contains("failed: how fork, cpus 2, repetition 1: no \"fork\", sorry"));
}

#[test]
fn the_lines_have_every_value_in_order_and_every_failure() {
    assert_eq!(
        written("samples.csv"),
        "sample,round,how,cpus,measure,unit,value,failure\n\
         0,0,cold,2,time,ms,9,\n\
         1,1,cold,2,time,ms,2,\n\
         1,1,cold,2,time,ms,4,\n\
         2,1,fork,2,,,,\"no \"\"fork\"\", sorry\n\"\n"
    );
}

#[test]
fn the_result_has_samples_figures_and_where_they_came_about() {
    let result: Value = serde_json::from_str(&written("result.json")).unwrap();
    assert_eq!(result["seed"], "0x1");
    assert_eq!(result["samples"].as_array().unwrap().len(), 3);
    assert_eq!(result["figures"][0]["median"], 3.0);
    assert_eq!(result["figures"][1]["failed"], 1);
    assert_eq!(result["host"]["load_after"], "2.00 2.10 2.20");
    assert_eq!(result["host"]["began"], "2026-01-02 03:04:05 UTC");
    assert_eq!(result["machine"]["emulated"], true);
}

#[test]
fn the_page_says_what_it_shows_how_far_to_trust_it_and_what_failed() {
    let page = written("report.html");
    for said in [
        "Compares &lt;a&gt; &amp; b.",
        "these are not times of hardware",
        "Beware: something.",
        "1 of 3 samples failed",
        "no &quot;fork&quot;, sorry",
        "time [ms] by how.",
        "1.00 1.10 1.20 before, 2.00 2.10 2.20 after",
    ] {
        assert!(page.contains(said), "no {said:?} in {page}");
    }
}

#[test]
fn the_page_needs_no_other_file() {
    let page = written("report.html");
    assert!(page.contains("<svg "));
    for reference in ["<link", "<script", "src=", "href=", "url("] {
        assert!(!page.contains(reference), "{reference} in {page}");
    }
}
