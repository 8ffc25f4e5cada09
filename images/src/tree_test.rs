use super::*;
use crate::testing::{entries, files};

fn directory(mode: u32) -> Node {
    Node {
        meta: Meta::of_root(mode),
        kind: Kind::Directory,
    }
}

fn file() -> Node {
    Node {
        meta: Meta::of_root(0o644),
        kind: Kind::File(Contents::Bytes(Vec::new())),
    }
}

fn symlink(target: &str) -> Node {
    Node {
        meta: Meta::of_root(0o777),
        kind: Kind::Symlink(target.into()),
    }
}

#[test]
fn an_opaque_directory_keeps_what_its_own_layer_s_files_are_in_whatever_lies_between() {
    let mut tree = Tree::new();
    for (path, node) in [
        ("d/a", directory(0o700)),
        ("d/a/old", file()),
        ("d/b/c", directory(0o711)),
    ] {
        tree.insert(path.as_bytes(), node).unwrap();
    }
    tree.begin_layer();
    // By their bytes these stand between `a` and `a/x`, `b/c` and `b/c/x`.
    for path in ["d/a/x", "d/a-b", "d/a.d", "d/b/c/x", "d/b/c!", "d/b!"] {
        tree.insert(path.as_bytes(), file()).unwrap();
    }
    tree.opaque(b"d").unwrap();
    assert_eq!(
        files(&tree),
        ["d/a-b", "d/a.d", "d/a/x", "d/b!", "d/b/c!", "d/b/c/x"]
    );
    assert_eq!(tree.get(b"d/a").unwrap().meta.mode, 0o700);
    assert_eq!(tree.get(b"d/b/c").unwrap().meta.mode, 0o711);
}

#[test]
fn an_opaque_root_hides_names_of_any_bytes() {
    let mut tree = Tree::new();
    tree.insert(b"\xff\xff\xff", file()).unwrap();
    tree.begin_layer();
    tree.opaque(b"").unwrap();
    assert!(files(&tree).is_empty());
}

#[test]
fn what_is_hidden_in_one_layer_can_be_hidden_in_the_next_again() {
    let mut tree = Tree::new();
    for path in [&b"d/one"[..], b"d/two"] {
        tree.begin_layer();
        tree.opaque(b"d").unwrap();
        tree.insert(path, file()).unwrap();
        // Again, which must not take what this layer has added.
        tree.opaque(b"d").unwrap();
    }
    assert_eq!(files(&tree), ["d/two"]);
}

#[test]
fn whiteouts_count_as_entries_do() {
    let mut tree = Tree::new();
    tree.insert(b"d/x", file()).unwrap();
    tree.begin_layer();
    let refused = (0..=CHANGES_MAX)
        .find_map(|number| match number % 2 {
            0 => tree.whiteout(b"d/y").err(),
            _ => tree.opaque(b"e").err(),
        })
        .unwrap();
    assert!(refused.reason.contains("entries"), "{refused:?}");
}

#[test]
fn links_that_are_followed_count_as_paths_do() {
    let long = vec!["n".repeat(255); 15].join("/");
    let mut tree = Tree::new();
    tree.insert(format!("{long}/x").as_bytes(), file()).unwrap();
    tree.insert(b"l", symlink(&long)).unwrap();
    tree.begin_layer();
    // Short paths, each of which leads through nearly 4 KB.
    let most = NAMES_TOTAL_MAX / long.len() + 1;
    let refused = (0..most).find_map(|_| tree.whiteout(b"l/y").err()).unwrap();
    assert!(refused.reason.contains("bytes"), "{refused:?}");
}

#[test]
fn a_directory_is_made_only_where_there_is_none() {
    let mut tree = Tree::new();
    for (path, node) in [
        ("app", directory(0o2750)),
        ("srv/www", directory(0o700)),
        ("var/run", symlink("../srv")),
        ("link", symlink("/srv/www")),
    ] {
        tree.insert(path.as_bytes(), node).unwrap();
    }
    tree.begin_layer();
    let before = entries(&tree);
    for there in ["app/", "./app", "", "link", "var/run/www", "var//run"] {
        tree.ensure_directory(there.as_bytes()).unwrap();
        assert_eq!(entries(&tree), before, "{there}");
    }
    tree.ensure_directory(b"var/run/new/deep").unwrap();
    assert_eq!(tree.get(b"srv/new/deep").unwrap().meta.mode, 0o755);
}

#[test]
fn a_directory_is_not_made_in_the_place_of_a_file() {
    let mut tree = Tree::new();
    tree.insert(b"f", file()).unwrap();
    tree.begin_layer();
    for path in [&b"f"[..], b"f/x"] {
        let refused = tree.ensure_directory(path).unwrap_err();
        assert!(refused.reason.contains("not a directory"), "{refused:?}");
    }
}
