//! `forebay-bench`: takes the project's figures where guests can run; see `cargo xtask bench`, which
//! runs it twice, by wall clock and by counted instructions.

#[path = "../bench/mod.rs"]
mod bench;

use std::path::PathBuf;

use anyhow::{Context, Result};
use bench::{Clock, Peer, Plan};
use clap::Parser;

/// Measures forebay, beside QEMU where there is something to compare.
#[derive(Parser)]
#[command(name = "forebay-bench")]
struct Arguments {
    /// How time passes here. By counted instructions only what one processor does is measured:
    /// boots and round trips. By wall clock the rest, and on hardware everything.
    #[arg(long, value_enum, default_value = "wall")]
    clock: Clock,
    /// Take fewer samples.
    #[arg(long)]
    quick: bool,
    /// Also write the figures to a file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Host one VM, and say how much memory that takes: used by this program itself.
    #[arg(long, hide = true)]
    host_one_vm: bool,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if arguments.host_one_vm {
        return bench::host_one_vm();
    }
    let peer = Peer::check()?;
    // Wall time in the emulated host is the emulator's, and means nothing for one processor.
    let in_rig = std::env::var_os("FOREBAY_IN_RIG").is_some();
    let counted = arguments.clock == Clock::Instructions;
    let plan = Plan::new(
        arguments.clock,
        counted || !in_rig,
        !counted,
        arguments.quick,
    );
    let figures = bench::run(&plan)?;
    println!("\n{}\n", heading(arguments.clock, in_rig, &peer));
    println!("{}", bench::table(&figures));
    if let Some(path) = &arguments.json {
        let text = serde_json::to_vec_pretty(&figures)?;
        std::fs::write(path, text).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

/// What the table's reader must know.
fn heading(clock: Clock, in_rig: bool, peer: &str) -> String {
    let clock = match clock {
        Clock::Instructions => {
            "One processor. A virtual ms is a million instructions executed by the emulated host \
             and its guest together, plus the time in which both wait: it repeats whatever the \
             real host does, and compares work, not the time of any real machine."
        }
        Clock::Wall if in_rig => {
            "Wall clock of an emulated host with two processors: only ratios carry over, and they \
             move with the real host's load."
        }
        Clock::Wall => "Wall clock of this machine.",
    };
    format!("{clock}\nBeside: {peer}.")
}
