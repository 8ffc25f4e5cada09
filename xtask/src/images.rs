//! `cargo xtask images`: real programs of Debian, each checking itself in a guest.
//!
//! Not part of `cargo xtask test`: it needs the package archive and minutes, and what it shows
//! changes only when the agent, the kernel or the building of images does. An image is built once for
//! each default image that it takes kernel and agent from.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use forebay_images::progress::Progress;
use forebay_images::{Cache, DebianRoot, Foundation, Image, ImageBuilder, Source, store};

use crate::place::{IMAGE_IN_L1, Place};
use crate::setup::{self, Guest};
use crate::{rig, workspace};

/// For one check, in the rig.
const DEADLINE: Duration = Duration::from_secs(1800);
/// What a guest gets beyond the least that boots, for the programs in it, in MiB.
const HEADROOM: u64 = 512;

#[derive(Args)]
pub(crate) struct Options {
    /// The release of Debian.
    #[arg(long, value_name = "SUITE", default_value = "bookworm")]
    suite: String,
    /// Only these checks; may be repeated.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
}

/// One image and what is to work in it.
struct Check {
    name: &'static str,
    packages: &'static [&'static str],
    /// For `sh -e`. Ends with 0 if all is well.
    script: &'static str,
}

const CHECKS: [Check; 4] = [
    Check {
        name: "python",
        packages: &["python3"],
        script: include_str!("images/python.sh"),
    },
    Check {
        name: "git",
        packages: &["git"],
        script: include_str!("images/git.sh"),
    },
    Check {
        name: "node",
        packages: &["nodejs"],
        script: include_str!("images/node.sh"),
    },
    Check {
        name: "gcc",
        packages: &["gcc", "libc6-dev"],
        script: include_str!("images/gcc.sh"),
    },
];

pub(crate) fn task(options: &Options, progress: &dyn Progress) -> Result<ExitCode> {
    for only in &options.only {
        if !CHECKS.iter().any(|check| check.name == only) {
            let known = CHECKS.map(|check| check.name).join(", ");
            bail!("there is no check {only:?}; there are: {known}");
        }
    }
    let mut guest = setup::guest(progress)?;
    let place = Place::find(progress)?;
    let forebay = workspace::build_program("forebay-cli", "forebay", place.profile())?;
    let chosen = CHECKS.iter().filter(|check| {
        options.only.is_empty() || options.only.iter().any(|only| only == check.name)
    });
    let default = guest.image.clone();
    let mut failed = 0;
    for check in chosen {
        guest.image = image(check, &options.suite, &default, progress)?;
        let passed = run(check, &forebay, &guest, &place)?;
        failed += u32::from(!passed);
    }
    Ok(match failed {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

fn image(check: &Check, suite: &str, default: &Image, progress: &dyn Progress) -> Result<Image> {
    let cache = Cache::of_user()?;
    let foundation = default.digest().get(..8).unwrap_or_default();
    let name = format!("check-{}-{suite}-{foundation}", check.name);
    if let Ok(image) = store::find(&cache, &name) {
        return Ok(image);
    }
    let mut root = DebianRoot::new(suite)?;
    for package in check.packages {
        root = root.with_package(*package)?;
    }
    let builder = ImageBuilder::new(&cache, Foundation::of(default)?).name(name);
    Ok(builder.build(&Source::Debian(root), progress)?.image)
}

fn run(check: &Check, forebay: &std::path::Path, guest: &Guest, place: &Place) -> Result<bool> {
    let least = guest.image.memory_need().least_bytes().div_ceil(1 << 20);
    let memory = (least + HEADROOM).to_string();
    let directory = match place {
        Place::Here => guest
            .image
            .directory()
            .to_str()
            .context("the cache's path is no text")?,
        Place::Rig { .. } => IMAGE_IN_L1,
    };
    println!(
        "\n{} {}, in a guest of {memory} MiB",
        check.name,
        place.name()
    );
    let arguments = [
        "run",
        "--image",
        directory,
        "--memory",
        &memory,
        "--",
        "sh",
        "-exc",
        check.script,
    ]
    .map(str::to_owned);
    let started = Instant::now();
    let ended = place.run(forebay, &arguments, guest, DEADLINE, &mut rig::show)?;
    let said = match (ended.success(), &ended.void) {
        (true, _) => "passed".to_owned(),
        (false, Some(why)) => format!("void, run it again: {why}"),
        (false, None) => "FAILED".to_owned(),
    };
    let seconds = started.elapsed().as_secs();
    println!(
        "{}: {said} after {seconds} s with the guest's boot",
        check.name
    );
    Ok(ended.success())
}
