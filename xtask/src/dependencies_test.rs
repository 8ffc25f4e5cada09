use super::*;

fn policy() -> Policy {
    let allow = ["MIT", "Zlib", "Apache-2.0 WITH LLVM-exception"];
    Policy {
        licenses: Licenses {
            allow: allow.map(str::to_owned).into(),
        },
        sources: Sources {
            allow_registry: vec!["https://registry".to_owned()],
        },
    }
}

#[test]
fn a_licence_is_allowed_if_one_way_to_take_it_is() {
    let allowed = |expression| is_allowed(expression, &policy().licenses.allow);
    for expression in [
        "MIT",
        "GPL-3.0-only OR MIT",
        "MIT/GPL-2.0",
        "MIT AND Zlib",
        "(GPL-2.0-only OR MIT) AND Zlib",
        "GPL-2.0-only AND LGPL-2.1-only OR MIT",
        "Apache-2.0 WITH LLVM-exception",
        "((MIT))",
    ] {
        assert!(allowed(expression), "{expression}");
    }
    for expression in [
        "",
        "GPL-3.0-only",
        "mit",
        "MIT AND GPL-2.0-only",
        "MIT AND (GPL-2.0-only OR LGPL-2.1-only)",
        "Apache-2.0",
        "MIT WITH LLVM-exception",
        // What is not understood.
        "MIT OR",
        "OR MIT",
        "MIT Zlib",
        "(MIT",
        "MIT)",
        "MIT WITH",
    ] {
        assert!(!allowed(expression), "{expression}");
    }
}

#[test]
fn each_thing_wrong_with_a_package_is_named() {
    let package = |license: Option<&str>, source: Option<&str>| Package {
        name: "a".to_owned(),
        version: "1.0.0".to_owned(),
        license: license.map(str::to_owned),
        source: source.map(str::to_owned),
    };
    let wrong = |license, source| violations(&[package(license, source)], &policy());
    let registry = Some("registry+https://registry");
    assert!(wrong(Some("MIT"), registry).is_empty());
    assert!(wrong(Some("MIT"), None).is_empty());
    assert_eq!(wrong(None, registry), ["a 1.0.0 names no licence"]);
    let licence = wrong(Some("GPL-3.0-only"), registry);
    assert_eq!(licence, ["a 1.0.0 has the licence GPL-3.0-only"]);
    for source in ["git+https://registry", "registry+https://elsewhere"] {
        let found = wrong(Some("MIT"), Some(source));
        assert_eq!(found, [format!("a 1.0.0 is from {source}")]);
    }
}
