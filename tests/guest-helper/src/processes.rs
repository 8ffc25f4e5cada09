//! Commands about processes, memory and CPU.
#![allow(
    unsafe_code,
    reason = "fork, raise and real-time signals have no safe wrapper"
)]

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::Outcome;

/// Ends by a signal.
pub(crate) fn raise(signal: i32) -> Outcome {
    // SAFETY: no memory is passed; the worst that can happen is the purpose.
    unsafe { libc::raise(signal) };
    Err(format!("signal {signal} did not end this process").into())
}

/// Uses a CPU for ever.
pub(crate) fn spin() -> ! {
    loop {
        std::hint::spin_loop();
    }
}

/// Touches memory and keeps it.
pub(crate) fn hog(mib: usize) -> Outcome {
    let mut memory = Vec::new();
    for _ in 0..mib {
        // Not zero: a zeroed block might never be touched.
        memory.push(vec![0xa5u8; 1 << 20]);
    }
    println!("touched");
    loop {
        std::hint::black_box(&memory);
        sleep(Duration::from_secs(3600));
    }
}

/// Makes as many processes as it can, each of which does the same, for ever.
pub(crate) fn fork_bomb() -> ! {
    println!("forking");
    loop {
        // SAFETY: this program has one thread, so the child may go on using everything.
        if unsafe { libc::fork() } < 0 {
            // Nothing is free; something may soon be.
            std::thread::yield_now();
        }
    }
}

/// Makes processes whose parent exits at once, evenly over each second.
pub(crate) fn orphans(rate: u32, seconds: u32) -> Outcome {
    let total = rate.saturating_mul(seconds);
    let start = Instant::now();
    let mut made = 0u32;
    for number in 0..total {
        let due = Duration::from_secs_f64(f64::from(number) / f64::from(rate));
        sleep(due.saturating_sub(start.elapsed()));
        // SAFETY: this program has one thread, so the child may go on using everything.
        match unsafe { libc::fork() } {
            0 => orphan_and_exit(),
            child if child > 0 => {
                made += 1;
                // SAFETY: no memory is passed: the status is not asked for.
                unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
            }
            // At a limit: fewer orphans, and the count says so.
            _ => {}
        }
    }
    println!("{made} orphans");
    Ok(0)
}

/// The parent of one orphan, which outlives it by a moment.
fn orphan_and_exit() -> ! {
    // SAFETY: as in `orphans`: one thread.
    if unsafe { libc::fork() } == 0 {
        sleep(Duration::from_millis(5));
    }
    // SAFETY: ends this process without flushing what its parent has buffered.
    unsafe { libc::_exit(0) }
}

/// Times starting a program and waiting for it, which is what a round trip of an exec cannot be
/// faster than. The program is this one with `true` unless another is given; its streams are
/// `/dev/null`.
pub(crate) fn forkexec_floor(n: usize, program: &[&str]) -> Outcome {
    let (path, args) = match program {
        [path, args @ ..] => (*path, args),
        [] => ("/proc/self/exe", &["true"][..]),
    };
    let mut samples = Vec::with_capacity(n);
    for _ in 0..n {
        let mut command = Command::new(path);
        command.args(args).arg0(path);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let start = Instant::now();
        let status = command.status()?;
        samples.push(start.elapsed().as_nanos());
        if !status.success() {
            return Err(format!("{path} ended with {status}").into());
        }
    }
    samples.sort_unstable();
    let (Some(min), Some(median)) = (samples.first(), samples.get(samples.len() / 2)) else {
        return Err("nothing to time".into());
    };
    let all: Vec<_> = samples.iter().map(u128::to_string).collect();
    println!(
        "min_ns={min} median_ns={median} samples_ns={}",
        all.join(",")
    );
    Ok(0)
}
