use std::collections::BTreeMap;

use super::*;
use crate::image::{Parts, describe};
use crate::{ImageConfig, KernelKind};

/// An image of these contents, published under a name.
fn put(cache: &Cache, name_given: Option<&str>, kernel: &str, layer: &str) -> Image {
    let scratch = cache.scratch("build", "image").unwrap();
    let directory = scratch.path().join("image");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("vmlinux"), kernel).unwrap();
    fs::write(directory.join("root.cpio"), layer).unwrap();
    let parts = Parts {
        name: name_given.unwrap_or_default(),
        kernel: "vmlinux",
        kernel_kind: KernelKind::Vmlinux,
        initramfs: &[("root.cpio", 4096)],
        cmdline: "",
        config: ImageConfig::default(),
        origin: BTreeMap::new(),
    };
    let described = describe(&directory, parts).unwrap();
    publish(cache, &directory, &described, name_given).unwrap()
}

fn cache() -> (tempfile::TempDir, Cache) {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::at(dir.path());
    (dir, cache)
}

fn blobs(cache: &Cache) -> usize {
    fs::read_dir(cache.root().join(BLOBS)).unwrap().count()
}

#[test]
fn an_image_is_found_by_name_digest_and_the_digest_s_first_digits() {
    let (_dir, cache) = cache();
    let image = put(&cache, Some("web"), "k", "1");
    put(&cache, None, "k", "2");
    let digest = image.digest();
    for reference in ["web", digest, &digest[..4], &digest[..20]] {
        assert_eq!(
            find(&cache, reference).unwrap().digest(),
            digest,
            "{reference}"
        );
    }
    for wrong in ["we", "webb", "", &digest[..3], "x"] {
        let error = find(&cache, wrong).unwrap_err();
        assert!(error.to_string().contains("image ls"), "{error}");
    }
}

#[test]
fn digits_that_several_digests_begin_with_are_refused() {
    let (_dir, cache) = cache();
    let mut seen = BTreeMap::new();
    let (one, two) = (0..)
        .find_map(|number: u32| {
            let image = put(&cache, None, "k", &number.to_string());
            let prefix = image.digest()[..1].to_owned();
            seen.insert(prefix, image.clone())
                .map(|other| (other, image))
        })
        .unwrap();
    let same = one
        .digest()
        .bytes()
        .zip(two.digest().bytes())
        .take_while(|(a, b)| a == b)
        .count();
    // Four digits are seldom the same; what is ambiguous is told apart from what is not there.
    let found = find(&cache, &one.digest()[..same.max(PREFIX_MIN)]);
    match found {
        Ok(image) => assert_eq!(image.digest(), one.digest()),
        Err(error) => assert!(
            matches!(error, Error::AmbiguousImage { count: 2, .. }),
            "{error}"
        ),
    }
}

#[test]
fn what_images_share_is_on_the_disk_once_and_goes_with_the_last() {
    let (_dir, cache) = cache();
    let one = put(&cache, Some("one"), "kernel", "1");
    let two = put(&cache, Some("two"), "kernel", "22");
    assert_eq!(blobs(&cache), 3);
    let inode = |image: &Image| fs::metadata(image.kernel()).unwrap().ino();
    assert_eq!(inode(&one), inode(&two));
    assert_eq!(
        remove(&cache, "one").unwrap(),
        Removed::Image {
            freed: described_len(&cache, 1)
        }
    );
    assert_eq!(blobs(&cache), 2);
    two.verify().unwrap();
    remove(&cache, two.digest()).unwrap();
    assert_eq!(blobs(&cache), 0);
    assert!(list(&cache).unwrap().is_empty());
    assert!(!cache.path(CACHE_KIND, "two").is_symlink());
}

/// What removing an image frees that shares all but one layer of this length: its description too.
fn described_len(cache: &Cache, layer: u64) -> u64 {
    // All descriptions of these tests are equally long but for the layer's length.
    let two = find(cache, "two").unwrap();
    fs::metadata(two.directory().join("image.json"))
        .unwrap()
        .len()
        + layer
}

#[test]
fn removing_one_of_several_names_keeps_the_image() {
    let (_dir, cache) = cache();
    let image = put(&cache, Some("a"), "k", "1");
    put(&cache, Some("b"), "k", "1");
    assert_eq!(list(&cache).unwrap().len(), 1);
    assert_eq!(list(&cache).unwrap()[0].names, ["a", "b"]);
    assert_eq!(remove(&cache, "a").unwrap(), Removed::Name);
    assert!(find(&cache, "a").is_err());
    image.verify().unwrap();
    assert!(matches!(
        remove(&cache, "b").unwrap(),
        Removed::Image { .. }
    ));
}

#[test]
fn a_name_that_is_given_again_moves() {
    let (_dir, cache) = cache();
    let old = put(&cache, Some("web"), "k", "1");
    let new = put(&cache, Some("web"), "k", "2");
    assert_eq!(find(&cache, "web").unwrap().digest(), new.digest());
    assert_eq!(find(&cache, old.digest()).unwrap().digest(), old.digest());
}

#[test]
fn a_build_that_is_under_way_or_was_killed_is_not_seen() {
    let (_dir, cache) = cache();
    put(&cache, Some("web"), "k", "1");
    let _half = cache.scratch(CACHE_KIND, "half").unwrap();
    fs::create_dir_all(cache.path(CACHE_KIND, ".killed.AbCdEf")).unwrap();
    assert_eq!(list(&cache).unwrap().len(), 1);
}

#[test]
fn an_image_that_does_not_open_says_why_and_can_be_removed() {
    let (_dir, cache) = cache();
    let newer = put(&cache, Some("newer"), "k", "1");
    let cut = put(&cache, Some("cut"), "k", "22");
    let whole = put(&cache, Some("whole"), "k", "333");
    let description = newer.directory().join("image.json");
    fs::write(&description, r#"{"format": 9, "unheard": 1}"#).unwrap();
    fs::remove_file(cut.directory().join("root.cpio")).unwrap();

    let digest = newer.digest();
    for reference in ["newer", &digest[..4], &digest[..DIGITS], digest] {
        let error = find(&cache, reference).unwrap_err();
        assert!(matches!(error, Error::Format { found: 9, .. }), "{error}");
    }
    let error = find(&cache, "cut").unwrap_err();
    assert!(matches!(error, Error::DamagedImage { .. }), "{error}");

    let listed = list(&cache).unwrap();
    assert_eq!(listed.len(), 3);
    let broken: Vec<_> = listed.iter().filter(|one| one.image.is_err()).collect();
    assert_eq!(broken.len(), 2);
    assert!(broken.iter().any(|one| one.names == ["newer"]));

    for reference in [digest, "cut"] {
        let removed = remove(&cache, reference).unwrap();
        assert!(matches!(removed, Removed::Image { .. }), "{removed:?}");
    }
    let left = list(&cache).unwrap();
    assert_eq!((left.len(), left[0].digest()), (1, whole.digest()));
    assert!(!cache.path(CACHE_KIND, "newer").is_symlink());
    // Of the kernel, which it shared, and its own layer.
    assert_eq!(blobs(&cache), 2);
}

#[test]
fn an_image_whose_digest_begins_as_another_s_does_is_not_taken_for_it() {
    let (_dir, cache) = cache();
    let image = put(&cache, Some("web"), "k", "1");
    // As if somebody had searched long enough: another image, where one of these digits would be.
    let other = put(&cache, None, "k", "22");
    fs::rename(image.directory(), cache.path(CACHE_KIND, "elsewhere")).unwrap();
    fs::rename(other.directory(), image.directory()).unwrap();
    let again = put(&cache, Some("web"), "k", "1");
    assert_eq!(again.digest(), image.digest());
    assert_eq!(find(&cache, "web").unwrap().digest(), image.digest());
    let kept = Image::open(image.directory()).unwrap();
    assert_eq!(kept.digest(), other.digest());
    // Once more, and it is found where it is.
    assert_eq!(put(&cache, None, "k", "1").directory(), again.directory());
}

#[test]
fn builds_and_removals_at_the_same_time_leave_only_whole_images() {
    let (_dir, cache) = cache();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let cache = &cache;
            scope.spawn(move || {
                for round in 0..20 {
                    let layer = format!("{}", (thread + round) % 3);
                    let image = put(cache, None, "kernel", &layer);
                    if round % 2 == 0 {
                        // Another thread may have been first.
                        let _ = remove(cache, image.digest());
                    }
                }
            });
        }
        let cache = &cache;
        scope.spawn(move || {
            for _ in 0..50 {
                list(cache).unwrap();
            }
        });
    });
    for listed in list(&cache).unwrap() {
        listed.image.unwrap().verify().unwrap();
    }
}

#[test]
fn names_are_words_that_are_no_digests_and_no_paths() {
    for good in ["web", "a", "node-20.1_x", "cafe", "9lives"] {
        assert!(check_name(good).is_ok(), "{good}");
    }
    let long = "a".repeat(65);
    for bad in [
        "",
        ".",
        "..",
        ".a",
        "-a",
        "a/b",
        "a b",
        "é",
        "0123456789abcdef",
        &long,
    ] {
        let error = check_name(bad).unwrap_err();
        assert!(matches!(error, Error::ImageName { .. }), "{bad}");
    }
}

#[test]
fn an_empty_cache_has_no_images() {
    let (_dir, cache) = cache();
    assert!(list(&cache).unwrap().is_empty());
    assert!(remove(&cache, "x").is_err());
}
