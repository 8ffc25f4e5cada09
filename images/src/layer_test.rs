use tar::EntryType;

use super::*;
use crate::newc;
use crate::testing::{Item, entries, extension, files, pax, spool, tar};

fn unpack_layers(layers: &[&[u8]]) -> Result<Tree> {
    let mut tree = Tree::new();
    let mut spool = spool();
    let mut notes = Notes::default();
    for layer in layers {
        tree.begin_layer();
        let mut unpack = Unpack {
            tree: &mut tree,
            spool: &mut spool,
            notes: &mut notes,
            layer: true,
            newest: None,
        };
        unpack.run("test", *layer)?;
    }
    Ok(tree)
}

fn unpack(items: &[Item]) -> Result<Tree> {
    unpack_layers(&[&tar(items)])
}

/// The error's text of an archive that must be refused.
fn refusal(layers: &[&[u8]]) -> String {
    unpack_layers(layers).unwrap_err().to_string()
}

fn over(lower: &[Item], upper: &[Item]) -> Vec<String> {
    files(&unpack_layers(&[&tar(lower), &tar(upper)]).unwrap())
}

#[test]
fn every_kind_of_entry_arrives_with_mode_owner_and_time() {
    let mut tool = Item::file("usr/bin/tool", "x").mode(0o4755);
    tool.owner = (1000, 70_000);
    tool.mtime = 1_700_000_000;
    let tree = unpack(&[
        Item::directory("usr/bin/", 0o750),
        tool,
        Item::hard_link("usr/bin/other", "usr/bin/tool"),
        Item::symlink("bin", "usr/bin"),
        Item::of_kind(EntryType::Char, "dev/null", (1, 3)),
        Item::of_kind(EntryType::Block, "dev/sda", (8, 0)),
        Item::of_kind(EntryType::Fifo, "run/fifo", (0, 0)),
    ])
    .unwrap();
    let found: Vec<_> = entries(&tree)
        .into_iter()
        .map(|(header, contents)| {
            let name = String::from_utf8(header.name).unwrap();
            let owner = (header.uid, header.gid, header.mtime);
            (
                name,
                header.mode,
                header.ino,
                header.nlink,
                owner,
                header.device,
                contents,
            )
        })
        .collect();
    let root = (0, 0, 0);
    let user = (1000, 70_000, 1_700_000_000);
    let expected = [
        ("bin", 0o120777, 1, 1, root, (0, 0), "usr/bin"),
        ("dev", 0o040755, 2, 2, root, (0, 0), ""),
        ("dev/null", 0o020600, 3, 1, root, (1, 3), ""),
        ("dev/sda", 0o060600, 4, 1, root, (8, 0), ""),
        ("run", 0o040755, 5, 2, root, (0, 0), ""),
        ("run/fifo", 0o010600, 6, 1, root, (0, 0), ""),
        ("usr", 0o040755, 7, 2, root, (0, 0), ""),
        ("usr/bin", 0o040750, 8, 2, root, (0, 0), ""),
        // The first name has the contents.
        ("usr/bin/other", 0o104755, 9, 2, user, (0, 0), "x"),
        ("usr/bin/tool", 0o104755, 9, 2, user, (0, 0), ""),
    ]
    .map(|(name, mode, ino, nlink, owner, device, text)| {
        (
            name.to_owned(),
            mode,
            ino,
            nlink,
            owner,
            device,
            text.as_bytes().to_vec(),
        )
    });
    assert_eq!(found, expected);
}

#[test]
fn a_whiteout_removes_what_is_below_and_not_what_is_beside_it() {
    let lower = [
        Item::file("etc/gone", "1"),
        Item::file("etc/gone.d/x", "2"),
        Item::file("etc/gone-not", "3"),
        Item::directory("var/log", 0o755),
        Item::file("var/log/a", "4"),
    ];
    let upper = [
        Item::file("etc/.wh.gone", ""),
        Item::file("var/.wh.log", ""),
    ];
    assert_eq!(over(&lower, &upper), ["etc/gone-not=3", "etc/gone.d/x=2"]);
}

#[test]
fn a_whiteout_spares_what_its_own_layer_has_wherever_it_stands_in_it() {
    let lower = [Item::file("a/old", "old"), Item::file("b", "old")];
    let expected = ["a/new=new", "b=new"];
    let first = [
        Item::file(".wh.a", ""),
        Item::file("a/new", "new"),
        Item::file(".wh.b", ""),
        Item::file("b", "new"),
    ];
    assert_eq!(over(&lower, &first), expected);
    let last = [
        Item::file("a/new", "new"),
        Item::file(".wh.a", ""),
        Item::file("b", "new"),
        Item::file(".wh.b", ""),
    ];
    assert_eq!(over(&lower, &last), expected);
}

#[test]
fn an_opaque_directory_hides_what_lower_layers_have_in_it() {
    let lower = [
        Item::file("d/old", "old"),
        Item::file("d/sub/old", "old"),
        Item::file("d.e", "beside"),
    ];
    let upper = [
        Item::file("d/new", "new"),
        Item::directory("d/", 0o700),
        Item::file("d/.wh..wh..opq", ""),
        Item::file("d/sub/new", "new"),
    ];
    let tree = unpack_layers(&[&tar(&lower), &tar(&upper)]).unwrap();
    assert_eq!(files(&tree), ["d.e=beside", "d/new=new", "d/sub/new=new"]);
    assert_eq!(tree.get(b"d").unwrap().meta.mode, 0o700);
}

#[test]
fn an_opaque_root_hides_all_lower_layers() {
    let lower = [Item::file("a", "1"), Item::file("\u{fe}/x", "2")];
    let upper = [Item::file(".wh..wh..opq", ""), Item::file("b", "3")];
    assert_eq!(over(&lower, &upper), ["b=3"]);
}

#[test]
fn a_whiteout_of_nothing_that_is_there_is_no_fault() {
    let upper = [
        Item::file("no/such/.wh.thing", ""),
        Item::file("x/.wh..wh..opq", ""),
    ];
    assert_eq!(over(&[Item::file("a", "1")], &upper), ["a=1"]);
}

#[test]
fn names_of_an_old_union_file_system_are_left_out() {
    assert_eq!(
        over(
            &[],
            &[Item::file(".wh..wh.plnk/1.2", ""), Item::file("a", "1")]
        ),
        ["a=1"]
    );
}

#[test]
fn a_whiteout_without_a_name_is_refused() {
    for name in [".wh.", ".wh..", ".wh..."] {
        let text = refusal(&[&tar(&[Item::file(name, "")])]);
        assert!(text.contains("whiteout"), "{name}: {text}");
    }
}

#[test]
fn a_whole_root_has_no_whiteouts() {
    let mut tree = Tree::new();
    let mut unpack = Unpack {
        tree: &mut tree,
        spool: &mut spool(),
        notes: &mut Notes::default(),
        layer: false,
        newest: None,
    };
    unpack
        .run("test", &tar(&[Item::file("a/.wh.b", "1")])[..])
        .unwrap();
    assert_eq!(files(&tree), ["a/.wh.b=1"]);
}

#[test]
fn a_file_replaces_a_directory_with_all_in_it_and_the_other_way_round() {
    let lower = [Item::file("a/b/c", "1"), Item::file("x", "2")];
    let upper = [
        Item::file("a", "3"),
        Item::directory("x", 0o755),
        Item::file("x/y", "4"),
    ];
    assert_eq!(over(&lower, &upper), ["a=3", "x/y=4"]);
}

#[test]
fn a_directory_over_a_directory_keeps_what_is_in_it() {
    let tree = unpack_layers(&[
        &tar(&[Item::directory("d", 0o755), Item::file("d/f", "1")]),
        &tar(&[Item::directory("d", 0o1777)]),
    ])
    .unwrap();
    assert_eq!(files(&tree), ["d/f=1"]);
    assert_eq!(tree.get(b"d").unwrap().meta.mode, 0o1777);
}

#[test]
fn a_hard_link_reaches_into_lower_layers_and_keeps_its_contents_when_the_other_name_changes() {
    let lower = [Item::file("a", "shared")];
    let upper = [Item::hard_link("b", "a"), Item::file("a", "new")];
    assert_eq!(over(&lower, &upper), ["a=new", "b=shared"]);
}

#[test]
fn a_hard_link_to_itself_changes_nothing() {
    assert_eq!(
        over(&[Item::file("a", "1")], &[Item::hard_link("a", "a")]),
        ["a=1"]
    );
}

#[test]
fn a_hard_link_to_what_is_not_there_or_a_directory_is_refused() {
    let missing = refusal(&[&tar(&[Item::hard_link("a", "b")])]);
    assert!(missing.contains("no such file"), "{missing}");
    let items = [Item::directory("d", 0o755), Item::hard_link("a", "d")];
    let directory = refusal(&[&tar(&items)]);
    assert!(directory.contains("is a directory"), "{directory}");
}

#[test]
fn paths_that_leave_are_refused_with_archive_entry_and_reason() {
    for (item, reason) in [
        (Item::file("/etc/passwd", "x"), "absolute"),
        (Item::file("../x", "x"), "`..`"),
        (Item::file("a/../../x", "x"), "`..`"),
        (Item::hard_link("x", "/etc/shadow"), "absolute"),
        (Item::hard_link("x", "../../etc/shadow"), "`..`"),
        (Item::symlink("a/b", "../../etc/shadow"), "leaves the root"),
        (Item::symlink("a", "x/../../y"), "leaves the root"),
        (Item::symlink("a", "/.."), "leaves the root"),
    ] {
        let path = String::from_utf8(item.path.clone()).unwrap();
        let text = refusal(&[&tar(&[item])]);
        assert!(text.starts_with("test: entry "), "{text}");
        assert!(text.contains(&path) && text.contains(reason), "{text}");
    }
}

#[test]
fn links_within_the_root_are_kept_as_they_are() {
    let items = [
        Item::symlink("a/b/c", "../../etc/x"),
        Item::symlink("d", "/a/../b"),
    ];
    assert_eq!(
        files(&unpack(&items).unwrap()),
        ["a/b/c=../../etc/x", "d=/a/../b"]
    );
}

#[test]
fn writing_through_a_link_of_the_same_archive_is_refused() {
    for through in ["/etc", "other"] {
        let items = [Item::symlink("a", through), Item::file("a/passwd", "x")];
        let text = refusal(&[&tar(&items)]);
        assert!(text.contains("through the link \"a\""), "{text}");
    }
}

#[test]
fn a_link_of_a_lower_layer_is_followed_inside_the_root() {
    let lower = [
        Item::directory("usr/lib", 0o755),
        Item::symlink("lib", "usr/lib"),
        Item::symlink("var/run", "/run"),
        Item::file("run/old", "1"),
    ];
    let upper = [
        Item::file("lib/x", "1"),
        Item::file("var/run/y", "2"),
        Item::file("var/run/.wh.old", ""),
    ];
    assert_eq!(
        over(&lower, &upper),
        ["lib=usr/lib", "run/y=2", "usr/lib/x=1", "var/run=/run"]
    );
}

#[test]
fn links_that_go_round_are_refused() {
    let lower = [Item::symlink("a", "b"), Item::symlink("b", "a")];
    let text = refusal(&[&tar(&lower), &tar(&[Item::file("a/x", "1")])]);
    assert!(text.contains("more than 40 links"), "{text}");
}

#[test]
fn a_link_reached_through_another_cannot_lead_out() {
    // Where it lies, `../..` stays inside; where the first link leads, it does not.
    let lower = [
        Item::symlink("deep/er/out", "../../x"),
        Item::symlink("x", "deep/../../y"),
    ];
    let text = refusal(&[&tar(&lower)]);
    assert!(text.contains("leaves the root"), "{text}");
    let lower = [
        Item::directory("a/b", 0o755),
        Item::symlink("s", "a/b"),
        Item::symlink("a/b/u", "../.."),
    ];
    let tree = unpack_layers(&[&tar(&lower), &tar(&[Item::file("s/u/top", "1")])]).unwrap();
    assert!(tree.get(b"top").is_some());
}

#[test]
fn nothing_goes_below_a_file() {
    let text = refusal(&[&tar(&[Item::file("a", "1"), Item::file("a/b", "2")])]);
    assert!(text.contains("not a directory"), "{text}");
}

#[test]
fn dots_and_double_slashes_mean_nothing() {
    let items = [Item::file("./a//b/./c", "1"), Item::directory("./", 0o711)];
    let tree = unpack(&items).unwrap();
    assert_eq!(files(&tree), ["a/b/c=1"]);
    let root = &entries(&tree)[0].0;
    assert_eq!(
        (root.name.as_slice(), root.mode),
        (&b"."[..], newc::DIRECTORY | 0o711)
    );
}

#[test]
fn an_old_archive_says_directory_by_a_slash() {
    let mut directory = Item::file("d/", "");
    directory.mode = 0o755;
    let tree = unpack(&[directory]).unwrap();
    assert!(tree.is_directory(b"d"));
}

#[test]
fn names_that_are_no_text_arrive() {
    let tree = unpack(&[Item::file(b"a\xff\xfe", "1")]).unwrap();
    assert!(tree.get(b"a\xff\xfe").is_some());
}

#[test]
fn a_cut_archive_is_refused_where_it_ends() {
    let whole = tar(&[
        Item::file("whole", "1"),
        Item::file("cut", vec![b'x'; 5000]),
    ]);
    let text = refusal(&[&whole[..3000]]);
    assert!(text.contains("cut"), "{text}");
    let text = refusal(&[&whole[..1300]]);
    assert!(
        text.contains("whole") && text.contains("cannot be read"),
        "{text}"
    );
}

#[test]
fn noise_is_refused() {
    let text = refusal(&[&[0x5a; 2048]]);
    assert!(text.contains("cannot be read as a tar archive"), "{text}");
    let text = refusal(&[&b"root:x:0:0\n".repeat(200)]);
    assert!(!text.contains('\n'), "{text}");
}

#[test]
fn sparse_files_and_unknown_types_are_refused() {
    let text = refusal(&[&tar(&[Item::of_kind(EntryType::GNUSparse, "s", (0, 0))])]);
    assert!(text.contains("sparse"), "{text}");
    let text = refusal(&[&tar(&[Item::of_kind(EntryType::new(b'V'), "v", (0, 0))])]);
    assert!(text.contains("'V'"), "{text}");
    let mut archive = Vec::new();
    extension(
        &mut archive,
        EntryType::XHeader,
        &pax(&[("GNU.sparse.major", b"1")]),
    );
    archive.extend(tar(&[Item::file("s", "1")]));
    assert!(refusal(&[&archive]).contains("sparse"));
}

#[test]
fn extended_attributes_are_noted() {
    let mut archive = Vec::new();
    let records = pax(&[("SCHILY.xattr.security.capability", b"\x01\0\0\x02")]);
    extension(&mut archive, EntryType::XHeader, &records);
    archive.extend(tar(&[
        Item::file("bin/ping", "1"),
        Item::file("bin/other", "2"),
    ]));
    let (mut tree, mut notes) = (Tree::new(), Notes::default());
    let mut unpack = Unpack {
        tree: &mut tree,
        spool: &mut spool(),
        notes: &mut notes,
        layer: true,
        newest: None,
    };
    unpack.run("test", &archive[..]).unwrap();
    let [line] = &notes.lines()[..] else {
        panic!("{:?}", notes.lines());
    };
    assert!(
        line.contains("bin/ping") && !line.contains("other"),
        "{line}"
    );
}

#[test]
fn no_time_is_newer_than_told() {
    let mut items = [Item::file("old", "1"), Item::file("new", "2")];
    items[0].mtime = 50;
    items[1].mtime = 200;
    let mut tree = Tree::new();
    let mut unpack = Unpack {
        tree: &mut tree,
        spool: &mut spool(),
        notes: &mut Notes::default(),
        layer: true,
        newest: Some(100),
    };
    unpack.run("test", &tar(&items)[..]).unwrap();
    assert_eq!(tree.get(b"old").unwrap().meta.mtime, 50);
    assert_eq!(tree.get(b"new").unwrap().meta.mtime, 100);
}

#[test]
fn a_path_that_no_kernel_takes_is_refused() {
    let long = "d/".repeat(2048) + "x";
    let text = refusal(&[&tar(&[Item::file(&long, "1")])]);
    assert!(
        text.contains("longer than 4095 bytes") && text.len() < 400,
        "{text}"
    );
    let name = "n".repeat(256);
    let text = refusal(&[&tar(&[Item::file(&name, "1")])]);
    assert!(text.contains("longer than 255 bytes"), "{text}");
}

#[test]
fn a_flood_of_long_paths_is_refused_before_it_fills_memory() {
    // Each of these makes 2000 directories, whose paths take 4 MB together.
    let mut tree = Tree::new();
    let refused = (0..1000).find_map(|number| {
        let path = format!("{number:03}/") + &"d/".repeat(2000) + "x";
        let node = crate::tree::Node {
            meta: crate::tree::Meta::default(),
            kind: Kind::Directory,
        };
        tree.insert(path.as_bytes(), node).err()
    });
    let refused = refused.unwrap();
    assert!(refused.reason.contains("more than"), "{refused:?}");
}
