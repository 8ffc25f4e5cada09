//! For how long a VM stands still for what is made of it.

use std::time::Instant;

use anyhow::Result;
use forebay::{Survivors, Template, Vm};

use crate::bench::commands::round_trip;
use crate::bench::guest::Guests;
use crate::bench::snapshot::aims::Aims;
use crate::bench::snapshot::{
    Plan, QUIESCE_WITHIN, STREAMS, beside, builder, column, directory, lap, streaming,
};
use crate::bench::table::{Cell, Table};

/// What is made of which VM.
const CASES: [&str; 5] = [
    "template of a forkable VM",
    "its next template",
    "snapshot straight from its memory",
    "template of a copy",
    "template of another VM",
];
/// The one that has the aim, which is 30 ms.
const FIRST: usize = 0;
const AT_MOST: f64 = 30.0;

/// What one of them took, in milliseconds.
#[derive(Clone, Copy)]
struct Standstill {
    quiesce: f64,
    pause: f64,
    save: f64,
    resume: f64,
    thaw: f64,
    /// Writing it into a directory, while the VM runs.
    write: Option<f64>,
}

impl Standstill {
    /// While no vCPU runs.
    fn window(&self) -> f64 {
        self.pause + self.save + self.resume
    }

    /// While no command runs.
    fn commands(&self) -> f64 {
        self.quiesce + self.window() + self.thaw
    }
}

/// `snapshot_window`.
pub(super) async fn table(plan: &Plan, guests: &Guests, aims: &mut Aims) -> Result<Table> {
    let unit = plan.clock.milliseconds();
    let mut table = Table::new(
        "snapshot_window",
        format!(
            "In {unit}, medians. The window is the time in which no vCPU runs: pause, save and resume. \
             Save is all of the state and the memory's image; of the snapshot straight from memory, \
             also writing both files into a directory in memory. Commands stand still from the call \
             to quiesce until the agent has confirmed the thaw. What is written after is the first \
             template, into such a directory, while its VM runs."
        ),
        &[
            "made",
            "beside",
            "n",
            "quiesce",
            "pause",
            "save",
            "resume",
            "thaw",
            "window",
            "window max",
            "commands stand still",
            "written after",
        ],
    );
    for streams in [0, STREAMS] {
        let mut rounds = Vec::new();
        // One round more: the first finds files not yet read.
        for _ in 0..=plan.windows {
            rounds.push(round(guests, streams).await?);
        }
        rounds.remove(0);
        for (case, made) in CASES.into_iter().enumerate() {
            let of = |what: fn(&Standstill) -> f64| {
                column(made, &rounds, |round: &[Standstill; 5]| what(&round[case]))
            };
            let window = of(Standstill::window)?;
            let write = match rounds[0][case].write {
                Some(_) => Some(of(|sample| sample.write.unwrap_or(f64::NAN))?.median()),
                None => None,
            };
            let mut row: Vec<Cell> = vec![
                made.into(),
                beside(streams).into(),
                rounds.len().to_string().into(),
            ];
            let parts: [fn(&Standstill) -> f64; 5] = [
                |sample| sample.quiesce,
                |sample| sample.pause,
                |sample| sample.save,
                |sample| sample.resume,
                |sample| sample.thaw,
            ];
            for part in parts {
                row.push(of(part)?.median().into());
            }
            row.extend([
                window.median().into(),
                window.max().into(),
                of(Standstill::commands)?.median().into(),
                write.into(),
            ]);
            table.row(row);
            if case == FIRST {
                let what = format!("window of a {made}, beside {}, ms", beside(streams));
                aims.time(what, window.median(), AT_MOST);
            }
        }
    }
    Ok(table)
}

/// Each of [`CASES`] once.
async fn round(guests: &Guests, streams: usize) -> Result<[Standstill; 5]> {
    let source = builder(guests).forkable(true).start().await?;
    let running = settle(&source, streams).await?;
    let (mut first, template) = template_of(&source).await?;
    let place = directory()?;
    let mut clock = Instant::now();
    template.save(place.path()).await?;
    first.write = Some(lap(&mut clock));
    round_trip(&source).await?;
    let (again, _) = template_of(&source).await?;
    round_trip(&source).await?;
    let straight = snapshot_of(&source).await?;
    end(source, running).await?;

    // What streamed in the source would stream in the copy, beside its own.
    let copy = template.fork().survivors(Survivors::Kill);
    let (of_copy, _) = saved(copy.start().await?, streams).await?;
    let (other, _) = saved(builder(guests).start().await?, streams).await?;
    Ok([first, again, straight, of_copy, other])
}

type Running = Option<crate::bench::beside::Running>;

/// Has a VM do what it is to be disturbed at. Whatever a first command touches is touched then.
async fn settle(vm: &Vm, streams: usize) -> Result<Running> {
    round_trip(vm).await?;
    streaming(vm, streams).await
}

async fn saved(vm: Vm, streams: usize) -> Result<(Standstill, Template)> {
    let running = settle(&vm, streams).await?;
    let saved = template_of(&vm).await?;
    end(vm, running).await?;
    Ok(saved)
}

async fn end(vm: Vm, running: Running) -> Result<()> {
    if let Some(running) = running {
        running.end().await?;
    }
    vm.close().await;
    Ok(())
}

/// As [`Vm::template`] does it.
async fn template_of(vm: &Vm) -> Result<(Standstill, Template)> {
    let mut clock = Instant::now();
    let quiesced = vm.quiesce(QUIESCE_WITHIN).await?;
    let quiesce = lap(&mut clock);
    let paused = quiesced.pause()?;
    let pause = lap(&mut clock);
    let template = paused.template()?;
    let save = lap(&mut clock);
    paused.resume();
    let resume = lap(&mut clock);
    quiesced.thaw().await;
    let thaw = lap(&mut clock);
    let taken = Standstill {
        quiesce,
        pause,
        save,
        resume,
        thaw,
        write: None,
    };
    Ok((taken, template))
}

/// A snapshot that is written while the VM stands still.
async fn snapshot_of(vm: &Vm) -> Result<Standstill> {
    let place = directory()?;
    let mut clock = Instant::now();
    let quiesced = vm.quiesce(QUIESCE_WITHIN).await?;
    let quiesce = lap(&mut clock);
    let paused = quiesced.pause()?;
    let pause = lap(&mut clock);
    paused.snapshot(place.path(), |_, _| ())?;
    let save = lap(&mut clock);
    paused.resume();
    let resume = lap(&mut clock);
    quiesced.thaw().await;
    Ok(Standstill {
        quiesce,
        pause,
        save,
        resume,
        thaw: lap(&mut clock),
        write: None,
    })
}
