//! The values of options as people write them: variables, sizes, times, limits. clap names option
//! and value, so an error here says only what would do.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::time::Duration;

use forebay::Resource;

/// A limit of `setrlimit(2)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ulimit {
    pub(crate) resource: Resource,
    pub(crate) soft: u64,
    pub(crate) hard: u64,
}

/// Splits `KEY=VALUE` at the first `=`. Names and values may be any bytes.
pub(crate) fn variable(text: OsString) -> Result<(OsString, OsString), &'static str> {
    let bytes = text.as_bytes();
    let at = bytes
        .iter()
        .position(|byte| *byte == b'=')
        .unwrap_or_default();
    match (bytes.get(..at), bytes.get(at + 1..)) {
        (Some(key), Some(value)) if !key.is_empty() => Ok((
            OsString::from_vec(key.to_vec()),
            OsString::from_vec(value.to_vec()),
        )),
        _ => Err("it is not KEY=VALUE"),
    }
}

/// Bytes, or with `k`, `m`, `g`, `t` behind it (also `K` and so on) that power of 1024 of them.
pub(crate) fn size(text: &str) -> Result<u64, &'static str> {
    let (number, shift) = match text.to_ascii_lowercase().as_bytes().last() {
        Some(b'k') => (before_last(text), 10),
        Some(b'm') => (before_last(text), 20),
        Some(b'g') => (before_last(text), 30),
        Some(b't') => (before_last(text), 40),
        _ => (text, 0),
    };
    let number: u64 = digits(number).ok_or("it is not a size such as 1048576, 512k, 64m or 2g")?;
    number
        .checked_mul(1 << shift)
        .ok_or("it is more than 64 bits hold")
}

/// Seconds, or with `ms`, `s`, `m` or `h` behind it that unit. Whole numbers, so that nothing is
/// rounded.
pub(crate) fn time(text: &str) -> Result<Duration, &'static str> {
    let (number, millis) = if let Some(number) = text.strip_suffix("ms") {
        (number, 1)
    } else if let Some(number) = text.strip_suffix('s') {
        (number, 1_000)
    } else if let Some(number) = text.strip_suffix('m') {
        (number, 60_000)
    } else if let Some(number) = text.strip_suffix('h') {
        (number, 3_600_000)
    } else {
        (text, 1_000)
    };
    let number: u64 = digits(number).ok_or("it is not a time such as 500ms, 5s, 2m or 1h")?;
    number
        .checked_mul(millis)
        .map(Duration::from_millis)
        .ok_or("it is too long")
}

/// `NAME=SOFT:HARD`, or `NAME=BOTH`; `unlimited` for no limit.
pub(crate) fn ulimit(text: &str) -> Result<Ulimit, String> {
    let (name, limits) = text
        .split_once('=')
        .ok_or("it is not NAME=SOFT[:HARD], such as nofile=1024:4096")?;
    let resource = name
        .parse::<Resource>()
        .map_err(|error| error.to_string())?;
    let (soft, hard) = limits.split_once(':').unwrap_or((limits, limits));
    Ok(Ulimit {
        resource,
        soft: limit(soft)?,
        hard: limit(hard)?,
    })
}

fn limit(text: &str) -> Result<u64, String> {
    if text == "unlimited" {
        return Ok(Resource::UNLIMITED);
    }
    digits(text).ok_or_else(|| format!("{text:?} is neither a number nor \"unlimited\""))
}

/// A number of digits alone: no sign, no space.
fn digits(text: &str) -> Option<u64> {
    let all = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    all.then(|| text.parse().ok()).flatten()
}

fn before_last(text: &str) -> &str {
    text.get(..text.len().saturating_sub(1)).unwrap_or_default()
}

#[cfg(test)]
#[path = "values_test.rs"]
mod tests;
