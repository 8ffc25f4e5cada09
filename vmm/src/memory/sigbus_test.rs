use super::*;
use crate::memory::MIB;
use crate::memory::image::tests::open;
use crate::memory::ram::tests::{fill, get, put};
use crate::memory::{Backing, GuestRam, MemoryImage};
use crate::testing::{alone, alone_to_its_end};
use std::fs::File;
use std::os::unix::process::ExitStatusExt as _;

/// A memory file of which all pages are 1, and the file, to cut it.
fn memory_file(directory: &std::path::Path, name: &str) -> (MemoryImage, File) {
    let path = directory.join(name);
    let file = File::create(&path).unwrap();
    let ram = GuestRam::new(MIB, Backing::Anonymous).unwrap();
    fill(&ram, 0..256, 1);
    ram.write_to(&file, &mut |_, _| Ok(())).unwrap();
    (open(&path, MIB).unwrap(), file)
}

#[test]
fn a_memory_file_that_is_cut_damages_its_vms_and_nobody_else() {
    let directory = tempfile::tempdir().unwrap();
    let (image, file) = memory_file(directory.path(), "cut");
    let (sound, _) = memory_file(directory.path(), "sound");
    let [cut, other] = [&image, &sound].map(|image| GuestRam::from_image(image).unwrap());
    let damage = cut.damage().unwrap();
    put(&cut, 200, 2);
    file.set_len(3 * PAGE).unwrap();
    assert_eq!(get(&cut, 2), 1);
    assert!(!damage.is_done());
    assert!(damage.event().read().is_err());
    // Read, written, and what was private.
    assert_eq!(get(&cut, 3), 0);
    assert!(damage.is_done());
    damage.event().read().unwrap();
    put(&cut, 100, 5);
    assert_eq!((get(&cut, 100), get(&cut, 101)), (5, 0));
    let to = File::create(directory.path().join("to")).unwrap();
    let error = cut.write_to(&to, &mut |_, _| Ok(())).unwrap_err();
    assert!(error.to_string().contains("shorter than it was"), "{error}");
    assert_eq!(to.metadata().unwrap().len(), 0);
    cut.freeze().unwrap_err();
    assert_eq!(get(&other, 255), 1);
    assert!(!other.damage().unwrap().is_done());
}

#[test]
fn what_a_vm_has_after_its_file_was_cut_is_not_taken_for_what_it_had() {
    let directory = tempfile::tempdir().unwrap();
    let (_, file) = memory_file(directory.path(), "memory");
    for (written, len) in [(10..240, PAGE), (0..1, 128 * PAGE)] {
        file.set_len(MIB).unwrap();
        let image = open(&directory.path().join("memory"), MIB).unwrap();
        let ram = GuestRam::from_image(&image).unwrap();
        fill(&ram, written, 2);
        // Its own pages go with the file's, and are then not even found.
        file.set_len(len).unwrap();
        ram.freeze().unwrap_err();
        // Nor if the file grows again.
        file.set_len(MIB).unwrap();
        ram.freeze().unwrap_err();
    }
}

#[test]
fn a_vm_that_runs_on_memory_alone_installs_nothing() {
    alone(
        "memory::sigbus::tests::a_vm_that_runs_on_memory_alone_installs_nothing",
        || {
            let ram = GuestRam::new(MIB, Backing::Shareable).unwrap();
            let image = ram.freeze().unwrap().image;
            let child = GuestRam::from_image(&image).unwrap();
            assert!(child.damage().is_none());
            assert!(PREVIOUS.get().is_none());
            let ours = on_sigbus as *const () as usize;
            assert_ne!(action(None).unwrap().sa_sigaction, ours);
        },
    );
}

static SEEN: AtomicUsize = AtomicUsize::new(0);

/// The program's own handler, which does for its mappings what ours does.
extern "C" fn own(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes valid information.
    let address = unsafe { (*info).si_addr() as usize };
    SEEN.store(address, Ordering::SeqCst);
    put_zeros(address);
}

/// A mapping of a file that is shorter, with the guest's ranges nowhere near.
fn own_mapping(directory: &std::path::Path) -> *mut u8 {
    let file = File::create_new(directory.join("own")).unwrap();
    file.set_len(PAGE).unwrap();
    let file = File::open(directory.join("own")).unwrap();
    // SAFETY: a new mapping.
    let at = unsafe {
        use std::os::fd::AsRawFd as _;
        let len = 2 * PAGE as usize;
        libc::mmap(
            ptr::null_mut(),
            len,
            libc::PROT_READ,
            libc::MAP_PRIVATE,
            file.as_raw_fd(),
            0,
        )
    };
    assert_ne!(at, libc::MAP_FAILED);
    at.cast::<u8>().wrapping_add(PAGE as usize)
}

#[test]
fn the_programs_own_faults_reach_its_own_handler() {
    alone(
        "memory::sigbus::tests::the_programs_own_faults_reach_its_own_handler",
        || {
            // SAFETY: all zeros are a valid value.
            let mut new: libc::sigaction = unsafe { mem::zeroed() };
            new.sa_sigaction = own as *const () as usize;
            new.sa_flags = libc::SA_SIGINFO;
            action(Some(&new)).unwrap();
            let directory = tempfile::tempdir().unwrap();
            let (image, file) = memory_file(directory.path(), "memory");
            let ram = GuestRam::from_image(&image).unwrap();
            let beyond = own_mapping(directory.path());
            // SAFETY: mapped; the handler sees to it that something is there.
            assert_eq!(unsafe { beyond.read_volatile() }, 0);
            assert_eq!(SEEN.swap(0, Ordering::SeqCst), beyond as usize);
            assert!(!ram.damage().unwrap().is_done());
            file.set_len(0).unwrap();
            assert_eq!(get(&ram, 0), 0);
            assert!(ram.damage().unwrap().is_done());
            assert_eq!(SEEN.load(Ordering::SeqCst), 0);
        },
    );
}

const ALIVE: &str = "this far it came";

/// What `fatal` is the end of: a process in which a handler was installed over `before`. Before the end
/// it says [`ALIVE`].
fn assert_killed(name: &str, before: libc::sighandler_t, fatal: impl FnOnce(&std::path::Path)) {
    let out = alone_to_its_end(name, || {
        use rustix::process::{Resource, Rlimit, setrlimit};
        let none = Rlimit {
            current: Some(0),
            maximum: Some(0),
        };
        setrlimit(Resource::Core, none).unwrap();
        // SAFETY: the default action, or none.
        unsafe { libc::signal(libc::SIGBUS, before) };
        let directory = tempfile::tempdir().unwrap();
        let (image, _) = memory_file(directory.path(), "memory");
        let _ram = GuestRam::from_image(&image).unwrap();
        fatal(directory.path());
    });
    if let Some(out) = out {
        assert_eq!(out.status.signal(), Some(libc::SIGBUS), "{out:?}");
        assert!(
            String::from_utf8_lossy(&out.stdout).contains(ALIVE),
            "{out:?}"
        );
    }
}

#[test]
fn the_programs_own_faults_end_it_where_it_has_no_handler() {
    const NAME: &str =
        "memory::sigbus::tests::the_programs_own_faults_end_it_where_it_has_no_handler";
    assert_killed(NAME, libc::SIG_DFL, |directory| {
        println!("{ALIVE}");
        // SAFETY: mapped; this is to raise the signal.
        unsafe { own_mapping(directory).read_volatile() };
    });
}

#[test]
fn the_programs_own_faults_end_it_also_where_it_ignores_the_signal() {
    const NAME: &str =
        "memory::sigbus::tests::the_programs_own_faults_end_it_also_where_it_ignores_the_signal";
    assert_killed(NAME, libc::SIG_IGN, |directory| {
        // SAFETY: ignored if it is sent.
        unsafe { libc::raise(libc::SIGBUS) };
        println!("{ALIVE}");
        // SAFETY: mapped; this is to raise the signal.
        unsafe { own_mapping(directory).read_volatile() };
    });
}

#[test]
fn a_signal_that_was_sent_ends_a_program_without_a_handler() {
    const NAME: &str =
        "memory::sigbus::tests::a_signal_that_was_sent_ends_a_program_without_a_handler";
    assert_killed(NAME, libc::SIG_DFL, |_| {
        println!("{ALIVE}");
        // SAFETY: no memory is involved.
        unsafe { libc::raise(libc::SIGBUS) };
    });
}

#[test]
fn any_number_of_vms_are_watched_over_and_their_places_used_again() {
    let directory = tempfile::tempdir().unwrap();
    let (image, file) = memory_file(directory.path(), "memory");
    let blocks = || {
        let next = |block: &&'static Block| block.next();
        std::iter::successors(Some(&TABLE), next).count()
    };
    let many = 3 * Block::SLOTS;
    let mut most = 0;
    for round in 0..3 {
        let vms: Vec<_> = (0..many)
            .map(|_| GuestRam::from_image(&image).unwrap())
            .collect();
        if round == 0 {
            most = blocks();
            assert!(most >= 3);
        }
        // Other tests have a few at the same time.
        assert!(blocks() <= most + 1);
        if round == 2 {
            file.set_len(0).unwrap();
            for vm in &vms {
                assert_eq!(get(vm, 9), 0);
                assert!(vm.damage().unwrap().is_done());
            }
        }
    }
}
