//! A small static program that the tests, the demo and the benchmarks run inside the guest.
//!
//! `forebay-guest-helper COMMAND ARGS…`; without a command it prints the list. It exits 0 when the
//! command did what it says, 1 when it could not, 2 when it was asked wrongly.
//!
//! Started as PID 1 (`rdinit=/bin/forebay-guest-helper -- COMMAND ARGS…`) it first mounts `/dev`,
//! `/proc` and `/sys` and loads the image's kernel modules, and powers the guest off when the command ends: that is how a port is
//! measured without an agent on it.
//!
//! The start-up of `std` is left out: it ignores SIGPIPE, which a program that shows what it
//! inherited must not, and it aborts as PID 1 of a guest without `/dev`.
#![cfg_attr(not(test), no_main)]
#![cfg_attr(
    test,
    allow(dead_code, reason = "the entry point is not part of the test binary")
)]

mod drain;
mod hang;
mod hostile;
mod inspect;
mod port_server;
mod processes;
mod shared;
mod signals;
mod streams;
mod system;

use std::error::Error;

/// The exit code, or why there is none.
type Outcome = Result<i32, Box<dyn Error>>;

const USAGE: &str = "\
random SEED BYTES [stdout|stderr]     write BYTES of the seeded pattern
check-random SEED BYTES               read stdin to its end and compare it with the pattern
write --chunk N --total M [--to stdout|stderr] [--byte-at-a-time]
                                      write M bytes in writes of N (or of 1)
alternate CHUNK ROUNDS                write CHUNK bytes to stdout, then to stderr, ROUNDS times
close-stdin SECONDS CODE              close stdin, sleep, print `out`, exit CODE
fds                                   list the descriptors that this program was started with
sigmask                               print the SigBlk and SigIgn lines of this process
raise SIGNAL                          end by a signal, by number
echo-signal SIGNAL                    write a byte when ready, and one for each SIGNAL
spin                                  use a CPU for ever
hog MIB                               touch MIB of memory, print `touched`, sleep for ever
fork-bomb                             print `forking`, fork for ever, in each process
share                                 use shared memory and a semaphore by name, with a child
orphans RATE SECONDS                  leave RATE orphans a second to PID 1
zombies                               print how many processes are in state Z
forkexec-floor N [PROGRAM ARGS…]      time N times spawn + wait; prints nanoseconds
port-server                           as PID 1: do what the host says over the first port
hostile-agent [GREETING]              as PID 1: an agent that breaks the protocol when told to
drain                                 read stdin to its end
hang DIR                              mount a file system that never answers, to the end of stdin
crash                                 panic the kernel
triple-fault                          reset the CPU by a triple fault
poweroff | reboot                     at once, without PID 1
true                                  exit 0";

/// Entry point.
#[cfg(not(test))]
#[allow(
    unsafe_code,
    reason = "the C start-up code calls `main` by its unmangled name"
)]
// SAFETY: nothing else in this binary is named `main`, and the signature is the one that the C
// start-up code calls. The arguments are not touched: std keeps its own note of them.
#[unsafe(no_mangle)]
extern "C" fn main(_argc: libc::c_int, _argv: *const *const libc::c_char) -> libc::c_int {
    let pid1 = rustix::process::getpid().is_init();
    if pid1 {
        system::mount_basics();
        system::load_modules();
    }
    let args: Vec<String> = std::env::args_os()
        .skip(1)
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let code = run(&args).unwrap_or_else(|error| {
        eprintln!("forebay-guest-helper {}: {error}", args.join(" "));
        1
    });
    if pid1 && let Err(error) = system::power_off() {
        eprintln!("forebay-guest-helper: cannot power off: {error}");
    }
    code
}

fn run(args: &[String]) -> Outcome {
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match *words.as_slice() {
        ["random", seed, bytes] => streams::random(seed.parse()?, bytes.parse()?, "stdout"),
        ["random", seed, bytes, to] => streams::random(seed.parse()?, bytes.parse()?, to),
        ["check-random", seed, bytes] => streams::check_random(seed.parse()?, bytes.parse()?),
        ["write", ref options @ ..] => streams::write(options),
        ["alternate", chunk, rounds] => streams::alternate(chunk.parse()?, rounds.parse()?),
        ["close-stdin", seconds, code] => streams::close_stdin(seconds.parse()?, code.parse()?),
        ["fds"] => inspect::fds(),
        ["sigmask"] => inspect::sigmask(),
        ["zombies"] => inspect::zombies(),
        ["raise", signal] => processes::raise(signal.parse()?),
        ["echo-signal", signal] => signals::echo(signal.parse()?),
        ["spin"] => processes::spin(),
        ["hog", mib] => processes::hog(mib.parse()?),
        ["fork-bomb"] => processes::fork_bomb(),
        ["share"] => shared::share(),
        ["orphans", rate, seconds] => processes::orphans(rate.parse()?, seconds.parse()?),
        ["forkexec-floor", n, ref program @ ..] => processes::forkexec_floor(n.parse()?, program),
        ["port-server"] => port_server::serve(),
        [hostile::COMMAND] => hostile::serve("honest"),
        [hostile::COMMAND, greeting] => hostile::serve(greeting),
        ["drain"] => drain::run(),
        ["hang", dir] => hang::hang(dir),
        ["crash"] => system::crash(),
        ["triple-fault"] => system::triple_fault(),
        ["poweroff"] => system::power_off(),
        ["reboot"] => system::reboot(),
        ["true"] => Ok(0),
        _ => {
            eprintln!("{USAGE}");
            Ok(2)
        }
    }
}
