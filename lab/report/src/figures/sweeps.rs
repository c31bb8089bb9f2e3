//! Goodput over swept values.

use super::view::{View, mean};
use super::{Csv, Figure, maybe};
use crate::draw::{
    Axis, Cell, Grid, Heat, Line, Map, Panel, Ramp, Rule, Scale, Trace, Unit, decimals,
};
use crate::sweep::{Swept, short, value_of};
use crate::vega::Chart;
use anabranch_lab::stats::{Interval, Summary, compare};

/// The most panels; what would need more is left to the tables.
const PANELS: usize = 12;
/// The most lines; more would hide each other.
const LINES: usize = 12;

type Point = Vec<(String, String)>;

/// Groups of points that differ in `axes` alone, each named by its other values.
fn groups<'v>(view: &'v View<'_>, axes: &[&Swept]) -> Vec<(String, Vec<&'v Point>)> {
    let others: Vec<&Swept> = view
        .swept
        .iter()
        .filter(|swept| !axes.iter().any(|axis| axis.key == swept.key))
        .collect();
    let mut groups: Vec<(String, Vec<&Point>)> = Vec::new();
    for point in &view.points {
        let texts: Vec<String> = others
            .iter()
            .filter_map(|swept| {
                let value = value_of(point, &swept.key)?;
                Some(format!("{} = {value}", short(&swept.key)))
            })
            .collect();
        let name = texts.join(", ");
        match groups.iter_mut().find(|(known, _)| *known == name) {
            Some((_, points)) => points.push(point),
            None => groups.push((name, vec![point])),
        }
    }
    groups
}

/// Goodput against one swept value, a panel for each of the other values.
pub(super) fn curves(view: &View<'_>) -> Option<Figure> {
    let axis = view.swept.iter().max_by_key(|swept| swept.values.len())?;
    if axis.values.len() < 3 || view.contenders.len() > LINES {
        return None;
    }
    let groups = groups(view, &[axis]);
    if groups.len() > PANELS {
        return None;
    }
    let (x, numbers) = horizontal(axis);
    let (csv, drawn) = lines_of(view, axis, &numbers, &groups);
    let most = drawn.iter().flatten().flat_map(|line| {
        let ends = line.band.iter().map(|end| end.2);
        line.points.iter().map(|point| point.1).chain(ends)
    });
    let most = most.fold(0.0, f64::max);
    let unit = Unit::rate(most);
    let panels: Vec<Panel> = groups
        .iter()
        .zip(drawn)
        .map(|((name, points), lines)| {
            let top = [most * unit.factor].into_iter();
            let y = Axis::new(unit.title("goodput"), Scale::from_zero(top));
            let mut panel = Panel::new(name.clone(), x.clone(), y);
            panel.lines = lines
                .into_iter()
                .map(|line| scaled(line, unit.factor))
                .collect();
            panel
                .rules
                .extend(constant_sum(view, points, unit.factor, most));
            panel
        })
        .collect();
    let caption = format!(
        "Mean goodput against {}; shaded: its 95 % interval (Student's t), {}.",
        short(&axis.key),
        view.count(&view.points)
    );
    let alt = curves_alt(view, axis);
    let names = view.contenders.iter().enumerate();
    let names = names.map(|(series, contender)| (series, contender.name.as_str()));
    let grid = Grid {
        columns: panels.len().min(if panels.len() == 4 { 2 } else { 3 }),
        aspect: if panels.len() == 1 { 0.42 } else { 0.75 },
        panels,
        legend: Grid::lines(names, true),
    };
    let title = format!("Goodput against {}", short(&axis.key));
    let names = (view.name("sweep"), view.title(&title));
    let chart = Chart::new("line")
        .name("x", ("value", &axis.title()))
        .number("y", ("mean_bps", "goodput [bit/s]"))
        .name("color", ("contender", "contender"))
        .name("column", ("panel", ""));
    Some(Figure::new(names, caption, alt, (csv, chart), grid))
}

type Group<'v> = (String, Vec<&'v Point>);

/// The lines of each group, and their data.
fn lines_of(
    view: &View<'_>,
    axis: &Swept,
    numbers: &[f64],
    groups: &[Group<'_>],
) -> (Csv, Vec<Vec<Line>>) {
    let mut csv = Csv::new(&[
        "panel",
        "contender",
        "value",
        "mean_bps",
        "low_bps",
        "high_bps",
        "runs",
    ]);
    let mut drawn: Vec<Vec<Line>> = Vec::new();
    for (name, points) in groups {
        let mut lines = Vec::new();
        for (series, contender) in view.contenders.iter().enumerate() {
            let who = &contender.name;
            let mut line = Line {
                series,
                trace: Trace::Marked,
                points: Vec::new(),
                band: Vec::new(),
            };
            for (value, number) in axis.values.iter().zip(numbers) {
                let mut at = points.iter();
                let at = at.find(|p| value_of(p, &axis.key) == Some(value));
                let goodputs = at.map(|at| view.goodputs(at, who));
                let Some(summary) = goodputs.and_then(|values| Summary::of(&values)) else {
                    continue;
                };
                line.points.push((*number, summary.mean));
                if let Some(Interval { low, high }) = summary.interval {
                    line.band.push((*number, low.max(0.0), high));
                }
                let (low, high) = summary.interval.map(|i| (i.low, i.high)).unzip();
                let (low, high) = (maybe(low), maybe(high));
                let (mean, count) = (summary.mean, summary.count);
                csv.row(&[name, who, value, &mean, &low, &high, &count]);
            }
            lines.push(line);
        }
        drawn.push(lines);
    }
    (csv, drawn)
}

fn scaled(mut line: Line, factor: f64) -> Line {
    for point in &mut line.points {
        point.1 *= factor;
    }
    for point in &mut line.band {
        point.1 *= factor;
        point.2 *= factor;
    }
    line
}

/// The sum of the paths' rates as a line, if it is the same at all points and fits in the panel.
fn constant_sum(view: &View<'_>, points: &[&Point], factor: f64, most: f64) -> Option<Rule> {
    let first = view.contenders.first()?;
    let sums: Vec<u64> = points
        .iter()
        .filter_map(|point| view.runs(point, &first.name).first()?.sum_rate_bps)
        .collect();
    let sum = *sums.first()?;
    let fits = sums.iter().all(|other| *other == sum) && sum as f64 <= most * 1.06;
    fits.then(|| Rule::Bound(sum as f64 * factor, "sum of rates".to_owned()))
}

fn curves_alt(view: &View<'_>, axis: &Swept) -> String {
    let ends = |contender: &str| -> Option<String> {
        let at = |value: &str| {
            let points = view.points.iter();
            let mut points = points.filter(|point| value_of(point, &axis.key) == Some(value));
            mean(&view.goodputs(points.next()?, contender))
        };
        let (first, last) = (axis.values.first()?, axis.values.last()?);
        let (low, high) = (at(first)?, at(last)?);
        let unit = Unit::rate(low.max(high));
        let (low, high) = (low * unit.factor, high * unit.factor);
        Some(format!(
            "{contender} from {low:.2} {} at {first} to {high:.2} {} at {last}",
            unit.name, unit.name
        ))
    };
    let texts: Vec<String> = view
        .contenders
        .iter()
        .filter_map(|c| ends(&c.name))
        .collect();
    format!("Goodput: {}", texts.join(", "))
}

/// The axis of a swept key, and the positions of its values.
fn horizontal(axis: &Swept) -> (Axis, Vec<f64>) {
    let labels = axis.labels();
    let numbers: Vec<f64> = match &axis.amounts {
        Some(amounts) => amounts.clone(),
        None => (0..axis.values.len()).map(|at| at as f64).collect(),
    };
    let (first, last) = (numbers[0], numbers[numbers.len() - 1]);
    let log = first > 0.0 && last / first >= 30.0;
    let room = (last - first) * 0.03;
    let scale = if log {
        Scale::new(first / 1.1, last * 1.1, true)
    } else {
        Scale::new(first - room, last + room, false)
    };
    let ticks = numbers.iter().copied().zip(labels).collect();
    let axis = Axis {
        ticks: Some(ticks),
        ..Axis::new(axis.title(), scale)
    };
    (axis, numbers)
}

/// The two swept keys with the most values, if both have enough for an axis of a map.
fn two_axes<'v>(view: &'v View<'_>) -> Option<(&'v Swept, &'v Swept)> {
    let mut long: Vec<&Swept> = view.swept.iter().filter(|s| s.values.len() >= 3).collect();
    long.sort_by_key(|swept| std::cmp::Reverse(swept.values.len()));
    let [first, second, ..] = long.as_slice() else {
        return None;
    };
    Some((first, second))
}

struct Maps {
    drawn: Vec<Map>,
    titles: (String, String),
    values: (Vec<String>, Vec<String>),
    seen: Vec<f64>,
}

/// A map for each of `contenders` and each value of further keys.
fn maps(
    view: &View<'_>,
    contenders: &[&str],
    mut cell: impl FnMut(&str, &Point) -> Option<Cell>,
) -> Option<Maps> {
    let (across, up) = two_axes(view)?;
    let mut made = Maps {
        drawn: Vec::new(),
        titles: (across.title(), up.title()),
        values: (across.labels(), up.labels()),
        seen: Vec::new(),
    };
    for contender in contenders {
        for (name, points) in groups(view, &[across, up]) {
            let at = |x: &str, y: &str| {
                let is_there = |point: &&&Point| {
                    value_of(point, &across.key) == Some(x) && value_of(point, &up.key) == Some(y)
                };
                points.iter().find(is_there).copied()
            };
            let mut rows = Vec::new();
            for y in &up.values {
                let row = across.values.iter().map(|x| {
                    let cell = at(x, y).and_then(|point| cell(contender, point));
                    cell.unwrap_or(Cell {
                        value: None,
                        text: String::new(),
                        open: false,
                    })
                });
                rows.push(row.collect::<Vec<Cell>>());
            }
            let title = match (contenders.len(), name.is_empty()) {
                (_, true) => (*contender).to_owned(),
                (1, false) => name,
                _ => format!("{contender}: {name}"),
            };
            made.seen
                .extend(rows.iter().flatten().filter_map(|cell| cell.value));
            made.drawn.push(Map { title, cells: rows });
        }
    }
    (!made.seen.is_empty() && made.drawn.len() <= 2 * PANELS).then_some(made)
}

/// The position of a point in the maps: its panel, and its values along x and y, as in the
/// scenario.
fn place<'p>(view: &View<'_>, point: &'p Point) -> (String, &'p str, &'p str) {
    let (mut panel, mut x, mut y) = (point.clone(), "", "");
    if let Some((across, up)) = two_axes(view) {
        x = value_of(point, &across.key).unwrap_or_default();
        y = value_of(point, &up.key).unwrap_or_default();
        panel.retain(|(key, _)| *key != across.key && *key != up.key);
    }
    (crate::sweep::point(&panel), x, y)
}

/// Maps for Vega-Lite, coloured by a column.
fn map_chart(view: &View<'_>, value: (&str, &str)) -> Chart {
    let axes = two_axes(view);
    let (x, y) = axes
        .map(|(across, up)| (across.title(), up.title()))
        .unwrap_or_default();
    Chart::new("rect")
        .name("x", ("x", &x))
        .name("y", ("y", &y))
        .upwards()
        .number("color", value)
        .name("column", ("contender", "contender"))
        .name("row", ("panel", ""))
}

fn rivals<'v>(view: &'v View<'_>) -> Vec<&'v str> {
    let rivals = view.contenders.iter().filter(|contender| !contender.single);
    rivals.map(|contender| contender.name.as_str()).collect()
}

/// Columns of a map of ratios.
const RATIOS: [&str; 8] = [
    "contender",
    "panel",
    "x",
    "y",
    "ratio",
    "low",
    "high",
    "pairs",
];

/// Goodput over that of the best path alone, over two swept values.
pub(super) fn ratio_map(view: &View<'_>) -> Option<Figure> {
    let mut csv = Csv::new(&RATIOS);
    let ratio = |contender: &str, point: &Point| {
        let runs = view.runs(point, contender).iter();
        let pairs: Vec<(f64, f64)> = runs
            .filter_map(|part| {
                let best = view.best_single(point, part.repetition)?;
                Some((part.outcome.goodput_bps?, best))
            })
            .collect();
        let found = compare(&pairs)?;
        let (low, high) = found.interval.map(|i| (i.low, i.high)).unzip();
        let open = low
            .zip(high)
            .is_some_and(|(low, high)| low < 1.0 && high > 1.0);
        let (panel, x, y) = place(view, point);
        csv.row(&[
            &contender,
            &panel,
            &x,
            &y,
            &found.ratio,
            &maybe(low),
            &maybe(high),
            &found.pairs,
        ]);
        Some(Cell {
            value: Some(found.ratio),
            text: format!("{:.2}", found.ratio),
            open,
        })
    };
    let made = maps(view, &rivals(view), ratio)?;
    let furthest = made
        .seen
        .iter()
        .map(|ratio| ratio.ln().abs())
        .fold(0.0, f64::max);
    let below = made.seen.iter().filter(|ratio| **ratio < 1.0).count();
    let least = made.seen.iter().copied().fold(f64::INFINITY, f64::min);
    let most = made.seen.iter().copied().fold(0.0, f64::max);
    let alt = format!(
        "Ratios from {least:.2} to {most:.2}; below 1 at {below} of {} points",
        made.seen.len()
    );
    let caption = format!(
        "Goodput over that of the best path alone in the same repetition, geometric mean, {}. \
         Blue: several paths are better; orange: one path is. The black line parts them, by the \
         ratios as shown; ≈ marks a 95 % interval that covers 1.",
        view.count(&view.points)
    );
    let plot = Heat {
        maps: made.drawn,
        titles: made.titles,
        values: made.values,
        ramp: Ramp::Ratio(furthest.exp().max(1.25)),
        key: "ratio to best path".to_owned(),
    };
    let title = "When several paths beat the best one";
    let names = (view.name("crossover"), view.title(title));
    let chart = map_chart(view, ("ratio", "goodput over the best path alone"));
    let chart = chart.colours(Some(1.0));
    Some(Figure::new(names, caption, alt, (csv, chart), plot))
}

/// Goodput over two swept values.
pub(super) fn goodput_map(view: &View<'_>) -> Option<Figure> {
    let mut csv = Csv::new(&["contender", "panel", "x", "y", "mean_bps", "runs"]);
    let goodput = |contender: &str, point: &Point| {
        let values = view.goodputs(point, contender);
        let value = mean(&values)?;
        let (panel, x, y) = place(view, point);
        csv.row(&[&contender, &panel, &x, &y, &value, &values.len()]);
        Some(Cell {
            value: Some(value),
            text: String::new(),
            open: false,
        })
    };
    let mut made = maps(view, &rivals(view), goodput)?;
    let least = made.seen.iter().copied().fold(f64::INFINITY, f64::min);
    let most = made.seen.iter().copied().fold(0.0, f64::max);
    let unit = Unit::rate(most);
    // A cell has room for three significant digits.
    let digits = decimals(most * unit.factor / 30.0).min(2);
    for cell in made
        .drawn
        .iter_mut()
        .flat_map(|map| &mut map.cells)
        .flatten()
    {
        if let Some(value) = &mut cell.value {
            *value *= unit.factor;
            cell.text = format!("{value:.digits$}");
        }
    }
    let (least, most) = (least * unit.factor, most * unit.factor);
    let alt = format!("Goodput from {least:.2} to {most:.2} {}", unit.name);
    let caption = format!("Mean goodput of each point, {}.", view.count(&view.points));
    let plot = Heat {
        maps: made.drawn,
        titles: made.titles,
        values: made.values,
        ramp: Ramp::Even(least, most),
        key: unit.title("goodput"),
    };
    let names = (view.name("map"), view.title("Goodput over two values"));
    let chart = map_chart(view, ("mean_bps", "goodput [bit/s]")).colours(None);
    Some(Figure::new(names, caption, alt, (csv, chart), plot))
}
