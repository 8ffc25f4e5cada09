use super::*;

fn fragment(dir: &Path, options: &str) -> Fragment {
    let path = dir.join("fragment");
    fs::write(&path, options).unwrap();
    Fragment::read(&path).unwrap()
}

#[test]
fn a_kernel_of_a_newer_source_serves_until_something_else_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::at(dir.path().join("cache"));
    let asked = fragment(dir.path(), "CONFIG_64BIT=y\n");
    assert!(cached(&cache, &asked).unwrap().is_none());
    let facts = KernelFacts {
        release: "6.12.999".into(),
        source_package: SOURCE_PACKAGE.into(),
        source_version: "newer than the pinned one".into(),
        source_sha256: "00".into(),
        compiler: "gcc".into(),
        options_sha256: "11".into(),
    };
    let publish = |target: &Path| -> Result<()> {
        fs::write(target.join(FACTS), serde_json::to_vec(&facts).unwrap())
            .map_err(Error::file("write", target))
    };
    cache.publish(CACHE_KIND, &key(&asked), publish).unwrap();
    assert_eq!(cached(&cache, &asked).unwrap().unwrap().facts, facts);
    let other = fragment(dir.path(), "CONFIG_64BIT=y\nCONFIG_SMP=y\n");
    assert!(cached(&cache, &other).unwrap().is_none());
}

#[test]
fn the_build_sees_nothing_of_our_environment_but_the_search_path() {
    let make = make(Path::new("tree"), Path::new("out"));
    let mut names: Vec<_> = make.get_envs().map(|(name, _)| name).collect();
    names.retain(|name| !name.to_string_lossy().starts_with("KBUILD_BUILD_"));
    assert_eq!(names, ["LC_ALL", "PATH"]);
    // Debug shows whether the rest is inherited: a command that clears its environment says `env -i`.
    assert!(format!("{make:?}").contains("env -i"), "{make:?}");
}
