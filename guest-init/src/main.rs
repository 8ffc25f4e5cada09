//! PID 1 and exec agent of a forebay guest, in one static binary.
//!
//! It mounts what a program expects, opens the agent port, and from then on runs one loop on one
//! thread that waits for nothing but epoll. The rules of the protocol (frames, credit, order of
//! departure) are those of [`forebay_exec_proto::guest::Conn`]; this crate owns every system call
//! around it.
//!
//! ```text
//!  agent port ◄─► link ──► guest::Conn ──► agent ──► spawn ──► command
//!                   ▲           ▲            │                  │ │ │
//!                   │           └─ output ◄──┼──── pipes ◄──────┘ │ │
//!                   └──────────────────────  └──── stdin ─────────┘ │
//!                                             reaper ◄── pidfd ─────┘
//! ```
//!
//! | module | owns |
//! |---|---|
//! | [`boot`], [`loopback`], [`modules`] | what has to exist before a command runs |
//! | [`port`], [`link`] | finding the agent port; its bytes, both ways |
//! | [`agent`] | the loop, and what follows from each event |
//! | [`execution`] | one command: its pipes, its end, its leaf |
//! | [`command`], [`spawn`], [`failure`] | preparing, starting, and saying why it did not start |
//! | [`user`], [`rlimit`] | who runs it, and the limits of its processes |
//! | [`streams`], [`pty`] | making its pipes, or its terminal |
//! | [`output`], [`stdin`] | bytes of a command's pipes or terminal |
//! | [`cgroup`], [`reaper`], [`signals`] | limiting and killing, burying, signalling |
//! | [`usage`], [`figures`] | what a command used |
//! | [`power`] | ending the guest in order |
//! | [`renew`] | entropy, clock and identity of a guest that was copied |
//! | [`console`], [`cmdline`] | what it says, and its switches |
//!
//! Signals to PID 1 end the guest in order, with a grace of 5 s. They are those that busybox's
//! commands send, so that SIGTERM, which ends other programs, reboots the guest:
//!
//! | signal | sent by | the guest |
//! |---|---|---|
//! | SIGTERM | `reboot` | reboots |
//! | SIGUSR1 | `halt` | powers off |
//! | SIGUSR2 | `poweroff` | powers off |
//! | 38 | the kernel, for the power button | powers off |
//!
//! Switches on the kernel command line: `forebay.trace` logs each step to the console;
//! `forebay.test_crash` makes PID 1 exit, which panics the kernel, when it receives SIGUSR1 (for
//! tests of a host that loses its agent).
#![cfg_attr(not(test), no_main)]
#![cfg_attr(
    test,
    allow(
        dead_code,
        reason = "the entry point and what only PID 1 may do are not part of the test binary"
    )
)]

mod agent;
mod boot;
mod cgroup;
mod cmdline;
mod command;
mod console;
mod execution;
mod failure;
mod figures;
mod link;
mod loopback;
mod modules;
mod output;
mod port;
mod power;
mod pty;
mod reaper;
mod renew;
mod rlimit;
mod signals;
mod spawn;
mod stdin;
mod streams;
mod usage;
mod user;

use std::time::Duration;

/// How long the port may take to appear after the kernel started us. The host has a deadline of
/// its own for the whole boot, usually of 30 s; this one only turns a silent guest into one that says
/// why, or at least shows by its end that it came this far.
const PORT_DEADLINE: Duration = Duration::from_secs(20);

/// Entry point. The runtime of `std` is left out because it aborts, before anything of ours runs,
/// when neither `/dev/console` nor `/dev/null` exists yet.
#[cfg(not(test))]
#[allow(
    unsafe_code,
    reason = "the C start-up code calls `main` by its unmangled name"
)]
// SAFETY: nothing else in this binary is named `main`, and the signature is the one that the C
// start-up code calls; the arguments are not used.
#[unsafe(no_mangle)]
extern "C" fn main(_argc: libc::c_int, _argv: *const *const libc::c_char) -> libc::c_int {
    if !rustix::process::getpid().is_init() {
        console::say(format_args!(
            "this program is PID 1 of a forebay guest, nothing else"
        ));
        return 2;
    }
    console::power_off_on_panic();
    let why = run();
    console::die(format_args!("{why}"))
}

/// Boots and serves. Returns only when the guest cannot go on, with the reason.
fn run() -> String {
    let clock = boot::Clock::at_entry();
    signals::block_all();
    let problems = boot::first_mounts();
    console::attach();
    for problem in problems {
        console::say(format_args!("{problem}"));
    }
    let switches = cmdline::Switches::read();
    console::set_trace(switches.trace);
    // Listed modules may hold the drivers that everything below needs, the console's among them.
    if let Some(problems) = modules::load_listed() {
        console::attach();
        for problem in problems {
            console::say(format_args!("{problem}"));
        }
    }
    // The port first: the host answers its opening while the rest is being set up.
    let found = port::open_if_present();
    for problem in boot::remaining_mounts() {
        console::say(format_args!("{problem}"));
    }
    loopback::up();
    let port = match found {
        Some(port) => port,
        None => match port::wait_and_open(PORT_DEADLINE) {
            Ok(port) => port,
            Err(error) => return format!("no agent port: {error}"),
        },
    };
    let system = renew::System::open();
    let config = agent::Config {
        parent: cgroup::Parent::create(),
        renew: Box::new(move |renew| system.renew(renew)),
        reopen: Some(port::reopen),
        whole_system: true,
        test_crash: switches.test_crash,
        clock,
    };
    match agent::Agent::new(port, config) {
        Ok(mut agent) => match agent.run() {
            Ok(end) => power::finish(end),
            Err(error) => format!("the agent's loop ended: {error}"),
        },
        Err(error) => format!("the agent could not start: {error}"),
    }
}
