use super::*;

fn with_env(pairs: &[(&str, &str)]) -> Result<Vec<(String, String)>, UsageError> {
    let spec = ExecSpec {
        env: pairs
            .iter()
            .map(|(key, value)| (key.into(), value.into()))
            .collect(),
        ..ExecSpec::default()
    };
    let text = |bytes: &ByteVec| String::from_utf8(bytes.to_vec()).unwrap();
    Ok(spec
        .config()?
        .env
        .iter()
        .map(|variable| (text(&variable.key), text(&variable.value)))
        .collect())
}

#[test]
fn the_last_value_of_a_variable_counts() {
    let pairs = with_env(&[("A", "1"), ("B", ""), ("A", "2")]).unwrap();
    assert_eq!(
        pairs,
        [("B".into(), String::new()), ("A".into(), "2".into())]
    );
}

#[test]
fn names_and_values_no_program_could_get_are_refused() {
    for pair in [("", "1"), ("A=B", "1"), ("A\0", "1"), ("A", "1\0")] {
        assert_eq!(with_env(&[pair]).unwrap_err().field, "env", "{pair:?}");
    }
}

#[test]
fn hostnames_are_checked() {
    let long = "a".repeat(HOSTNAME_MAX + 1);
    for bad in ["", "a b", "a_b", "ü", long.as_str()] {
        assert_eq!(check_hostname(bad).unwrap_err().field, "hostname");
    }
    assert!(check_hostname(&long[1..]).is_ok());
    assert!(check_hostname("web-1.example").is_ok());
}

#[test]
fn the_working_directory_must_be_absolute() {
    for (path, good) in [("/work", true), ("work", false), ("", false)] {
        let spec = ExecSpec {
            current_dir: Some(path.into()),
            ..ExecSpec::default()
        };
        assert_eq!(spec.config().is_ok(), good, "{path}");
    }
}

#[test]
fn a_refused_limit_keeps_its_name_and_bounds() {
    let limits = Limits {
        output_limit: 1,
        ..Limits::default()
    };
    let error = refused_config(ConfigError::Limits(limits.validate().unwrap_err()));
    assert_eq!(error.field, "output_limit");
    assert_eq!(error.value, "1");
}

#[test]
fn an_environment_that_does_not_fit_is_refused_with_its_size() {
    let (size, limit) = (40_000, 32_752);
    let error = refused_config(ConfigError::TooLarge { size, limit });
    assert_eq!((error.field, error.value.as_str()), ("env", "40000 bytes"));
    assert!(error.bound.contains("32752"), "{error}");
}

#[test]
fn legacy_guests_are_refused_unless_they_are_allowed() {
    assert!(!ExecSpec::default().config().unwrap().allow_legacy_guest);
    let spec = ExecSpec {
        allow_legacy_guest: true,
        ..ExecSpec::default()
    };
    assert!(spec.config().unwrap().allow_legacy_guest);
}

#[test]
fn limits_of_each_execution_are_refused_by_the_builders_names_value_and_bound() {
    let refused = [
        (
            group(|g| g.memory_limit = Some(0)),
            "exec_memory_limit",
            "0",
            "1048576",
        ),
        (
            group(|g| g.process_limit = Some(0)),
            "exec_process_limit",
            "0",
            "4194304",
        ),
        (
            group(|g| g.cpu_weight = Some(10_001)),
            "exec_cpu_weight",
            "10001",
            "10000",
        ),
        (
            group(|g| g.cpu_limit = Some(f64::NAN)),
            "exec_cpu_limit",
            "NaN",
            "0.01",
        ),
    ];
    for (spec, field, value, bound) in refused {
        let error = spec.config().unwrap_err();
        assert_eq!((error.field, error.value.as_str()), (field, value));
        assert!(error.bound.contains(bound), "{error}");
    }
}

#[test]
fn limits_of_each_execution_reach_the_configuration_and_are_none_unless_given() {
    let none = ExecSpec::default().config().unwrap().resources;
    assert_eq!(none, Default::default());
    let all = group(|g| {
        *g = GroupLimits {
            memory_limit: Some(64 << 20),
            process_limit: Some(32),
            cpu_weight: Some(50),
            cpu_limit: Some(0.5),
        };
    });
    let given = all.config().unwrap().resources;
    assert_eq!((given.memory, given.pids), (Some(64 << 20), Some(32)));
    assert_eq!(
        (given.cpu_weight, given.cpu_quota),
        (Some(50), Some(50_000))
    );
}

fn group(change: impl FnOnce(&mut GroupLimits)) -> ExecSpec {
    let mut spec = ExecSpec::default();
    change(&mut spec.group);
    spec
}

#[test]
fn what_the_image_says_counts_where_nothing_else_was_said() {
    let image = ImageConfig {
        env: [("A", "image"), ("B", "image")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        workdir: Some("/srv".to_owned()),
        ..ImageConfig::default()
    };
    let mut spec = ExecSpec {
        env: vec![("B".into(), "mine".into())],
        ..ExecSpec::default()
    };
    let config = spec.over(&image).config().unwrap();
    let env: Vec<_> = config
        .env
        .iter()
        .map(|variable| (variable.key.to_vec(), variable.value.to_vec()))
        .collect();
    let expected = [("A", "image"), ("B", "mine")]
        .map(|(key, value)| (key.as_bytes().to_vec(), value.as_bytes().to_vec()));
    assert_eq!(env, expected);
    assert_eq!(config.cwd.unwrap().to_vec(), b"/srv");
    spec.current_dir = Some("/mine".into());
    let config = spec.over(&image).config().unwrap();
    assert_eq!(config.cwd.unwrap().to_vec(), b"/mine");
}
