//! A byte to a running command, until it comes back: through pipes, and through a terminal.

use std::time::Instant;

use anyhow::{Context, Result};
use forebay::{Exec, ExecReader, ExecSink, Stdin, TerminalSize, Vm};
use tokio::io::AsyncReadExt as _;

use crate::bench::exec::{Plan, TURN, WARM_UP, cells};
use crate::bench::statistics::Samples;
use crate::bench::table::Table;
use crate::bench::{milliseconds, within};

/// `exec_echo`.
pub(crate) async fn table(plan: &Plan, vm: &Vm) -> Result<Table> {
    let unit = plan.clock.milliseconds();
    let mut table = Table::new(
        "exec_echo",
        format!(
            "In {unit}. One byte, from the write to its stdin until it is read again, one after the \
             other and in turn: through the pipes of a `cat`; through a raw terminal and a `cat`; and \
             as the terminal itself echoes what is typed, whatever the command does with it."
        ),
        &["through", "n", "p50", "p95", "p99", "x pipes"],
    );
    let on_terminal = |script| vm.shell(script).terminal(TerminalSize::default());
    // Each says when it is ready; from then on a terminal echoes as it was told.
    let mut ways = [
        Way::start("pipes, cat", vm.shell("printf r; exec cat")).await?,
        Way::start(
            "terminal, cat",
            on_terminal("stty raw -echo; printf r; exec cat"),
        )
        .await?,
        Way::start(
            "terminal, its own echo",
            on_terminal("stty raw echo; printf r; exec cat > /dev/null"),
        )
        .await?,
    ];
    for way in &mut ways {
        within(vm, way.echo(WARM_UP)).await?;
        way.times.clear();
    }
    while ways[0].times.len() < plan.echoes {
        for way in &mut ways {
            let turn = TURN.min(plan.echoes - way.times.len());
            within(vm, way.echo(turn)).await?;
        }
    }
    let mut pipes = None;
    for way in ways {
        let times = Samples::new(way.name, way.times)?;
        let median = times.percentile(50);
        let [n, p50, p95, p99] = cells(&times);
        let over_pipes = median / *pipes.get_or_insert(median);
        table.row([way.name.into(), n, p50, p95, p99, over_pipes.into()]);
    }
    Ok(table)
}

/// A command that answers, and how long its answers took.
struct Way {
    name: &'static str,
    stdin: ExecSink,
    stdout: ExecReader,
    times: Vec<f64>,
}

impl Way {
    async fn start(name: &'static str, exec: Exec) -> Result<Self> {
        let mut command = exec.stdin(Stdin::piped()).spawn().await?;
        let stdin = command.take_stdin().context("stdin is piped")?;
        let mut way = Self {
            name,
            stdin,
            stdout: command.split().stdout,
            times: Vec::new(),
        };
        way.answer().await?;
        Ok(way)
    }

    async fn answer(&mut self) -> Result<()> {
        self.stdout.read_exact(&mut [0]).await?;
        Ok(())
    }

    async fn echo(&mut self, count: usize) -> Result<()> {
        for _ in 0..count {
            let started = Instant::now();
            self.stdin.write_all(b".").await?;
            self.answer().await?;
            self.times.push(milliseconds(started));
        }
        Ok(())
    }
}
