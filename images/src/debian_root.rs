//! A Debian root file system, made by the distribution's own `mmdebstrap` from the archive that this
//! host's apt uses.
//!
//! mmdebstrap installs into a directory of its own, as root in a `chroot`, as anybody else in a user
//! namespace, and gives the result as a tar archive that is the same bytes for the same packages. It
//! is run from its package, unpacked in the cache, where it is not installed.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::builder::add_file;
use crate::debian::{self, Package};
use crate::default_image::HOSTS;
use crate::progress::Progress;
use crate::tree::{Refused, Tree};
use crate::{Cache, Error, Result, command};

const TOOL: &str = "mmdebstrap";
/// Lines that it prints, about.
const TOOL_LINES: u64 = 14;
/// What nobody reads in a guest: of documentation the copyrights stay.
const LEFT_OUT: [&[u8]; 4] = [
    b"usr/share/doc",
    b"usr/share/info",
    b"usr/share/locale",
    b"usr/share/man",
];

/// A release of Debian, with apt, and packages beside the essential ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DebianRoot {
    suite: String,
    include: Vec<String>,
    mirror: Option<String>,
}

impl DebianRoot {
    /// Of a release, such as `bookworm`.
    ///
    /// # Errors
    /// [`Error::DebianName`] if it cannot be a release's name.
    pub fn new(suite: impl Into<String>) -> Result<Self> {
        let suite = suite.into();
        check("release", &suite, b"")?;
        Ok(Self {
            suite,
            include: Vec::new(),
            mirror: None,
        })
    }

    /// With a package and what it depends on.
    ///
    /// # Errors
    /// [`Error::DebianName`] if it cannot be a package's name.
    pub fn with_package(mut self, name: impl Into<String>) -> Result<Self> {
        let name = name.into();
        // With an architecture or a version, as apt takes them.
        check("package", &name, b":=~_")?;
        self.include.push(name);
        Ok(self)
    }

    /// From this archive, as `http://snapshot.debian.org/archive/debian/20260101T000000Z`, which
    /// holds the same packages for ever. Otherwise it is the one that this host's apt uses.
    ///
    /// # Errors
    /// [`Error::DebianName`] if it cannot be an archive's address.
    pub fn with_mirror(mut self, address: impl Into<String>) -> Result<Self> {
        let address = address.into();
        check("archive", &address, b":/_~%")?;
        self.mirror = Some(address);
        Ok(self)
    }

    /// Makes the root as a tar archive, with no time in it after `newest`; says what it is made of.
    pub(crate) fn make(
        &self,
        cache: &Cache,
        archive: &Path,
        newest: u32,
        progress: &dyn Progress,
    ) -> Result<BTreeMap<String, String>> {
        let sources = self.sources()?;
        let mut tool = tool(cache, progress)?;
        tool.env("SOURCE_DATE_EPOCH", newest.to_string())
            .env("LC_ALL", "C.UTF-8")
            .args(["--variant=apt", "--format=tar"]);
        if !self.include.is_empty() {
            tool.arg(format!("--include={}", self.include.join(",")));
        }
        tool.arg(&self.suite).arg(archive).args(&sources);
        let title = format!("make a Debian {} root", self.suite);
        let mut step = progress.step(&title, Some(TOOL_LINES));
        let mut done = 0;
        command::lines(&mut tool, |_| {
            done += 1;
            step.advance(done);
        })?;
        step.finish("done");
        let facts = [
            ("debian.suite", self.suite.clone()),
            ("debian.include", self.include.join(",")),
            ("debian.sources", sources.join("; ")),
        ];
        Ok(facts.map(|(name, value)| (name.to_owned(), value)).into())
    }

    /// Takes away what is this host's and not the release's, and what nobody reads; adds what a
    /// guest's network needs. (dpkg could leave out as much, but mmdebstrap needs Python for that.)
    pub(crate) fn settle(&self, tree: &mut Tree) -> Result<(), Refused> {
        for of_host in [&b"etc/resolv.conf"[..], b"etc/hostname", b"etc/hosts"] {
            tree.remove(of_host);
        }
        for place in LEFT_OUT {
            tree.remove_files(place, |path| !path.ends_with(b"/copyright"));
        }
        add_file(tree, b"etc/hostname", "microvm\n")?;
        add_file(tree, b"etc/hosts", HOSTS)
    }

    /// Lines of a `sources.list`.
    fn sources(&self) -> Result<Vec<String>> {
        let line = |mirror: &str, suite: &str| format!("deb {mirror} {suite} main");
        if let Some(mirror) = &self.mirror {
            return Ok(vec![line(mirror, &self.suite)]);
        }
        let offered = debian::offered()?;
        let of_suite = |suite: &str| {
            let rest = suite.strip_prefix(&self.suite);
            matches!(rest, Some("" | "-updates" | "-security"))
        };
        let lines: Vec<_> = offered
            .iter()
            .filter(|(_, suite)| of_suite(suite))
            .map(|(mirror, suite)| line(mirror, suite))
            .collect();
        if lines
            .iter()
            .any(|known| known.split(' ').nth(2) == Some(&self.suite))
        {
            return Ok(lines);
        }
        // Another release than the host's, from where the host's comes from; where that is not to be
        // told, mmdebstrap has its own idea.
        let whole = offered.iter().find(|(_, suite)| !suite.contains('-'));
        Ok(whole
            .iter()
            .map(|(mirror, _)| line(mirror, &self.suite))
            .collect())
    }
}

/// The installed tool, or the one of its package.
fn tool(cache: &Cache, progress: &dyn Progress) -> Result<Command> {
    if Path::new("/usr/bin/mmdebstrap").exists() {
        return Ok(Command::new(TOOL));
    }
    let unpacked = unpacked(cache, TOOL, progress, || Ok(vec![Package::newest(TOOL)?]))?;
    let mut tool = Command::new("perl");
    if command::output(Command::new("perl").args(["-MPod::Usage", "-MTime::HiRes", "-e", "1"]))
        .is_err()
    {
        // Every Debian has perl, but a small one not its library.
        let library = unpacked_library(cache, progress)?;
        tool.env("PERL5LIB", library);
    }
    tool.arg(unpacked.join("usr/bin/mmdebstrap"));
    Ok(tool)
}

fn unpacked_library(cache: &Cache, progress: &dyn Progress) -> Result<OsString> {
    let version = command::output(Command::new("perl").args(["-e", "printf '%vd', $^V"]))?;
    let version: Vec<_> = version.split('.').take(2).collect();
    let version = version.join(".");
    let unpacked = unpacked(cache, &format!("perl-library-{version}"), progress, || {
        Ok(vec![
            Package::newest(&format!("perl-modules-{version}"))?,
            Package::newest(&format!("libperl{version}"))?,
        ])
    })?;
    let directories = [
        unpacked.join("usr/share/perl").join(&version),
        unpacked
            .join("usr/lib/x86_64-linux-gnu/perl")
            .join(&version),
    ];
    std::env::join_paths(directories)
        .map_err(|error| Error::file("use", cache.root())(std::io::Error::other(error)))
}

/// Packages, unpacked side by side in the cache.
fn unpacked(
    cache: &Cache,
    key: &str,
    progress: &dyn Progress,
    packages: impl FnOnce() -> Result<Vec<Package>>,
) -> Result<PathBuf> {
    if let Some(kept) = cache.get("packages", key) {
        return Ok(kept);
    }
    let step = progress.step(&format!("fetch {key}"), None);
    let packages = packages()?;
    let entry = cache.publish("packages", key, |target| {
        packages
            .iter()
            .try_for_each(|package| package.unpack_into(cache, target))
    })?;
    step.finish("done");
    Ok(entry)
}

/// Words that end up on command lines and in lists of apt's.
fn check(what: &'static str, text: &str, more: &[u8]) -> Result<()> {
    let allowed =
        |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte) || more.contains(&byte);
    let begins = text
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_alphanumeric());
    if begins && text.bytes().all(allowed) {
        return Ok(());
    }
    Err(Error::DebianName {
        what,
        text: text.to_owned(),
    })
}

#[cfg(test)]
#[path = "debian_root_test.rs"]
mod tests;
