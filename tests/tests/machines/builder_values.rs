//! Wrong values fail before anything is created, saying which and why.

use std::time::Duration;

use forebay::{Limits, StartError, VmBuilder};
use forebay_tests::{CEILING, HostUse, Within as _, builder, turn};

async fn assert_refused(builder: VmBuilder, field: &str, value: &str) {
    let before = HostUse::without_vms().await;
    match builder.start().within(CEILING).await {
        Err(StartError::Usage(error)) => {
            assert_eq!(
                (error.field, error.value.as_str()),
                (field, value),
                "{error}"
            );
            assert!(!error.bound.is_empty());
            let text = error.to_string();
            assert!(text.contains(field) && text.contains(value), "{text}");
        }
        Err(other) => panic!("{field} = {value}: {other}"),
        Ok(_) => panic!("{field} = {value} was accepted"),
    }
    before.is_back().await;
}

#[tokio::test]
async fn numbers_out_of_bounds_are_named_with_their_value() {
    let _turn = turn().await;
    assert_refused(builder().cpus(0), "cpus", "0").await;
    assert_refused(builder().cpus(255), "cpus", "255").await;
    assert_refused(builder().memory_mib(0), "memory_mib", "0").await;
    assert_refused(builder().memory_mib(63), "memory_mib", "63").await;
    assert_refused(builder().memory_mib(u32::MAX), "memory_mib", "4294967295").await;
    assert_refused(
        builder().boot_deadline(Duration::ZERO),
        "boot_deadline",
        "0ns",
    )
    .await;
}

#[tokio::test]
async fn limits_that_cannot_work_are_named_with_their_value() {
    let _turn = turn().await;
    let good = Limits::default();
    let zero = Limits {
        max_executions: 0,
        ..good
    };
    assert_refused(builder().exec_limits(zero), "max_executions", "0").await;
    let chunk = Limits {
        stdin_chunk_size: 65_537,
        ..good
    };
    assert_refused(builder().exec_limits(chunk), "stdin_chunk_size", "65537").await;
    let output = Limits {
        output_limit: 16_384,
        ..good
    };
    assert_refused(builder().exec_limits(output), "output_limit", "16384").await;
}

#[tokio::test]
async fn names_and_variables_that_no_guest_can_have_are_refused() {
    let _turn = turn().await;
    let before = HostUse::without_vms().await;
    let wrong = [
        builder().hostname("a".repeat(65)),
        builder().env("A=B", "x"),
        builder().env("", "x"),
        builder().env("A", "x\0y"),
        builder().current_dir("a\0b"),
        builder().cmdline("a\nb"),
    ];
    for builder in wrong {
        let shown = format!("{builder:?}");
        match builder.start().within(CEILING).await {
            Err(StartError::Usage(error)) => assert!(!error.bound.is_empty(), "{error}"),
            Err(other) => panic!("{shown}: {other}"),
            Ok(_) => panic!("{shown} was accepted"),
        }
    }
    before.is_back().await;
}
