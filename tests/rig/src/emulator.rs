//! Which emulator runs L1.
//!
//! QEMU 7.2 breaks a guest in L1, or L1 itself, about once in some minutes of busy guests; 10.0 does
//! so much more rarely, and most rarely where L1 has one [processor](crate::RigCommand::processors).
//! So where the installed one is older than [`SOUND`], that of the distribution's backports is unpacked
//! in the cache and used in its place, with the libraries that the installed one brought. Where there
//! is none to be had, the installed one does: most of what it breaks is noticed
//! ([`RigOutcome::emulator_at_fault`](crate::RigOutcome::emulator_at_fault)).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use forebay_images::Cache;
use forebay_images::debian::Package;
use forebay_images::progress::Progress;

use crate::assets::CACHE_KIND;
use crate::{Error, Result};

const PROGRAM: &str = "qemu-system-x86_64";
/// The first major version that is taken as it is.
const SOUND: u32 = 10;
/// What is unpacked: the program, its own data, and the firmware.
const PACKAGES: [&str; 3] = ["qemu-system-x86", "qemu-system-data", "seabios"];
/// Where these packages keep data.
const DATA: [&str; 2] = ["usr/share/qemu", "usr/share/seabios"];
/// Counts up when what is in an entry changes.
const ENTRY: &str = "qemu-backport-v1";
/// Says, beside the entries, that none was found.
const SOUGHT: &str = "no-qemu-backport";
const SEEK_AGAIN: Duration = Duration::from_secs(24 * 3600);

/// An emulator that runs on this host.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    path: PathBuf,
    /// Directories of its data, where they are not those it was built with.
    data: Vec<PathBuf>,
}

impl Program {
    /// The one that is installed.
    pub(crate) fn installed() -> Self {
        Self {
            path: PROGRAM.into(),
            data: Vec::new(),
        }
    }

    /// The installed one, or if that is too old the backports'.
    pub(crate) fn get_or_fetch(cache: &Cache, progress: &dyn Progress) -> Result<Self> {
        let installed = Self::installed();
        let Some(version) = installed.version() else {
            // Starting it will fail and say what to install.
            return Ok(installed);
        };
        if version >= SOUND {
            return Ok(installed);
        }
        let unpacked = match cache.get(CACHE_KIND, ENTRY) {
            Some(unpacked) => Ok(unpacked),
            // Looking again each time would cost whoever has none, or no network.
            None if was_sought(cache) => return Ok(installed),
            None => fetch(cache, progress),
        };
        let why = match unpacked.map(|unpacked| Self::below(&unpacked)) {
            Ok(newer) if newer.version() >= Some(SOUND) => return Ok(newer),
            Ok(_) => format!("that of the backports is older than {SOUND} or does not run here"),
            Err(error) => error.to_string(),
        };
        let mark = cache.path(CACHE_KIND, SOUGHT);
        fs::write(&mark, &why).map_err(Error::file("write", &mark))?;
        progress.note(&format!(
            "QEMU {version} now and then breaks guests in the rig, which is noticed and costs time; \
             a newer one was not found: {why}"
        ));
        Ok(installed)
    }

    fn below(unpacked: &Path) -> Self {
        Self {
            path: unpacked.join("usr/bin").join(PROGRAM),
            data: DATA.map(|data| unpacked.join(data)).into(),
        }
    }

    /// To be given arguments.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        for directory in &self.data {
            command.arg("-L").arg(directory);
        }
        command
    }

    /// Its major version, if it runs.
    fn version(&self) -> Option<u32> {
        let said = Command::new(&self.path).arg("--version").output().ok()?;
        major(&String::from_utf8_lossy(&said.stdout))
    }
}

/// Whether none was found, not long ago.
fn was_sought(cache: &Cache) -> bool {
    let mark = fs::metadata(cache.path(CACHE_KIND, SOUGHT));
    let age = mark.and_then(|mark| mark.modified()).map(|at| at.elapsed());
    age.is_ok_and(|age| age.is_ok_and(|age| age < SEEK_AGAIN))
}

fn fetch(cache: &Cache, progress: &dyn Progress) -> Result<PathBuf> {
    let step = progress.step("fetch a newer emulator for the rig", None);
    let mut version = String::new();
    let entry = cache.publish(CACHE_KIND, ENTRY, |target| {
        for name in PACKAGES {
            let package = Package::newest_backport(name, cache)?;
            package.unpack_into(cache, target)?;
            if name == PACKAGES[0] {
                version = package.version;
            }
        }
        Ok::<_, Error>(())
    })?;
    step.finish(&version);
    Ok(entry)
}

/// Of `QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)`, 7.
fn major(said: &str) -> Option<u32> {
    let (_, version) = said.split_once(" version ")?;
    version.split('.').next()?.parse().ok()
}

#[cfg(test)]
#[path = "emulator_test.rs"]
mod tests;
