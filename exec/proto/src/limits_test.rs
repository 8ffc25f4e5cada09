use super::*;

#[test]
fn defaults_are_valid() {
    Limits::default().validate().unwrap();
}

#[test]
fn zero_is_refused_in_every_field() {
    type Set = fn(&mut Limits);
    let fields: [(&str, Set); 5] = [
        ("max_executions", |l| l.max_executions = 0),
        ("input_limit", |l| l.input_limit = 0),
        ("output_limit", |l| l.output_limit = 0),
        ("stdin_chunk_size", |l| l.stdin_chunk_size = 0),
        ("output_chunk_size", |l| l.output_chunk_size = 0),
    ];
    for (name, set) in fields {
        let mut limits = Limits::default();
        set(&mut limits);
        let error = limits.validate().unwrap_err();
        assert_eq!((error.field, error.value), (name, 0));
    }
}

#[test]
fn a_chunk_must_fit_its_window_and_the_frame() {
    let base = Limits::default();
    let small_input = Limits {
        input_limit: base.stdin_chunk_size - 1,
        ..base
    };
    assert_eq!(small_input.validate().unwrap_err().field, "input_limit");
    let exact = Limits {
        output_limit: base.output_chunk_size + CHUNK_CHARGE,
        ..base
    };
    exact.validate().unwrap();
    let one_less = Limits {
        output_limit: exact.output_limit - 1,
        ..base
    };
    assert_eq!(one_less.validate().unwrap_err().min, exact.output_limit);
    let big_chunk = Limits {
        output_chunk_size: PAYLOAD_MAX + 1,
        ..base
    };
    assert_eq!(big_chunk.validate().unwrap_err().field, "output_chunk_size");
}

#[test]
fn the_message_names_field_value_and_bounds() {
    let limits = Limits {
        max_executions: 0,
        ..Limits::default()
    };
    assert_eq!(
        alloc::string::ToString::to_string(&limits.validate().unwrap_err()),
        "max_executions is 0, it must be between 1 and 4294967295"
    );
}

#[test]
fn the_built_in_values_are_those_that_are_documented() {
    let limits = Limits::default();
    assert_eq!(limits.max_executions, 128);
    assert_eq!(limits.input_limit, 65_536);
    assert_eq!(limits.output_limit, 1_048_576);
    assert_eq!(limits.stdin_chunk_size, 16_384);
    assert_eq!(limits.output_chunk_size, 16_384);
    assert_eq!((CHUNK_CHARGE, FRAME_MAX), (256, 32_768));
}
