use super::*;

fn package(name: &str, dependencies: &[(&str, Option<&str>)]) -> Package {
    Package {
        name: name.into(),
        dependencies: dependencies
            .iter()
            .map(|(name, kind)| Dependency {
                name: (*name).into(),
                kind: kind.map(str::to_owned),
            })
            .collect(),
        targets: Vec::new(),
    }
}

#[test]
fn drawn_arrows_pass() {
    let packages = [
        package("forebay-exec-proto", &[("bytes", None)]),
        package(
            "forebay-exec",
            &[("forebay-exec-proto", None), ("tokio", None)],
        ),
    ];
    assert!(violations(&packages).is_empty());
}

#[test]
fn an_arrow_upwards_is_named() {
    let packages = [
        package("forebay-exec-proto", &[("forebay-exec", None)]),
        package("forebay-exec", &[]),
    ];
    assert_eq!(
        violations(&packages),
        ["forebay-exec-proto must not depend on forebay-exec"]
    );
}

#[test]
fn a_build_dependency_is_an_arrow_and_a_test_dependency_is_none() {
    let packages = [
        package("forebay-virtio", &[("forebay-exec", Some("build"))]),
        package("forebay-images", &[("forebay-exec", Some("dev"))]),
        package("forebay-exec", &[]),
    ];
    assert_eq!(
        violations(&packages),
        ["forebay-virtio must not depend on forebay-exec"]
    );
}

#[test]
fn a_forbidden_outside_crate_comes_with_its_reason() {
    let packages = [package("forebay-init", &[("tokio", None)])];
    let found = violations(&packages);
    assert_eq!(found.len(), 1);
    assert!(found[0].contains("one epoll loop"), "{found:?}");
}

#[test]
fn a_crate_nobody_drew_is_named() {
    let packages = [package("forebay-surprise", &[])];
    assert_eq!(violations(&packages).len(), 1);
}
