//! Boots that cannot succeed: each ends with its own reason, inside its limit, and leaves nothing.

use std::fs;
use std::path::Path;
use std::time::Duration;

use forebay::{BootFailure, BootPhase, KernelProblem, StartError, StopReason, Vm, VmBuilder};
use forebay_images::InitramfsBuilder;
use forebay_tests::{CEILING, HostUse, Within as _, builder, image, scaled, turn};
use tempfile::TempDir;

/// For an init of which nothing comes, on hardware.
const SHORT: Duration = Duration::from_millis(300);

async fn refused(builder: VmBuilder) -> StartError {
    match builder.start().within(CEILING).await {
        Err(error) => error,
        Ok(_) => panic!("it started"),
    }
}

async fn failed(builder: VmBuilder) -> BootFailure {
    let before = HostUse::without_vms().await;
    let failure = match refused(builder).await {
        StartError::Boot(failure) => *failure,
        other => panic!("not a failed boot: {other}"),
    };
    before.is_back().await;
    failure
}

/// The test kernel with no initramfs but this one.
fn with_initramfs(scratch: &TempDir, build: impl FnOnce(&mut InitramfsBuilder)) -> VmBuilder {
    let path = scratch.path().join("initramfs.cpio");
    let mut initramfs = InitramfsBuilder::new();
    initramfs.early_devices();
    build(&mut initramfs);
    initramfs.write_file(&path).unwrap();
    Vm::builder()
        .kernel(image().kernel())
        .initramfs(path)
        .boot_deadline(scaled(CEILING))
}

/// The test image with another `/init`, a script.
fn with_init(scratch: &TempDir, script: &str) -> VmBuilder {
    let path = scratch.path().join("layer.cpio");
    let text = format!("#!/bin/busybox sh\n{script}\n");
    InitramfsBuilder::new()
        .file("init", 0o755, text)
        .write_file(&path)
        .unwrap();
    builder().initramfs(path)
}

async fn kernel_problem(path: &Path) -> KernelProblem {
    match refused(builder().kernel(path)).await {
        StartError::Kernel {
            path: named,
            problem,
        } => {
            assert_eq!(named, path);
            problem
        }
        other => panic!("{other}"),
    }
}

// B43
#[tokio::test]
async fn a_file_that_is_no_kernel_is_refused_before_anything_runs() {
    let _turn = turn().await;
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("kernel");
    assert!(matches!(
        kernel_problem(&file).await,
        KernelProblem::Unreadable(_)
    ));
    for text in ["", "this is no kernel"] {
        fs::write(&file, text).unwrap();
        assert!(
            matches!(kernel_problem(&file).await, KernelProblem::NotAKernel(_)),
            "{text:?}"
        );
    }
    // An ELF file for this machine, but no kernel: this very program.
    let program = std::env::current_exe().unwrap();
    assert!(matches!(
        kernel_problem(&program).await,
        KernelProblem::NoPvhEntry
    ));
}

// B43
#[tokio::test]
async fn a_kernel_that_is_cut_short_is_refused_or_fails_to_boot() {
    let _turn = turn().await;
    let scratch = tempfile::tempdir().unwrap();
    let whole = fs::read(image().kernel()).unwrap();
    let file = scratch.path().join("kernel");
    fs::write(&file, whole.get(..whole.len() / 2).unwrap()).unwrap();
    let error = refused(builder().kernel(&file)).await;
    assert!(matches!(error, StartError::Kernel { .. }), "{error}");
    assert!(
        error.to_string().contains(file.to_str().unwrap()),
        "{error}"
    );
}

// B43
#[tokio::test]
async fn a_missing_layer_is_named() {
    let _turn = turn().await;
    let error = refused(builder().initramfs("/no/such/layer.cpio")).await;
    assert!(error.to_string().contains("/no/such/layer.cpio"), "{error}");
}

// B43
#[tokio::test]
async fn a_kernel_without_an_initramfs_panics_and_says_so() {
    let _turn = turn().await;
    let builder = Vm::builder()
        .kernel(image().kernel())
        .boot_deadline(scaled(CEILING));
    let failure = failed(builder).await;
    assert!(
        matches!(failure.reason, StopReason::Panic { .. }),
        "{failure}"
    );
    assert_eq!(failure.phase, BootPhase::KernelToAgent, "{failure}");
    assert!(failure.console.contains("panic"), "{failure}");
    assert!(
        failure
            .cause
            .is_some_and(|cause| cause.contains("initramfs")),
        "{failure}"
    );
}

// B43
#[tokio::test]
async fn an_init_that_is_no_program_panics_and_says_so() {
    let _turn = turn().await;
    let scratch = tempfile::tempdir().unwrap();
    let failure = failed(with_initramfs(&scratch, |initramfs| {
        initramfs.file("init", 0o755, "this is no program");
    }))
    .await;
    assert!(
        matches!(failure.reason, StopReason::Panic { .. }),
        "{failure}"
    );
    assert!(
        failure.cause.is_some_and(|cause| cause.contains("/init")),
        "{failure}"
    );
}

// B43
#[tokio::test]
async fn an_init_that_exits_is_told_with_its_last_words() {
    let _turn = turn().await;
    let scratch = tempfile::tempdir().unwrap();
    // Linux throws away what is written to its console between the registration of that and the end of
    // its setting up, beside which init starts.
    let script = "sleep 1; echo these are my last words; exit 3";
    let failure = failed(with_init(&scratch, script)).await;
    assert!(
        matches!(failure.reason, StopReason::Panic { .. }),
        "{failure}"
    );
    assert!(
        failure.console.contains("these are my last words"),
        "{failure}"
    );
    assert!(
        failure
            .cause
            .is_some_and(|cause| cause.contains("init ended")),
        "{failure}"
    );
}

// B43
#[tokio::test]
async fn an_init_that_powers_off_is_told_from_a_crash() {
    let _turn = turn().await;
    let scratch = tempfile::tempdir().unwrap();
    let failure = failed(with_init(&scratch, "exec busybox poweroff -f")).await;
    assert_eq!(failure.reason, StopReason::PowerOff, "{failure}");
    assert!(
        failure
            .cause
            .is_some_and(|cause| cause.contains("not the agent")),
        "{failure}"
    );
}

// B43
#[tokio::test]
async fn a_silent_init_ends_at_the_deadline() {
    let _turn = turn().await;
    let scratch = tempfile::tempdir().unwrap();
    let limit = scaled(SHORT);
    let builder = with_init(&scratch, "while :; do sleep 1000; done").boot_deadline(limit);
    let failure = failed(builder).await;
    match failure.reason {
        StopReason::BootDeadline { limit_ms, .. } => {
            assert_eq!(u128::from(limit_ms), limit.as_millis());
        }
        ref other => panic!("{other}"),
    }
    assert!(failure.elapsed >= limit);
    assert_eq!(failure.phase, BootPhase::KernelToAgent, "{failure}");
    assert!(failure.to_string().contains("agent"), "{failure}");
}

#[tokio::test]
async fn a_start_that_is_given_up_leaves_nothing() {
    let _turn = turn().await;
    let before = HostUse::without_vms().await;
    let scratch = tempfile::tempdir().unwrap();
    let start = with_init(&scratch, "while :; do sleep 1000; done").start();
    let given_up = tokio::time::timeout(Duration::from_millis(300), start).await;
    assert!(given_up.is_err(), "it did not wait for its agent");
    before.is_back().await;
}
