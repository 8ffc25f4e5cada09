//! A look at a VM as lines of text, the slowest first.

use std::collections::BTreeMap;

use forebay::{ExecutionView, ExecutionsView, StallsView};

/// Draws one look after another; remembers the last, since what counts is what came since.
#[derive(Default)]
pub(crate) struct Table {
    /// By execution: output's and stdin's times of the last look.
    last: BTreeMap<u64, [Stalls; 2]>,
}

/// How long a stream has waited for each, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Stalls {
    pub(crate) application: u64,
    pub(crate) link: u64,
    pub(crate) command: u64,
}

/// One execution's line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) id: u64,
    pub(crate) pid: Option<u32>,
    pub(crate) program: String,
    pub(crate) phase: &'static str,
    /// Received, acknowledged, held or passed on unread, and left of the allowance.
    pub(crate) output: [u64; 4],
    /// Sent, acknowledged, waiting to be sent, and left of the allowance.
    pub(crate) stdin: [u64; 4],
    /// The time of each that is looked at.
    pub(crate) output_stalls: Stalls,
    pub(crate) stdin_stalls: Stalls,
}

const HEAD: &str = "     ID    PID PROGRAM          PHASE      SLOW         \
    OUT: GOT ACKED  HELD  LEFT READER LINK  CMD   \
    IN: SENT ACKED  HELD  LEFT WRITER LINK  CMD";

impl Table {
    /// The text of a look, without an end of its last line.
    pub(crate) fn draw(&mut self, view: &ExecutionsView) -> String {
        let last = std::mem::take(&mut self.last);
        let mut rows = Vec::with_capacity(view.executions.len());
        for exec in &view.executions {
            let now = [exec.output_stalls, exec.stdin_stalls].map(Stalls::from);
            let [output, stdin] = last.get(&exec.id).copied().unwrap_or_default();
            rows.push(Row::new(exec, now[0].since(output), now[1].since(stdin)));
            self.last.insert(exec.id, now);
        }
        let mut text = format!(
            "agent {}, {} active, {} rules broken, {} frames skipped",
            view.state, view.active, view.faults, view.skipped
        );
        if !view.bounded {
            text.push_str("; a legacy guest, which keeps no limits");
        }
        lines(text, rows)
    }
}

/// Puts the rows below `first`, the slowest first.
pub(crate) fn lines(first: String, mut rows: Vec<Row>) -> String {
    rows.sort_by_key(|row| (std::cmp::Reverse(row.kept_waiting()), row.id));
    let mut text = first;
    text.push('\n');
    text.push_str(HEAD);
    for row in &rows {
        text.push('\n');
        text.push_str(&row.line());
    }
    text
}

impl Stalls {
    /// What has come since an earlier look.
    pub(crate) fn since(self, last: Self) -> Self {
        Self {
            application: self.application.saturating_sub(last.application),
            link: self.link.saturating_sub(last.link),
            command: self.command.saturating_sub(last.command),
        }
    }

    fn total(self) -> u64 {
        self.application
            .saturating_add(self.link)
            .saturating_add(self.command)
    }

    /// Each one's share in percent.
    fn shares(self) -> [u64; 3] {
        let total = self.total().max(1);
        [self.application, self.link, self.command].map(|part| percent(part, total))
    }
}

impl From<StallsView> for Stalls {
    fn from(view: StallsView) -> Self {
        Self {
            application: view.application_us,
            link: view.link_us,
            command: view.command_us,
        }
    }
}

impl Row {
    fn new(exec: &ExecutionView, output_stalls: Stalls, stdin_stalls: Stalls) -> Self {
        Self {
            id: exec.id,
            pid: exec.pid,
            program: exec.program.clone(),
            // Which of its phases it is in matters to whoever adopts it.
            phase: if exec.adoptable {
                "adoptable"
            } else {
                exec.phase
            },
            output: [
                exec.output_received,
                exec.output_acked,
                (exec.output_held as u64).saturating_add(exec.output_forwarded),
                exec.output_window,
            ],
            stdin: [
                exec.stdin_sent,
                exec.stdin_acked,
                exec.stdin_pending as u64,
                exec.stdin_window,
            ],
            output_stalls,
            stdin_stalls,
        }
    }

    /// The three that can be to blame, with how long a stream has waited for each.
    fn blame(&self) -> [(u64, u64, &'static str); 3] {
        let (output, stdin) = (self.output_stalls, self.stdin_stalls);
        let link = if output.link >= stdin.link {
            output
        } else {
            stdin
        };
        [
            (output.application, output.total(), "reader"),
            (link.link, link.total(), "link"),
            (stdin.command, stdin.total(), "command"),
        ]
    }

    /// The longest time for which somebody was kept waiting.
    pub(crate) fn kept_waiting(&self) -> u64 {
        self.blame()
            .map(|(time, _, _)| time)
            .into_iter()
            .max()
            .unwrap_or_default()
    }

    /// Who that was for, and its share of the time; nothing below a percent.
    pub(crate) fn slow(&self) -> String {
        let worst = self.blame().into_iter().max_by_key(|(time, _, _)| *time);
        let share = worst.map_or(0, |(time, total, _)| percent(time, total.max(1)));
        match worst {
            Some((_, _, who)) if share > 0 => format!("{who} {share}%"),
            _ => "-".to_owned(),
        }
    }

    fn line(&self) -> String {
        let pid = self.pid.map_or("-".to_owned(), |pid| pid.to_string());
        // It comes from whoever attached, and goes to a terminal, where even what is no control
        // character may hide or turn round what stands beside it.
        let plain = |c: char| c.is_ascii_graphic() || c == ' ';
        let shown = self.program.chars().map(|c| if plain(c) { c } else { '?' });
        let program: String = shown.take(16).collect();
        let [got, out_acked, unread, out_left] = self.output.map(short);
        let [sent, in_acked, pending, in_left] = self.stdin.map(short);
        let [reader, out_link, writing] = self.output_stalls.shares();
        let [writer, in_link, reading] = self.stdin_stalls.shares();
        format!(
            "{:>7} {pid:>6} {program:<16} {:<10} {:<12} \
             {got:>8} {out_acked:>5} {unread:>5} {out_left:>5} {reader:>5}% {out_link:>3}% \
             {writing:>3}%   \
             {sent:>8} {in_acked:>5} {pending:>5} {in_left:>5} {writer:>5}% {in_link:>3}% \
             {reading:>3}%",
            self.id,
            self.phase,
            self.slow(),
        )
    }
}

fn percent(part: u64, of: u64) -> u64 {
    u64::try_from(u128::from(part) * 100 / u128::from(of)).unwrap_or(u64::MAX)
}

/// A number of bytes in at most five characters. One that stands for no bound is `-`.
pub(crate) fn short(bytes: u64) -> String {
    if bytes >> 60 != 0 {
        return "-".to_owned();
    }
    let (mut scaled, mut rest, mut units) = (bytes, 0, "KMGTP".chars());
    let mut unit = None;
    while scaled >= 10_000 || (unit.is_some() && scaled >= 1024) {
        rest = scaled % 1024;
        scaled /= 1024;
        unit = units.next();
    }
    match unit {
        Some(unit) if scaled < 100 => format!("{scaled}.{}{unit}", rest * 10 / 1024),
        Some(unit) => format!("{scaled}{unit}"),
        None => scaled.to_string(),
    }
}

#[cfg(test)]
#[path = "table_test.rs"]
mod tests;
