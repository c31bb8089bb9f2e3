//! Typical runs over time.

use super::view::View;
use super::{Csv, Figure};
use crate::draw::{Area, Axis, Grid, Line, Panel, Rule, Scale, Trace, Unit};
use crate::vega::Chart;
use anabranch_lab::results::{Bin, Part};
use anabranch_lab::scenario::{Action, Scenario};
use anabranch_lab::stats::quantile;

/// The most panels that remain readable.
pub(super) const PANELS: usize = 6;
/// The most points drawn for a run; with more bins, neighbours are merged.
const BINS: usize = 160;

/// One path over time, or the connection as path 0.
pub(super) fn bins(part: &Part, path: u32) -> Vec<&Bin> {
    let series = part.outcome.series.iter();
    series.filter(|bin| bin.path == path).collect()
}

/// How many neighbouring bins are drawn as one.
pub(super) fn chunk(count: usize) -> usize {
    count.div_ceil(BINS).max(1)
}

/// The bins from which rates can be computed: all but a last one less than half as long as the
/// others, whose rate says more about when the run ended. Results of old builds may also count the
/// bytes of the bin before in it.
fn with_rates<'b, 'a>(bins: &'b [&'a Bin]) -> &'b [&'a Bin] {
    let [rest @ .., last] = bins else {
        return bins;
    };
    let Some(before) = rest.last() else {
        return bins;
    };
    let starts = [0.0].into_iter().chain(rest.iter().map(|bin| bin.t_s));
    let lengths: Vec<f64> = starts.zip(rest).map(|(from, bin)| bin.t_s - from).collect();
    let usual = quantile(&lengths, 0.5).unwrap_or(0.0);
    if last.t_s - before.t_s < usual / 2.0 {
        rest
    } else {
        bins
    }
}

/// Rates of a path: bytes of each bin over its length, as `(middle, bit/s)`.
fn rates(part: &Part, path: u32, get: fn(&Bin) -> u64) -> Vec<(f64, f64)> {
    let bins = bins(part, path);
    let bins = with_rates(&bins);
    let mut before = 0.0;
    let mut rates = Vec::new();
    for group in bins.chunks(chunk(bins.len())) {
        let end = group[group.len() - 1].t_s;
        let bytes: u64 = group.iter().map(|bin| get(bin)).sum();
        if end > before {
            let rate = bytes as f64 * 8.0 / (end - before);
            rates.push((f64::midpoint(before, end), rate));
        }
        before = end;
    }
    rates
}

/// The scenario's events, as lines across a plot.
pub(super) fn events(scenario: Option<&Scenario>) -> Vec<Rule> {
    let Some(scenario) = scenario else {
        return Vec::new();
    };
    let rule = |event: &anabranch_lab::scenario::Event| {
        let link = scenario
            .network
            .links
            .get(event.link)
            .map_or("", |link| &link.name);
        let what = match &event.action {
            Action::Down(_) => "silent",
            Action::Up(_) => "back",
            Action::AdminDown => "down",
            Action::AdminUp => "up",
            Action::Set(..) => "changes",
            Action::Handover => "new address",
            Action::Rebind => "NAT forgets",
        };
        Rule::Event(event.at.as_secs_f64(), format!("{link} {what}"))
    };
    scenario.events.iter().map(rule).collect()
}

/// The end of the longest of these runs in seconds.
fn end(runs: &[(usize, &Part)]) -> f64 {
    let last = runs
        .iter()
        .filter_map(|(_, part)| Some(part.outcome.series.last()?.t_s));
    last.fold(0.0, f64::max)
}

fn time_axis(end: f64) -> Axis {
    Axis::new("time [s]", Scale::new(0.0, end, false))
}

/// Rates of all paths, stacked, and goodput.
pub(super) fn goodput(view: &View<'_>) -> Option<Figure> {
    let mut runs = view.typical_rivals();
    runs.truncate(PANELS);
    let paths = runs
        .iter()
        .map(|(_, part)| part.outcome.paths.len())
        .max()?;
    let mut csv = Csv::new(&["contender", "run_id", "series", "t_s", "rate_bps"]);
    let mut stacks = Vec::new();
    for (_, part) in &runs {
        let mut stack: Vec<(u32, Vec<(f64, f64)>)> = Vec::new();
        for path in 1..=paths as u32 {
            stack.push((path, rates(part, path, |bin| bin.delivered_bytes)));
        }
        stack.push((0, rates(part, 0, |bin| bin.goodput_bytes)));
        for (path, rates) in &stack {
            let name = match path {
                0 => "goodput",
                path => path_name(part, *path),
            };
            for (time, rate) in rates {
                csv.row(&[&part.contender, &part.run_id, &name, time, rate]);
            }
        }
        stacks.push(stack);
    }
    let tops = stacks.iter().flat_map(|stack| tops(stack));
    let most = tops.fold(0.0, f64::max);
    if most <= 0.0 {
        return None;
    }
    let unit = Unit::rate(most);
    let mut panels = Vec::new();
    for ((_, part), stack) in runs.iter().zip(&stacks) {
        let top = [most * unit.factor].into_iter();
        let y = Axis::new(unit.title("rate"), Scale::from_zero(top));
        let mut panel = Panel::new(part.contender.clone(), time_axis(end(&runs)), y);
        stack_up(&mut panel, stack, unit.factor, paths);
        panel.rules = events(view.folder.scenario_of(part).map(AsRef::as_ref));
        panels.push(panel);
    }
    let part = runs[0].1;
    let names = (1..=paths).map(|path| (path - 1, path_name(part, path as u32)));
    let mut legend = Grid::patches(names);
    legend.extend(Grid::lines(
        [(paths, "goodput (in order)")].into_iter(),
        false,
    ));
    let caption = format!(
        "Bytes that arrived over each path, on top of each other, and application bytes delivered \
         in order{}. Of each contender the run whose goodput is nearest to the median ({}). \
         Upright lines: events of the scenario.",
        view.place(),
        ids(&runs)
    );
    let alt = format!(
        "Rates over time of {}; {}",
        names_of(&runs),
        events_text(&panels[0])
    );
    let columns = if panels.len() == 1 { 1 } else { 2 };
    let grid = Grid {
        aspect: if columns == 1 { 0.4 } else { 0.5 },
        panels,
        columns,
        legend,
    };
    let names = (view.name("time"), view.title("Goodput over time by path"));
    Some(Figure::new(names, caption, alt, (csv, rates_chart()), grid))
}

fn rates_chart() -> Chart {
    Chart::new("line")
        .number("x", ("t_s", "time [s]"))
        .number("y", ("rate_bps", "rate [bit/s]"))
        .name("color", ("series", "path"))
        .name("column", ("contender", "contender"))
}

/// The tops of a stack and of the line over it.
fn tops(stack: &[(u32, Vec<(f64, f64)>)]) -> Vec<f64> {
    let bins = stack
        .iter()
        .map(|(_, rates)| rates.len())
        .max()
        .unwrap_or(0);
    let rate = |rates: &[(f64, f64)], bin: usize| rates.get(bin).map_or(0.0, |rate| rate.1);
    (0..bins)
        .map(|bin| {
            let paths = stack.iter().filter(|(path, _)| *path > 0);
            let sum: f64 = paths.map(|(_, rates)| rate(rates, bin)).sum();
            let goodput = stack.iter().find(|(path, _)| *path == 0);
            sum.max(goodput.map_or(0.0, |(_, rates)| rate(rates, bin)))
        })
        .collect()
}

fn stack_up(panel: &mut Panel, stack: &[(u32, Vec<(f64, f64)>)], factor: f64, paths: usize) {
    let mut floor: Vec<f64> = Vec::new();
    for (path, rates) in stack {
        if *path == 0 {
            let points = rates.iter().map(|(time, rate)| (*time, rate * factor));
            panel.lines.push(Line {
                series: paths,
                trace: Trace::Line,
                points: points.collect(),
                band: Vec::new(),
            });
            continue;
        }
        floor.resize(floor.len().max(rates.len()), 0.0);
        let mut points = Vec::new();
        for ((time, rate), floor) in rates.iter().zip(&mut floor) {
            let low = *floor;
            *floor += rate * factor;
            points.push((*time, low, *floor));
        }
        panel.areas.push(Area {
            series: *path as usize - 1,
            points,
        });
    }
}

/// Bytes behind a gap over time.
pub(super) fn buffer(view: &View<'_>) -> Option<Figure> {
    let runs = view.typical_rivals();
    let mut csv = Csv::new(&["contender", "run_id", "t_s", "reseq_bytes"]);
    let mut lines: Vec<(usize, Vec<(f64, f64)>)> = Vec::new();
    for (series, part) in &runs {
        let bins = bins(part, 0);
        for bin in &bins {
            csv.row(&[&part.contender, &part.run_id, &bin.t_s, &bin.reseq_bytes]);
        }
        let most = |group: &[&Bin]| {
            let end = group[group.len() - 1].t_s;
            let most = group.iter().map(|bin| bin.reseq_bytes).max().unwrap_or(0);
            (end, most as f64)
        };
        lines.push((*series, bins.chunks(chunk(bins.len())).map(most).collect()));
    }
    let heights = lines
        .iter()
        .flat_map(|(_, points)| points)
        .map(|point| point.1);
    let most = heights.fold(0.0, f64::max);
    if most <= 0.0 {
        return None;
    }
    let unit = Unit::size(most);
    let y = Axis::new(
        unit.title("bytes behind a gap"),
        Scale::from_zero([most * unit.factor].into_iter()),
    );
    let mut panel = Panel::new("", time_axis(end(&runs)), y);
    for (series, points) in lines {
        panel.lines.push(Line {
            series,
            trace: Trace::Step,
            points: points
                .into_iter()
                .map(|(x, y)| (x, y * unit.factor))
                .collect(),
            band: Vec::new(),
        });
    }
    panel.rules = events(view.folder.scenario_of(runs[0].1).map(AsRef::as_ref));
    let caption = format!(
        "Bytes that had arrived and waited for those before them, the most in each interval{}. Of \
         each contender the run whose goodput is nearest to the median ({}).",
        view.place(),
        ids(&runs)
    );
    let alt = format!(
        "Re-sequencing buffer of {} over time, at most {:.1} {}; {}",
        names_of(&runs),
        most * unit.factor,
        unit.name,
        events_text(&panel)
    );
    let names = runs
        .iter()
        .map(|(series, part)| (*series, part.contender.as_str()));
    let mut grid = Grid::one(panel, Grid::lines(names, false));
    grid.aspect = 0.36;
    let names = (
        view.name("buffer"),
        view.title("Re-sequencing buffer over time"),
    );
    let chart = Chart::new("line")
        .number("x", ("t_s", "time [s]"))
        .number("y", ("reseq_bytes", "bytes behind a gap"))
        .name("color", ("contender", "contender"));
    Some(Figure::new(names, caption, alt, (csv, chart), grid))
}

/// A path's name, or its number.
pub(super) fn path_name(part: &Part, path: u32) -> &str {
    let path = part.outcome.paths.get(path as usize - 1);
    path.map_or("path", |path| path.name.as_str())
}

/// The ids of the runs shown.
pub(super) fn ids(runs: &[(usize, &Part)]) -> String {
    let ids: Vec<&str> = runs.iter().map(|(_, part)| part.run_id.as_str()).collect();
    let word = if ids.len() == 1 { "run" } else { "runs" };
    format!("{word} {}", ids.join(", "))
}

pub(super) fn names_of(runs: &[(usize, &Part)]) -> String {
    let names: Vec<&str> = runs
        .iter()
        .map(|(_, part)| part.contender.as_str())
        .collect();
    names.join(", ")
}

fn events_text(panel: &Panel) -> String {
    let events: Vec<String> = panel
        .rules
        .iter()
        .filter_map(|rule| match rule {
            Rule::Event(at, what) => Some(format!("{what} at {at} s")),
            _ => None,
        })
        .collect();
    if events.is_empty() {
        "no events".to_owned()
    } else {
        events.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(ends: &[f64]) -> Part {
        let bins = ends.iter().map(|t_s| Bin {
            t_s: *t_s,
            path: 1,
            delivered_bytes: 25_000,
            ..Bin::default()
        });
        let mut part = Part::default();
        part.outcome.series = bins.collect();
        part
    }

    #[test]
    fn a_last_bin_that_is_hardly_there_is_no_rate() {
        let most = |ends: &[f64]| {
            let rates = rates(&part(ends), 1, |bin| bin.delivered_bytes);
            let most = rates.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
            ((most / 1e4).round() / 100.0, rates.len())
        };
        assert_eq!(most(&[0.1, 0.2, 0.3, 0.300_02]), (2.0, 3));
        assert_eq!(most(&[0.1, 0.2, 0.3, 0.34]), (2.0, 3));
        assert_eq!(most(&[0.1, 0.2, 0.3, 0.38]), (2.5, 4));
        assert_eq!(most(&[0.1, 0.2, 0.3, 0.402]), (2.0, 4));
        // A short run has only this bin.
        assert_eq!(most(&[0.05]), (4.0, 1));
        assert_eq!(most(&[]), (0.0, 0));
        // The short last bin is not merged into its neighbours either.
        let mut many: Vec<f64> = (1..=321).map(|nth| f64::from(nth) / 10.0).collect();
        many.push(32.100_02);
        assert_eq!(most(&many), (2.0, 107));
    }
}
