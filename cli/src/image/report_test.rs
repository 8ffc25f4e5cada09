use std::time::Duration;

use super::*;

#[test]
fn sizes_are_rounded_up_so_that_they_suffice() {
    let cases = [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1025, "2 KiB"),
        (1 << 20, "1 MiB"),
        ((1 << 20) + 1, "2 MiB"),
        (5 << 30, "5120 MiB"),
    ];
    for (bytes, text) in cases {
        assert_eq!(size(bytes), text);
    }
}

#[test]
fn ages_are_told_in_one_unit_and_a_clock_that_was_set_back_shows_none() {
    let now = UNIX_EPOCH + Duration::from_secs(1_000_000);
    let cases = [
        (59, "59 s ago"),
        (60, "1 min ago"),
        (7200, "2 h ago"),
        (200_000, "2 d ago"),
    ];
    for (seconds, text) in cases {
        assert_eq!(age(now, now - Duration::from_secs(seconds)), text);
    }
    assert_eq!(age(now, now + Duration::from_secs(5)), "0 s ago");
}

#[test]
fn an_empty_cache_is_a_list_that_names_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::at(dir.path());
    let text = list(&cache, &[]).unwrap();
    assert!(text.starts_with("NAME"), "{text}");
    assert!(
        text.contains("0 images") && text.contains(dir.path().to_str().unwrap()),
        "{text}"
    );
    let json: Value = serde_json::from_str(&list_json(&cache, &[]).unwrap()).unwrap();
    assert_eq!(json["images"], json!([]));
}
