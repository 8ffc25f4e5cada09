//! Debian packages as files: finding the version on offer, fetching, unpacking beside the system.
//!
//! Nothing here installs anything and nothing needs root, except that package lists that were never
//! fetched are fetched once when we may. Called by the kernel recipe, the default image (busybox)
//! and the test rig (its kernel and its emulator).

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::Path;
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
    archive: Archive,
}

impl Package {
    /// The newest version of a package that apt offers.
    ///
    /// # Errors
    /// [`Error::NoPackage`] if there is none.
    pub fn newest(name: &str) -> Result<Self> {
        newest_of(&Archive::default(), name)
    }

    /// The newest version in the backports of the system's release, which apt need not have been
    /// told of: the package lists are fetched into `cache` and the system's stay as they are.
    ///
    /// # Errors
    /// [`Error::NoPackage`] if there is none or the release is not to be told, [`Error::Command`] if
    /// the lists cannot be fetched, [`Error::File`].
    pub fn newest_backport(name: &str, cache: &Cache) -> Result<Self> {
        newest_of(&Archive::backports(name, cache)?, name)
    }

    /// This exact version if apt offers it, else the newest.
    ///
    /// # Errors
    /// [`Error::NoPackage`] if apt offers none.
    pub fn pinned_or_newest(name: &str, version: &str) -> Result<Self> {
        let offered = versions(&Archive::default(), name)?;
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
        let archive = Archive::default();
        with_lists(&archive, prefix, || {
            let names = apt(archive.cache_command().args(["pkgnames", prefix]), prefix)?;
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
        self.download(scratch.path())?;
        self.unpack(scratch.path(), target)
    }

    /// As [`unpack_into`](Self::unpack_into), for a package that more than one thing is taken out of:
    /// its file stays in the cache, so that it is fetched once.
    ///
    /// # Errors
    /// As [`unpack_into`](Self::unpack_into).
    pub fn unpack_kept_into(&self, cache: &Cache, target: &Path) -> Result<()> {
        let key = format!("{}_{}", self.name, self.version);
        let kept = cache.get_or_publish("packages", &key, |directory| self.download(directory))?;
        self.unpack(&kept, target)
    }

    /// Unpacks the package file that is in a directory.
    fn unpack(&self, directory: &Path, target: &Path) -> Result<()> {
        let listed = fs::read_dir(directory).map_err(Error::file("list", directory))?;
        for entry in listed {
            let path = entry.map_err(Error::file("list", directory))?.path();
            if path.extension().is_some_and(|extension| extension == "deb") {
                let mut unpack = Command::new("dpkg-deb");
                unpack.arg("-x").arg(&path).arg(target);
                return apt(&mut unpack, &self.name).map(drop);
            }
        }
        Err(no_package(&self.name))
    }

    /// Fetches the package file into an empty directory.
    ///
    /// Old package lists name versions that the archive no longer has; as root they are renewed,
    /// and the newest version that they then name is taken.
    fn download(&self, directory: &Path) -> Result<()> {
        let failed = match self.download_version(directory, &self.version) {
            Err(failed) if self.archive.may_update() => failed,
            done => return done,
        };
        self.archive.update(&self.name)?;
        match versions(&self.archive, &self.name)?.first() {
            Some(newest) => self.download_version(directory, &newest.version),
            None => Err(failed),
        }
    }

    fn download_version(&self, directory: &Path, version: &str) -> Result<()> {
        apt(
            self.archive
                .command()
                .current_dir(directory)
                // As root apt fetches as its own user, which may not write here; said so, it does
                // not warn.
                .args(["-q", "-o", "APT::Sandbox::User=root", "download"])
                .arg(format!("{}={version}", self.name)),
            &self.name,
        )
        .map(drop)
    }
}

/// Where packages are offered.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Archive {
    /// What apt is told beside its configuration; nothing for the system's own archives.
    options: Vec<OsString>,
}

impl Archive {
    /// The backports of the release that `package` belongs to, from the same mirror.
    fn backports(package: &str, cache: &Cache) -> Result<Self> {
        let system = Self::default();
        let origin = with_lists(&system, package, || {
            let policy = apt(system.cache_command().args(["policy", package]), package)?;
            Ok(parse_policy(&policy))
        })?;
        let (mirror, release) = origin.ok_or_else(|| no_package(package))?;
        let directory = cache.path("apt", &format!("{release}-backports"));
        for part in ["lists/partial", "cache/archives/partial"] {
            let part = directory.join(part);
            fs::create_dir_all(&part).map_err(Error::file("create", &part))?;
        }
        let signed = match Path::new(KEYRING).exists() {
            true => format!("[signed-by={KEYRING}] "),
            false => String::new(),
        };
        let sources = directory.join("sources.list");
        fs::write(
            &sources,
            format!("deb {signed}{mirror} {release}-backports main\n"),
        )
        .map_err(Error::file("write", &sources))?;
        let option = |name: &str, path: &Path| {
            let mut option = OsString::from(format!("{name}="));
            option.push(path);
            ["-o".into(), option]
        };
        let options = [
            option("Dir::Etc::SourceList", &sources),
            option("Dir::Etc::SourceParts", Path::new("/dev/null")),
            option("Dir::State::lists", &directory.join("lists")),
            option("Dir::Cache", &directory.join("cache")),
            // As root apt fetches as its own user, which may not write there.
            option("APT::Sandbox::User", Path::new("root")),
        ];
        Ok(Self {
            options: options.into_iter().flatten().collect(),
        })
    }

    fn command(&self) -> Command {
        let mut command = Command::new("apt-get");
        command.args(&self.options);
        command
    }

    fn cache_command(&self) -> Command {
        let mut command = Command::new("apt-cache");
        command.args(&self.options);
        command
    }

    /// Only root may renew the system's lists.
    fn may_update(&self) -> bool {
        !self.options.is_empty() || rustix::process::geteuid().is_root()
    }

    /// Fetches the package lists, for the sake of this package.
    fn update(&self, package: &str) -> Result<()> {
        let mut update = self.command();
        apt(update.args(LOCK_PATIENCE).args(["-q", "update"]), package).map(drop)
    }
}

/// Debian's keys; a system may keep them elsewhere and trust them without being told.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

fn newest_of(archive: &Archive, name: &str) -> Result<Package> {
    versions(archive, name)?
        .into_iter()
        .next()
        .ok_or_else(|| no_package(name))
}

/// The versions on offer, newest first.
fn versions(archive: &Archive, name: &str) -> Result<Vec<Package>> {
    let found = with_lists(archive, name, || {
        let table = apt(archive.cache_command().args(["madison", name]), name)?;
        let packages = parse_madison(&table, name, archive);
        Ok(Some(packages).filter(|packages| !packages.is_empty()))
    })?;
    Ok(found.unwrap_or_default())
}

/// Looks something up; if it is not found, fetches the package lists and looks again. Lists are
/// absent on a fresh machine, and old ones name versions that are gone.
fn with_lists<T>(
    archive: &Archive,
    package: &str,
    look: impl Fn() -> Result<Option<T>>,
) -> Result<Option<T>> {
    if let Some(found) = look()? {
        return Ok(Some(found));
    }
    if !archive.may_update() {
        return Ok(None);
    }
    archive.update(package)?;
    look()
}

/// Reads `apt-cache policy`: the first mirror and release, among lines such as
/// `500 http://deb.debian.org/debian bookworm/main amd64 Packages`.
fn parse_policy(policy: &str) -> Option<(String, String)> {
    policy.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let mirror = words.next().filter(|word| word.contains("://"))?;
        // Others are updates of a release, such as `bookworm-security`, at mirrors of their own.
        let release = words.next()?.strip_suffix("/main")?;
        let whole = !release.contains('-');
        whole.then(|| (mirror.to_owned(), release.to_owned()))
    })
}

/// Where this system's apt finds the main part of Debian's own releases: pairs of mirror and suite.
///
/// # Errors
/// [`Error::NoPackageManager`], [`Error::Command`].
pub(crate) fn offered() -> Result<Vec<(String, String)>> {
    let archive = Archive::default();
    let found = with_lists(&archive, "a Debian root", || {
        let policy = apt(archive.cache_command().arg("policy"), "a Debian root")?;
        Ok(Some(parse_offered(&policy)).filter(|offered| !offered.is_empty()))
    })?;
    Ok(found.unwrap_or_default())
}

/// Reads `apt-cache policy` of the whole system: lines such as
/// `500 http://deb.debian.org/debian bookworm/main amd64 Packages`, each followed by one such as
/// `release v=12,o=Debian,a=oldstable,n=bookworm,l=Debian,c=main,b=amd64`.
fn parse_offered(policy: &str) -> Vec<(String, String)> {
    let mut offered = Vec::new();
    for (line, next) in policy.lines().zip(policy.lines().skip(1)) {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (Some(mirror), Some(part)) = (words.next(), words.next()) else {
            continue;
        };
        let Some(suite) = part
            .strip_suffix("/main")
            .filter(|_| mirror.contains("://"))
        else {
            continue;
        };
        let release = next
            .trim_start()
            .strip_prefix("release ")
            .unwrap_or_default();
        if release.split(',').any(|fact| fact == "o=Debian") {
            offered.push((mirror.to_owned(), suite.to_owned()));
        }
    }
    // The same in every architecture.
    offered.sort();
    offered.dedup();
    offered
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
fn parse_madison(table: &str, name: &str, archive: &Archive) -> Vec<Package> {
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
                archive: archive.clone(),
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
