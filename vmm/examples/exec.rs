//! Boots the default image, runs one command in it, and shows what came of it.
//!
//! ```text
//! exec [PROGRAM [ARGUMENT]...]
//! ```
//! Takes the image named by `FOREBAY_IMAGE`, else the default one in the cache.

use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::Result;
use forebay::{ExecError, Image, Vm};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let program = words.next().unwrap_or_else(|| "uname".into());
    let arguments: Vec<_> = words.collect();

    let mut builder = Vm::builder();
    if let Some(directory) = std::env::var_os("FOREBAY_IMAGE") {
        builder = builder.image(Image::open(directory)?);
    }
    let vm = builder.start().await?;
    print!("{}", vm.boot_report());

    let started = Instant::now();
    let out = match vm.exec(&program, &arguments).await {
        // The command took the VM with it: the VM's own end says more.
        Err(ExecError::VmGone { reason }) => {
            println!("--- {reason}");
            println!("--- {}", vm.wait().await);
            return Ok(());
        }
        outcome => outcome?,
    };
    std::io::stdout().write_all(out.stdout())?;
    std::io::stderr().write_all(out.stderr())?;
    println!("--- {} after {:.1?}", out.status(), started.elapsed());

    println!("--- {}", vm.stop(Duration::from_secs(5)).await);
    vm.close().await;
    Ok(())
}
