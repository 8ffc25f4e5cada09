use super::*;

const TEXT: &str = "\
# A comment, CONFIG_NOT=an_option
CONFIG_A=y
CONFIG_S=\"x=y\"

# CONFIG_OFF is not set
";

#[test]
fn comments_are_not_options() {
    let fragment = Fragment::parse("f", TEXT);
    assert_eq!(
        fragment.normalised(),
        "CONFIG_A=y\nCONFIG_S=\"x=y\"\n# CONFIG_OFF is not set\n"
    );
}

#[test]
fn a_config_that_has_everything_misses_nothing() {
    let fragment = Fragment::parse("f", TEXT);
    let missing = |config| fragment.missing_from(config);
    assert!(missing("CONFIG_S=\"x=y\"\nCONFIG_A=y\n# CONFIG_OFF is not set\n").is_empty());
    assert!(missing("CONFIG_S=\"x=y\"\nCONFIG_A=y\n").is_empty());
}

#[test]
fn dropped_changed_and_switched_on_options_are_named() {
    let fragment = Fragment::parse("f", TEXT);
    assert_eq!(
        fragment.missing_from("CONFIG_S=\"z\"\nCONFIG_OFF=y\n"),
        ["CONFIG_A=y", "CONFIG_S=\"x=y\"", "# CONFIG_OFF is not set"]
    );
}

#[test]
fn our_own_fragment_has_what_the_agent_needs() {
    let options = Fragment::microvm().normalised();
    for option in [
        "CONFIG_PVH=y",
        "CONFIG_VIRTIO_CONSOLE=y",
        "CONFIG_VIRTIO_MMIO=y",
        "CONFIG_DEVTMPFS=y",
        "CONFIG_CGROUP_PIDS=y",
        "CONFIG_MEMCG=y",
        "CONFIG_ACPI=y",
    ] {
        assert!(options.lines().any(|line| line == option), "{option}");
    }
}

#[test]
fn no_option_is_set_twice() {
    let fragment = Fragment::microvm();
    let mut names: Vec<_> = fragment.options.iter().map(|option| &option.name).collect();
    let before = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), before);
}

#[test]
fn the_kernel_for_shared_processors_differs_in_its_locks_alone() {
    let one = Fragment::microvm().normalised();
    let shared = Fragment::microvm_shared_processors().normalised();
    let differing = |a: &str, b: &str| -> Vec<String> {
        let theirs: Vec<_> = b.lines().collect();
        let ours = a.lines().filter(|line| !theirs.contains(line));
        ours.map(str::to_owned).collect()
    };
    assert_eq!(
        differing(&one, &shared),
        ["# CONFIG_PARAVIRT_SPINLOCKS is not set"]
    );
    assert_eq!(differing(&shared, &one), ["CONFIG_PARAVIRT_SPINLOCKS=y"]);
}
