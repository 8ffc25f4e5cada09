//! The agent's switches on the kernel command line.

/// What the kernel command line asks of the agent.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Switches {
    /// `forebay.trace`: log each step to the console.
    pub(crate) trace: bool,
    /// `forebay.test_crash`: SIGUSR1 makes PID 1 exit. A test switch.
    pub(crate) test_crash: bool,
}

impl Switches {
    /// Reads `/proc/cmdline`; all off if it cannot be read.
    pub(crate) fn read() -> Self {
        std::fs::read_to_string("/proc/cmdline")
            .map_or_else(|_| Self::default(), |text| Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let mut switches = Self::default();
        for word in text.split_ascii_whitespace() {
            match word {
                // What follows belongs to init programs of other kinds.
                "--" => break,
                "forebay.trace" => switches.trace = true,
                "forebay.test_crash" => switches.test_crash = true,
                _ => {}
            }
        }
        switches
    }
}

#[cfg(test)]
#[path = "cmdline_test.rs"]
mod tests;
