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

#[test]
fn an_image_that_cannot_be_opened_is_listed_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let directory = dir.path().join("images/0123456789abcdef");
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("image.json"), r#"{"format": 9}"#).unwrap();
    let cache = Cache::at(dir.path());
    let images = forebay_images::store::list(&cache).unwrap();
    let text = list(&cache, &images).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[1].contains("0123456789abcdef"), "{text}");
    assert!(lines[1].ends_with("cannot be opened"), "{text}");
    assert!(lines[2].contains("image format 9"), "{text}");
    let json: Value = serde_json::from_str(&list_json(&cache, &images).unwrap()).unwrap();
    let error = json["images"][0]["error"].as_str().unwrap();
    assert!(error.contains("image format 9"), "{json}");
    assert_eq!(json["images"][0]["digest"], "0123456789abcdef");
}

#[test]
fn what_an_image_says_of_itself_is_one_line_and_no_command_to_a_terminal() {
    let user = "root\u{1b}[2J\r\nlayer\u{202e}".to_owned();
    let text = labelled(&[("user", user), ("workdir", String::new())]);
    assert_eq!(text, "user          root\\u{1b}[2J\\r\\nlayer\\u{202e}");
}
