//! What this project is built from: licences and sources of every crate in both lock files, by the
//! lists in `deny.toml`.
//!
//! Both are known without the network. Advisories are not: their database is fetched by
//! [cargo-deny], which is asked for them where somebody installed it, and which reads the same file.
//!
//! [cargo-deny]: https://github.com/EmbarkStudios/cargo-deny

use std::fs;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::workspace::{self, cargo, root};

/// The workspace's, and that of the fuzz targets beside it.
const MANIFESTS: [&str; 2] = ["Cargo.toml", "fuzz/Cargo.toml"];

/// What `deny.toml` allows, as far as it is checked here.
#[derive(Deserialize)]
struct Policy {
    licenses: Licenses,
    sources: Sources,
}

#[derive(Deserialize)]
struct Licenses {
    allow: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Sources {
    allow_registry: Vec<String>,
}

/// The part of cargo's metadata that matters here.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    /// An SPDX expression.
    license: Option<String>,
    /// `None` for a crate of this repository.
    source: Option<String>,
}

pub(crate) fn check() -> Result<()> {
    let policy = fs::read_to_string(root().join("deny.toml")).context("read deny.toml")?;
    let policy: Policy = basic_toml::from_str(&policy).context("understand deny.toml")?;
    let mut wrong = Vec::new();
    for manifest in MANIFESTS {
        wrong.extend(violations(&packages(manifest)?, &policy));
    }
    if !wrong.is_empty() {
        bail!("dependencies, by deny.toml:\n  {}", wrong.join("\n  "));
    }
    advisories()
}

fn packages(manifest: &str) -> Result<Vec<Package>> {
    let shown = cargo()
        .args(["metadata", "--format-version=1", "--all-features"])
        .args(["--locked", "--manifest-path", manifest])
        .stderr(Stdio::inherit())
        .output()
        .context("run cargo metadata")?;
    if !shown.status.success() {
        bail!("cargo metadata of {manifest} failed: {}", shown.status);
    }
    let metadata: Metadata =
        serde_json::from_slice(&shown.stdout).context("understand cargo metadata")?;
    Ok(metadata.packages)
}

fn violations(packages: &[Package], policy: &Policy) -> Vec<String> {
    let mut wrong = Vec::new();
    for package in packages {
        let Package {
            name,
            version,
            license,
            source,
        } = package;
        match license {
            None => wrong.push(format!("{name} {version} names no licence")),
            Some(license) if !is_allowed(license, &policy.licenses.allow) => {
                wrong.push(format!("{name} {version} has the licence {license}"));
            }
            Some(_) => {}
        }
        let known = source.as_deref().is_none_or(|source| {
            let registry = source.strip_prefix("registry+");
            registry.is_some_and(|url| policy.sources.allow_registry.iter().any(|at| at == url))
        });
        if !known {
            let source = source.as_deref().unwrap_or_default();
            wrong.push(format!("{name} {version} is from {source}"));
        }
    }
    wrong
}

/// Whether one may take a crate under `expression` with the licences in `allow` alone. What cannot be
/// understood is not allowed.
fn is_allowed(expression: &str, allow: &[String]) -> bool {
    // The slash is what crates wrote before there were expressions.
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let mut words = spaced.split_ascii_whitespace().peekable();
    let allowed = any_of(&mut words, allow);
    allowed == Some(true) && words.next().is_none()
}

type Words<'a> = std::iter::Peekable<std::str::SplitAsciiWhitespace<'a>>;

/// Alternatives. Of SPDX's operators OR binds weakest.
fn any_of(words: &mut Words<'_>, allow: &[String]) -> Option<bool> {
    let mut allowed = all_of(words, allow)?;
    while words.next_if_eq(&"OR").is_some() {
        allowed |= all_of(words, allow)?;
    }
    Some(allowed)
}

fn all_of(words: &mut Words<'_>, allow: &[String]) -> Option<bool> {
    let mut allowed = one(words, allow)?;
    while words.next_if_eq(&"AND").is_some() {
        allowed &= one(words, allow)?;
    }
    Some(allowed)
}

/// A licence, perhaps with an exception, or alternatives in parentheses.
fn one(words: &mut Words<'_>, allow: &[String]) -> Option<bool> {
    let word = words.next()?;
    if word == "(" {
        let allowed = any_of(words, allow)?;
        return (words.next()? == ")").then_some(allowed);
    }
    if ["OR", "AND", "WITH", ")"].contains(&word) {
        return None;
    }
    let mut name = word.to_owned();
    if words.next_if_eq(&"WITH").is_some() {
        name = format!("{name} WITH {}", words.next()?);
    }
    Some(allow.contains(&name))
}

/// Asks cargo-deny, if it is installed.
fn advisories() -> Result<()> {
    let installed = cargo()
        .args(["deny", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .context("run cargo")?
        .success();
    if !installed {
        eprintln!("note: advisories are not checked, since cargo-deny is not installed");
        return Ok(());
    }
    for manifest in MANIFESTS {
        workspace::check(
            cargo()
                .args(["deny", "--all-features", "--manifest-path", manifest])
                .args(["check", "advisories"]),
        )?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "dependencies_test.rs"]
mod tests;
