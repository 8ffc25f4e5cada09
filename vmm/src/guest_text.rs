//! Text from the guest, made fit for an error: short, and without what a terminal would obey.
//!
//! A guest prints what it likes, lines without end and control sequences included. In the console
//! log that is its business; what ends up in errors, logs and on people's screens is cut when it is
//! taken and escaped when it is shown.

use std::fmt::{self, Write as _};

/// Longest line taken into an error, in bytes.
const LINE_MAX: usize = 512;
/// Longest piece of console output taken into an error, in bytes.
const TEXT_MAX: usize = 4096;

/// `line`, cut if it is too long.
pub(crate) fn line(line: &str) -> String {
    if line.len() <= LINE_MAX {
        return line.to_owned();
    }
    let mut kept: String = line.chars().take(LINE_MAX).collect();
    while kept.len() > LINE_MAX {
        kept.pop();
    }
    kept + "…"
}

/// The last of `lines`, each cut if it is too long, as many as are not too much together.
pub(crate) fn lines(lines: &str) -> String {
    let mut kept: Vec<_> = Vec::new();
    let mut len = 0;
    for line in lines.lines().rev().map(line) {
        len += line.len() + 1;
        if len > TEXT_MAX {
            break;
        }
        kept.push(line);
    }
    kept.reverse();
    kept.join("\n")
}

/// What a console's last lines add to an error: nothing, if there are none.
pub(crate) fn console(last_lines: &str) -> String {
    match lines(last_lines) {
        kept if kept.is_empty() => String::new(),
        kept => format!("\nthe console's last lines:\n{}", Escaped(&kept)),
    }
}

/// Shows text of several lines with everything escaped that is not to be printed as it is.
pub(crate) struct Escaped<'a>(pub(crate) &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            if is_plain(c) {
                f.write_char(c)?;
            } else {
                write!(f, "{}", c.escape_default())?;
            }
        }
        Ok(())
    }
}

/// Neither a control character nor one that turns the direction of what surrounds it.
fn is_plain(c: char) -> bool {
    match c {
        '\n' | '\t' => true,
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => false,
        c => !c.is_control(),
    }
}

#[cfg(test)]
#[path = "guest_text_test.rs"]
mod tests;
