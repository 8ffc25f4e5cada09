//! A guest whose every processor counts aloud by its own timer, and the ear that notices a number
//! that is missing or said twice.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use forebay::{ConsoleLog, Machine};
use forebay_tests::{CEILING, builder, scaled, tell_of_interrupts};

/// Guest memory: as little as boots, since tests write and compare it.
const MEMORY_MIB: u32 = 64;

/// A guest that counts on each of its processors.
pub(crate) struct Counting {
    pub(crate) machine: Machine,
    heard: Arc<Mutex<Heard>>,
}

/// What a guest has said so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Heard {
    /// The next number of each processor.
    next: Vec<u64>,
    /// A line that is not complete.
    line: Vec<u8>,
    /// What was heard and should not have been.
    fault: Option<String>,
}

impl Heard {
    fn listen(&mut self, bytes: &[u8]) {
        for byte in bytes {
            match byte {
                b'\r' => {}
                b'\n' => self.hear_line(),
                byte => self.line.push(*byte),
            }
        }
    }

    /// `cpu:number`; other lines are the kernel's.
    fn hear_line(&mut self) {
        let line = String::from_utf8_lossy(&std::mem::take(&mut self.line)).into_owned();
        let Some((cpu, number)) = line.split_once(':') else {
            return;
        };
        let (Ok(cpu), Ok(number)) = (cpu.parse::<usize>(), number.parse::<u64>()) else {
            return;
        };
        match self.next.get_mut(cpu) {
            Some(next) if *next == number => *next += 1,
            next => {
                self.fault
                    .get_or_insert_with(|| format!("`{line}` where {next:?} was expected"));
            }
        }
    }
}

impl Counting {
    /// Boots one with `cpus` processors.
    pub(crate) fn boot(cpus: u8) -> Self {
        let count = |cpu: u8| {
            format!(
                "taskset {mask:x} sh -c 'i=0; while :; do echo {cpu}:$i; i=$((i+1)); usleep 2000; \
                 done' & ",
                mask = 1 << cpu
            )
        };
        let script: String = (0..cpus).map(count).collect();
        let heard = Arc::new(Mutex::new(Heard {
            next: vec![0; cpus.into()],
            ..Heard::default()
        }));
        let tap = {
            let heard = Arc::clone(&heard);
            move |bytes: &[u8]| heard.lock().unwrap().listen(bytes)
        };
        let machine = builder()
            .cpus(cpus)
            .memory_mib(MEMORY_MIB)
            .console_tap(tap)
            .cmdline(format!("rdinit=/bin/sh -- -c \"{script} wait\""))
            .start_machine()
            .unwrap();
        Self { machine, heard }
    }

    /// A copy from a snapshot of a guest that had said `heard`.
    pub(crate) fn restore(directory: &Path, heard: Heard) -> Self {
        let heard = Arc::new(Mutex::new(heard));
        let tap = {
            let heard = Arc::clone(&heard);
            move |bytes: &[u8]| heard.lock().unwrap().listen(bytes)
        };
        let log = ConsoleLog::with_tap(ConsoleLog::DEFAULT_CAPACITY, Some(Box::new(tap)));
        let machine = Machine::restore(directory, log).unwrap();
        Self { machine, heard }
    }

    /// What it has said so far.
    pub(crate) fn heard(&self) -> Heard {
        self.heard.lock().unwrap().clone()
    }

    /// Waits until every processor has said `more` numbers more than in `since`, all of them in
    /// order.
    pub(crate) fn goes_on(&self, since: &Heard, more: u64) {
        let limit = Instant::now() + scaled(CEILING);
        loop {
            let heard = self.heard();
            assert_eq!(heard.fault, None);
            assert_eq!(self.machine.stopped(), None, "{}", self.last_lines());
            let mut pairs = heard.next.iter().zip(&since.next);
            if pairs.all(|(now, then)| *now >= then + more) {
                return;
            }
            assert!(
                Instant::now() < limit,
                "a processor stands still: {since:?}, then {heard:?}\n{:?}\n{}\n{}",
                self.machine.inspect(),
                tell_of_interrupts(|| self.machine.inspect()),
                self.last_lines()
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn last_lines(&self) -> String {
        self.machine.console_log().last_lines(20)
    }
}
