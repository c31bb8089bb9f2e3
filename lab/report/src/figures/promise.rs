//! How often several links are faster than the better one, and how close they come to an oracle.

use super::{Csv, Figure};
use crate::draw::{Axis, Grid, Line, Panel, Rule, Scale, Trace};
use crate::vega::Chart;
use anabranch_lab::promise::Measured;

/// Ratios beyond these are drawn at the edge.
const EDGES: (f64, f64) = (0.1, 10.0);

/// The distributions of both ratios over worlds; `None` without any.
pub fn promise(measured: &[Measured]) -> Option<Figure> {
    if measured.is_empty() {
        return None;
    }
    let found = ratios(measured);
    let mut csv = Csv::new(&["ratio_of", "ratio", "share"]);
    let mut panel = Panel::new(
        "",
        Axis::new("ratio of times", Scale::new(EDGES.0, EDGES.1, true)),
        Axis::new("share of worlds", Scale::new(0.0, 1.0, false)),
    );
    for (series, (name, ratios)) in found.iter().enumerate() {
        let mut points = vec![(EDGES.0, 0.0)];
        for (at, ratio) in ratios.iter().enumerate() {
            let share = (at + 1) as f64 / ratios.len() as f64;
            csv.row(&[name, ratio, &share]);
            points.push((ratio.clamp(EDGES.0, EDGES.1), share));
        }
        if ratios.is_empty() {
            continue;
        }
        points.push((EDGES.1, 1.0));
        panel.lines.push(Line {
            series,
            trace: Trace::Step,
            points,
            band: Vec::new(),
        });
    }
    panel.rules.push(Rule::Event(1.0, "equal".to_owned()));
    let slower = measured.iter().filter(|one| one.gain() < 1.0).count();
    let (slower, count) = (
        100.0 * slower as f64 / measured.len() as f64,
        measured.len(),
    );
    let legend = found.iter().enumerate();
    let legend = legend.map(|(series, (name, _))| (series, *name));
    Some(Figure::new(
        (
            "promise".to_owned(),
            "All links against the better one".to_owned(),
        ),
        format!(
            "Share of {count} random worlds below a ratio. Left of 1, all links together took \
             longer: than the better link alone, or than an oracle that gets from each link what \
             that link delivers alone."
        ),
        format!("In {slower:.1} % of {count} worlds all links were slower than the better one."),
        (
            csv,
            Chart::new("line")
                .steps()
                .number("x", ("ratio", "ratio of times"))
                .number("y", ("share", "share of worlds"))
                .name("color", ("ratio_of", "ratio of")),
        ),
        Grid::one(panel, Grid::lines(legend, false)),
    ))
}

/// Both ratios of all worlds, sorted, with their names.
fn ratios(measured: &[Measured]) -> [(&'static str, Vec<f64>); 2] {
    let sorted = |mut ratios: Vec<f64>| {
        ratios.sort_by(f64::total_cmp);
        ratios
    };
    let gains = measured.iter().map(Measured::gain).collect();
    let reached = measured.iter().filter_map(Measured::of_oracle).collect();
    [
        ("better link alone / all links", sorted(gains)),
        ("oracle / all links", sorted(reached)),
    ]
}
