use super::*;

fn directory() -> std::path::PathBuf {
    workspace::root().join(DIRECTORY)
}

#[test]
fn each_file_is_an_experiment() {
    let name = known("my_experiment", &directory()).unwrap();
    assert_eq!(name, "my_experiment");
}

#[test]
fn a_wrong_name_is_answered_with_the_right_ones() {
    let error = known("my_experimnet", &directory())
        .unwrap_err()
        .to_string();
    assert!(error.contains("my_experimnet"), "{error}");
    assert!(
        error.contains("latency-vs-executions, my_experiment, "),
        "{error}"
    );
}
