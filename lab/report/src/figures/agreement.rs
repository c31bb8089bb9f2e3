//! Agreement between two backends.

use super::{Csv, Figure};
use crate::compare::{self, Options};
use crate::draw::{Axis, Grid, Line, Panel, Rule, Scale, Trace, Unit};
use crate::study::Study;
use crate::vega::Chart;

type Pairs = Vec<(f64, f64)>;

/// Goodput in the first folder against each of the others, point by point.
pub(super) fn scatter(study: &Study) -> Option<Figure> {
    let (first, others) = study.folders.split_first()?;
    let options = Options::default();
    let mut csv = Csv::new(&["world", "contender", "point", "first_bps", "second_bps"]);
    let mut found: Vec<(usize, String, Pairs)> = Vec::new();
    for (series, other) in others.iter().enumerate() {
        let lines = compare::lines(first, Some(other), &options);
        let mut points = Vec::new();
        for line in lines.iter().filter(|line| line.metric == "goodput") {
            let (Some(a), Some(b)) = (line.first, line.second) else {
                continue;
            };
            csv.row(&[&other.backend, &line.contender, &line.point, &a, &b]);
            points.push((a, b));
        }
        if !points.is_empty() {
            found.push((series, study.label(series + 1), points));
        }
    }
    let all = || found.iter().flat_map(|(.., points)| points);
    let most = all().map(|(a, b)| a.max(*b)).reduce(f64::max)?;
    let unit = Unit::rate(most);
    let bins = || Scale::from_zero([most * unit.factor].into_iter());
    let x = Axis::new(
        unit.title(&format!("goodput in {}", study.label(0))),
        bins(),
    );
    let y = Axis::new(unit.title("goodput in the other"), bins());
    let mut panel = Panel::new("", x, y);
    panel.rules.push(Rule::Diagonal(options.goodput));
    let within = |(a, b): &&(f64, f64)| (b / a - 1.0).abs() <= options.goodput;
    let (good, count) = (all().filter(within).count(), all().count());
    for (series, _, points) in &found {
        let scaled = points
            .iter()
            .map(|(a, b)| (a * unit.factor, b * unit.factor));
        panel.lines.push(Line {
            series: *series,
            trace: Trace::Marks,
            points: scaled.collect(),
            band: Vec::new(),
        });
    }
    let alt = format!("{good} of {count} points lie within the band around the diagonal");
    let caption = format!(
        "Mean goodput of each contender at each point in both worlds; shaded: within {:.0} % of \
         each other. {good} of {count} points lie there.",
        options.goodput * 100.0
    );
    let names = found
        .iter()
        .map(|(series, name, _)| (*series, name.as_str()));
    let mut grid = Grid::one(panel, Grid::lines(names, true));
    grid.aspect = 0.7;
    let name = format!("{}-agreement", study.name);
    let names = (name, "Agreement of both worlds".to_owned());
    let chart = Chart::new("point")
        .number("x", ("first_bps", "goodput in the first results [bit/s]"))
        .number("y", ("second_bps", "goodput in the others [bit/s]"))
        .name("color", ("contender", "contender"))
        .name("shape", ("world", "world"));
    Some(Figure::new(names, caption, alt, (csv, chart), grid))
}
