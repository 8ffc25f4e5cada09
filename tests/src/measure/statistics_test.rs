use super::*;

#[test]
fn the_median_of_an_odd_number_is_the_one_in_the_middle() {
    let samples = Samples::new("t", vec![9.0, 1.0, 4.0]).unwrap();
    assert_eq!(samples.median(), 4.0);
}

#[test]
fn the_median_of_an_even_number_is_the_mean_of_the_two_in_the_middle() {
    let samples = Samples::new("t", vec![8.0, 1.0, 100.0, 2.0]).unwrap();
    assert_eq!(samples.median(), 5.0);
}

#[test]
fn a_percentile_is_a_sample_that_so_many_do_not_exceed() {
    let samples = Samples::new("t", (1..=20).rev().map(f64::from).collect()).unwrap();
    assert_eq!(samples.percentile(0), 1.0);
    assert_eq!(samples.percentile(50), 10.0);
    assert_eq!(samples.percentile(95), 19.0);
    assert_eq!(samples.percentile(96), 20.0);
    assert_eq!(samples.percentile(100), 20.0);
}

#[test]
fn least_and_greatest_do_not_depend_on_the_order() {
    let samples = Samples::new("t", vec![3.0, -1.0, 7.0, 2.0]).unwrap();
    assert_eq!((samples.min(), samples.max()), (-1.0, 7.0));
}

#[test]
fn no_figure_is_made_without_samples_or_from_a_division_by_zero() {
    assert!(Samples::new("t", Vec::new()).is_err());
    assert!(Samples::new("t", vec![1.0, f64::INFINITY]).is_err());
    assert!(Samples::new("t", vec![f64::NAN]).is_err());
}
