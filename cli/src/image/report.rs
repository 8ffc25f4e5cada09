//! Images as text: for people and for scripts.

use std::io::{self, Write as _};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use forebay::Image;
use forebay_images::Cache;
use forebay_images::foreign_text::shown;
use forebay_images::progress::{Progress, Step};
use forebay_images::store::Listed;
use serde_json::{Value, json};

/// Digits of a digest that a list shows.
const DIGITS: usize = 16;

/// Prints an answer; a reader that had enough is no failure.
pub(super) fn print(text: &str) -> Result<()> {
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write to stdout"),
    }
}

/// Says something beside the answer.
pub(super) fn note(text: &str) {
    let _ = writeln!(io::stderr(), "note: {text}");
}

/// One line on standard error for the beginning and end of every step.
pub(super) struct Lines;

impl Progress for Lines {
    fn step(&self, title: &str, _: Option<u64>) -> Box<dyn Step> {
        let _ = writeln!(io::stderr(), "{title} ...");
        Box::new(Line(title.to_owned()))
    }

    fn note(&self, text: &str) {
        note(text);
    }
}

struct Line(String);

impl Step for Line {
    fn advance(&mut self, _: u64) {}

    fn finish(self: Box<Self>, outcome: &str) {
        let _ = writeln!(io::stderr(), "{}: {outcome}", self.0);
    }
}

/// The table of `ls`, and what all of it takes.
pub(super) fn list(cache: &Cache, images: &[Listed]) -> Result<String> {
    let now = SystemTime::now();
    let head = ["NAME", "DIGEST", "SIZE", "BUILT", "KIND"].map(str::to_owned);
    let rows = images.iter().map(|listed| {
        let names = match listed.names.is_empty() {
            true => "-".to_owned(),
            false => listed.names.join(","),
        };
        let kind = match &listed.image {
            Ok(image) => image
                .origin()
                .get("root.kind")
                .map_or("default", String::as_str),
            Err(_) => "cannot be opened",
        };
        [
            names,
            digits(listed).to_owned(),
            size(listed.size),
            age(now, listed.created),
            kind.to_owned(),
        ]
        .map(|cell| shown(&cell))
    });
    let rows: Vec<_> = std::iter::once(head).chain(rows).collect();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..5).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    for listed in images {
        if let Err(error) = &listed.image {
            text.push_str(&format!("{}: {error}\n", digits(listed)));
        }
    }
    let (all, place) = (size(cache.size()?), cache.root().display());
    text.push_str(&format!("{} images; {all} in all of {place}", images.len()));
    Ok(text)
}

/// The same for scripts: sizes in bytes, times in seconds since 1970. An image that cannot be opened
/// has `error` in the place of `origin`, and of its digest the digits that are known.
pub(super) fn list_json(cache: &Cache, images: &[Listed]) -> Result<String> {
    let images: Vec<_> = images
        .iter()
        .map(|listed| {
            let built = listed
                .created
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default()
                .as_secs();
            let mut said = json!({
                "names": listed.names,
                "digest": listed.digest(),
                "size": listed.size,
                "built": built,
                "directory": listed.directory,
            });
            match &listed.image {
                Ok(image) => said["origin"] = json!(image.origin()),
                Err(error) => said["error"] = json!(error.to_string()),
            }
            said
        })
        .collect();
    pretty(&json!({ "cache": cache.root(), "size": cache.size()?, "images": images }))
}

/// What an image is made of.
pub(super) fn inspect(image: &Image) -> String {
    let need = image.memory_need();
    let config = image.config();
    let mut lines = vec![
        ("name", image.name().to_owned()),
        ("digest", image.digest().to_owned()),
        ("directory", image.directory().display().to_string()),
        ("kernel", image.kernel().display().to_string()),
        ("command line", image.cmdline().to_owned()),
    ];
    for layer in image.initramfs() {
        lines.push(("layer", layer.display().to_string()));
    }
    lines.push((
        "memory",
        format!(
            "{}: kernel {}, layers {}, unpacked {}",
            match need.can_be_met() {
                true => format!("at least {}", size(need.least_bytes())),
                false => "no guest can boot it, kernel and layers must lie below 3 GiB".to_owned(),
            },
            size(need.kernel),
            size(need.archives),
            size(need.unpacked)
        ),
    ));
    lines.push(("user", config.user.clone().unwrap_or_default()));
    lines.push(("workdir", config.workdir.clone().unwrap_or_default()));
    for (label, words) in [("entrypoint", &config.entrypoint), ("cmd", &config.cmd)] {
        lines.push((
            label,
            words
                .iter()
                .map(|word| format!("{word:?}"))
                .collect::<Vec<_>>()
                .join(" "),
        ));
    }
    for (name, value) in &config.env {
        lines.push(("env", format!("{name}={value}")));
    }
    for (name, value) in image.origin() {
        lines.push(("origin", format!("{name}: {value}")));
    }
    labelled(&lines)
}

/// One line for each value that there is. What an image says of itself is somebody else's text.
fn labelled(lines: &[(&str, String)]) -> String {
    let lines = lines.iter().filter(|(_, value)| !value.is_empty());
    let lines = lines.map(|(label, value)| format!("{label:13} {}", shown(value)));
    lines.collect::<Vec<_>>().join("\n")
}

/// The same for scripts.
pub(super) fn inspect_json(image: &Image) -> Result<String> {
    let need = image.memory_need();
    pretty(&json!({
        "name": image.name(),
        "digest": image.digest(),
        "directory": image.directory(),
        "kernel": image.kernel(),
        "initramfs": image.initramfs(),
        "cmdline": image.cmdline(),
        "config": image.config(),
        "memory": {
            "kernel": need.kernel,
            "archives": need.archives,
            "unpacked": need.unpacked,
            "least": need.least_bytes(),
        },
        "origin": image.origin(),
    }))
}

fn pretty(value: &Value) -> Result<String> {
    serde_json::to_string_pretty(value).context("cannot write JSON")
}

fn digits(listed: &Listed) -> &str {
    listed.digest().get(..DIGITS).unwrap_or_default()
}

/// Bytes as people say them.
pub(super) fn size(bytes: u64) -> String {
    match bytes {
        0..=1023 => format!("{bytes} B"),
        1024..=1_048_575 => format!("{} KiB", bytes.div_ceil(1 << 10)),
        _ => format!("{} MiB", bytes.div_ceil(1 << 20)),
    }
}

/// How long ago something was, in the largest unit that it fills.
fn age(now: SystemTime, then: SystemTime) -> String {
    let seconds = now.duration_since(then).unwrap_or_default().as_secs();
    match seconds {
        0..=59 => format!("{seconds} s ago"),
        60..=3599 => format!("{} min ago", seconds / 60),
        3600..=86_399 => format!("{} h ago", seconds / 3600),
        _ => format!("{} d ago", seconds / 86_400),
    }
}

#[cfg(test)]
#[path = "report_test.rs"]
mod tests;
