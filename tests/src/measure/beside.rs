//! What runs beside the command that is measured.

use anyhow::Result;
use forebay::{ExecHandle, Vm};
use serde::Deserialize;

use crate::measure::Clock;
use crate::measure::streams::Streams;
use crate::vm::HELPER;

/// What the others do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Others {
    /// Nothing: each holds a slot and a process.
    #[serde(rename = "sleeping")]
    Sleep,
    /// They write without end, and are read as fast as they write.
    #[serde(rename = "streaming")]
    Stream,
    /// They use up the processor.
    #[serde(rename = "spinning")]
    Spin,
}

impl Others {
    /// Those beside whom this clock tells something. What spinning ones cost is time on the
    /// processor, not work: by counted instructions it would be their loops, and little else.
    pub fn told_by(clock: Clock) -> &'static [Self] {
        match clock {
            Clock::Wall => &[Self::Sleep, Self::Stream, Self::Spin],
            Clock::Instructions => &[Self::Sleep, Self::Stream],
        }
    }

    /// For tables, and as a level of an experiment's factor.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sleep => "sleeping",
            Self::Stream => "streaming",
            Self::Spin => "spinning",
        }
    }

    /// Starts so many of them.
    pub async fn start(self, vm: &Vm, count: usize) -> Result<Running> {
        if self == Self::Stream {
            return Ok(Running::Read(Streams::start(vm, count).await?));
        }
        let mut commands = Vec::new();
        for _ in 0..count {
            let command = match self {
                Self::Sleep => vm.exec("sleep", ["100000"]),
                Self::Spin | Self::Stream => vm.exec(HELPER, ["spin"]),
            };
            commands.push(command.spawn().await?);
        }
        Ok(Running::Silent(commands))
    }
}

/// Others that run.
pub enum Running {
    /// Whose output nobody waits for.
    Silent(Vec<ExecHandle>),
    /// Whose output is read.
    Read(Streams),
}

impl Running {
    /// Kills them, and waits for their ends.
    pub async fn end(self) -> Result<()> {
        match self {
            Self::Read(streams) => streams.end(),
            Self::Silent(mut commands) => {
                for command in &commands {
                    command.kill();
                }
                for command in &mut commands {
                    command.wait().await?;
                }
                Ok(())
            }
        }
    }
}
