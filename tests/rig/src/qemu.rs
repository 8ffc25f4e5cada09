//! The emulator: its command line, its process, and the sockets behind L1's ports.

use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::order::port;
use crate::{Assets, Clock, Error, Result, RigCommand, ends_with_us};

/// How long the emulator may take to connect its ports; it does so before it starts L1.
const CONNECT_DEADLINE: Duration = Duration::from_secs(60);
const CONNECT_POLL: Duration = Duration::from_millis(5);

/// L1's kernel panics if no timer interrupt came within a few of its moments at boot, which a host
/// with much to do makes happen; so it does not look.
const COMMAND_LINE: &str = "console=ttyS0 quiet panic=-1 oops=panic no_timer_check";

/// A running emulator. Dropping it kills it and waits for its end; so does the end of the thread
/// that started it, but for the waiting.
#[derive(Debug)]
pub(crate) struct Emulator {
    child: Child,
}

/// The host's ends of everything that comes out of the emulator or goes into it.
#[derive(Debug)]
pub(crate) struct Ends {
    /// L1's serial console.
    pub(crate) console: ChildStdout,
    /// The emulator's own complaints.
    pub(crate) complaints: ChildStderr,
    pub(crate) control: UnixStream,
    pub(crate) stdin: UnixStream,
    pub(crate) stdout: UnixStream,
    pub(crate) stderr: UnixStream,
    pub(crate) files: UnixStream,
}

impl Emulator {
    /// Starts L1. `directory` is an empty one for the sockets.
    pub(crate) fn start(
        command: &RigCommand,
        assets: &Assets,
        initramfs: &Path,
        directory: &Path,
    ) -> Result<(Self, Ends)> {
        let listeners = port::ALL
            .iter()
            .map(|name| {
                let path = directory.join(name);
                let listener = UnixListener::bind(&path).map_err(Error::file("bind", &path))?;
                listener
                    .set_nonblocking(true)
                    .map_err(Error::file("set up", &path))?;
                Ok(listener)
            })
            .collect::<Result<Vec<_>>>()?;
        let mut emulator = command_line(command, assets, initramfs, directory);
        ends_with_us(&mut emulator);
        let mut child = emulator
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|source| Error::NoEmulator { source })?;
        let (console, complaints) = (child.stdout.take(), child.stderr.take());
        let mut emulator = Self { child };
        let mut streams = Vec::with_capacity(listeners.len());
        let started = Instant::now();
        for (listener, name) in listeners.iter().zip(port::ALL) {
            let stream = emulator.accept(listener, started);
            streams.push(stream.map_err(Error::file("connect port", Path::new(name)))?);
        }
        let streams: Result<[UnixStream; port::ALL.len()], _> = streams.try_into();
        let (Ok([control, stdin, stdout, stderr, files]), Some(console), Some(complaints)) =
            (streams, console, complaints)
        else {
            // Not reached: as many streams as listeners, and both pipes were asked for.
            let source = io::Error::other("a port or pipe is missing");
            return Err(Error::NoEmulator { source });
        };
        let ends = Ends {
            console,
            complaints,
            control,
            stdin,
            stdout,
            stderr,
            files,
        };
        Ok((emulator, ends))
    }

    /// How the emulator ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<String> {
        match self.child.try_wait() {
            Ok(None) => None,
            Ok(Some(status)) => Some(format!("the emulator's {status}")),
            Err(error) => Some(format!("the emulator is lost: {error}")),
        }
    }

    fn accept(&mut self, listener: &UnixListener, started: Instant) -> io::Result<UnixStream> {
        loop {
            match listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false)?;
                    return Ok(stream);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            if let Some(status) = self.ended() {
                let mut said = String::new();
                if let Some(mut stderr) = self.child.stderr.take() {
                    io::Read::read_to_string(&mut stderr, &mut said)?;
                }
                return Err(io::Error::other(format!("{status}: {}", said.trim())));
            }
            if started.elapsed() > CONNECT_DEADLINE {
                return Err(io::ErrorKind::TimedOut.into());
            }
            std::thread::sleep(CONNECT_POLL);
        }
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        // Both fail only if it has ended and was waited for already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command_line(
    command: &RigCommand,
    assets: &Assets,
    initramfs: &Path,
    directory: &Path,
) -> Command {
    let mut qemu = assets.emulator.command();
    match command.clock {
        Clock::Wall => qemu
            .args(["-accel", "tcg,thread=multi", "-smp"])
            .arg(command.processors.to_string()),
        Clock::Instructions => qemu
            .args(["-accel", "tcg,thread=single", "-smp", "1"])
            .args(["-icount", "shift=0,sleep=off"]),
    };
    qemu.args(["-cpu", "EPYC,+svm,+npt", "-machine", "q35"])
        .arg("-m")
        .arg(format!("{}M", command.memory_mib))
        .args(["-nodefaults", "-no-user-config", "-display", "none"])
        // A panic reboots at once, and a reboot ends the emulator: found without a deadline.
        .arg("-no-reboot")
        .args(["-serial", "stdio", "-monitor", "none"])
        .arg("-kernel")
        .arg(&assets.kernel)
        .arg("-initrd")
        .arg(initramfs)
        .args(["-append", COMMAND_LINE])
        .args(["-device", "virtio-serial-pci"]);
    for name in port::ALL {
        let path = directory.join(name);
        qemu.arg("-chardev")
            .arg(format!("socket,id={name},path={}", path.display()))
            .arg("-device")
            .arg(format!("virtserialport,chardev={name},name={name}"));
    }
    qemu
}
