//! Guests that are shown less of the processor than there is.

use std::collections::BTreeSet;

use forebay::{CpuTemplate, StartError};
use forebay_tests::{CEILING, TestVm, Within as _, builder, turn};

/// The flags of all processors of a guest, which have to be the same.
async fn flags(template: CpuTemplate) -> BTreeSet<String> {
    const CPUS: u8 = 2;
    let vm = TestVm::start(builder().cpus(CPUS).cpu_template(template)).await;
    let out = vm.shell("grep ^flags /proc/cpuinfo").within(CEILING).await;
    let out = out.unwrap();
    let text = out.stdout_str().unwrap();
    let mut of_each = text.lines().map(|line| {
        let (_, flags) = line.split_once(':').unwrap();
        flags.split_whitespace().map(str::to_owned).collect()
    });
    let first: BTreeSet<String> = of_each.next().unwrap();
    let others: Vec<BTreeSet<String>> = of_each.collect();
    assert_eq!(others, vec![first.clone(); usize::from(CPUS) - 1]);
    vm.close().within(CEILING).await;
    first
}

// B35
#[tokio::test]
async fn a_guest_sees_all_flags_but_those_that_are_hidden() {
    let _turn = turn().await;
    let all = flags(CpuTemplate::host()).await;
    let hidden = ["rdrand", "rdseed", "avx", "aes"];
    let template = hidden
        .into_iter()
        .fold(CpuTemplate::host(), CpuTemplate::without);
    let left = flags(template).await;
    let gone: BTreeSet<_> = all.difference(&left).map(String::as_str).collect();
    // The host of this test has what it has.
    for flag in hidden.into_iter().filter(|flag| all.contains(*flag)) {
        assert!(gone.contains(flag), "{flag} is still there");
    }
    assert!(gone.contains("rdrand"), "nothing was tried: {all:?}");
    let with_avx = ["avx2", "fma", "f16c", "vaes", "vpclmulqdq", "xop", "fma4"];
    for flag in gone {
        let expected = hidden.contains(&flag)
            || with_avx.contains(&flag)
            || flag.starts_with("avx512")
            || flag.starts_with("avx_");
        assert!(expected, "{flag} is gone too");
    }
    assert!(left.is_subset(&all));
}

#[tokio::test]
async fn a_guest_of_a_level_has_what_the_level_names_and_nothing_above() {
    let _turn = turn().await;
    let left = flags(CpuTemplate::x86_64_v2()).await;
    for flag in ["cx16", "lahf_lm", "popcnt", "ssse3", "sse4_1", "sse4_2"] {
        assert!(left.contains(flag), "no {flag}: {left:?}");
    }
    for flag in ["aes", "avx", "bmi1", "bmi2", "rdrand", "smap", "xsave"] {
        assert!(!left.contains(flag), "{flag}: {left:?}");
    }
}

#[tokio::test]
async fn what_a_guest_needs_is_not_hidden() {
    let _turn = turn().await;
    for flag in ["sse2", "nx", "lm", "apic"] {
        let template = CpuTemplate::host().without(flag);
        match builder()
            .cpu_template(template)
            .start()
            .within(CEILING)
            .await
        {
            Err(StartError::Usage(error)) => {
                assert_eq!((error.field, error.value.as_str()), ("cpu_template", flag));
            }
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("it started"),
        }
    }
}
