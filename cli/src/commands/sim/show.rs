//! Reports for people.

use crate::failure::Outcome;
use crate::output;
use crate::output::table::Table;
use crate::output::units;
use anabranch_lab::report::{CheckRow, Report, Row};
use anabranch_lab::stats::Summary;

/// Failures shown one by one; the rest is counted.
const SHOWN: usize = 10;

/// Writes the table of contenders and the checks.
pub(in crate::commands) fn report(report: &Report) -> Outcome {
    let swept = report.rows.iter().any(|row| !row.swept.is_empty());
    let timed = report.rows.iter().any(|row| row.completion.is_some());
    let mut head = vec![
        "contender",
        ">goodput",
        ">sd",
        ">95 %",
        ">against first",
        ">p",
        ">gain",
    ];
    head.push(">wait");
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
        if timed {
            let mean = row.completion.map(|time| format!("{:.3} s", time.mean));
            cells.insert(cells.len() - 1, mean.unwrap_or_else(|| "-".into()));
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
    say_failures(report);
    Ok(())
}

/// Says which runs did not end well.
pub(in crate::commands) fn say_failures(report: &Report) {
    for failure in report.failures.iter().take(SHOWN) {
        output::say(failure);
    }
    if report.failures.len() > SHOWN {
        output::say(format!("... and {} more", report.failures.len() - SHOWN));
    }
}

fn cells(row: &Row) -> Vec<String> {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    let goodput =
        |get: fn(&Summary) -> f64| or_dash(row.goodput.as_ref().map(|s| units::bit_rate(get(s))));
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
        goodput(|summary| summary.mean),
        goodput(|summary| summary.deviation),
        or_dash(interval),
        or_dash(against),
        or_dash(row.p.map(|p| format!("{p:.3}"))),
        or_dash(row.gain.map(|gain| format!("{gain:.2}"))),
        or_dash(
            row.reseq_wait
                .map(|wait| format!("{:.1} ms", wait * 1000.0)),
        ),
        format!("{}/{}", row.ok.0, row.ok.1),
    ]
}

fn checks(rows: &[CheckRow]) -> Table {
    let mut table = Table::new(&["check", "contender", "swept", ">ours", "holds"]);
    for row in rows {
        let ours = row
            .ratio
            .map_or_else(|| "-".into(), |ratio| format!("{:.1} %", ratio * 100.0));
        let holds = if row.holds { "yes" } else { "NO" };
        table.row([
            row.demand.clone(),
            row.contender.clone(),
            point(&row.swept),
            ours,
            holds.into(),
        ]);
    }
    table
}

fn point(swept: &[(String, String)]) -> String {
    // The last part of a key is what tells it from others; the whole is in the results.
    let short = |key: &str| key.rsplit('.').next().unwrap_or(key).to_owned();
    let parts: Vec<String> = swept
        .iter()
        .map(|(key, value)| format!("{}={value}", short(key)))
        .collect();
    parts.join(" ")
}
