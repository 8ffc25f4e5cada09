use super::{COMPRESSED, flags, listed};

#[test]
fn comments_and_empty_lines_are_skipped_and_order_is_kept() {
    let text = "# drivers\n/lib/b.ko\n\n  /lib/a.ko.xz \n";
    assert_eq!(
        listed(text).collect::<Vec<_>>(),
        ["/lib/b.ko", "/lib/a.ko.xz"]
    );
}

#[test]
fn only_compressed_files_are_announced_as_compressed() {
    assert_eq!(flags("/lib/a.ko"), 0);
    assert_eq!(flags("/lib/a.ko.zst"), COMPRESSED);
}
