//! Wrong values fail before anything is created, saying which, what it was and what would do.

use std::time::Duration;

use forebay::{
    BOOT_DEADLINE_MAX, CONSOLE_CAPACITY_MAX, CONSOLE_CAPACITY_MIN, CPUS_MAX, Limits,
    MEMORY_MIB_MAX, MEMORY_MIB_MIN, StartError, VmBuilder,
};
use forebay_tests::{CEILING, HostUse, Within as _, builder, turn};

/// A builder with one wrong value; then the field and the value as they have to be told, and a piece
/// of the bound.
type Wrong = (VmBuilder, &'static str, String, String);

fn wrong(
    builder: VmBuilder,
    field: &'static str,
    value: impl ToString,
    bound: impl ToString,
) -> Wrong {
    (builder, field, value.to_string(), bound.to_string())
}

async fn assert_refused(all: Vec<Wrong>) {
    let before = HostUse::without_vms().await;
    for (builder, field, value, bound) in all {
        match builder.start().within(CEILING).await {
            Err(StartError::Usage(error)) => {
                assert_eq!((error.field, &error.value), (field, &value), "{error}");
                assert!(error.bound.contains(&bound), "{error}: no {bound} in it");
                let text = error.to_string();
                let told = [field, &value, &error.bound];
                assert!(told.iter().all(|part| text.contains(part)), "{text}");
            }
            Err(other) => panic!("{field} = {value}: {other}"),
            Ok(_) => panic!("{field} = {value} was accepted"),
        }
        // The very next moment: nothing was created, and nothing has to be taken apart.
        let now = HostUse::now();
        assert_eq!(
            (&now.descriptors, &now.threads),
            (&before.descriptors, &before.threads),
            "after {field} = {value}"
        );
    }
}

#[tokio::test]
async fn numbers_out_of_bounds_are_named_with_value_and_bound() {
    let _turn = turn().await;
    let (least, most) = (CONSOLE_CAPACITY_MIN - 1, CONSOLE_CAPACITY_MAX + 1);
    let too_long = BOOT_DEADLINE_MAX + Duration::from_nanos(1);
    let cases = vec![
        wrong(builder().cpus(0), "cpus", 0, CPUS_MAX),
        wrong(builder().cpus(CPUS_MAX + 1), "cpus", CPUS_MAX + 1, CPUS_MAX),
        wrong(builder().memory_mib(0), "memory_mib", 0, MEMORY_MIB_MIN),
        wrong(
            builder().memory_mib(MEMORY_MIB_MIN - 1),
            "memory_mib",
            63,
            MEMORY_MIB_MIN,
        ),
        wrong(
            builder().memory_mib(u32::MAX),
            "memory_mib",
            u32::MAX,
            MEMORY_MIB_MAX,
        ),
        wrong(
            builder().boot_deadline(Duration::ZERO),
            "boot_deadline",
            "0ns",
            "3600s",
        ),
        wrong(
            builder().boot_deadline(too_long),
            "boot_deadline",
            "3600.000000001s",
            "3600s",
        ),
        wrong(
            builder().console_capacity(least),
            "console_capacity",
            least,
            CONSOLE_CAPACITY_MIN,
        ),
        wrong(
            builder().console_capacity(most),
            "console_capacity",
            most,
            CONSOLE_CAPACITY_MAX,
        ),
    ];
    assert_refused(cases).await;
}

#[tokio::test]
async fn limits_that_cannot_work_are_named_with_value_and_bound() {
    let _turn = turn().await;
    let limits = |change: fn(&mut Limits)| {
        let mut limits = Limits::default();
        change(&mut limits);
        builder().exec_limits(limits)
    };
    // A frame is 32 KiB at most, its header of 16 bytes included.
    let most = 32 * 1024 - 16;
    let cases = vec![
        wrong(limits(|l| l.max_executions = 0), "max_executions", 0, 1),
        wrong(
            limits(|l| l.stdin_chunk_size = 0),
            "stdin_chunk_size",
            0,
            most,
        ),
        wrong(
            limits(|l| l.stdin_chunk_size = 65_537),
            "stdin_chunk_size",
            65_537,
            most,
        ),
        wrong(
            limits(|l| l.output_chunk_size = 0),
            "output_chunk_size",
            0,
            most,
        ),
        wrong(
            limits(|l| l.output_chunk_size = 32_753),
            "output_chunk_size",
            32_753,
            most,
        ),
        // Less than one chunk.
        wrong(limits(|l| l.input_limit = 0), "input_limit", 0, 16_384),
        wrong(
            limits(|l| l.input_limit = 16_383),
            "input_limit",
            16_383,
            16_384,
        ),
        // Less than one chunk and its charge.
        wrong(limits(|l| l.output_limit = 0), "output_limit", 0, 16_640),
        wrong(
            limits(|l| l.output_limit = 16_639),
            "output_limit",
            16_639,
            16_640,
        ),
    ];
    assert_refused(cases).await;
}

#[tokio::test]
async fn names_and_words_that_no_guest_can_have_are_told_with_what_would_do() {
    let _turn = turn().await;
    let words = "a".repeat(5000);
    let hostname = "a".repeat(65);
    let socket = format!("/tmp/{}", "s".repeat(103));
    let cases = vec![
        wrong(
            builder().hostname(&hostname),
            "hostname",
            format!("{hostname:?}"),
            64,
        ),
        wrong(builder().hostname(""), "hostname", "\"\"", 64),
        wrong(builder().hostname("a b"), "hostname", "\"a b\"", "letters"),
        wrong(builder().env("A=B", "x"), "env", "A=B", "`=`"),
        wrong(builder().env("", "x"), "env", "", "not empty"),
        wrong(builder().env("A", "x\0y"), "env", "A", "NUL"),
        wrong(
            builder().current_dir("relative"),
            "current_dir",
            "relative",
            "absolute",
        ),
        wrong(
            builder().current_dir("/a\0b"),
            "current_dir",
            "/a\0b",
            "NUL",
        ),
        wrong(
            builder().cmdline("a\nb"),
            "cmdline",
            "a\nb",
            "printable ASCII",
        ),
        wrong(
            builder().cmdline(&words),
            "cmdline",
            cut(&words),
            "shorter than",
        ),
        wrong(builder().attach_socket(""), "attach_socket", "", 107),
        wrong(
            builder().attach_socket(&socket),
            "attach_socket",
            cut(&socket),
            107,
        ),
    ];
    assert_refused(cases).await;
}

/// As errors show a long value.
fn cut(text: &str) -> String {
    format!("{}…", &text[..80])
}
