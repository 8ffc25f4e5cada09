//! A pause: until everything of the VM stands still, and until it is let go on.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::bench::guest::Guests;
use crate::bench::snapshot::{Plan, STREAMS, beside, builder, column, lap, streaming};
use crate::bench::table::Table;

/// Not counted, before the first.
const WARM_UP: usize = 3;
/// The guest runs between two pauses for one of these times in turn, so that they meet it in different
/// places.
const APART: [Duration; 3] = [
    Duration::from_micros(1300),
    Duration::from_micros(2900),
    Duration::from_micros(4700),
];

struct Pause {
    pause: f64,
    resume: f64,
}

/// `snapshot_pause`.
pub(super) async fn table(plan: &Plan, guests: &Guests) -> Result<Table> {
    let unit = plan.clock.milliseconds();
    let mut table = Table::new(
        "snapshot_pause",
        format!(
            "In {unit}. From the call until every vCPU is outside the guest and nobody writes its \
             memory; then from the call of resume until it returns. Nobody waits for the guest to be \
             ready for that: it is paused wherever it is."
        ),
        &[
            "beside",
            "n",
            "p50",
            "p95",
            "max",
            "resume p50",
            "resume max",
        ],
    );
    for streams in [0, STREAMS] {
        let vm = builder(guests).start().await?;
        let running = streaming(&vm, streams).await?;
        let mut pauses = Vec::new();
        for round in 0..WARM_UP + plan.pauses {
            tokio::time::sleep(APART[round % APART.len()]).await;
            let mut clock = Instant::now();
            let paused = vm.pause()?;
            let pause = lap(&mut clock);
            paused.resume();
            let resume = lap(&mut clock);
            if round >= WARM_UP {
                pauses.push(Pause { pause, resume });
            }
        }
        if let Some(running) = running {
            running.end().await?;
        }
        vm.close().await;
        let pause = column("pause", &pauses, |sample| sample.pause)?;
        let resume = column("resume", &pauses, |sample| sample.resume)?;
        table.row([
            beside(streams).into(),
            pauses.len().to_string().into(),
            pause.percentile(50).into(),
            pause.percentile(95).into(),
            pause.max().into(),
            resume.percentile(50).into(),
            resume.max().into(),
        ]);
    }
    Ok(table)
}
