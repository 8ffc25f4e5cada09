//! Debian packages as files: finding the version on offer, fetching, unpacking beside the system.
//!
//! Nothing here installs anything and nothing needs root, except that package lists that were never
//! fetched are fetched once when we may. Called by the kernel recipe, the default image (busybox)
//! and the test rig (its kernel).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Cache, Error, Result, command};

/// Options for `apt-get` by which it waits ten minutes for another that holds its lock: on a machine
/// that has just started, the one of its daily upgrade often does.
pub const LOCK_PATIENCE: [&str; 2] = ["-o", "DPkg::Lock::Timeout=600"];

/// A package in one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its version, as apt writes it.
    pub version: String,
}

impl Package {
    /// The newest version of a package that apt offers.
    ///
    /// # Errors
    /// [`Error::NoPackage`] if there is none.
    pub fn newest(name: &str) -> Result<Self> {
        versions(name)?
            .into_iter()
            .next()
            .ok_or_else(|| no_package(name))
    }

    /// This exact version if apt offers it, else the newest.
    ///
    /// # Errors
    /// [`Error::NoPackage`] if apt offers none.
    pub fn pinned_or_newest(name: &str, version: &str) -> Result<Self> {
        let offered = versions(name)?;
        let pinned = offered.iter().find(|package| package.version == version);
        pinned
            .or(offered.first())
            .cloned()
            .ok_or_else(|| no_package(name))
    }

    /// The package of the newest name that starts with `prefix` and ends with `suffix`, where the
    /// part between them is a version. For packages whose name holds a version.
    ///
    /// # Errors
    /// [`Error::NoPackage`] if no name fits.
    pub fn newest_named(prefix: &str, suffix: &str) -> Result<Self> {
        with_lists(prefix, || {
            let names = apt(Command::new("apt-cache").args(["pkgnames", prefix]), prefix)?;
            Ok(newest_name(&names, prefix, suffix).map(str::to_owned))
        })?
        .map_or_else(
            || Err(no_package(&format!("{prefix}*{suffix}"))),
            |name| Self::newest(&name),
        )
    }

    /// Fetches the package and unpacks it into a directory, as its files would lie below `/`. The
    /// package file itself is not kept.
    ///
    /// # Errors
    /// [`Error::Command`] or [`Error::Start`] if `apt-get` or `dpkg-deb` fail, [`Error::File`].
    pub fn unpack_into(&self, cache: &Cache, target: &Path) -> Result<()> {
        let scratch = cache.scratch("downloads", &self.name)?;
        let unpacked = self.download(&scratch).and_then(|archive| {
            let mut unpack = Command::new("dpkg-deb");
            apt(unpack.arg("-x").arg(&archive).arg(target), &self.name)
        });
        crate::cache::remove_tree(&scratch)?;
        unpacked.map(drop)
    }

    /// Fetches the package file into an empty directory and returns its path.
    ///
    /// Old package lists name versions that the archive no longer has; as root they are renewed,
    /// and the newest version that they then name is taken.
    fn download(&self, directory: &Path) -> Result<PathBuf> {
        let failed = match self.download_version(directory, &self.version) {
            Err(failed) if rustix::process::geteuid().is_root() => failed,
            done => return done,
        };
        update(&self.name)?;
        match versions(&self.name)?.first() {
            Some(newest) => self.download_version(directory, &newest.version),
            None => Err(failed),
        }
    }

    fn download_version(&self, directory: &Path, version: &str) -> Result<PathBuf> {
        apt(
            Command::new("apt-get")
                .current_dir(directory)
                // As root apt fetches as its own user, which may not write here; said so, it does
                // not warn.
                .args(["-q", "-o", "APT::Sandbox::User=root", "download"])
                .arg(format!("{}={version}", self.name)),
            &self.name,
        )?;
        let listed = fs::read_dir(directory).map_err(Error::file("list", directory))?;
        for entry in listed {
            let path = entry.map_err(Error::file("list", directory))?.path();
            if path.extension().is_some_and(|extension| extension == "deb") {
                return Ok(path);
            }
        }
        Err(no_package(&self.name))
    }
}

/// The versions on offer, newest first.
fn versions(name: &str) -> Result<Vec<Package>> {
    let found = with_lists(name, || {
        let table = apt(Command::new("apt-cache").args(["madison", name]), name)?;
        let packages = parse_madison(&table, name);
        Ok(Some(packages).filter(|packages| !packages.is_empty()))
    })?;
    Ok(found.unwrap_or_default())
}

/// Looks something up; if it is not found, fetches the package lists and looks again. Lists are
/// absent on a fresh machine, and old ones name versions that are gone.
fn with_lists<T>(package: &str, look: impl Fn() -> Result<Option<T>>) -> Result<Option<T>> {
    if let Some(found) = look()? {
        return Ok(Some(found));
    }
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    update(package)?;
    look()
}

/// Fetches the package lists, for the sake of this package.
fn update(package: &str) -> Result<()> {
    let mut update = Command::new("apt-get");
    apt(update.args(LOCK_PATIENCE).args(["-q", "update"]), package).map(drop)
}

/// Runs a program of the package manager's to its end; a system that has none is told apart.
fn apt(program: &mut Command, package: &str) -> Result<String> {
    command::output(program).map_err(|error| match error {
        Error::Start { source, .. } if source.kind() == io::ErrorKind::NotFound => {
            Error::NoPackageManager {
                package: package.to_owned(),
                program: program.get_program().to_string_lossy().into_owned(),
            }
        }
        other => other,
    })
}

/// Reads `apt-cache madison`: lines of `name | version | source`, newest first, sources included.
fn parse_madison(table: &str, name: &str) -> Vec<Package> {
    let mut packages: Vec<Package> = Vec::new();
    for line in table.lines() {
        let mut columns = line.split('|').map(str::trim);
        let (Some(package), Some(version), Some(origin)) =
            (columns.next(), columns.next(), columns.next())
        else {
            continue;
        };
        let known = packages.iter().any(|known| known.version == version);
        if package == name && !origin.ends_with(" Sources") && !known {
            packages.push(Package {
                name: name.to_owned(),
                version: version.to_owned(),
            });
        }
    }
    packages
}

/// Among names, one per line, the one whose middle is the highest version.
fn newest_name<'a>(names: &'a str, prefix: &str, suffix: &str) -> Option<&'a str> {
    names
        .lines()
        .filter_map(|name| {
            let middle = name.strip_prefix(prefix)?.strip_suffix(suffix)?;
            let numbers = middle
                .split(|c: char| !c.is_ascii_digit())
                .filter_map(|number| number.parse::<u64>().ok())
                .collect::<Vec<_>>();
            // A middle without a number is a metapackage: it holds no files.
            (!numbers.is_empty()).then_some((numbers, name))
        })
        .max()
        .map(|(_, name)| name)
}

fn no_package(package: &str) -> Error {
    let hint = if rustix::process::geteuid().is_root() {
        "is its suite in /etc/apt/sources.list?"
    } else {
        "run `apt-get update` as root, and check that its suite is in /etc/apt/sources.list"
    };
    Error::NoPackage {
        package: package.to_owned(),
        hint: hint.to_owned(),
    }
}

#[cfg(test)]
#[path = "debian_test.rs"]
mod tests;
