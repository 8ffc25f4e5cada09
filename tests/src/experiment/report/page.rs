//! The page: what was asked, what came of it, how far to trust it. One file that needs no other.

use std::fmt::{self, Write as _};

use anyhow::Result;
use serde_json::Value;

use crate::experiment::outcome::{Figure, Machine, Measure, Outcome, level};
use crate::experiment::plan;
use crate::experiment::report::plot::{Plot, Series};
use crate::experiment::report::{FIGURES, Report};

const STYLE: &str = "\
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 60rem; margin: 2rem auto; \
padding: 0 1rem }
h1, h2 { line-height: 1.2 }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { padding: .15rem .7rem; border-bottom: 1px solid #ddd; text-align: right }
th { border-color: #888 }
.facts th, .facts td { text-align: left; border: 0; font-weight: normal; vertical-align: top }
.facts th { color: #666 }
.trust { border-left: 4px solid #d80; padding-left: .8rem }
.failed { border-left: 4px solid #c00; padding-left: .8rem }
svg { max-width: 100%; height: auto }
pre { white-space: pre-wrap }
";

/// The page's text.
pub(super) fn html(report: &Report, figures: &[Figure]) -> Result<String> {
    let outcome = &report.outcome;
    let (name, about) = (Escaped(&outcome.experiment), Escaped(&outcome.about));
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>{name}</title>\n<style>\n{STYLE}</style>\n\
         <h1>{name}</h1>\n<p>{about}</p>\n<p class=\"trust\">{}</p>\n",
        Escaped(&report.trust())
    );
    failures(&mut page, report);
    for measure in &outcome.measures {
        let (name, unit) = (Escaped(&measure.name), Escaped(&measure.unit));
        let _ = writeln!(page, "<h2>{name} [{unit}]</h2>");
        let plot = plot(outcome, measure);
        let _ = writeln!(
            page,
            "<figure>\n{}\n<figcaption>{}</figcaption>\n</figure>",
            plot.svg()?,
            Escaped(&plot.caption())
        );
        let of_measure = figures
            .iter()
            .filter(|figure| figure.measure == measure.name);
        table(&mut page, report, of_measure);
    }
    facts(&mut page, report);
    Ok(page)
}

fn failures(page: &mut String, report: &Report) {
    let failures = report.failures();
    if failures.is_empty() {
        return;
    }
    let (failed, all) = (failures.len(), report.outcome.samples.len());
    let _ = writeln!(
        page,
        "<div class=\"failed\"><h2>{failed} of {all} samples failed</h2>\n\
         <p>They count in no figure.</p>\n<pre>{}</pre></div>",
        Escaped(&failures.join("\n"))
    );
}

/// One measure over the first factor; each combination of the others is a series.
fn plot(outcome: &Outcome, measure: &Measure) -> Plot {
    let (first, others) = match outcome.factors.split_first() {
        Some((first, others)) => (first.clone(), others),
        None => return Plot::default(),
    };
    let points = plan::points(&outcome.factors).unwrap_or_default();
    let mut series: Vec<Series> = Vec::new();
    for point in points {
        let levels = others.iter().map(|factor| {
            let name = &factor.name;
            format!("{name} {}", level(point.level(name)))
        });
        let name = levels.collect::<Vec<_>>().join(", ");
        let values = outcome.values(&point, &measure.name);
        match series.iter_mut().find(|series| series.name == name) {
            Some(series) => series.values.push(values),
            None => series.push(Series {
                name,
                values: vec![values],
            }),
        }
    }
    Plot {
        x: first.name,
        levels: first.levels.iter().map(level).collect(),
        numbers: first.levels.iter().all(Value::is_number),
        y: format!("{} [{}]", measure.name, measure.unit),
        series,
    }
}

fn table<'a>(page: &mut String, report: &Report, figures: impl Iterator<Item = &'a Figure>) {
    let factors = report.outcome.factors.iter();
    let names = factors.map(|factor| factor.name.as_str()).chain(FIGURES);
    page.push_str("<table>\n<tr>");
    for name in names {
        let _ = write!(page, "<th>{}</th>", Escaped(name));
    }
    page.push_str("</tr>\n");
    for figure in figures {
        page.push_str("<tr>");
        for cell in report.row(figure) {
            let _ = write!(page, "<td>{}</td>", Escaped(&cell.shown()));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table>\n");
}

fn facts(page: &mut String, report: &Report) {
    let Report { outcome, host } = report;
    let order = format!(
        "{} samples: every point {} times, each time in a new order by seed {}; the first sample of all \
         counts in no figure",
        outcome.samples.len(),
        outcome.repetitions,
        outcome.seed
    );
    let machine = |machine: &Machine| {
        let Machine {
            processor,
            processors,
            memory_mib,
            kernel,
            ..
        } = machine;
        format!("{processors} x {processor}, {memory_mib} MiB, Linux {kernel}")
    };
    let load = format!("{} before, {} after", host.load_before, host.load_after);
    let image = outcome.image.as_deref().unwrap_or("unknown");
    let mut facts = vec![
        ("began", host.began.clone()),
        ("where", host.place.clone()),
        ("machine", machine(&host.machine)),
        ("its load over 1, 5 and 15 minutes", load),
    ];
    if outcome.machine.emulated {
        facts.push((
            "emulated machine that ran the guests",
            machine(&outcome.machine),
        ));
    }
    facts.extend([
        ("order", order),
        (
            "forebay",
            format!(
                "{} ({}), built in the profile {}",
                outcome.forebay, host.commit, host.profile
            ),
        ),
        ("guest image", image.to_owned()),
    ]);
    page.push_str("<h2>How it was measured</h2>\n<table class=\"facts\">\n");
    for (name, value) in facts {
        let value = Escaped(&value);
        let _ = writeln!(page, "<tr><th>{name}</th><td>{value}</td></tr>");
    }
    page.push_str(
        "</table>\n<p>Raw values are in samples.csv, everything is in result.json.</p>\n",
    );
}

/// Text between tags.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.0.chars() {
            match letter {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                other => f.write_char(other)?,
            }
        }
        Ok(())
    }
}
