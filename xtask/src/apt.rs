//! Debian packages that tasks need on this machine: installed by name as root, otherwise named with
//! the command that installs them.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use forebay_images::debian::LOCK_PATIENCE;
use forebay_images::progress::Progress;

/// Makes sure that packages are installed. Where Debian's package manager is not, a person is told
/// what is needed, and what is missing fails later.
pub(crate) fn ensure(packages: &[&str], progress: &dyn Progress) -> Result<()> {
    if !is_debian() {
        progress.note(&format!(
            "this system has no dpkg, so it is not known whether what is needed is installed. These \
             are the names of Debian's packages: {}",
            packages.join(" ")
        ));
        return Ok(());
    }
    let missing: Vec<_> = packages
        .iter()
        .copied()
        .filter(|package| !installed(package))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing.join(" ");
    if !rustix::process::geteuid().is_root() {
        bail!(
            "these packages are missing: {names}\n\
             install them with: sudo apt-get install --no-install-recommends {names}"
        );
    }
    let step = progress.step(&format!("install {names}"), None);
    if install(&missing).is_err() {
        // Package lists that are absent or old; fetched only now, since it takes a while.
        apt_get(&["update"])?;
        install(&missing)?;
    }
    step.finish("done");
    Ok(())
}

fn install(packages: &[&str]) -> Result<()> {
    let mut arguments = vec!["install", "--yes", "--no-install-recommends"];
    arguments.extend(packages);
    apt_get(&arguments)
}

fn apt_get(arguments: &[&str]) -> Result<()> {
    let done = Command::new("apt-get")
        .arg("--quiet")
        .args(LOCK_PATIENCE)
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .output()
        .context("run apt-get")?;
    if !done.status.success() {
        bail!(
            "apt-get {} failed ({}):\n{}",
            arguments.join(" "),
            done.status,
            String::from_utf8_lossy(&done.stderr).trim()
        );
    }
    Ok(())
}

fn is_debian() -> bool {
    Command::new("dpkg-query")
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn installed(package: &str) -> bool {
    Command::new("dpkg-query")
        .args(["--show", "--showformat=${db:Status-Status}", package])
        .stderr(Stdio::null())
        .output()
        .is_ok_and(|shown| shown.stdout == b"installed")
}
