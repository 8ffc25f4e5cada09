//! Commands that end the guest, and what a program needs as PID 1.

use std::fs;

use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use rustix::system::RebootCommand;

use crate::Outcome;

/// Panics the kernel.
pub(crate) fn crash() -> Outcome {
    fs::write("/proc/sys/kernel/sysrq", "1")?;
    fs::write("/proc/sysrq-trigger", "c")?;
    Err("the kernel lives; is CONFIG_MAGIC_SYSRQ set?".into())
}

/// Resets the CPU by a triple fault: the kernel is told to reboot that way.
pub(crate) fn triple_fault() -> Outcome {
    fs::write("/sys/kernel/reboot/type", "triple")?;
    reboot()
}

/// Powers the guest off at once.
pub(crate) fn power_off() -> Outcome {
    end(RebootCommand::PowerOff)
}

/// Reboots the guest at once.
pub(crate) fn reboot() -> Outcome {
    end(RebootCommand::Restart)
}

fn end(command: RebootCommand) -> Outcome {
    rustix::system::reboot(command)?;
    Err("the kernel did not act on it".into())
}

/// Mounts what the commands need when nobody else has.
pub(crate) fn mount_basics() {
    for (source, target, kind) in [
        ("dev", "/dev", "devtmpfs"),
        ("proc", "/proc", "proc"),
        ("sys", "/sys", "sysfs"),
    ] {
        match mount(source, target, kind, MountFlags::empty(), None) {
            Ok(()) | Err(Errno::BUSY) => {}
            Err(error) => eprintln!("forebay-guest-helper: {kind} on {target}: {error}"),
        }
    }
}

/// Loads the kernel modules that an image lists, as the agent would: of a kernel that has the port's
/// drivers as modules there is no port before.
pub(crate) fn load_modules() {
    // Most images list none.
    let list = fs::read_to_string("/etc/forebay/modules").unwrap_or_default();
    for path in list.lines() {
        let loaded =
            fs::File::open(path).and_then(|file| Ok(rustix::system::finit_module(&file, c"", 0)?));
        if let Err(error) = loaded {
            eprintln!("forebay-guest-helper: module {path}: {error}");
        }
    }
}
