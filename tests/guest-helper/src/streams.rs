//! Commands that write, read or close their standard streams.

use std::io::{self, Read as _, Write};
use std::time::Duration;

use forebay_guest_helper::pattern::Pattern;

use crate::Outcome;

/// Bytes per write where the caller did not choose.
const BLOCK: usize = 64 * 1024;

fn stream(name: &str) -> Result<Box<dyn Write>, String> {
    // The raw descriptors: std's stdout would cut writes at newlines.
    match name {
        "stdout" => Ok(Box::new(Raw(rustix::stdio::stdout()))),
        "stderr" => Ok(Box::new(Raw(rustix::stdio::stderr()))),
        other => Err(format!("{other} is neither stdout nor stderr")),
    }
}

struct Raw(std::os::fd::BorrowedFd<'static>);

impl Write for Raw {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(self.0, bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes `bytes` bytes of the pattern.
pub(crate) fn random(seed: u64, bytes: u64, to: &str) -> Outcome {
    let mut to = stream(to)?;
    let mut pattern = Pattern::new(seed);
    let mut block = vec![0; BLOCK];
    let mut left = bytes;
    while left > 0 {
        let now = usize::try_from(left).unwrap_or(BLOCK).min(BLOCK);
        let block = &mut block[..now];
        pattern.fill(block);
        to.write_all(block)?;
        left -= now as u64;
    }
    Ok(0)
}

/// Reads stdin to its end; fails unless it is exactly `bytes` bytes of the pattern.
pub(crate) fn check_random(seed: u64, bytes: u64) -> Outcome {
    let mut pattern = Pattern::new(seed);
    let mut block = vec![0; BLOCK];
    let mut stdin = io::stdin().lock();
    let mut read = 0u64;
    loop {
        let got = stdin.read(&mut block)?;
        if got == 0 {
            break;
        }
        if let Some(at) = pattern.first_difference(&block[..got]) {
            return Err(format!("byte {} differs", read + at as u64).into());
        }
        read += got as u64;
    }
    if read != bytes {
        return Err(format!("{read} bytes came, {bytes} were expected").into());
    }
    println!("{read} bytes as expected");
    Ok(0)
}

/// Writes a total in writes of a chosen size.
pub(crate) fn write(options: &[&str]) -> Outcome {
    let (mut chunk, mut total, mut to) = (BLOCK, None, "stdout");
    let mut options = options.iter();
    while let Some(option) = options.next() {
        let mut value = || {
            options
                .next()
                .copied()
                .ok_or(format!("{option} needs a value"))
        };
        match *option {
            "--chunk" => chunk = value()?.parse()?,
            "--total" => total = Some(value()?.parse::<u64>()?),
            "--to" => to = value()?,
            "--byte-at-a-time" => chunk = 1,
            other => return Err(format!("{other} is no option of write").into()),
        }
    }
    let mut left = total.ok_or("--total is missing")?;
    if chunk == 0 {
        return Err("--chunk must not be 0".into());
    }
    let mut to = stream(to)?;
    let block = vec![b'x'; chunk];
    while left > 0 {
        let now = usize::try_from(left).unwrap_or(chunk).min(chunk);
        to.write_all(&block[..now])?;
        left -= now as u64;
    }
    Ok(0)
}

/// Writes to both streams in turn.
pub(crate) fn alternate(chunk: usize, rounds: u64) -> Outcome {
    let (mut stdout, mut stderr) = (stream("stdout")?, stream("stderr")?);
    for round in 0..rounds {
        let letter = b'a' + u8::try_from(round % 26)?;
        let block = vec![letter; chunk];
        stdout.write_all(&block)?;
        stderr.write_all(&block)?;
    }
    Ok(0)
}

/// Closes stdin and goes on.
pub(crate) fn close_stdin(seconds: f64, code: i32) -> Outcome {
    let wait = Duration::try_from_secs_f64(seconds)?;
    // Replaced, then dropped: what is closed is the end of the pipe, and descriptor 0 is free.
    let null = std::fs::File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    std::thread::sleep(wait);
    println!("out");
    Ok(code)
}
