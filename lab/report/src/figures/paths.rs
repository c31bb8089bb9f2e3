//! Paths side by side: shares, windows, round trips, and why they were chosen.

use super::time::{PANELS, bins, chunk, events, ids, names_of, path_name};
use super::view::{View, mean_of_paths};
use super::{Csv, Figure};
use crate::draw::{Axis, Bars, Grid, Line, Panel, Scale, Trace, Unit};
use crate::vega::Chart;
use anabranch_lab::results::{Bin, Part};

/// How much each path carried.
pub(super) fn share(view: &View<'_>) -> Option<Figure> {
    let mut csv = Csv::new(&["contender", "path", "name", "share", "utilisation"]);
    let mut rows = Vec::new();
    let mut parts: Vec<String> = Vec::new();
    for contender in view.contenders.iter().filter(|contender| !contender.single) {
        let runs = view.runs(&view.at, &contender.name);
        let shares = mean_of_paths(runs, |path| path.share);
        let used = mean_of_paths(runs, |path| path.utilisation);
        let Some(first) = runs.first().filter(|_| shares.iter().any(Option::is_some)) else {
            continue;
        };
        for (at, share) in shares.iter().enumerate() {
            let name = path_name(first, at as u32 + 1);
            if parts.len() <= at {
                parts.push(name.to_owned());
            }
            let (share, used) = (super::maybe(*share), super::maybe(used[at]));
            csv.row(&[&contender.name, &(at + 1), &name, &share, &used]);
        }
        let shares = shares
            .into_iter()
            .map(|share| share.unwrap_or(0.0))
            .collect();
        rows.push((contender.name.clone(), shares));
    }
    if rows.is_empty() || parts.len() < 2 {
        return None;
    }
    let caption = format!(
        "Share of each path in the bytes sent, with copies and retransmissions{}; mean, {}.",
        view.place(),
        view.count(std::slice::from_ref(&view.at))
    );
    let alt = alt_of(&rows, &parts);
    let title = "share of bytes sent [%]".to_owned();
    let plot = Bars { rows, parts, title };
    let names = (view.name("share"), view.title("Share of each path"));
    let chart = Chart::new("bar")
        .number("x", ("share", "share of bytes sent"))
        .name("y", ("contender", "contender"))
        .name("color", ("name", "path"));
    Some(Figure::new(names, caption, alt, (csv, chart), plot))
}

fn alt_of(rows: &[(String, Vec<f64>)], parts: &[String]) -> String {
    let row = |(name, shares): &(String, Vec<f64>)| {
        let total: f64 = shares.iter().sum();
        let shares = shares.iter().zip(parts).filter(|(share, _)| **share > 0.0);
        let texts: Vec<String> = shares
            .map(|(share, part)| format!("{part} {:.0} %", share / total * 100.0))
            .collect();
        format!("{name}: {}", texts.join(", "))
    };
    rows.iter().map(row).collect::<Vec<String>>().join("; ")
}

/// The number of reasons shown; the rest is added up.
const REASONS: usize = 7;

/// The reasons of the scheduler's decisions.
pub(super) fn reasons(view: &View<'_>) -> Option<Figure> {
    let mut csv = Csv::new(&["contender", "reason", "decisions_per_run"]);
    let mut totals: Vec<(String, f64)> = Vec::new();
    let mut found: Vec<(String, Vec<(String, f64)>)> = Vec::new();
    for contender in view.contenders.iter().filter(|contender| !contender.single) {
        let runs = view.runs(&view.at, &contender.name);
        let mut counts: Vec<(String, f64)> = Vec::new();
        for (reason, count) in runs.iter().flat_map(|part| &part.outcome.reasons) {
            add(&mut counts, reason, *count as f64 / runs.len() as f64);
        }
        let all: f64 = counts.iter().map(|(_, count)| count).sum();
        for (reason, count) in &counts {
            csv.row(&[&contender.name, reason, count]);
            add(&mut totals, reason, count / all);
        }
        if all > 0.0 {
            found.push((contender.name.clone(), counts));
        }
    }
    if found.is_empty() {
        return None;
    }
    totals.sort_by(|a, b| b.1.total_cmp(&a.1));
    let rest = totals.len() > REASONS + 1;
    if rest {
        totals.truncate(REASONS);
    }
    let mut parts: Vec<String> = totals.into_iter().map(|(reason, _)| reason).collect();
    let mut rows = Vec::new();
    for (name, counts) in found {
        let count = |reason: &String| {
            let of = counts.iter().find(|(known, _)| known == reason);
            of.map_or(0.0, |(_, count)| *count)
        };
        let mut shares: Vec<f64> = parts.iter().map(count).collect();
        let all: f64 = counts.iter().map(|(_, count)| count).sum();
        if rest {
            shares.push((all - shares.iter().sum::<f64>()).max(0.0));
        }
        rows.push((format!("{name} ({all:.0})"), shares));
    }
    if rest {
        parts.push("other".to_owned());
    }
    let caption = format!(
        "Decisions of the scheduler by reason{}; mean, {}; in brackets decisions per run.",
        view.place(),
        view.count(std::slice::from_ref(&view.at))
    );
    let alt = alt_of(&rows, &parts);
    let title = "share of decisions [%]".to_owned();
    let plot = Bars { rows, parts, title };
    let names = (view.name("reasons"), view.title("Why a path was chosen"));
    let chart = Chart::new("bar")
        .number("x", ("decisions_per_run", "share of decisions"))
        .parts()
        .name("y", ("contender", "contender"))
        .name("color", ("reason", "reason"));
    Some(Figure::new(names, caption, alt, (csv, chart), plot))
}

fn add(counts: &mut Vec<(String, f64)>, reason: &str, count: f64) {
    match counts.iter_mut().find(|(known, _)| known == reason) {
        Some((_, sum)) => *sum += count,
        None => counts.push((reason.to_owned(), count)),
    }
}

type Measure = (
    &'static str,
    &'static str,
    fn(&Bin) -> Option<f64>,
    fn(f64) -> Unit,
);

const MEASURES: [Measure; 4] = [
    (
        "window",
        "cwnd_bytes",
        |bin| Some(bin.cwnd_bytes as f64),
        Unit::size,
    ),
    (
        "in flight",
        "inflight_bytes",
        |bin| Some(bin.inflight_bytes as f64),
        Unit::size,
    ),
    ("smoothed RTT", "srtt_s", |bin| bin.srtt_s, Unit::time),
    ("one-way delay", "owd_s", |bin| bin.owd_s, Unit::time),
];

/// Window, bytes in flight, round trip and one-way delay of each path over time.
pub(super) fn state(view: &View<'_>) -> Option<Figure> {
    let mut runs = view.typical_rivals();
    runs.truncate(PANELS / 2);
    let first = runs.first()?.1;
    let last = runs
        .iter()
        .filter_map(|(_, part)| Some(part.outcome.series.last()?.t_s));
    let end = last.fold(0.0, f64::max);
    let mut csv = Csv::new(&["contender", "run_id", "measure", "path", "t_s", "value"]);
    let mut panels = Vec::new();
    for (what, column, get, unit) in MEASURES {
        let drawn: Vec<Vec<Line>> = runs.iter().map(|(_, part)| lines(part, get)).collect();
        for ((_, part), lines) in runs.iter().zip(&drawn) {
            for line in lines {
                let name = path_name(part, line.series as u32 + 1);
                for (time, value) in &line.points {
                    csv.row(&[&part.contender, &part.run_id, &column, &name, time, value]);
                }
            }
        }
        let values = drawn.iter().flatten().flat_map(|line| &line.points);
        let most = values.map(|point| point.1).fold(0.0, f64::max);
        if most <= 0.0 {
            continue;
        }
        let unit = unit(most);
        for ((_, part), mut lines) in runs.iter().zip(drawn) {
            for point in lines.iter_mut().flat_map(|line| &mut line.points) {
                point.1 *= unit.factor;
            }
            let x = Axis::new("time [s]", Scale::new(0.0, end, false));
            let top = [most * unit.factor].into_iter();
            let y = Axis::new(unit.title(what), Scale::from_zero(top));
            let mut panel = Panel::new(format!("{what}: {}", part.contender), x, y);
            panel.lines = lines;
            panel.rules = events(view.folder.scenario_of(part).map(AsRef::as_ref));
            panels.push(panel);
        }
    }
    if panels.is_empty() {
        return None;
    }
    let paths = 1..=first.outcome.paths.len() as u32;
    let legend = paths.map(|path| (path as usize - 1, path_name(first, path)));
    let grid = Grid {
        panels,
        columns: runs.len(),
        legend: Grid::lines(legend, false),
        aspect: if runs.len() == 1 { 0.2 } else { 0.5 },
    };
    let caption = format!(
        "Congestion window, bytes in flight, smoothed round trip and mean one-way delay of packets \
         of each path{}. Of each contender the run whose goodput is nearest to the median ({}).",
        view.place(),
        ids(&runs)
    );
    let alt = format!("State of each path over time under {}", names_of(&runs));
    let names = (
        view.name("state"),
        view.title("State of each path over time"),
    );
    let chart = Chart::new("line")
        .number("x", ("t_s", "time [s]"))
        .number("y", ("value", "bytes or seconds"))
        .name("color", ("path", "path"))
        .name("column", ("contender", "contender"))
        .name("row", ("measure", "measure"))
        .own_heights();
    Some(Figure::new(names, caption, alt, (csv, chart), grid))
}

/// A line for each path, with one point for every few bins.
fn lines(part: &Part, get: fn(&Bin) -> Option<f64>) -> Vec<Line> {
    let paths = 1..=part.outcome.paths.len() as u32;
    paths
        .filter_map(|path| {
            let bins = bins(part, path);
            let points: Vec<(f64, f64)> = bins
                .chunks(chunk(bins.len()))
                .filter_map(|group| {
                    let last = group
                        .iter()
                        .rev()
                        .find_map(|bin| Some((bin.t_s, get(bin)?)));
                    last.filter(|(_, value)| value.is_finite())
                })
                .collect();
            (!points.is_empty()).then_some(Line {
                series: path as usize - 1,
                trace: Trace::Line,
                points,
                band: Vec::new(),
            })
        })
        .collect()
}
