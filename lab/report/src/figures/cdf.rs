//! The distribution of completion times.

use super::view::View;
use super::{Csv, Figure};
use crate::draw::{Axis, Grid, Line, Panel, Scale, Trace, Unit};
use crate::vega::Chart;
use anabranch_lab::stats::quantile;

/// With fewer runs, a distribution says less than its mean.
const LEAST: usize = 5;

/// Half the width of a band that contains the whole distribution with 95 % confidence (Dvoretzky,
/// Kiefer, Wolfowitz; constant by Massart 1990).
fn half_width(count: usize) -> f64 {
    ((2.0 / 0.05f64).ln() / (2.0 * count as f64)).sqrt()
}

/// Completion times of each contender at the view's point.
pub(super) fn completion(view: &View<'_>) -> Option<Figure> {
    let mut csv = Csv::new(&["contender", "completion_s", "share", "low", "high"]);
    let found = times(view);
    let all = || found.iter().flat_map(|(.., times)| times).copied();
    let (least, most) = (all().reduce(f64::min)?, all().reduce(f64::max)?);
    // Flows of a fixed duration all take that long, so there is nothing to show.
    if most / least < 1.001 {
        return None;
    }
    let unit = Unit::time(most);
    let x = Scale::new(least * unit.factor * 0.97, most * unit.factor * 1.03, true);
    let y = Axis::new("share of runs", Scale::new(0.0, 1.0, false));
    let mut panel = Panel::new("", Axis::new(unit.title("completion time"), x), y);
    for (series, name, times) in &found {
        let count = times.len() as f64;
        let half = half_width(times.len());
        let mut points = vec![(times[0] * unit.factor, 0.0)];
        let mut band: Vec<(f64, f64, f64)> = Vec::new();
        for (at, time) in times.iter().enumerate() {
            let share = (at + 1) as f64 / count;
            let (low, high) = ((share - half).max(0.0), (share + half).min(1.0));
            csv.row(&[name, time, &share, &low, &high]);
            let x = time * unit.factor;
            if let Some((.., before, above)) = band.last().copied() {
                band.push((x, before, above));
            }
            band.push((x, low, high));
            points.push((x, share));
        }
        points.push((x.range().1, 1.0));
        panel.lines.push(Line {
            series: *series,
            trace: Trace::Step,
            points,
            band,
        });
    }
    let median = |times: &[f64]| quantile(times, 0.5).unwrap_or(f64::NAN) * unit.factor;
    let alt: Vec<String> = found
        .iter()
        .map(|(_, name, times)| format!("{name} {:.3} {}", median(times), unit.name))
        .collect();
    let alt = format!("Median completion time: {}", alt.join(", "));
    let caption = format!(
        "Share of runs that were complete by a time{}; shaded: 95 % band of the whole \
         distribution (Dvoretzky, Kiefer and Wolfowitz), {}.",
        view.place(),
        view.count(std::slice::from_ref(&view.at))
    );
    let legend = Grid::lines(
        found.iter().map(|(series, name, _)| (*series, *name)),
        false,
    );
    let names = (view.name("completion"), view.title("Completion times"));
    let chart = Chart::new("line")
        .steps()
        .number("x", ("completion_s", "completion time [s]"))
        .number("y", ("share", "share of runs"))
        .name("color", ("contender", "contender"));
    Some(Figure::new(
        names,
        caption,
        alt,
        (csv, chart),
        Grid::one(panel, legend),
    ))
}

/// The sorted completion times of contenders with enough runs, with their series' numbers.
fn times<'v>(view: &'v View<'_>) -> Vec<(usize, &'v str, Vec<f64>)> {
    let mut found: Vec<(usize, &str, Vec<f64>)> = Vec::new();
    for (series, contender) in view.contenders.iter().enumerate() {
        let runs = view.runs(&view.at, &contender.name).iter();
        let times = runs.filter_map(|part| part.outcome.completion_s);
        let mut times: Vec<f64> = times.filter(|time| *time > 0.0).collect();
        if times.len() >= LEAST {
            times.sort_by(f64::total_cmp);
            found.push((series, &contender.name, times));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_band_has_the_width_of_the_literature() {
        // 1.3581 / sqrt(n), the known quantile of Kolmogorov's distribution for large n.
        assert!((half_width(100) - 0.135_81).abs() < 1e-4);
    }
}
