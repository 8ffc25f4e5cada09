//! What runs beside the command that is measured.

use anyhow::Result;
use forebay::{ExecHandle, Vm};

use crate::bench::Clock;
use crate::bench::guest::HELPER;
use crate::bench::streams::Streams;

/// What the others do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Others {
    /// Nothing: each holds a slot and a process.
    Sleep,
    /// They write without end, and are read as fast as they write.
    Stream,
    /// They use up the processor.
    Spin,
}

impl Others {
    /// Those beside whom this clock tells something. What spinning ones cost is time on the
    /// processor, not work: by counted instructions it would be their loops, and little else.
    pub(crate) fn told_by(clock: Clock) -> &'static [Self] {
        match clock {
            Clock::Wall => &[Self::Sleep, Self::Stream, Self::Spin],
            Clock::Instructions => &[Self::Sleep, Self::Stream],
        }
    }

    /// For the table.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sleep => "sleeping",
            Self::Stream => "streaming",
            Self::Spin => "spinning",
        }
    }

    /// Starts so many of them.
    pub(crate) async fn start(self, vm: &Vm, count: usize) -> Result<Running> {
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
pub(crate) enum Running {
    Silent(Vec<ExecHandle>),
    Read(Streams),
}

impl Running {
    /// Kills them, and waits for their ends.
    pub(crate) async fn end(self) -> Result<()> {
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
