//! From the call of start to the first command's result: a boot, a snapshot, a template; and what of it
//! is the first touch of pages.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use forebay::{Renewal, Secret, Vm};

use crate::bench::commands::round_trip;
use crate::bench::guest::Guests;
use crate::bench::snapshot::aims::Aims;
use crate::bench::snapshot::{MIB, Plan, QUIESCE_WITHIN, builder, column, directory, lap};
use crate::bench::table::Table;

/// Ways to a VM that takes commands; all but the first are copies. The last is of a template whose image
/// has an overlay.
const WAYS: [&str; 4] = ["boot", "snapshot", "template", "next template"];
/// In ms, the first result is to be there after 0.4 x the other monitor's time to its guest's first
/// activity: the least and the greatest of those.
const AT_MOST: [f64; 2] = [0.4 * 94.0, 0.4 * 208.0];
/// More than any of this takes.
const RENEW_WITHIN: Duration = Duration::from_secs(60);

/// In milliseconds from the call of start.
struct Start {
    set_up: f64,
    first_instruction: f64,
    ready: f64,
    answered: f64,
    /// Of a copy.
    touch: Option<Touch>,
}

/// What a copy does first, and once more.
struct Touch {
    /// A renewal that lets go on what was frozen.
    renew_again: f64,
    true_again: f64,
    /// Memory of its own, in MiB, when it took commands, and after the first.
    own_ready: f64,
    own_answered: f64,
}

/// `snapshot_first`, `snapshot_touch`.
pub(super) async fn tables(plan: &Plan, guests: &Guests, aims: &mut Aims) -> Result<[Table; 2]> {
    let place = directory()?;
    let source = builder(guests).forkable(true).start().await?;
    round_trip(&source).await?;
    let template = source.template().await?;
    template.save(place.path()).await?;
    round_trip(&source).await?;
    let next = source.template().await?;
    source.close().await;

    let mut starts = [const { Vec::new() }; WAYS.len()];
    // In turn; one round more, which finds files not yet read.
    for round in 0..=plan.starts {
        for (way, starts) in WAYS.into_iter().zip(&mut starts) {
            let begun = Instant::now();
            let vm = match way {
                "boot" => builder(guests).start().await?,
                "snapshot" => Vm::restore(place.path()).start().await?,
                "template" => template.fork().start().await?,
                _ => next.fork().start().await?,
            };
            let start = follow(vm, begun, way != WAYS[0]).await?;
            if round > 0 {
                starts.push(start);
            }
        }
    }
    Ok([firsts(plan, &starts, aims)?, touches(plan, &starts)?])
}

async fn follow(vm: Vm, begun: Instant, is_copy: bool) -> Result<Start> {
    let mut clock = begun;
    let ready = lap(&mut clock);
    let own_ready = own(&vm)?;
    lap(&mut clock);
    let answered = ready + {
        round_trip(&vm).await?;
        lap(&mut clock)
    };
    let touch = if is_copy {
        let own_answered = own(&vm)?;
        let quiesced = vm.quiesce(QUIESCE_WITHIN).await?;
        let renewal = Renewal {
            entropy: Secret([7; 32]),
            generation: [7; 16],
            hostname: None,
        };
        lap(&mut clock);
        vm.renew(renewal, RENEW_WITHIN).await?;
        let renew_again = lap(&mut clock);
        drop(quiesced);
        lap(&mut clock);
        round_trip(&vm).await?;
        Some(Touch {
            renew_again,
            true_again: lap(&mut clock),
            own_ready,
            own_answered,
        })
    } else {
        None
    };
    let report = vm.boot_report();
    vm.close().await;
    let at = |moment: Option<Duration>| {
        let at = moment.context("the guest ran, so it was set up")?;
        anyhow::Ok(at.as_secs_f64() * 1e3)
    };
    Ok(Start {
        set_up: at(report.set_up)?,
        first_instruction: at(report.first_instruction)?,
        ready,
        answered,
        touch,
    })
}

fn own(vm: &Vm) -> Result<f64> {
    Ok(vm.memory_usage()?.private as f64 / MIB)
}

fn firsts(plan: &Plan, starts: &[Vec<Start>; WAYS.len()], aims: &mut Aims) -> Result<Table> {
    let unit = plan.clock.milliseconds();
    let mut table = Table::new(
        "snapshot_first",
        format!(
            "In {unit}, medians, from the call of start: until KVM, memory, vCPUs and devices are \
             there (of a copy with their state), to the first entry into the guest, to a VM that takes \
             commands, to the result of a first one, which does nothing. Taken in turn; 256 MiB; the \
             snapshot's files are cached; the next template of a VM is what it wrote since the first, \
             over that."
        ),
        &[
            "from",
            "n",
            "set up",
            "first instruction",
            "takes commands",
            "first true",
            "least",
            "x boot",
        ],
    );
    let mut boot = None;
    for (way, starts) in WAYS.into_iter().zip(starts) {
        let of = |what: fn(&Start) -> f64| column(way, starts, what);
        let answered = of(|start| start.answered)?;
        let over_boot = answered.median() / *boot.get_or_insert(answered.median());
        table.row([
            way.into(),
            starts.len().to_string().into(),
            of(|start| start.set_up)?.median().into(),
            of(|start| start.first_instruction)?.median().into(),
            of(|start| start.ready)?.median().into(),
            answered.median().into(),
            answered.min().into(),
            over_boot.into(),
        ]);
        if way != WAYS[0] {
            let [least, most] = AT_MOST;
            let what = |which| format!("first true from a {way}, {which}, ms");
            aims.time(what("the least"), answered.min(), least);
            aims.time(what("the median"), answered.median(), most);
        }
    }
    Ok(table)
}

fn touches(plan: &Plan, starts: &[Vec<Start>; WAYS.len()]) -> Result<Table> {
    let unit = plan.clock.milliseconds();
    let mut table = Table::new(
        "snapshot_touch",
        format!(
            "In {unit}, medians. What a copy does first, and the same once more in the same copy, when \
             the pages for it are there: the renewal, from the first instruction (then: from the \
             call) until all goes on, and a command that does nothing. Then the memory that the copy \
             has of its own, in MiB: when it took commands, and after the first one."
        ),
        &[
            "from",
            "renewal",
            "again",
            "x",
            "true",
            "again",
            "x",
            "own when ready",
            "own after true",
        ],
    );
    for (way, starts) in WAYS.into_iter().zip(starts).skip(1) {
        let of = |what: fn(&Start, &Touch) -> f64| {
            let touched: Vec<_> = starts
                .iter()
                .filter_map(|start| Some((start, start.touch.as_ref()?)))
                .collect();
            anyhow::Ok(column(way, &touched, |(start, touch)| what(start, touch))?.median())
        };
        let renewal = of(|start, _| start.ready - start.first_instruction)?;
        let renew_again = of(|_, touch| touch.renew_again)?;
        let first = of(|start, _| start.answered - start.ready)?;
        let again = of(|_, touch| touch.true_again)?;
        table.row([
            way.into(),
            renewal.into(),
            renew_again.into(),
            (renewal / renew_again).into(),
            first.into(),
            again.into(),
            (first / again).into(),
            of(|_, touch| touch.own_ready)?.into(),
            of(|_, touch| touch.own_answered)?.into(),
        ]);
    }
    Ok(table)
}
