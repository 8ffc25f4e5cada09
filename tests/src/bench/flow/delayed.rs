//! A client of the attach socket, near and far away, beside the library itself.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use forebay::{Client, Limits, Stdin};
use tokio::io::AsyncReadExt as _;
use tokio::runtime::Runtime;

use crate::bench::commands::stdout_rate;
use crate::bench::flow::relay::Relay;
use crate::bench::flow::{Plan, builder};
use crate::bench::guest::{Guests, MEMORY_MIB};
use crate::bench::rates::{self, BLOCK};
use crate::bench::statistics::Samples;
use crate::bench::table::Table;
use crate::bench::{milliseconds, within};

/// Delays each way.
const DELAYS: [(&str, Duration); 3] = [
    ("attached through a relay", Duration::ZERO),
    ("relay, 1 ms each way", Duration::from_millis(1)),
    ("relay, 10 ms each way", Duration::from_millis(10)),
];

/// One client, and its samples.
struct Column {
    name: &'static str,
    client: Client,
    _relay: Option<Relay>,
    stdout: Vec<f64>,
    stdin: Vec<f64>,
    echoes: Vec<f64>,
}

/// `flow_delayed`.
pub(crate) fn table(plan: &Plan, guests: &Guests, runtime: &Runtime) -> Result<Table> {
    let directory = tempfile::tempdir().context("make a directory for a socket")?;
    let socket = directory.path().join("vm.sock");
    let vm = builder(guests, Limits::default())
        .memory_mib(MEMORY_MIB)
        .attach_socket(&socket);
    let vm = runtime.block_on(vm.start())?;
    let near = runtime.block_on(Client::connect(&socket))?;
    let mut columns = vec![
        Column::new("library", vm.client().clone(), None),
        Column::new("attached", near, None),
    ];
    for (name, delay) in DELAYS {
        let relay = Relay::start(&socket, delay)?;
        let far = runtime.block_on(Client::connect(relay.path()))?;
        columns.push(Column::new(name, far, Some(relay)));
    }
    let turn = plan.samples / plan.transfers;
    for _ in 0..plan.transfers {
        for column in &mut columns {
            // What is 10 ms away gets one window of stdin per 20 ms.
            let bytes = plan.bytes / 4;
            runtime.block_on(within(&vm, column.measure(bytes, turn)))?;
        }
    }
    let table = rows(plan, &columns)?;
    drop(columns);
    runtime.block_on(vm.close());
    Ok(table)
}

impl Column {
    fn new(name: &'static str, client: Client, relay: Option<Relay>) -> Self {
        Self {
            name,
            client,
            _relay: relay,
            stdout: Vec::new(),
            stdin: Vec::new(),
            echoes: Vec::new(),
        }
    }

    /// One transfer each way, and some bytes through `cat`.
    async fn measure(&mut self, bytes: u64, echoes: usize) -> Result<()> {
        let client = &self.client;
        self.stdout.push(stdout_rate(client, bytes, BLOCK).await?);
        self.stdin.push(rates::stdin(client, bytes, BLOCK).await?);
        let cat = client.exec("cat", [""; 0]).stdin(Stdin::piped());
        let mut cat = cat.spawn().await?;
        let stdin = cat.take_stdin().context("stdin is piped")?;
        let mut parts = cat.split();
        for _ in 0..echoes {
            let started = Instant::now();
            stdin.write_all(b".").await?;
            parts.stdout.read_exact(&mut [0]).await?;
            self.echoes.push(milliseconds(started));
        }
        stdin.close().await?;
        drop((parts.stdout, parts.stderr));
        parts.exit.wait().await?;
        Ok(())
    }
}

fn rows(plan: &Plan, columns: &[Column]) -> Result<Table> {
    let mut table = Table::new(
        "flow_delayed",
        format!(
            "The same transfers by the library itself, by a client of the attach socket, and by \
             clients behind a relay that delays each direction; medians of {}. The echo is a byte \
             through a running `cat`, in {}.",
            plan.transfers,
            plan.clock.milliseconds()
        ),
        &[
            "client",
            "stdout MiB/s",
            "x attached",
            "stdin MiB/s",
            "x attached",
            "echo p50",
            "echo p95",
        ],
    );
    let medians =
        |samples: &[f64]| Ok::<_, anyhow::Error>(Samples::new("rate", samples.to_vec())?.median());
    let near = columns.get(1).context("one client is near")?;
    let (near_out, near_in) = (medians(&near.stdout)?, medians(&near.stdin)?);
    for column in columns {
        let echoes = Samples::new("echoes", column.echoes.clone())?;
        let (stdout, stdin) = (medians(&column.stdout)?, medians(&column.stdin)?);
        table.row([
            column.name.into(),
            stdout.into(),
            (stdout / near_out).into(),
            stdin.into(),
            (stdin / near_in).into(),
            echoes.percentile(50).into(),
            echoes.percentile(95).into(),
        ]);
    }
    Ok(table)
}
