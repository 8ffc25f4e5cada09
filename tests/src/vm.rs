//! A guest of the test image, and what a failing test should show of it.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use forebay::{ConsoleLog, Image, MachineView, Restore, StopReason, Vm, VmBuilder};
use tokio::sync::OnceCell;

use crate::pace::scaled;
use crate::turn::{Turn, turn};

/// Names the image's directory; without it the default image of this machine is used.
const IMAGE_VARIABLE: &str = "FOREBAY_IMAGE";
/// Names the initramfs layer that holds [`HELPER`].
const LAYER_VARIABLE: &str = "FOREBAY_HELPER_LAYER";

/// The test program in the guest.
pub const HELPER: &str = "/bin/forebay-guest-helper";

/// What a boot may take on hardware.
const BOOT: Duration = Duration::from_secs(10);

/// Console lines that a failing test shows.
const CONSOLE_LINES: usize = 30;

/// The image that tests boot: the default one with the helper on top, if its layer is known.
///
/// # Panics
/// Without an image; the message says how to get one.
#[must_use]
pub fn image() -> Image {
    find_image().unwrap_or_else(|error| panic!("no guest image to test with: {error}"))
}

/// [`image`], if there is one.
pub(crate) fn find_image() -> Result<Image, forebay_images::Error> {
    let image = match std::env::var_os(IMAGE_VARIABLE) {
        Some(directory) => Image::open(directory)?,
        None => Image::default_cached()?,
    };
    match helper_layer() {
        Some(layer) => image.with_layer(layer),
        None => Ok(image),
    }
}

/// The layer that holds [`HELPER`], if the environment names it.
#[must_use]
pub fn helper_layer() -> Option<PathBuf> {
    std::env::var_os(LAYER_VARIABLE).map(PathBuf::from)
}

/// A builder with the test image and a boot deadline that fits this place.
pub fn builder() -> VmBuilder {
    Vm::builder().image(image()).boot_deadline(scaled(BOOT))
}

/// A running VM. When a test panics while it holds one, the end of the guest's console is shown.
#[derive(Debug)]
pub struct TestVm {
    vm: Vm,
    _on_panic: ShowConsole,
}

impl TestVm {
    /// Boots the test image with the library's defaults.
    ///
    /// # Panics
    /// If it does not come up; the message is the library's own.
    pub async fn boot() -> Self {
        Self::start(builder()).await
    }

    /// Boots what the builder describes; see [`builder`].
    ///
    /// # Panics
    /// As [`boot`](Self::boot).
    pub async fn start(builder: VmBuilder) -> Self {
        match builder.start().await {
            Ok(vm) => Self::of(vm),
            Err(error) => panic!(
                "no VM to test with (these tests need a KVM that runs guests; `cargo xtask test` \
                 brings one along): {error}"
            ),
        }
    }

    /// Starts a VM of a template or snapshot.
    ///
    /// # Panics
    /// If it does not come up; the message is the library's own.
    pub async fn restore(restore: Restore) -> Self {
        match restore.renew_deadline(scaled(BOOT)).start().await {
            Ok(vm) => Self::of(vm),
            Err(error) => panic!("the VM was not restored: {error}"),
        }
    }

    fn of(vm: Vm) -> Self {
        Self {
            _on_panic: ShowConsole(Arc::clone(vm.console())),
            vm,
        }
    }

    /// The VM itself, for what consumes one.
    #[must_use]
    pub fn into_inner(self) -> Vm {
        self.vm
    }

    /// Kills the VM and waits until all of it is freed.
    pub async fn close(self) -> StopReason {
        self.vm.close().await
    }
}

impl Deref for TestVm {
    type Target = Vm;

    fn deref(&self) -> &Vm {
        &self.vm
    }
}

/// One VM for the tests of a program: booted by the first that takes it, never dropped. A test has it
/// for itself until it drops this.
#[derive(Debug)]
pub struct SharedVm {
    // Shown at the end of each test that fails; the VM itself outlives all of them.
    _on_panic: ShowConsole,
    vm: &'static TestVm,
    _turn: Turn,
}

impl SharedVm {
    /// Waits for the turn, and boots what `builder` describes if nobody has yet.
    ///
    /// # Panics
    /// As [`TestVm::boot`].
    pub async fn take(
        shared: &'static OnceCell<TestVm>,
        builder: impl FnOnce() -> VmBuilder,
    ) -> Self {
        let turn = turn().await;
        let vm = shared.get_or_init(|| TestVm::start(builder())).await;
        Self {
            _on_panic: ShowConsole(Arc::clone(vm.console())),
            vm,
            _turn: turn,
        }
    }
}

/// Of a guest in which a test failed.
impl Drop for SharedVm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", tell_of_interrupts(|| self.inspect().machine));
        }
    }
}

impl Deref for SharedVm {
    type Target = TestVm;

    fn deref(&self) -> &TestVm {
        self.vm
    }
}

/// How `cargo xtask test` knows a guest that the rig's emulator has broken; its words, too.
const KEEPS_INTERRUPTS_OFF: &str = "a processor of the guest keeps its interrupts off";

/// Whether a processor has its interrupts off at each of many looks. A sound guest has them off for
/// moments.
#[must_use]
pub fn tell_of_interrupts(look: impl Fn() -> MachineView) -> &'static str {
    const LOOKS: u32 = 20;
    let mut off: Vec<bool> = Vec::new();
    for _ in 0..LOOKS {
        let vcpus = look().vcpus;
        off.resize(vcpus.len(), true);
        for (off, vcpu) in off.iter_mut().zip(vcpus) {
            *off &= vcpu.is_some_and(|vcpu| !vcpu.interrupts);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    if off.contains(&true) {
        KEEPS_INTERRUPTS_OFF
    } else {
        "every processor of the guest has its interrupts on, or had"
    }
}

#[derive(Debug)]
struct ShowConsole(Arc<ConsoleLog>);

impl Drop for ShowConsole {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "console of the guest, last lines:\n{}",
                self.0.last_lines(CONSOLE_LINES)
            );
        }
    }
}
