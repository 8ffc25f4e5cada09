use proptest::prelude::*;

use super::*;
use crate::progress::Quiet;
use crate::testing::{Item, Layout, cpio, foundation, gzip, spool, tar, zstd};

struct Place {
    dir: tempfile::TempDir,
    cache: Cache,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path().join("cache"));
        Self { dir, cache }
    }

    fn builder(&self) -> ImageBuilder<'_> {
        ImageBuilder::new(&self.cache, foundation(self.dir.path()))
    }

    /// An OCI layout with these layers.
    fn layout(&self, name: &str, layers: &[Vec<Item>]) -> Source {
        let mut layout = Layout::new(&self.dir.path().join(name));
        layout.config = serde_json::json!({ "Cmd": ["sh"], "WorkingDir": "/srv/here" });
        for items in layers {
            let plain = tar(items);
            layout.layer(&gzip(&plain), &plain);
        }
        Source::Container {
            path: layout.finish().to_path_buf(),
            reference: None,
        }
    }
}

/// What a guest finds: paths of all layers, the upper ones over the lower.
fn root_of(image: &Image) -> BTreeMap<String, (u32, Vec<u8>)> {
    let mut root = BTreeMap::new();
    for layer in image.initramfs() {
        let archive = fs::read(layer).unwrap();
        let mut rest = &archive[..];
        while let Some((header, contents)) = newc::read(&mut rest, u32::MAX).unwrap() {
            root.insert(
                String::from_utf8(header.name).unwrap(),
                (header.mode, contents),
            );
        }
    }
    root
}

#[test]
fn a_directory_becomes_an_image_with_our_init_and_what_a_guest_needs() {
    let place = Place::new();
    let source = place.dir.path().join("root");
    fs::create_dir_all(source.join("sbin")).unwrap();
    fs::write(source.join("sbin/init"), "theirs").unwrap();
    fs::write(source.join("init"), "theirs").unwrap();
    let built = place
        .builder()
        .name("mine")
        .build(&Source::Directory(source), &Quiet)
        .unwrap();
    let image = built.image;
    image.verify().unwrap();
    let root = root_of(&image);
    assert_eq!(root["init"], (0o100755, b"our init".to_vec()));
    assert_eq!(root["sbin/init"].1, b"theirs");
    for (path, mode) in [("proc", 0o040555), ("tmp", 0o041777), ("dev", 0o040755)] {
        assert_eq!(root[path].0, mode, "{path}");
    }
    assert_eq!(root["dev/console"].0, 0o020600);
    assert!(built.notes[0].contains("/init"), "{:?}", built.notes);
    assert_eq!(
        store::find(&place.cache, "mine").unwrap().digest(),
        image.digest()
    );
    assert_eq!(image.origin()["root.kind"], "directory");
    assert_eq!(image.origin()["kernel.release"], "1");
}

#[test]
fn a_root_s_init_that_is_another_name_of_a_program_does_not_cost_the_program() {
    let place = Place::new();
    let layer = vec![
        Item::file("bin/busybox", "busybox"),
        Item::hard_link("init", "bin/busybox"),
    ];
    let source = place.layout("oci", &[layer]);
    let root = root_of(&place.builder().build(&source, &Quiet).unwrap().image);
    assert_eq!(root["bin/busybox"].1, b"busybox");
    assert_eq!(root["init"].1, b"our init");
}

#[test]
fn the_same_sources_give_the_same_digest_in_any_cache() {
    let (one, two) = (Place::new(), Place::new());
    let digest_of = |place: &Place, name: &str| {
        let root = place.dir.path().join(name);
        fs::create_dir_all(root.join("etc")).unwrap();
        fs::write(root.join("etc/x"), "x").unwrap();
        for path in ["etc/x", "etc"] {
            let time = std::time::SystemTime::UNIX_EPOCH;
            let file = File::open(root.join(path)).unwrap();
            file.set_modified(time).unwrap();
        }
        let directory = place
            .builder()
            .build(&Source::Directory(root), &Quiet)
            .unwrap();
        let source = place.layout(
            "oci",
            &[vec![Item::file("a", "1")], vec![Item::file("b", "2")]],
        );
        let container = place.builder().build(&source, &Quiet).unwrap();
        (
            directory.image.digest().to_owned(),
            container.image.digest().to_owned(),
        )
    };
    let first = digest_of(&one, "root");
    assert_eq!(first, digest_of(&one, "root"));
    assert_eq!(first, digest_of(&two, "another-root"));
}

#[test]
fn the_configuration_is_kept_counts_for_the_digest_and_its_directory_is_made() {
    let place = Place::new();
    let source = place.layout(
        "oci",
        &[vec![Item::symlink("work", "srv"), Item::file("srv/x", "")]],
    );
    let image = place.builder().build(&source, &Quiet).unwrap().image;
    assert_eq!(image.command(), ["sh"]);
    assert_eq!(image.config().workdir.as_deref(), Some("/srv/here"));
    assert_eq!(root_of(&image)["srv/here"].0, 0o040755);
    let opened = Image::open(image.directory()).unwrap();
    assert_eq!(
        (opened.config(), opened.digest()),
        (image.config(), image.digest())
    );
    let text = fs::read_to_string(image.directory().join("image.json")).unwrap();
    assert!(text.contains("\"format\": 2"), "{text}");
    let changed = text.replace("\"sh\"", "\"ash\"");
    fs::write(image.directory().join("image.json"), changed).unwrap();
    let opened = Image::open(image.directory());
    assert!(opened.is_err() || opened.unwrap().digest() != image.digest());
}

#[test]
fn a_working_directory_that_is_there_stays_as_it_is() {
    for workdir in [
        "/app/",
        "//app",
        "/./app",
        "/no/../app",
        "/link",
        "/var/run/../run/app",
        "/up",
    ] {
        let place = Place::new();
        let mut app = Item::directory("app", 0o2750);
        app.owner = (1000, 1000);
        let plain = tar(&[
            app,
            Item::symlink("link", "app"),
            Item::symlink("var/run", ".."),
            Item::symlink("up", "var/run/app"),
        ]);
        let mut layout = Layout::new(&place.dir.path().join("oci"));
        layout.config = serde_json::json!({ "WorkingDir": workdir });
        layout.layer(&plain, &plain);
        let source = Source::Container {
            path: layout.finish().to_path_buf(),
            reference: None,
        };
        let image = place.builder().build(&source, &Quiet).unwrap().image;
        let archive = fs::read(&image.initramfs()[0]).unwrap();
        let mut rest = &archive[..];
        let mut found = Vec::new();
        while let Some((header, _)) = newc::read(&mut rest, u32::MAX).unwrap() {
            if header.name.ends_with(b"app") {
                found.push((header.name, header.mode, header.uid, header.gid));
            }
        }
        assert_eq!(
            found,
            [(b"app".to_vec(), 0o042750, 1000, 1000)],
            "{workdir}"
        );
        // The guest looks it up, where `no` is not a directory.
        let told = image.config().workdir.clone().unwrap();
        assert!(!told.contains("..") && !told.contains("//"), "{told}");
    }
}

#[test]
fn a_working_directory_in_the_place_of_a_file_is_refused() {
    let place = Place::new();
    let source = place.layout("oci", &[vec![Item::file("srv/here", "a file")]]);
    let error = place.builder().build(&source, &Quiet).unwrap_err();
    assert!(error.to_string().contains("not a directory"), "{error}");
}

#[test]
fn modules_of_a_kernel_go_where_the_root_s_links_lead() {
    let place = Place::new();
    let archive = place.dir.path().join("modules.cpio");
    let mut modules = InitramfsBuilder::new();
    modules.file("lib/modules/6/virtio.ko", 0o644, "module");
    modules.file("etc/forebay/modules", 0o644, "list");
    modules.write_file(&archive).unwrap();
    let mut foundation = foundation(place.dir.path());
    foundation.modules = Some(archive);
    foundation.kernel_kind = KernelKind::BzImage;
    let layer = vec![
        Item::symlink("lib", "usr/lib"),
        Item::file("usr/lib/ld.so", "linker"),
    ];
    let source = place.layout("oci", &[layer]);
    let built = ImageBuilder::new(&place.cache, foundation)
        .build(&source, &Quiet)
        .unwrap();
    let root = root_of(&built.image);
    assert_eq!(root["lib"], (0o120777, b"usr/lib".to_vec()));
    assert_eq!(root["usr/lib/ld.so"].1, b"linker");
    assert_eq!(root["usr/lib/modules/6/virtio.ko"].1, b"module");
    assert_eq!(root["etc/forebay/modules"].1, b"list");
    assert_eq!(built.image.kernel_kind(), KernelKind::BzImage);
    assert!(built.image.kernel().ends_with("vmlinuz"));
}

#[test]
fn memory_that_it_takes_counts_pages_and_entries() {
    let place = Place::new();
    let root = place.dir.path().join("root");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("f"), vec![1; 4097]).unwrap();
    let image = place
        .builder()
        .build(&Source::Directory(root), &Quiet)
        .unwrap()
        .image;
    let need = image.memory_need();
    assert_eq!(need.kernel, 6);
    let archives: u64 = image
        .initramfs()
        .iter()
        .map(|path| fs::metadata(path).unwrap().len())
        .sum();
    assert_eq!(need.archives, archives);
    // Two pages of `f`, one of the init; the root and five places, `f`, and of the init's layer four.
    assert_eq!(need.unpacked, 3 * 4096 + 11 * 1024);
    assert!(need.least_bytes() > need.archives + 2 * need.unpacked);
}

#[test]
fn a_build_that_fails_leaves_nothing() {
    let place = Place::new();
    let source = place.layout("oci", &[vec![Item::file("../x", "1")]]);
    let error = place
        .builder()
        .name("bad")
        .build(&source, &Quiet)
        .unwrap_err();
    assert!(matches!(error, Error::Archive { .. }), "{error}");
    assert!(store::list(&place.cache).unwrap().is_empty());
    let left = fs::read_dir(place.cache.root().join("build"))
        .unwrap()
        .count();
    assert_eq!(left, 0);
}

#[test]
fn more_than_the_caller_allows_is_refused() {
    let place = Place::new();
    let source = place.layout("oci", &[vec![Item::file("x", vec![0; 100_000])]]);
    let error = place
        .builder()
        .unpacked_max(50_000)
        .build(&source, &Quiet)
        .unwrap_err();
    assert!(error.to_string().contains("50000"), "{error}");
}

#[test]
fn an_archive_that_is_the_whole_root_is_bounded_too() {
    let place = Place::new();
    let archive = place.dir.path().join("root.tar");
    fs::write(&archive, tar(&[Item::file("x", vec![0; 100_000])])).unwrap();
    let unpack = |limit| {
        let mut work = Work {
            tree: Tree::new(),
            spool: spool(),
            notes: Notes::default(),
            config: ImageConfig::default(),
            origin: BTreeMap::new(),
        };
        work.unpack("root", &archive, limit, 0)
    };
    let error = unpack(50_000).unwrap_err();
    assert!(error.to_string().contains("50000"), "{error}");
    unpack(200_000).unwrap();
}

/// An entry of a random root, below a directory of the same or another one.
#[derive(Debug, Clone)]
enum Thing {
    File(Vec<u8>, u32),
    Directory(u32),
    Symlink(String),
    /// Another name of the file before it that this number finds.
    Link(usize),
    Fifo,
}

fn thing() -> impl Strategy<Value = Thing> {
    let modes = prop::sample::select(vec![0o644, 0o755, 0o4755, 0o2711, 0o600, 0o400]);
    prop_oneof![
        4 => (prop::collection::vec(any::<u8>(), 0..6000), modes).prop_map(|(text, mode)| Thing::File(text, mode)),
        3 => prop::sample::select(vec![0o755, 0o700, 0o1777, 0o2775]).prop_map(Thing::Directory),
        2 => "(/[a-c]{1,3})?[a-c]{1,120}".prop_map(Thing::Symlink),
        2 => any::<usize>().prop_map(Thing::Link),
        1 => Just(Thing::Fifo),
    ]
}

/// Things with paths that fit together: parents are directories and come first.
fn roots() -> impl Strategy<Value = Vec<(String, Thing)>> {
    let name = "[a-d]{1,2}|[a-z]{90,120}|[é ü]{1,3}";
    prop::collection::vec((any::<usize>(), name, thing()), 0..40).prop_map(|things| {
        let mut directories = vec![String::new()];
        let mut root: Vec<(String, Thing)> = Vec::new();
        for (parent, name, thing) in things {
            let parent = &directories[parent % directories.len()];
            let path = format!("{parent}{name}");
            if path.len() > 900 || root.iter().any(|(known, _)| *known == path) {
                continue;
            }
            if let Thing::Directory(_) = thing {
                directories.push(format!("{path}/"));
            }
            let files: Vec<_> = root
                .iter()
                .filter(|(_, thing)| matches!(thing, Thing::File(..)))
                .map(|(path, _)| path.clone())
                .collect();
            match thing {
                Thing::Link(_) if files.is_empty() => {}
                Thing::Link(number) => root.push((path, Thing::Link(number % files.len()))),
                thing => root.push((path, thing)),
            }
        }
        root
    })
}

fn file_paths(root: &[(String, Thing)]) -> Vec<&String> {
    let files = root
        .iter()
        .filter(|(_, thing)| matches!(thing, Thing::File(..)));
    files.map(|(path, _)| path).collect()
}

/// Makes the root in a directory of this host.
fn make(root: &[(String, Thing)], at: &Path) {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let files = file_paths(root);
    let mut modes = Vec::new();
    for (path, thing) in root {
        let target = at.join(path);
        match thing {
            Thing::File(contents, mode) => {
                fs::write(&target, contents).unwrap();
                modes.push((target, *mode));
            }
            Thing::Directory(mode) => {
                fs::create_dir(&target).unwrap();
                modes.push((target, *mode));
            }
            Thing::Symlink(to) => symlink(to, &target).unwrap(),
            Thing::Link(number) => fs::hard_link(at.join(files[*number]), &target).unwrap(),
            Thing::Fifo => {
                let mode = rustix::fs::Mode::from_raw_mode(0o600);
                let kind = rustix::fs::FileType::Fifo;
                rustix::fs::mknodat(rustix::fs::CWD, &target, kind, mode, 0).unwrap();
                modes.push((target, 0o600));
            }
        }
    }
    for (path, mode) in modes {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
}

/// The root as entries of archives.
fn items(root: &[(String, Thing)]) -> Vec<Item> {
    let files = file_paths(root);
    root.iter()
        .map(|(path, thing)| match thing {
            Thing::File(contents, mode) => Item::file(path, contents).mode(*mode),
            Thing::Directory(mode) => Item::directory(path.clone() + "/", *mode),
            Thing::Symlink(to) => Item::symlink(path, to),
            Thing::Link(number) => Item::hard_link(path, files[*number]),
            Thing::Fifo => Item::of_kind(tar::EntryType::Fifo, "", (0, 0)).at(path),
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// One root in two ways: read from a directory, and from the layers of a container image, cut
    /// anywhere, over rubbish that the upper layer takes away. What a guest would unpack is the same
    /// bytes.
    #[test]
    fn a_random_root_is_the_same_from_a_directory_and_from_layers(root in roots(), cut in any::<usize>()) {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("root");
        fs::create_dir(&place).unwrap();
        make(&root, &place);
        let (mut tree, mut notes) = (Tree::new(), Notes::default());
        directory::read(&place, &mut tree, &mut spool(), &mut notes, 1 << 30, Some(0)).unwrap();
        let expected = cpio(&tree);

        let items = items(&root);
        let (lower, upper) = items.split_at(cut % (items.len() + 1));
        let mut first = vec![
            Item::directory("./", 0o755),
            Item::file("rubbish.1/x/y", "rubbish"),
            Item::file("rubbish.2", "rubbish"),
        ];
        first.extend_from_slice(lower);
        let mut second = vec![Item::file(".wh.rubbish.1", "")];
        second.extend_from_slice(upper);
        second.push(Item::file(".wh.rubbish.2", ""));
        let mut layout = Layout::new(&dir.path().join("oci"));
        let (first, second) = (tar(&first), tar(&second));
        layout.layer(&zstd(&first), &first).layer(&gzip(&second), &second);
        let mut tree = Tree::new();
        oci::read(layout.finish(), None, &mut tree, &mut spool(), &mut notes, 1 << 30, Some(0)).unwrap();
        prop_assert!(cpio(&tree) == expected, "the archives differ");
    }

    /// Whatever bytes an archive has, reading it ends, with a tree or an error.
    #[test]
    fn an_archive_with_changed_bytes_is_read_or_refused(
        root in roots(),
        changes in prop::collection::vec((any::<usize>(), any::<u8>()), 1..20),
    ) {
        let mut archive = tar(&items(&root));
        for (at, byte) in changes {
            let at = at % archive.len();
            archive[at] = byte;
            // A header whose sum is wrong is refused before anything in it matters.
            let block = &mut archive[at / 512 * 512..][..512];
            if let Ok(raw) = <&mut [u8; 512]>::try_from(block) {
                let mut header = tar::Header::new_gnu();
                header.as_mut_bytes().copy_from_slice(raw);
                header.set_cksum();
                raw.copy_from_slice(header.as_bytes());
            }
        }
        let mut tree = Tree::new();
        let mut unpack = Unpack {
            tree: &mut tree,
            spool: &mut spool(),
            notes: &mut Notes::default(),
            layer: true,
            newest: None,
        };
        if unpack.run("test", &archive[..]).is_ok() {
            cpio(&tree);
        }
    }
}
