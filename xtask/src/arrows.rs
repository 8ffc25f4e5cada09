//! Dependency arrows: which crate of the workspace may depend on which.
//!
//! The arrows are the architecture. Data goes down one line of rooms and back up it; a new arrow is
//! a decision, made here in the open.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::workspace::cargo;

/// Normal dependencies inside the workspace. A crate that is not listed may have none.
const ALLOWED: [(&str, &[&str]); 12] = [
    ("forebay-exec-proto", &[]),
    ("forebay-exec", &["forebay-exec-proto"]),
    ("forebay-virtio", &[]),
    ("forebay-virtio-console", &["forebay-virtio"]),
    ("forebay-images", &[]),
    (
        "forebay",
        &[
            "forebay-exec",
            "forebay-exec-proto",
            "forebay-virtio",
            "forebay-virtio-console",
            "forebay-images",
        ],
    ),
    ("forebay-init", &["forebay-exec-proto"]),
    ("forebay-cli", &["forebay", "forebay-images"]),
    ("forebay-rig", &["forebay-images"]),
    (
        "forebay-tests",
        &["forebay", "forebay-images", "forebay-guest-helper"],
    ),
    ("forebay-guest-helper", &["forebay-exec-proto"]),
    ("xtask", &["forebay-images", "forebay-rig"]),
];

/// Outside crates that a room must not use, with the reason.
const FORBIDDEN: [(&str, &str, &str); 4] = [
    (
        "forebay-exec-proto",
        "tokio",
        "the protocol core knows no clock, socket or waker",
    ),
    (
        "forebay-init",
        "tokio",
        "PID 1 is one thread with one epoll loop",
    ),
    ("forebay-virtio", "kvm-ioctls", "devices do not know KVM"),
    (
        "forebay-virtio-console",
        "kvm-ioctls",
        "devices do not know KVM",
    ),
];

/// The crate that runs on both sides and therefore has no standard library.
const NO_STD: &str = "forebay-exec-proto";

/// `cargo xtask arrows`.
pub(crate) fn task() -> Result<ExitCode> {
    check()?;
    println!("dependency arrows: as drawn");
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn check() -> Result<()> {
    let shown = cargo()
        .args(["metadata", "--format-version=1", "--no-deps"])
        .stderr(Stdio::inherit())
        .output()
        .context("run cargo metadata")?;
    let metadata: Metadata =
        serde_json::from_slice(&shown.stdout).context("understand cargo metadata")?;
    let mut wrong = violations(&metadata.packages);
    for package in &metadata.packages {
        if package.name == NO_STD && !is_no_std(package)? {
            wrong.push(format!("{NO_STD} is not #![no_std]"));
        }
    }
    if !wrong.is_empty() {
        bail!("dependency arrows:\n  {}", wrong.join("\n  "));
    }
    Ok(())
}

fn violations(packages: &[Package]) -> Vec<String> {
    let allowed: BTreeMap<_, _> = ALLOWED.into_iter().collect();
    let ours: BTreeSet<_> = packages
        .iter()
        .map(|package| package.name.as_str())
        .collect();
    let mut wrong = Vec::new();
    for package in packages {
        let name = package.name.as_str();
        let may = allowed.get(name).copied();
        if may.is_none() {
            wrong.push(format!("{name} is not drawn; say what it may depend on"));
        }
        // Tests may use what they like.
        for dependency in package
            .dependencies
            .iter()
            .filter(|d| d.kind.as_deref() != Some("dev"))
        {
            let to = dependency.name.as_str();
            if ours.contains(to) && !may.unwrap_or_default().contains(&to) {
                wrong.push(format!("{name} must not depend on {to}"));
            }
            for (from, forbidden, reason) in FORBIDDEN {
                if name == from && to == forbidden {
                    wrong.push(format!("{name} must not depend on {to}: {reason}"));
                }
            }
        }
    }
    wrong
}

fn is_no_std(package: &Package) -> Result<bool> {
    let Some(library) = package.targets.iter().find(|target| target.kind == ["lib"]) else {
        return Ok(false);
    };
    let text = std::fs::read_to_string(&library.src_path)
        .with_context(|| format!("read {}", library.src_path))?;
    Ok(text.lines().any(|line| line.trim() == "#![no_std]"))
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    dependencies: Vec<Dependency>,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
    src_path: String,
}

#[cfg(test)]
#[path = "arrows_test.rs"]
mod tests;
