use super::*;

fn plot(values: &[&[f64]]) -> Plot {
    Plot {
        x: "how".to_owned(),
        levels: (0..values.len())
            .map(|level| format!("level{level}"))
            .collect(),
        numbers: true,
        y: "time [ms]".to_owned(),
        series: vec![Series {
            name: String::new(),
            values: values.iter().map(|values| values.to_vec()).collect(),
        }],
    }
}

fn dots(svg: &str) -> usize {
    svg.matches("<circle").count()
}

#[test]
fn every_value_is_a_dot_and_every_level_and_axis_has_its_name() {
    let svg = plot(&[&[1.0, 2.0, 2.0], &[3.0]]).svg().unwrap();
    assert_eq!(dots(&svg), 4);
    for text in ["level0", "level1", "how", "time [ms]"] {
        assert!(svg.contains(text), "no {text} in {svg}");
    }
}

#[test]
fn a_line_joins_the_medians_at_numbers_but_not_at_names() {
    let mut plot = plot(&[&[1.0], &[2.0]]);
    let lines = |plot: &Plot| plot.svg().unwrap().matches("<polyline").count();
    let joined = lines(&plot);
    plot.numbers = false;
    assert_eq!(lines(&plot), joined - 1);
    assert!(!plot.caption().contains("joins"));
}

#[test]
fn a_level_without_values_is_still_there() {
    let svg = plot(&[&[1.0], &[]]).svg().unwrap();
    assert_eq!(dots(&svg), 1);
    assert!(svg.contains("level1"));
}

#[test]
fn a_plot_is_drawn_of_nothing_and_of_zeros() {
    assert_eq!(dots(&plot(&[&[], &[]]).svg().unwrap()), 0);
    assert_eq!(dots(&plot(&[&[0.0, 0.0]]).svg().unwrap()), 2);
    assert_eq!(dots(&Plot::default().svg().unwrap()), 0);
}

#[test]
fn the_axis_is_logarithmic_where_values_differ_much_and_none_is_zero() {
    let scale = |values: &[f64]| plot(&[values]).caption().contains("logarithmic");
    assert!(!scale(&[1.0, 29.0]));
    assert!(scale(&[1.0, 31.0]));
    assert!(!scale(&[0.0, 31.0]));
    let svg = plot(&[&[1.0, 10_000.0]]).svg().unwrap();
    assert_eq!(dots(&svg), 2);
}

#[test]
fn series_stand_side_by_side_around_their_level() {
    let mut plot = plot(&[&[1.0], &[1.0]]);
    plot.series.push(Series {
        name: "second".to_owned(),
        values: vec![vec![2.0], vec![2.0]],
    });
    let places = |series| plot.places(series).take(2).collect::<Vec<_>>();
    let (first, second) = (places(0), places(1));
    for level in 0..2 {
        let middle = level as f64;
        assert!(middle - 0.5 < first[level].start && first[level].end < middle);
        assert!(middle < second[level].start && second[level].end < middle + 0.5);
    }
}

#[test]
fn an_axis_has_no_needless_zeros() {
    assert_eq!(
        [0.0, 0.5, 20.0, 1500.0].map(tick),
        ["0", "0.5", "20", "1500"]
    );
}
