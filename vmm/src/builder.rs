//! What a VM is to be, checked as a whole before anything is created.

mod origin;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use forebay_exec::{AttachSocket, Hub, Limits};
use forebay_images::Image;
use forebay_virtio_console::Gate;

use crate::agent::{AgentSide, GateAlone, NoAgent};
use crate::boot::cmdline::CommandLine;
use crate::console_log::{ConsoleLog, Tap};
use crate::cpu_template::CpuTemplate;
use crate::error::{StartError, UsageError};
use crate::exec_spec::{ExecSpec, refused_config};
use crate::machine::{Machine, MachineSpec};
use crate::memory::Backing;
use crate::vm::Vm;

use origin::ImageV1;
pub(crate) use origin::OriginV1;

/// Least guest memory, in MiB.
pub const MEMORY_MIB_MIN: u32 = 64;
/// Memory of a VM that asks for none, in MiB.
pub(crate) const MEMORY_MIB_DEFAULT: u32 = 256;
/// Most guest memory, in MiB: 1 TiB.
pub const MEMORY_MIB_MAX: u32 = 1 << 20;
/// Most vCPUs; a host's KVM may allow fewer. Processor ids from 255 on would need another
/// description in the tables.
pub const CPUS_MAX: u8 = 254;
/// Least console output to keep, in bytes: enough for the end of a boot that failed.
pub const CONSOLE_CAPACITY_MIN: usize = 4 << 10;
/// Most console output to keep, in bytes.
pub const CONSOLE_CAPACITY_MAX: usize = 64 << 20;
/// Longest time a boot may be given.
pub const BOOT_DEADLINE_MAX: Duration = Duration::from_secs(3600);

/// A VM to be started.
///
/// | value | default |
/// |---|---|
/// | [`image`](Self::image), or [`kernel`](Self::kernel) and [`initramfs`](Self::initramfs) | the default image in the cache |
/// | [`cpus`](Self::cpus) | 1 |
/// | [`memory_mib`](Self::memory_mib) | 256 |
/// | [`forkable`](Self::forkable) | no |
/// | [`huge_pages`](Self::huge_pages) | no |
/// | [`cpu_template`](Self::cpu_template) | all that the host has |
/// | [`boot_deadline`](Self::boot_deadline) | 30 s |
/// | [`hostname`](Self::hostname) | what the image has |
/// | [`env`](Self::env), [`current_dir`](Self::current_dir) | what the image says, else what the agent has |
/// | [`exec_limits`](Self::exec_limits) | see [`Limits`] |
/// | [`exec_memory_limit`](Self::exec_memory_limit), [`exec_process_limit`](Self::exec_process_limit), [`exec_cpu_limit`](Self::exec_cpu_limit) | none |
/// | [`exec_cpu_weight`](Self::exec_cpu_weight) | 100 |
/// | [`allow_legacy_guest`](Self::allow_legacy_guest) | no |
/// | [`attach_socket`](Self::attach_socket) | none |
/// | [`console_capacity`](Self::console_capacity) | 64 KiB |
#[must_use = "a builder does nothing until it is started"]
pub struct VmBuilder {
    image: Option<Image>,
    kernel: Option<PathBuf>,
    initramfs: Vec<PathBuf>,
    cmdline: Vec<String>,
    cpus: u8,
    memory_mib: u32,
    forkable: bool,
    huge_pages: bool,
    cpu_template: CpuTemplate,
    boot_deadline: Duration,
    console_capacity: usize,
    console_tap: Option<Tap>,
    attach_socket: Option<PathBuf>,
    exec: ExecSpec,
    /// As whom commands run that name no user, if it is not the agent: an image says so.
    user: Option<String>,
    /// The image that was taken apart.
    image_was: Option<ImageV1>,
    /// It describes a VM that was saved.
    saved: bool,
}

impl Default for VmBuilder {
    fn default() -> Self {
        Self {
            image: None,
            kernel: None,
            initramfs: Vec::new(),
            cmdline: Vec::new(),
            cpus: 1,
            memory_mib: MEMORY_MIB_DEFAULT,
            forkable: false,
            huge_pages: false,
            cpu_template: CpuTemplate::host(),
            boot_deadline: Duration::from_secs(30),
            console_capacity: ConsoleLog::DEFAULT_CAPACITY,
            console_tap: None,
            attach_socket: None,
            exec: ExecSpec::default(),
            user: None,
            image_was: None,
            saved: false,
        }
    }
}

impl VmBuilder {
    /// Kernel, initramfs and command line from an image. What is given beside it by the other
    /// methods replaces the image's kernel, or is added after its initramfs layers and words.
    ///
    /// An image that says how its commands run ([`Image::config`]) gives the default of
    /// [`env`](Self::env) and [`current_dir`](Self::current_dir), and of the
    /// [user](crate::Exec::user), for commands of attached clients too. Its own command line is
    /// [`Image::command`], and is run only by whoever asks for it.
    pub fn image(mut self, image: Image) -> Self {
        self.image = Some(image);
        self
    }

    /// The kernel: an uncompressed `vmlinux` with a PVH entry point, or a `bzImage` of Linux 3.8 or
    /// newer (`vmlinuz`), as distributions have it. Which of the two is found by looking at the file.
    /// A `vmlinux` starts faster, since nothing has to be decompressed in the guest.
    pub fn kernel(mut self, path: impl Into<PathBuf>) -> Self {
        self.kernel = Some(path.into());
        self
    }

    /// One more initramfs layer, unpacked over those before it.
    pub fn initramfs(mut self, path: impl Into<PathBuf>) -> Self {
        self.initramfs.push(path.into());
        self
    }

    /// More words for the kernel's command line, separated by blanks. They come last, so they win
    /// over the ones that are always there.
    pub fn cmdline(mut self, words: impl Into<String>) -> Self {
        self.cmdline.push(words.into());
        self
    }

    /// Number of vCPUs: 1 to [`CPUS_MAX`] or the host's KVM maximum.
    pub fn cpus(mut self, count: u8) -> Self {
        self.cpus = count;
        self
    }

    /// Guest memory in MiB: [`MEMORY_MIB_MIN`] to [`MEMORY_MIB_MAX`]. The host gives a page of it
    /// only when it is used.
    pub fn memory_mib(mut self, mib: u32) -> Self {
        self.memory_mib = mib;
        self
    }

    /// Whether copies of the VM will be made while it runs, by [`Vm::template`](crate::Vm::template)
    /// or [`Vm::snapshot`](crate::Vm::snapshot). Its memory is then such that the first one copies
    /// nothing while the guest stands still; without this every page that is not zero is copied. In
    /// return memory is a little slower to touch: a host gives huge pages to such memory only where
    /// `/sys/kernel/mm/transparent_hugepage/shmem_enabled` says so.
    pub fn forkable(mut self, forkable: bool) -> Self {
        self.forkable = forkable;
        self
    }

    /// Whether all of the guest's memory comes out of the host's pool of 2 MiB pages
    /// (`vm.nr_hugepages`), set aside when the VM is made: a start that finds too few fails and says
    /// how many are needed. The guest's accesses are fastest so. Every copy of the VM, which then has
    /// pages of the common size, copies what is not zero; so it cannot be
    /// [`forkable`](Self::forkable).
    pub fn huge_pages(mut self, huge_pages: bool) -> Self {
        self.huge_pages = huge_pages;
        self
    }

    /// Which of the host processor's features the guest is shown.
    pub fn cpu_template(mut self, template: CpuTemplate) -> Self {
        self.cpu_template = template;
        self
    }

    /// How long the boot may take until the agent is ready: more than zero and at most
    /// [`BOOT_DEADLINE_MAX`].
    pub fn boot_deadline(mut self, limit: Duration) -> Self {
        self.boot_deadline = limit;
        self
    }

    /// How much of the console's output is kept, in bytes, the newest: [`CONSOLE_CAPACITY_MIN`] to
    /// [`CONSOLE_CAPACITY_MAX`].
    pub fn console_capacity(mut self, bytes: usize) -> Self {
        self.console_capacity = bytes;
        self
    }

    /// Shows the console's output to `tap` as it comes. The guest stands still meanwhile: `tap` must
    /// not block.
    pub fn console_tap(mut self, tap: impl Fn(&[u8]) + Send + Sync + 'static) -> Self {
        self.console_tap = Some(Box::new(tap));
        self
    }

    /// The guest's hostname: letters, digits, `-` and `.`, at most 64 bytes.
    pub fn hostname(mut self, name: impl Into<String>) -> Self {
        self.exec.hostname = Some(name.into());
        self
    }

    /// A variable in the environment that every command starts from. Given twice, the last value
    /// counts.
    pub fn env(mut self, key: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.exec
            .env
            .push((key.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// The working directory of commands that name none; an absolute path in the guest.
    pub fn current_dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.exec.current_dir = Some(path.into());
        self
    }

    /// What the executions of this VM may hold outstanding.
    pub fn exec_limits(mut self, limits: Limits) -> Self {
        self.exec.limits = limits;
        self
    }

    /// Most memory that each execution may hold, in bytes, where its request does not say: see
    /// [`Exec::memory_limit`](crate::Exec::memory_limit) for what counts and for the bounds. As the
    /// following three, it holds for the executions of attached clients too.
    pub fn exec_memory_limit(mut self, bytes: u64) -> Self {
        self.exec.group.memory_limit = Some(bytes);
        self
    }

    /// Most processes and threads of each execution, where its request does not say: see
    /// [`Exec::process_limit`](crate::Exec::process_limit).
    pub fn exec_process_limit(mut self, most: u32) -> Self {
        self.exec.group.process_limit = Some(most);
        self
    }

    /// Each execution's share of contended CPUs, where its request does not say: see
    /// [`Exec::cpu_weight`](crate::Exec::cpu_weight).
    pub fn exec_cpu_weight(mut self, weight: u16) -> Self {
        self.exec.group.cpu_weight = Some(weight);
        self
    }

    /// Most CPU time of each execution, in CPUs, where its request does not say: see
    /// [`Exec::cpu_limit`](crate::Exec::cpu_limit).
    pub fn exec_cpu_limit(mut self, cpus: f64) -> Self {
        self.exec.group.cpu_limit = Some(cpus);
        self
    }

    /// Takes a guest whose agent is too old to keep any limits: one that names none when it becomes
    /// ready. Without this the start fails, since leaving the limits out must not be a way around
    /// them. Such a VM is warned of once, in the log, and claims no bound:
    ///
    /// * stdin goes to the guest as fast as the channel takes it, and lies there unbounded;
    /// * a slow reader does not slow its command. The host's own memory stays bounded: an execution
    ///   of which more than `output_limit` is unread fails, with stage `protocol`, and is killed;
    /// * data goes in chunks of 4 KiB at most;
    /// * a command that [requires bounds](crate::Exec::require_bounds) is refused, and so is every
    ///   one of an attached client, which was promised them.
    pub fn allow_legacy_guest(mut self, allow: bool) -> Self {
        self.exec.allow_legacy_guest = allow;
        self
    }

    /// A Unix socket by which other processes of the same user run commands in this VM, with
    /// [`Client::connect`](crate::Client::connect): at most 107 bytes long, in a directory that
    /// only the user can write to. It is made before the guest boots, with mode 0600, and whoever
    /// connects waits until the agent is ready; it is removed with the VM. A socket that is there
    /// already is replaced if nobody listens on it. Beside it a file of the same name with `.lock`
    /// behind it says that the path is in use, as long as the VM lives; one that a program left
    /// behind when it died is in nobody's way.
    pub fn attach_socket(mut self, path: impl Into<PathBuf>) -> Self {
        self.attach_socket = Some(path.into());
        self
    }

    /// Starts the VM and waits until the agent in the guest takes commands. Dropping the future
    /// kills the VM.
    ///
    /// # Errors
    /// As [`StartError`] says; nothing is left behind.
    pub async fn start(self) -> Result<Vm, StartError> {
        Vm::start(self).await
    }

    /// Starts it without executions, for a guest that is only to be booted: whatever its init is.
    /// There is no boot deadline, and what the guest says on the agent's port is thrown away.
    ///
    /// # Errors
    /// As [`StartError`] says; nothing is left behind.
    pub fn start_machine(self) -> Result<Machine, StartError> {
        self.start_alone(Arc::new(NoAgent))
    }

    /// As [`start_machine`](Self::start_machine), with `gate` at the host's end of the agent's port.
    /// Whoever puts something up for the guest has to call [`Machine::transmit`] afterwards.
    ///
    /// # Errors
    /// As [`StartError`] says; nothing is left behind.
    pub fn start_machine_with(self, gate: Arc<dyn Gate>) -> Result<Machine, StartError> {
        self.start_alone(Arc::new(GateAlone(gate)))
    }

    /// Without a boot deadline: nobody will say when the guest is ready.
    fn start_alone(mut self, agent: Arc<dyn AgentSide>) -> Result<Machine, StartError> {
        if let Some(path) = self.attach_socket.take() {
            let bound = "a machine without executions has nothing to attach to";
            return Err(UsageError::new("attach_socket", path.display(), bound).into());
        }
        let spec = MachineSpec {
            boot_limit: None,
            ..self.spec()?
        };
        Machine::start(spec, agent)
    }

    /// Starts the machine with `agent` at the host's end of its port; with it, what it was booted from.
    pub(crate) fn start_with(
        mut self,
        agent: Arc<dyn AgentSide>,
    ) -> Result<(Machine, OriginV1), StartError> {
        let spec = self.spec()?;
        let origin = self.origin();
        Ok((Machine::start(spec, agent)?, origin))
    }

    /// The hub for its executions, with everything about them checked.
    pub(crate) fn hub(&mut self) -> Result<Arc<Hub>, StartError> {
        self.take_image_apart()?;
        Ok(Hub::new(self.exec.config()?).map_err(refused_config)?)
    }

    /// The socket for other processes, made and listening, with everything else checked.
    pub(crate) fn bind(&self) -> Result<Option<AttachSocket>, StartError> {
        self.check()?;
        let socket = self.attach_socket.as_deref().map(AttachSocket::bind);
        Ok(socket.transpose()?)
    }

    /// Checks everything about the machine.
    pub(crate) fn spec(&mut self) -> Result<MachineSpec, StartError> {
        self.take_image_apart()?;
        Ok(MachineSpec {
            kernel: self.kernel.clone().unwrap_or_default(),
            initramfs: self.initramfs.clone(),
            cmdline: CommandLine::new(self.cmdline.iter().map(String::as_str))?,
            cpus: self.cpus,
            memory_mib: self.memory_mib,
            backing: match (self.forkable, self.huge_pages) {
                (true, _) => Backing::Shareable,
                (false, true) => Backing::HugePages,
                (false, false) => Backing::Anonymous,
            },
            cpu_template: self.cpu_template.clone(),
            console: ConsoleLog::with_tap(self.console_capacity, self.console_tap.take()),
            boot_limit: Some(self.boot_deadline),
        })
    }

    /// Checks everything, and puts what an image says beside what was said by the other methods. Done
    /// before anything is made of it; once more does nothing.
    fn take_image_apart(&mut self) -> Result<(), StartError> {
        self.check()?;
        let image = match (self.image.take(), &self.kernel) {
            (Some(image), _) => image,
            (None, Some(_)) => return Ok(()),
            (None, None) => Image::default_cached()?,
        };
        let was = ImageV1::of(&image);
        was.check_memory(self.memory_mib)?;
        self.image_was = Some(was);
        self.cmdline.insert(0, image.cmdline().to_owned());
        self.initramfs
            .splice(0..0, image.initramfs().iter().cloned());
        self.kernel.get_or_insert_with(|| image.kernel().to_owned());
        self.exec = self.exec.over(image.config());
        self.user = image.config().user.clone();
        Ok(())
    }

    fn check(&self) -> Result<(), UsageError> {
        if !(1..=CPUS_MAX).contains(&self.cpus) {
            return Err(UsageError::new(
                "cpus",
                self.cpus,
                format!("1 to {CPUS_MAX} are possible"),
            ));
        }
        if !(MEMORY_MIB_MIN..=MEMORY_MIB_MAX).contains(&self.memory_mib) {
            return Err(UsageError::new(
                "memory_mib",
                self.memory_mib,
                format!("{MEMORY_MIB_MIN} to {MEMORY_MIB_MAX} MiB are possible"),
            ));
        }
        if self.huge_pages && self.forkable {
            let bound = "either this or forkable: huge pages of the pool cannot be shared";
            return Err(UsageError::new("huge_pages", true, bound));
        }
        self.cpu_template.check()?;
        if self.huge_pages && !self.memory_mib.is_multiple_of(2) {
            let bound = "an even number of MiB, with huge_pages";
            return Err(UsageError::new("memory_mib", self.memory_mib, bound));
        }
        check_deadline("boot_deadline", self.boot_deadline)?;
        check_console(self.console_capacity)?;
        if let Some(path) = &self.attach_socket {
            check_socket(path)?;
        }
        if let (true, Some(image)) = (self.saved, &self.image) {
            let bound = "a VM like one that was saved has that one's image; \
                         for another begin with Vm::builder()";
            return Err(UsageError::new("image", image.name(), bound));
        }
        if let Some(image) = &self.image_was {
            image.check_memory(self.memory_mib)?;
        }
        // Whether the words are such as a kernel takes; their length is checked with the image's.
        CommandLine::new(self.cmdline.iter().map(String::as_str))?;
        Ok(())
    }
}

pub(crate) fn check_deadline(field: &'static str, limit: Duration) -> Result<(), UsageError> {
    if limit.is_zero() || limit > BOOT_DEADLINE_MAX {
        return Err(UsageError::new(
            field,
            format!("{limit:?}"),
            format!("more than zero and at most {BOOT_DEADLINE_MAX:?}"),
        ));
    }
    Ok(())
}

pub(crate) fn check_console(capacity: usize) -> Result<(), UsageError> {
    if !(CONSOLE_CAPACITY_MIN..=CONSOLE_CAPACITY_MAX).contains(&capacity) {
        return Err(UsageError::new(
            "console_capacity",
            capacity,
            format!("{CONSOLE_CAPACITY_MIN} to {CONSOLE_CAPACITY_MAX} bytes are possible"),
        ));
    }
    Ok(())
}

pub(crate) fn check_socket(path: &Path) -> Result<(), UsageError> {
    AttachSocket::check(path).map_err(|_| {
        let most = AttachSocket::PATH_MAX;
        let bound = format!("1 to {most} bytes without NUL are possible; use a shorter directory");
        UsageError::new("attach_socket", path.display(), bound)
    })
}

impl std::fmt::Debug for VmBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VmBuilder")
            .field("image", &self.image)
            .field("kernel", &self.kernel)
            .field("initramfs", &self.initramfs)
            .field("cmdline", &self.cmdline)
            .field("cpus", &self.cpus)
            .field("memory_mib", &self.memory_mib)
            .field("forkable", &self.forkable)
            .field("huge_pages", &self.huge_pages)
            .field("cpu_template", &self.cpu_template)
            .field("boot_deadline", &self.boot_deadline)
            .field("attach_socket", &self.attach_socket)
            .field("exec", &self.exec)
            .field("user", &self.user)
            .field("image_was", &self.image_was)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "builder_test.rs"]
mod tests;
