//! Reports for people.

use crate::failure::Outcome;
use crate::output;
use crate::output::table::Table;
use crate::output::units;
use anabranch_lab::report::{CheckRow, Report, Row};
use anabranch_lab::stats::{Interval, Summary};

/// Failures shown one by one; the others are only counted.
const SHOWN: usize = 10;

/// Prints the table of contenders and the checks.
pub(in crate::commands) fn report(report: &Report) -> Outcome {
    let swept = report.rows.iter().any(|row| !row.swept.is_empty());
    let timed = report.rows.iter().any(|row| row.completion.is_some());
    // With one or two runs, a median says no more than the mean.
    let several = report.rows.iter().any(has_interval);
    let mut head = vec!["contender", ">goodput", ">sd", ">95 %"];
    if several {
        head.push(">median (95 %)");
    }
    head.extend([">against first (95 %)", ">p", ">gain", ">wait"]);
    if timed {
        head.push(">completion");
    }
    head.push(">runs");
    if swept {
        head.insert(0, "swept");
    }
    let mut table = Table::new(&head);
    for row in &report.rows {
        let mut cells = cells(row);
        if several {
            cells.insert(4, median(row));
        }
        if timed {
            cells.insert(cells.len() - 1, completion(row));
        }
        if swept {
            cells.insert(0, point(&row.swept));
        }
        table.row(cells);
    }
    output::data(table)?;
    if !report.checks.is_empty() {
        output::data(format!("\n{}", checks(&report.checks)))?;
    }
    say_troubles(report);
    Ok(())
}

/// Says which runs did not end well, and which ended before any time had passed.
pub(in crate::commands) fn say_troubles(report: &Report) {
    for failure in report.failures.iter().take(SHOWN) {
        output::say(failure);
    }
    if report.failures.len() > SHOWN {
        output::say(format!("... and {} more", report.failures.len() - SHOWN));
    }
    if report.timeless > 0 {
        output::say(format!(
            "warning: no time passed in {}: what carried the bytes has neither a rate nor a delay, \
             so that the figures mean nothing; give each path a `rate` or a `delay`",
            units::counted(report.timeless, "run")
        ));
    }
}

fn has_interval(row: &Row) -> bool {
    row.goodput_median
        .is_some_and(|median| median.interval.is_some())
}

/// The median goodput with its interval; a unit shared by all of them is shown once.
fn median(row: &Row) -> String {
    let Some(median) = row.goodput_median else {
        return "-".into();
    };
    let value = units::bit_rate(median.value);
    let Some(Interval { low, high }) = median.interval else {
        return value;
    };
    // With the space, so that bit/s does not match the end of Mbit/s.
    let unit = value.find(' ').map_or("", |at| &value[at..]);
    let [low, high] = [low, high].map(|end| {
        let text = units::bit_rate(end);
        text.strip_suffix(unit).map_or(text.clone(), str::to_owned)
    });
    format!("{value} ({low} to {high})")
}

fn completion(row: &Row) -> String {
    let Some(median) = row.completion_median else {
        return "-".into();
    };
    match median.interval {
        Some(Interval { low, high }) => {
            format!("{:.3} s ({low:.3} to {high:.3})", median.value)
        }
        None => format!("{:.3} s", median.value),
    }
}

fn cells(row: &Row) -> Vec<String> {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    let goodput = |get: fn(&Summary) -> Option<f64>| {
        or_dash(row.goodput.as_ref().and_then(get).map(units::bit_rate))
    };
    let interval = row.goodput.and_then(|summary| {
        let interval = summary.interval?;
        let half = (interval.high - interval.low) / 2.0;
        (summary.mean > 0.0).then(|| format!("±{:.1} %", half / summary.mean * 100.0))
    });
    let against = row.against_first.map(|comparison| {
        let percent = |ratio: f64| format!("{:+.1} %", (ratio - 1.0) * 100.0);
        match comparison.interval {
            Some(interval) => format!(
                "{} ({} to {})",
                percent(comparison.ratio),
                percent(interval.low),
                percent(interval.high)
            ),
            None => percent(comparison.ratio),
        }
    });
    vec![
        row.contender.clone(),
        goodput(|summary| Some(summary.mean)),
        goodput(|summary| summary.deviation),
        or_dash(interval),
        or_dash(against),
        or_dash(row.p.map(|p| format!("{p:.3}"))),
        or_dash(row.gain.map(|gain| match gain.interval {
            Some(Interval { low, high }) => format!("{:.2} ({low:.2} to {high:.2})", gain.value),
            None => format!("{:.2}", gain.value),
        })),
        or_dash(
            row.reseq_wait
                .map(|wait| format!("{:.1} ms", wait * 1000.0)),
        ),
        format!("{}/{}", row.ok.0, row.ok.1),
    ]
}

fn checks(rows: &[CheckRow]) -> Table {
    let mut table = Table::new(&["check", "contender", "swept", ">ours", ">95 %", "holds"]);
    for row in rows {
        let ours = row
            .ratio
            .map_or_else(|| "-".into(), |ratio| format!("{:.1} %", ratio * 100.0));
        let interval = row.interval.map_or_else(
            || "-".into(),
            |Interval { low, high }| format!("{:.1} to {:.1} %", low * 100.0, high * 100.0),
        );
        let holds = match row.holds {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "not measured",
        };
        table.row([
            row.demand.clone(),
            row.contender.clone(),
            point(&row.swept),
            ours,
            interval,
            holds.into(),
        ]);
    }
    table
}

fn point(swept: &[(String, String)]) -> String {
    // The last part of a key tells it from others; the results have the whole key.
    let short = |key: &str| key.rsplit('.').next().unwrap_or(key).to_owned();
    let parts: Vec<String> = swept
        .iter()
        .map(|(key, value)| format!("{}={value}", short(key)))
        .collect();
    parts.join(" ")
}
