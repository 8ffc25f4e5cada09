//! Boots a kernel, prints its console as it comes, then the boot report and how it ended.
//!
//! ```text
//! boot [--cpus N] [--memory MIB] [--cmdline WORDS] [--seconds LIMIT] [--times N]
//!      [--kernel FILE [--initramfs FILE]...]
//! ```
//! After LIMIT the guest's power button is pressed, and a while later its plug is pulled.
//!
//! Without `--kernel` it takes the image named by `FOREBAY_IMAGE`, else the default image in the
//! cache. Exit code 0 if the guest switched itself off.

use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context as _, bail};
use forebay::{Image, StopReason, VmBuilder};

/// What a guest gets to switch itself off.
const BUTTON_GRACE: Duration = Duration::from_secs(30);

fn main() -> anyhow::Result<()> {
    let options = Options::parse()?;
    let mut reason = None;
    for _ in 0..options.times {
        reason = Some(boot(&options)?);
    }
    match reason {
        Some(StopReason::PowerOff) => Ok(()),
        Some(other) => bail!("{other}"),
        None => Ok(()),
    }
}

fn boot(options: &Options) -> anyhow::Result<StopReason> {
    let mut builder = VmBuilder::default()
        .cpus(options.cpus)
        .memory_mib(options.memory)
        .cmdline(options.cmdline.as_str())
        .console_tap(|bytes| {
            let _ = std::io::stdout().write_all(bytes);
        });
    match (&options.kernel, std::env::var_os("FOREBAY_IMAGE")) {
        (Some(kernel), _) => builder = builder.kernel(kernel),
        (None, Some(image)) => builder = builder.image(Image::open(image)?),
        (None, None) => {}
    }
    for layer in &options.initramfs {
        builder = builder.initramfs(layer);
    }
    let machine = builder.start_machine()?;
    let reason = match machine.wait_blocking(Some(options.limit)) {
        Some(reason) => reason,
        None => {
            println!("{:#?}", machine.inspect());
            machine.press_power_button();
            machine
                .wait_blocking(Some(BUTTON_GRACE))
                .or_else(|| {
                    machine.stop();
                    machine.wait_blocking(None)
                })
                .context("no end")?
        }
    };
    println!("\n--- after {:.1?}: {reason}", machine.uptime());
    print!("{}", machine.boot_report());
    Ok(reason)
}

struct Options {
    cpus: u8,
    memory: u32,
    cmdline: String,
    limit: Duration,
    times: usize,
    kernel: Option<String>,
    initramfs: Vec<String>,
}

impl Options {
    fn parse() -> anyhow::Result<Self> {
        let mut options = Self {
            cpus: 1,
            memory: 256,
            cmdline: String::new(),
            limit: Duration::from_secs(30),
            times: 1,
            kernel: None,
            initramfs: Vec::new(),
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(name) = arguments.next() {
            let value = arguments
                .next()
                .with_context(|| format!("{name} needs a value"))?;
            match name.as_str() {
                "--cpus" => options.cpus = value.parse()?,
                "--memory" => options.memory = value.parse()?,
                "--cmdline" => options.cmdline = value,
                "--seconds" => options.limit = Duration::from_secs(value.parse()?),
                "--times" => options.times = value.parse()?,
                "--kernel" => options.kernel = Some(value),
                "--initramfs" => options.initramfs.push(value),
                other => bail!("unknown option {other}"),
            }
        }
        Ok(options)
    }
}
