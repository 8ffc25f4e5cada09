//! The system around the program: file systems, kernel modules, loopback.

use std::ffi::CString;
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use anyhow::{Context, Result};
use rustix::fs::CWD;
use rustix::mount::{MountFlags, mount};

/// Source, target, type, options. In this order: later ones lie below earlier ones. `/tmp` and `/run`
/// stay in the root file system, which is memory too, so that packed files can lie there.
const MOUNTS: [(&str, &str, &str, &str); 6] = [
    ("devtmpfs", "/dev", "devtmpfs", ""),
    ("proc", "/proc", "proc", ""),
    ("sysfs", "/sys", "sysfs", ""),
    ("devpts", "/dev/pts", "devpts", "ptmxmode=666"),
    ("tmpfs", "/dev/shm", "tmpfs", "mode=1777"),
    ("cgroup2", "/sys/fs/cgroup", "cgroup2", ""),
];

/// Links that programs expect in `/dev`.
const LINKS: [(&str, &str); 4] = [
    ("/proc/self/fd", "/dev/fd"),
    ("/proc/self/fd/0", "/dev/stdin"),
    ("/proc/self/fd/1", "/dev/stdout"),
    ("/proc/self/fd/2", "/dev/stderr"),
];

/// Mounts the usual file systems.
pub(crate) fn mount_all() -> Result<()> {
    for (source, target, kind, options) in MOUNTS {
        fs::create_dir_all(target).with_context(|| format!("create {target}"))?;
        let options = CString::new(options)?;
        mount(source, target, kind, MountFlags::empty(), &*options)
            .with_context(|| format!("mount {target}"))?;
    }
    for (to, at) in LINKS {
        symlink(to, at).with_context(|| format!("link {at}"))?;
    }
    Ok(())
}

/// Loads kernel modules in the given order.
pub(crate) fn load_modules(paths: &[String]) -> Result<()> {
    for path in paths {
        let module = rustix::fs::openat(
            CWD,
            format!("/{path}").as_str(),
            rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC,
            rustix::fs::Mode::empty(),
        )
        .with_context(|| format!("open /{path}"))?;
        rustix::system::finit_module(module, c"", 0).with_context(|| format!("load /{path}"))?;
    }
    Ok(())
}

/// Brings loopback up; programs that need none do not care if it fails.
pub(crate) fn loopback_up() {
    let up = Command::new("/usr/bin/busybox")
        .args(["ifconfig", "lo", "127.0.0.1", "up"])
        .status();
    if !up.is_ok_and(|status| status.success()) {
        eprintln!("rig init: loopback stays down");
    }
}
