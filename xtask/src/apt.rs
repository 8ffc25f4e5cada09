//! Debian packages that tasks need on this machine: installed by name as root, otherwise named with
//! the command that installs them.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use forebay_images::progress::Progress;

/// Makes sure that packages are installed.
pub(crate) fn ensure(packages: &[&str], progress: &dyn Progress) -> Result<()> {
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
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .output()
        .context("run apt-get; this task supports Debian and its derivatives")?;
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

fn installed(package: &str) -> bool {
    Command::new("dpkg-query")
        .args(["--show", "--showformat=${db:Status-Status}", package])
        .stderr(Stdio::null())
        .output()
        .is_ok_and(|shown| shown.stdout == b"installed")
}
