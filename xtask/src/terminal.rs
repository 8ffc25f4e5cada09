//! Progress for people: bars on a terminal, plain lines elsewhere (logs, CI).

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use forebay_images::progress::{Progress, Step};
use indicatif::{HumanDuration, ProgressBar, ProgressStyle};

/// How often a plain log shows that a long step moves.
const PLAIN_INTERVAL: Duration = Duration::from_secs(20);
const SPIN: Duration = Duration::from_millis(120);

/// Where steps are reported: standard error, so that a task's output stays its own.
pub(crate) struct Terminal {
    bars: bool,
}

impl Terminal {
    pub(crate) fn new() -> Self {
        Self {
            bars: std::io::stderr().is_terminal(),
        }
    }
}

impl Progress for Terminal {
    fn step(&self, title: &str, total: Option<u64>) -> Box<dyn Step> {
        let title = title.to_owned();
        let started = Instant::now();
        if !self.bars {
            eprintln!("{title} ...");
            return Box::new(Lines {
                title,
                total,
                started,
                said: started,
            });
        }
        let bar = match total {
            Some(total) => ProgressBar::new(total),
            None => ProgressBar::new_spinner(),
        };
        let template = match total {
            Some(_) => "{msg:32} {wide_bar} {percent:>3} % {elapsed:>4}",
            None => "{msg:32} {spinner} {elapsed}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(title.clone());
        bar.enable_steady_tick(SPIN);
        Box::new(Bar {
            title,
            bar,
            started,
        })
    }

    fn note(&self, text: &str) {
        eprintln!("note: {text}");
    }
}

struct Bar {
    title: String,
    bar: ProgressBar,
    started: Instant,
}

impl Step for Bar {
    fn advance(&mut self, done: u64) {
        // An estimated total may be exceeded; the bar then stays full.
        self.bar
            .set_position(done.min(self.bar.length().unwrap_or(done)));
    }

    fn finish(self: Box<Self>, outcome: &str) {
        self.bar.finish_and_clear();
        eprintln!("{}: {outcome} ({})", self.title, spent(self.started));
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

struct Lines {
    title: String,
    total: Option<u64>,
    started: Instant,
    said: Instant,
}

impl Step for Lines {
    fn advance(&mut self, done: u64) {
        if self.said.elapsed() < PLAIN_INTERVAL {
            return;
        }
        self.said = Instant::now();
        match self.total {
            Some(total) if total > 0 => {
                let percent = (done * 100 / total).min(100);
                eprintln!("{}: {percent} % ({})", self.title, spent(self.started));
            }
            _ => eprintln!("{}: {done} ({})", self.title, spent(self.started)),
        }
    }

    fn finish(self: Box<Self>, outcome: &str) {
        eprintln!("{}: {outcome} ({})", self.title, spent(self.started));
    }
}

fn spent(since: Instant) -> String {
    let spent = since.elapsed();
    if spent < Duration::from_secs(60) {
        format!("{:.1} s", spent.as_secs_f64())
    } else {
        HumanDuration(spent).to_string()
    }
}
