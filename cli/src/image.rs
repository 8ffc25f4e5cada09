//! `forebay image`: building images, and the cache that they are in.

mod kernel;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use forebay::Image;
use forebay_images::kernel::{Fragment, get_or_build};
use forebay_images::store::{self, Removed};
use forebay_images::{Built, Cache, DebianRoot, Foundation, ImageBuilder, Source, default_image};

use crate::values;
use kernel::Kernel;
use report::{Lines, size};

/// The variable that container tools and distributions take for the newest time in what they build.
const EPOCH_VARIABLE: &str = "SOURCE_DATE_EPOCH";

#[derive(Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Builds an image and prints its digest.
    Build(Box<Build>),
    /// Lists the images of the cache.
    Ls(Ls),
    /// Shows what an image is made of.
    Inspect(Inspect),
    /// Removes images from the cache, with all files that no other image has.
    Rm(Rm),
}

#[derive(Args)]
#[command(after_help = "\
Without a source it is the default image: a minimal kernel, the agent and busybox. Every other image \
takes kernel and agent from the default one, which must have been built before.

The same source gives the same digest. Times are part of a source: files of a directory and of a \
container image keep theirs, those of --debian get time 0. With SOURCE_DATE_EPOCH set, no file is newer \
than that, and at 0 times do not count.

Nothing in a source is trusted: paths and links that leave the root, digests that do not hold and \
whatever unpacks to more than --size-limit are refused. Nothing is ever unpacked on this host, and \
only --debian needs a privilege: root, or user namespaces with subordinate ids.")]
struct Build {
    /// From a directory of this host, as it is. Files of whoever builds belong to root in the guest.
    #[arg(long, value_name = "DIR", group = "source")]
    from_dir: Option<PathBuf>,
    /// From a container image for linux/amd64: an OCI image layout or what `docker save` wrote, a
    /// directory or a tar archive.
    #[arg(long, value_name = "PATH", group = "source")]
    oci: Option<PathBuf>,
    /// Which of several images in --oci: its name, tag or digest.
    #[arg(long, value_name = "REF", requires = "oci")]
    oci_ref: Option<String>,
    /// From a release of Debian, such as bookworm, by the archive that this host's apt uses.
    #[arg(long, value_name = "SUITE", group = "source")]
    debian: Option<String>,
    /// Packages beside the essential ones and apt, with commas; may be repeated.
    #[arg(
        long,
        value_name = "PACKAGES",
        value_delimiter = ',',
        requires = "debian"
    )]
    include: Vec<String>,
    /// Another archive, such as one of snapshot.debian.org, which has the same packages for ever.
    #[arg(long, value_name = "URL", requires = "debian")]
    mirror: Option<String>,
    /// A name for it; an image that had the name loses it.
    #[arg(long, value_name = "NAME", requires = "source")]
    name: Option<String>,
    /// Most that its files may take [default: 8g].
    #[arg(long, value_name = "SIZE", value_parser = values::size, requires = "source")]
    size_limit: Option<u64>,
    /// `minimal`, the default image's; `minimal-shared`, for guests of several vCPUs on fewer
    /// processors; `debian`, Debian's cloud kernel with the modules it needs; or a file, a vmlinux
    /// or bzImage.
    #[arg(
        long,
        value_name = "KERNEL",
        value_parser = Kernel::parse,
        default_value = "minimal",
        requires = "source"
    )]
    kernel: Kernel,
    /// The agent, a static program [default: the default image's].
    #[arg(long, value_name = "FILE")]
    init: Option<PathBuf>,
}

#[derive(Args)]
struct Ls {
    /// Prints the list as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct Inspect {
    /// Name, digest or its first digits, or a directory.
    image: String,
    /// Prints it as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct Rm {
    /// Names, digests or their first digits. A name is taken from its image, which goes with its
    /// last one.
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let cache = Cache::of_user()?;
    let text = match &options.action {
        Action::Build(build) => build.run(&cache)?,
        Action::Ls(Ls { json: true }) => report::list_json(&cache, &store::list(&cache)?)?,
        Action::Ls(Ls { json: false }) => report::list(&cache, &store::list(&cache)?)?,
        Action::Inspect(Inspect { image, json }) => {
            let image = open(&cache, image)?;
            match json {
                true => report::inspect_json(&image)?,
                false => report::inspect(&image),
            }
        }
        Action::Rm(Rm { images }) => remove(&cache, images)?,
    };
    report::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The image that a word on the command line means: a directory if it has a slash, else a name or a
/// digest, else a directory all the same.
pub(crate) fn open(cache: &Cache, reference: &str) -> Result<Image> {
    if reference.contains('/') || matches!(reference, "." | "..") {
        return Ok(Image::open(reference)?);
    }
    match store::find(cache, reference) {
        Err(forebay_images::Error::NoSuchImage { .. }) if PathBuf::from(reference).is_dir() => {
            Ok(Image::open(reference)?)
        }
        found => Ok(found?),
    }
}

impl Build {
    fn run(&self, cache: &Cache) -> Result<String> {
        let image = match self.source()? {
            Some(source) => self.image(cache, &source)?,
            None => self.default_image(cache)?,
        };
        Ok(image.digest().to_owned())
    }

    fn source(&self) -> Result<Option<Source>> {
        if let Some(directory) = &self.from_dir {
            return Ok(Some(Source::Directory(directory.clone())));
        }
        if let Some(path) = &self.oci {
            return Ok(Some(Source::Container {
                path: path.clone(),
                reference: self.oci_ref.clone(),
            }));
        }
        let Some(suite) = &self.debian else {
            return Ok(None);
        };
        let mut root = DebianRoot::new(suite)?;
        for package in self.include.iter().filter(|package| !package.is_empty()) {
            root = root.with_package(package)?;
        }
        if let Some(mirror) = &self.mirror {
            root = root.with_mirror(mirror)?;
        }
        Ok(Some(Source::Debian(root)))
    }

    fn image(&self, cache: &Cache, source: &Source) -> Result<Image> {
        let mut foundation = Foundation::of(&Image::default_in(cache)?)?;
        foundation = self.kernel.put_into(foundation, cache)?;
        if let Some(init) = &self.init {
            foundation = foundation.with_init(init)?;
        }
        let mut builder = ImageBuilder::new(cache, foundation);
        if let Some(name) = &self.name {
            builder = builder.name(name);
        }
        if let Some(bytes) = self.size_limit {
            builder = builder.unpacked_max(bytes);
        }
        if let Some(seconds) = epoch()? {
            builder = builder.newest_time(seconds);
        }
        let Built { image, notes } = builder.build(source, &Lines)?;
        for note in notes {
            report::note(&note);
        }
        let need = image.memory_need();
        if need.can_be_met() {
            let least = size(need.least_bytes());
            report::note(&format!(
                "a guest needs at least {least} of memory to boot it"
            ));
        }
        Ok(image)
    }

    fn default_image(&self, cache: &Cache) -> Result<Image> {
        let kernel = get_or_build(cache, &Fragment::microvm(), &Lines)?;
        let busybox = default_image::busybox(cache, &Lines)?;
        let kept;
        let init = match &self.init {
            Some(init) => init,
            None => {
                // The agent is not part of this program: the one that is there already is kept.
                let foundation = Foundation::of(&Image::default_in(cache)?)?;
                kept = tempfile::NamedTempFile::new().context("cannot make a temporary file")?;
                std::fs::write(kept.path(), foundation.init()).context("cannot write the agent")?;
                &kept.path().to_path_buf()
            }
        };
        Ok(default_image::get_or_build(
            cache, &kernel, init, &busybox, &Lines,
        )?)
    }
}

fn epoch() -> Result<Option<u32>> {
    let Some(text) = std::env::var_os(EPOCH_VARIABLE).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    match text.to_str().and_then(|text| text.parse().ok()) {
        Some(seconds) => Ok(Some(seconds)),
        None => bail!("{EPOCH_VARIABLE} is {text:?}, not seconds since 1970"),
    }
}

/// Removes what can be removed; what cannot is the error.
fn remove(cache: &Cache, images: &[String]) -> Result<String> {
    let mut said = Vec::new();
    let mut failed = Vec::new();
    for image in images {
        match store::remove(cache, image) {
            Ok(Removed::Image { freed }) => {
                said.push(format!("{image}: removed, {} freed", size(freed)))
            }
            Ok(_) => said.push(format!("{image}: name removed, the image has others")),
            Err(error) => failed.push(error.to_string()),
        }
    }
    if failed.is_empty() {
        return Ok(said.join("\n"));
    }
    if !said.is_empty() {
        report::print(&said.join("\n"))?;
    }
    bail!(failed.join("\n"))
}
