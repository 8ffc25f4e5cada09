//! The keys that leave a command at its terminal: how they are written, and finding them in what
//! is typed.

use std::str::FromStr;

/// Most keys of a sequence.
const KEYS_MAX: usize = 8;

/// A sequence of keys, each of which sends one byte. Without any nothing matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DetachKeys(Vec<u8>);

impl FromStr for DetachKeys {
    type Err = &'static str;

    /// As docker has them: `ctrl-p,ctrl-q`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() {
            return Ok(Self(Vec::new()));
        }
        let keys = text.split(',').map(key).collect::<Option<Vec<_>>>();
        match keys {
            Some(keys) if keys.len() <= KEYS_MAX => Ok(Self(keys)),
            Some(_) => Err("it has more than 8 keys"),
            None => Err(
                "it is not a list of keys such as ctrl-p,ctrl-q: each is one ASCII character, or \
                 ctrl- with a letter or one of @ [ \\ ] ^ _",
            ),
        }
    }
}

/// The byte that a key sends.
fn key(name: &str) -> Option<u8> {
    let (control, character) = match name.strip_prefix("ctrl-") {
        Some(character) => (true, character),
        None => (false, name),
    };
    let &[byte] = character.as_bytes() else {
        return None;
    };
    match (control, byte.to_ascii_uppercase()) {
        // The control characters stand 64 below these in ASCII.
        (true, upper @ b'@'..=b'_') => Some(upper - b'@'),
        (false, _) if byte.is_ascii_graphic() => Some(byte),
        _ => None,
    }
}

/// Looks for the keys in what is typed. The first ones of a sequence are held back until it is
/// clear whether the rest follows.
#[derive(Debug)]
pub(crate) struct Watch {
    keys: Vec<u8>,
    /// How many keys are held back: the first ones of the sequence.
    held: usize,
}

/// What [`Watch::typed`] found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Typed {
    /// What goes to the command.
    pub(crate) input: Vec<u8>,
    /// The keys came. What was typed behind them is gone.
    pub(crate) detach: bool,
}

impl Typed {
    /// All of it is for the command.
    pub(crate) fn input(bytes: &[u8]) -> Self {
        Self {
            input: bytes.to_vec(),
            detach: false,
        }
    }
}

impl Watch {
    pub(crate) fn new(DetachKeys(keys): DetachKeys) -> Self {
        Self { keys, held: 0 }
    }

    /// Takes what was typed next.
    pub(crate) fn typed(&mut self, bytes: &[u8]) -> Typed {
        let mut input = Vec::with_capacity(self.held + bytes.len());
        for &byte in bytes {
            self.take(byte, &mut input);
            if !self.keys.is_empty() && self.held == self.keys.len() {
                return Typed {
                    input,
                    detach: true,
                };
            }
        }
        Typed {
            input,
            detach: false,
        }
    }

    /// What is still held back, when nothing more is typed.
    pub(crate) fn rest(&self) -> &[u8] {
        self.keys.get(..self.held).unwrap_or_default()
    }

    /// Gives up as little of what is held back as the next byte demands.
    fn take(&mut self, byte: u8, input: &mut Vec<u8>) {
        let mut open = self.rest().to_vec();
        open.push(byte);
        let begins = |start: &usize| {
            self.keys
                .starts_with(open.get(*start..).unwrap_or_default())
        };
        // At the latest the empty rest begins every sequence.
        let start = (0..=open.len()).find(begins).unwrap_or(open.len());
        self.held = open.len() - start;
        input.extend(open.drain(..start));
    }
}

#[cfg(test)]
#[path = "detach_keys_test.rs"]
mod tests;
