use super::*;
use crate::kernel::cloud::CloudKernelFacts;
use crate::progress::Quiet;
use crate::testing::foundation;
use crate::{Cache, ImageBuilder, InitramfsBuilder, Source};

/// A root, empty at first, and a place for images of it.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        fs::create_dir(place.root()).unwrap();
        place
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn root(&self) -> PathBuf {
        self.path().join("root")
    }

    fn build(&self, foundation: Foundation) -> Image {
        let cache = Cache::at(self.path().join("cache"));
        let builder = ImageBuilder::new(&cache, foundation);
        let built = builder.build(&Source::Directory(self.root()), &Quiet);
        built.unwrap().image
    }
}

#[test]
fn a_foundation_is_taken_from_an_image() {
    let place = Place::new();
    let image = place.build(foundation(place.path()));
    let again = Foundation::of(&image).unwrap();
    assert_eq!(again.init, b"our init");
    assert_eq!(again.origin, foundation(place.path()).origin);
}

#[test]
fn a_foundation_is_found_beside_and_above_files_of_any_size() {
    let place = Place::new();
    // With a hole, which is no matter on the disk.
    let large = File::create(place.root().join("before-init")).unwrap();
    large.set_len(u64::from(INIT_MAX) + 1).unwrap();
    let image = place.build(foundation(place.path()));
    assert_eq!(Foundation::of(&image).unwrap().init, b"our init");
    let below = &image.initramfs()[0];
    assert_eq!(find_init(below).unwrap(), None);
    // The uppermost is what a guest starts: what is below is of no interest.
    File::create(below)
        .unwrap()
        .set_len(image.memory_need().archives - fs::metadata(&image.initramfs()[1]).unwrap().len())
        .unwrap();
    let image = Image::open(image.directory()).unwrap();
    assert_eq!(Foundation::of(&image).unwrap().init, b"our init");
}

#[test]
fn a_kernel_that_came_with_modules_is_not_taken_without_them() {
    let place = Place::new();
    let archive = place.path().join("modules.cpio");
    InitramfsBuilder::new().write_file(&archive).unwrap();
    let kernel = CloudKernel {
        directory: place.path().to_path_buf(),
        bzimage: foundation(place.path()).kernel,
        vmlinux: None,
        modules: archive,
        facts: CloudKernelFacts {
            release: "6-cloud".to_owned(),
            package: "linux-image".to_owned(),
            version: "6".to_owned(),
            modules: Vec::new(),
        },
    };
    let modular = foundation(place.path()).with_cloud_kernel(&kernel);
    let image = place.build(modular);
    let error = Foundation::of(&image).unwrap_err();
    assert!(matches!(error, Error::NoFoundation { .. }), "{error}");
    assert!(error.to_string().contains("modules"), "{error}");
}
