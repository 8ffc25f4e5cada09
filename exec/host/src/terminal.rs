//! The size of a terminal.

use forebay_exec_proto as proto;

/// A terminal's size in characters; 24 rows of 80 columns by default. Neither may be zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TerminalSize {
    /// Lines.
    pub rows: u16,
    /// Characters in a line.
    pub cols: u16,
}

impl TerminalSize {
    /// Whether a terminal can have it.
    pub(crate) fn is_possible(self) -> bool {
        self.rows > 0 && self.cols > 0
    }
}

impl Default for TerminalSize {
    fn default() -> Self {
        Self { rows: 24, cols: 80 }
    }
}

impl From<TerminalSize> for proto::TerminalSize {
    fn from(TerminalSize { rows, cols }: TerminalSize) -> Self {
        Self { rows, cols }
    }
}
