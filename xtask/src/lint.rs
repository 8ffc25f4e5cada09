//! Format, clippy, documentation and what others' crates are used. Warnings are errors.

use std::process::ExitCode;

use anyhow::Result;

use crate::dependencies;
use crate::workspace::{cargo, check};

/// `cargo xtask lint`.
pub(crate) fn task() -> Result<ExitCode> {
    all()?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn all() -> Result<()> {
    check(cargo().args(["fmt", "--all", "--check"]))?;
    dependencies::check()?;
    check(
        cargo()
            .args(["clippy", "--workspace", "--all-targets", "--quiet", "--"])
            .args(["-D", "warnings"]),
    )?;
    check(
        cargo()
            .args(["doc", "--workspace", "--no-deps", "--quiet"])
            .env("RUSTDOCFLAGS", "-D warnings"),
    )
}
