//! `cargo xtask rig -- CMD`: one program inside the rig, for a person.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use forebay_images::progress::Progress;
use forebay_images::{Cache, Image, store};
use forebay_rig::{Clock, Event, RigCommand, Status};

use crate::{place, setup};

/// Where the library looks for images in L1.
const IMAGES_IN_L1: &str = "/root/.cache/forebay/images";

#[derive(Args)]
pub(crate) struct Options {
    /// Count instructions instead of time: one nanosecond each, on one processor.
    #[arg(long)]
    icount: bool,
    /// Pack a file or directory, as HOST or HOST:L1; may be repeated.
    #[arg(long = "file", value_name = "HOST[:L1]")]
    files: Vec<String>,
    /// Bring a file or directory of L1 back, as L1:HOST; may be repeated.
    #[arg(long = "output", value_name = "L1:HOST")]
    outputs: Vec<String>,
    /// Set an environment variable; may be repeated.
    #[arg(short = 'e', long = "env", value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Working directory in L1.
    #[arg(short = 'w', long, default_value = "/")]
    workdir: String,
    /// Connect standard input.
    #[arg(short, long)]
    interactive: bool,
    /// Pack this image too, by its name; may be repeated.
    #[arg(long = "image", value_name = "NAME")]
    images: Vec<String>,
    /// Do not pack the default image.
    #[arg(long)]
    no_image: bool,
    /// Show L1's console.
    #[arg(long)]
    console: bool,
    /// L1's memory.
    #[arg(long, value_name = "MIB")]
    memory: Option<u64>,
    /// L1's processors; on more than one the emulator now and then breaks a guest.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    processors: u8,
    /// How long the program may run.
    #[arg(long, value_name = "SECONDS", default_value_t = 1800)]
    deadline: u64,
    /// A host program by its path, or a command of L1's busybox; then its arguments.
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

pub(crate) fn task(options: &Options, progress: &dyn Progress) -> Result<ExitCode> {
    let cache = Cache::of_user()?;
    let links = cache.scratch("build", "image-names")?;
    let command = with_images(
        command(options, progress)?,
        &options.images,
        &cache,
        links.path(),
    )?;
    let assets = setup::rig(progress)?;
    let outcome = forebay_rig::run(&command, &assets, &mut |event| match event {
        Event::Console(line) if options.console => eprintln!("L1: {line}"),
        Event::Up { after } if options.console => {
            eprintln!("L1 is up after {:.1} s", after.as_secs_f64());
        }
        event => show(event),
    })?;
    if let Some(why) = place::emulator_at_fault(&outcome) {
        eprintln!("note: {why}");
    }
    for output in &options.outputs {
        let (l1, host) = split(output)?;
        match outcome.file(l1) {
            Some(file) => copy(&file, Path::new(host))?,
            None => eprintln!("note: the program left no {l1}"),
        }
    }
    Ok(exit_code(outcome.status))
}

/// Passes a program's output through.
pub(crate) fn show(event: Event<'_>) {
    match event {
        Event::Stdout(_) => show_in(&mut std::io::stdout(), event),
        event => show_in(&mut std::io::stderr(), event),
    }
}

/// Passes both of a program's outputs on to one place. What cannot be written there is no reason to
/// stop a run.
pub(crate) fn show_in(to: &mut dyn Write, event: Event<'_>) {
    let _ = match event {
        Event::Stdout(bytes) | Event::Stderr(bytes) => {
            to.write_all(bytes).and_then(|()| to.flush())
        }
        Event::BootAgain(why) => writeln!(to, "note: {why}\nnote: L1 boots again"),
        _ => Ok(()),
    };
}

/// A program's end as our own exit code.
pub(crate) fn exit_code(status: Status) -> ExitCode {
    u8::try_from(status.shell_code()).map_or(ExitCode::FAILURE, ExitCode::from)
}

fn command(options: &Options, progress: &dyn Progress) -> Result<RigCommand> {
    let Some((program, arguments)) = options.command.split_first() else {
        bail!("no command given");
    };
    let mut command = place::passed_on(RigCommand::new(program))
        .args(arguments)
        .cwd(&options.workdir)
        .processors(options.processors)
        .deadline(Duration::from_secs(options.deadline));
    if let Some(mib) = options.memory {
        command = command.memory_mib(mib);
    }
    if options.icount {
        command = command.clock(Clock::Instructions);
    }
    if options.interactive {
        command = command.inherit_stdin();
    }
    if !options.no_image {
        match Image::default_cached() {
            Ok(image) => {
                command = command
                    .file(image.directory(), place::IMAGE_IN_L1)
                    .env(place::IMAGE_VARIABLE, place::IMAGE_IN_L1);
            }
            Err(error) => progress.note(&format!("without an image: {error}")),
        }
    }
    for variable in &options.env {
        let (name, value) = variable
            .split_once('=')
            .with_context(|| format!("{variable:?} is not NAME=VALUE"))?;
        command = command.env(name, value);
    }
    for file in &options.files {
        let (host, l1) = match file.split_once(':') {
            Some((host, l1)) => (PathBuf::from(host), l1.to_owned()),
            None => {
                let host = fs::canonicalize(file).with_context(|| format!("pack {file}"))?;
                let l1 = host.to_string_lossy().into_owned();
                (host, l1)
            }
        };
        command = command.file(host, l1);
    }
    for output in &options.outputs {
        command = command.output(split(output)?.0);
    }
    Ok(command)
}

/// Packs images under their names, as a cache has them: a name is a link to a directory. `links` is an
/// empty directory for those.
fn with_images(
    mut command: RigCommand,
    names: &[String],
    cache: &Cache,
    links: &Path,
) -> Result<RigCommand> {
    for name in names {
        let image = store::find(cache, name)?;
        let directory = image.directory().file_name().unwrap_or_default();
        add_name(links, name, directory)?;
        let l1 = format!("{IMAGES_IN_L1}/{}", directory.to_string_lossy());
        command = command.file(image.directory(), l1);
    }
    Ok(command.file(links, IMAGES_IN_L1))
}

/// Makes a name of an image beside its directory. That it was given before is no matter, and a directory
/// needs no link to itself. (The default image that is packed anyway gives way to a link of its name.)
fn add_name(links: &Path, name: &str, directory: &OsStr) -> Result<()> {
    let link = links.join(name);
    if directory == name || link.is_symlink() {
        return Ok(());
    }
    symlink(directory, &link).with_context(|| format!("link {}", link.display()))
}

fn split(output: &str) -> Result<(&str, &str)> {
    output
        .split_once(':')
        .with_context(|| format!("{output:?} is not L1:HOST"))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let status = Command::new("cp")
        .args(["--recursive", "--no-target-directory"])
        .args([from, to])
        .status()
        .context("run cp")?;
    if !status.success() {
        bail!("cannot copy to {}: {status}", to.display());
    }
    Ok(())
}

#[cfg(test)]
#[path = "rig_test.rs"]
mod tests;
