//! Text that came from a source or an image, as it is shown to people: paths of archives, names and
//! settings of container images. Called wherever such text goes into a note or an error, and by the
//! command line.

/// Most characters of a text that are shown.
const SHOWN_MAX: usize = 1024;

/// The text with everything escaped that a terminal would not print as it is: control characters,
/// which may move the cursor or end a line, and those that are invisible or turn round what stands
/// beside them. What is longer than 1024 characters is cut there.
pub fn shown(text: &str) -> String {
    let mut shown = String::new();
    for (number, c) in text.chars().enumerate() {
        if number == SHOWN_MAX {
            shown.push('…');
            break;
        }
        match c {
            // Printed as they are, but escaped in a literal.
            '"' | '\'' | '\\' => shown.push(c),
            c => shown.extend(c.escape_debug()),
        }
    }
    shown
}

#[cfg(test)]
#[path = "foreign_text_test.rs"]
mod tests;
