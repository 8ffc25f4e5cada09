//! The peer: QEMU's `microvm` with a `virtserialport` on a Unix socket, driven with the same
//! kernel, the same initramfs and the same program in the guest as ours.
//!
//! It runs as well as it can for this comparison: KVM, no display, no default devices, no legacy
//! timers and interrupt controllers, a console that goes nowhere. It is a process and pays for a
//! socket hop where a library does not: products are compared, not mechanisms.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::bench::PATIENCE;
use crate::bench::guest::{BareGuest, MEMORY_MIB};
use crate::bench::port::{Port, RECORD};

const PROGRAM: &str = "qemu-system-x86_64";
/// Without whatever this guest does not need: of the variants that boot it, the fastest by counted
/// instructions. Our kernel finds devices by ACPI alone.
const MACHINE: &str = "microvm,acpi=on,pit=off,pic=off,isa-serial=off,ioapic2=off";
const CONNECT_POLL: Duration = Duration::from_millis(1);

/// A running QEMU whose guest has said hello.
pub(crate) struct Peer {
    child: Child,
    port: UnixStream,
    /// From just before QEMU's start to the guest's hello.
    pub(crate) boot: Duration,
    block: Vec<u8>,
    directory: TempDir,
}

impl Peer {
    /// Whether the program is there at all.
    pub(crate) fn check() -> Result<String> {
        let version = Command::new(PROGRAM)
            .arg("--version")
            .output()
            .with_context(|| format!("run {PROGRAM}, which the figures stand beside"))?;
        let text = String::from_utf8_lossy(&version.stdout).into_owned();
        Ok(text.lines().next().unwrap_or_default().to_owned())
    }

    /// Boots the guest and waits for its hello.
    pub(crate) fn boot(guest: &BareGuest) -> Result<Self> {
        let directory = tempfile::tempdir().context("make a directory for QEMU's socket")?;
        let socket = directory.path().join("port");
        // We listen and QEMU connects: no polling in the time measured.
        let listener = UnixListener::bind(&socket).context("listen for QEMU")?;
        let errors = directory.path().join("errors");
        let mut command = command_line(guest, &socket);
        command.stderr(File::create(&errors).context("make a file for QEMU's errors")?);

        let started = Instant::now();
        let child = command
            .spawn()
            .with_context(|| format!("start {PROGRAM}"))?;
        let mut starting = Starting { child: Some(child) };
        let port = starting
            .accept(&listener)
            .with_context(|| said(directory.path()))?;
        port.set_read_timeout(Some(PATIENCE))?;
        port.set_write_timeout(Some(PATIENCE))?;
        let Some(child) = starting.child.take() else {
            bail!("QEMU is gone");
        };
        let mut peer = Self {
            child,
            port,
            boot: Duration::ZERO,
            block: vec![0; 1 << 20],
            directory,
        };
        peer.take(RECORD)?;
        peer.boot = started.elapsed();
        Ok(peer)
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Port for Peer {
    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.port
            .write_all(bytes)
            .with_context(|| said(self.directory.path()))
    }

    fn take(&mut self, bytes: u64) -> Result<()> {
        let mut left = bytes;
        while left > 0 {
            let most = usize::try_from(left).map_or(self.block.len(), |n| n.min(self.block.len()));
            let n = self
                .port
                .read(&mut self.block[..most])
                .with_context(|| said(self.directory.path()))?;
            if n == 0 {
                bail!("{}", said(self.directory.path()));
            }
            left -= n as u64;
        }
        Ok(())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Ends QEMU should it not come up.
struct Starting {
    child: Option<Child>,
}

impl Starting {
    fn accept(&mut self, listener: &UnixListener) -> Result<UnixStream> {
        listener.set_nonblocking(true)?;
        let started = Instant::now();
        loop {
            match listener.accept() {
                Ok((port, _)) => {
                    port.set_nonblocking(false)?;
                    return Ok(port);
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
            if let Some(child) = &mut self.child
                && let Some(status) = child.try_wait()?
            {
                bail!("QEMU ended with {status}");
            }
            if started.elapsed() > PATIENCE {
                bail!("QEMU did not connect within {PATIENCE:?}");
            }
            // QEMU connects long before its guest runs, so this is in no sample.
            std::thread::sleep(CONNECT_POLL);
        }
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            end(child);
        }
    }
}

fn end(child: &mut Child) {
    // Both fail only if it has ended and was waited for already.
    let _ = child.kill();
    let _ = child.wait();
}

/// What QEMU printed, for an error.
fn said(directory: &Path) -> String {
    let text = std::fs::read_to_string(directory.join("errors")).unwrap_or_default();
    let text = text.trim();
    if text.is_empty() {
        "QEMU's guest is silent, and QEMU said nothing".to_owned()
    } else {
        format!("QEMU's guest is silent; QEMU said: {text}")
    }
}

fn command_line(guest: &BareGuest, socket: &Path) -> Command {
    let mut qemu = Command::new(PROGRAM);
    let rtc = if guest.wants_rtc { "on" } else { "off" };
    qemu.arg("-M")
        .arg(format!("{MACHINE},rtc={rtc}"))
        .args(["-accel", "kvm", "-cpu", "host", "-smp", "1"])
        .args(["-m", &MEMORY_MIB.to_string()])
        .args([
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-no-reboot",
        ])
        .args(["-serial", "none", "-monitor", "none"])
        .arg("-kernel")
        .arg(&guest.kernel)
        .arg("-initrd")
        .arg(&guest.initramfs)
        .arg("-append")
        .arg(format!(
            "console=hvc0 quiet panic=-1 8250.nr_uarts=0 noreplace-smp {}",
            guest.words
        ))
        .args(["-device", "virtio-serial-device"])
        .args([
            "-chardev",
            "null,id=console",
            "-device",
            "virtconsole,chardev=console",
        ])
        .arg("-chardev")
        .arg(format!("socket,id=port,path={}", socket.display()))
        .args([
            "-device",
            "virtserialport,chardev=port,name=forebay.agent.0",
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    qemu
}
