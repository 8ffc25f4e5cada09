use serde_json::Value;

use super::*;

fn samples(values: &[f64]) -> Samples {
    Samples::new("t", values.to_vec()).unwrap()
}

fn figure(values: &[f64]) -> Figure {
    Figure::new("f", "ms", "w", samples(values), "b")
}

fn json(figure: &Figure) -> Value {
    serde_json::to_value(figure).unwrap()
}

#[test]
fn a_figure_holds_its_samples_and_those_it_stands_beside() {
    let figure = json(&figure(&[3.0, 1.0, 2.0]).peer("other", &samples(&[4.0, 8.0, 4.0])));
    assert_eq!(figure["name"], "f");
    assert_eq!(figure["unit"], "ms");
    assert_eq!(figure["samples"], serde_json::json!([3.0, 1.0, 2.0]));
    assert_eq!(figure["min"], 1.0);
    assert_eq!(figure["median"], 2.0);
    assert_eq!(figure["peer"]["what"], "other");
    assert_eq!(figure["peer"]["median"], 4.0);
    assert_eq!(
        figure["peer"]["samples"],
        serde_json::json!([4.0, 8.0, 4.0])
    );
    assert_eq!(figure["floor"], Value::Null);
    assert_eq!(figure["ratio"], 0.5);
}

#[test]
fn a_floor_is_not_called_a_peer() {
    let figure = json(&figure(&[3.0]).floor("bare", &samples(&[2.0])));
    assert_eq!(figure["floor"]["what"], "bare");
    assert_eq!(figure["peer"], Value::Null);
    assert_eq!(figure["ratio"], 1.5);
}

#[test]
fn an_aim_on_the_boundary_is_met_and_one_beyond_is_not() {
    let beside = |ours, aim| json(&figure(&[ours]).peer("p", &samples(&[2.0])).aim(aim));
    assert_eq!(beside(1.0, Aim::RatioAtMost(0.5))["aim"]["met"], true);
    assert_eq!(beside(1.1, Aim::RatioAtMost(0.5))["aim"]["met"], false);
    assert_eq!(beside(4.0, Aim::RatioAtLeast(2.0))["aim"]["met"], true);
    assert_eq!(beside(3.9, Aim::RatioAtLeast(2.0))["aim"]["met"], false);
    assert_eq!(
        json(&figure(&[3.0]).aim(Aim::AtMost(3.0)))["aim"]["met"],
        true
    );
    assert_eq!(
        json(&figure(&[3.1]).aim(Aim::AtMost(3.0)))["aim"]["met"],
        false
    );
}

#[test]
fn an_aim_by_ratio_is_not_met_with_nothing_to_compare() {
    let alone = json(&figure(&[1.0]).aim(Aim::RatioAtMost(2.0)));
    assert_eq!(alone["aim"]["met"], false);
}

#[test]
fn the_table_has_a_row_and_an_explanation_for_each_figure() {
    let text = table(&[
        figure(&[1.0])
            .peer("other", &samples(&[4.0]))
            .aim(Aim::RatioAtMost(0.5)),
        Figure::new("g", "MiB/s", "w2", samples(&[123.4]), "b2"),
    ]);
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].starts_with("figure"));
    assert!(lines[1].contains("f [ms]") && lines[1].contains("0.250") && lines[1].ends_with("met"));
    assert!(lines[2].contains("g [MiB/s]") && lines[2].contains("123"));
    assert_eq!(lines[4], "f: w. Bound by: b.");
    assert_eq!(lines[5], "g: w2. Bound by: b2.");
}
