//! Finding a virtio-serial port by its name.

use std::fs::{self, File};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

const CLASS: &str = "/sys/class/virtio-ports";
/// The driver binds and names ports after init has started.
const DEADLINE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

/// Opens a port for reading and writing.
pub(crate) fn open(name: &str) -> Result<File> {
    let started = Instant::now();
    loop {
        if let Some(device) = find(name) {
            let path = format!("/dev/{device}");
            return File::options()
                .read(true)
                .write(true)
                .open(&path)
                .with_context(|| format!("open {path} ({name})"));
        }
        if started.elapsed() > DEADLINE {
            bail!("no virtio-serial port is named {name}");
        }
        thread::sleep(POLL);
    }
}

/// The device whose name file says so. A device can be there before its name.
fn find(name: &str) -> Option<String> {
    fs::read_dir(CLASS)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
        .find(|device| {
            fs::read_to_string(format!("{CLASS}/{device}/name"))
                .is_ok_and(|found| found.trim() == name)
        })
}
