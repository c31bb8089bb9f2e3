//! Contenders side by side.

use super::view::{View, mean};
use super::{Csv, Figure};
use crate::draw::{Dot, Dots, Reference, Scale, Unit};
use crate::sweep::point;
use crate::vega::Chart;
use anabranch_lab::results::Part;
use anabranch_lab::stats::{Summary, aggregation_gain, quantile};

/// Up to this number, runs are shown individually.
const SHOWN: usize = 30;

/// Goodput of each contender, unless something is swept.
pub(super) fn goodput(view: &View<'_>) -> Option<Figure> {
    if !view.swept.is_empty() {
        return None;
    }
    let mut csv = Csv::new(&["contender", "single", "run_id", "repetition", "goodput_bps"]);
    let mut rows = Vec::new();
    for (series, contender) in view.contenders.iter().enumerate() {
        for part in view.runs(&view.at, &contender.name) {
            let goodput = super::maybe(part.outcome.goodput_bps);
            let single = u8::from(contender.single);
            csv.row(&[
                &contender.name,
                &single,
                &part.run_id,
                &part.repetition,
                &goodput,
            ]);
        }
        let values = view.goodputs(&view.at, &contender.name);
        if let Some(dot) = dot(series, &values) {
            rows.push((contender.name.clone(), vec![dot]));
        }
    }
    let first = rows.first()?.0.clone();
    let sum = view
        .runs(&view.at, &first)
        .first()
        .and_then(|part| part.sum_rate_bps);
    let best = view.contenders.iter().filter(|contender| contender.single);
    let best = best.filter_map(|contender| mean(&view.goodputs(&view.at, &contender.name)));
    let mut references = Vec::new();
    if let Some(sum) = sum {
        references.push(reference(sum as f64, "sum of the paths' rates"));
    }
    if let Some(best) = best.reduce(f64::max) {
        references.push(reference(best, "best path alone"));
    }
    let (alt, plot) = dots(rows, references, "goodput", Unit::rate);
    let caption = format!(
        "Mark: mean; bar: its 95 % interval (Student's t), {}; squares: single runs{}.",
        view.count(std::slice::from_ref(&view.at)),
        if plot.references.is_empty() {
            ""
        } else {
            "; dashed: what it is measured against"
        }
    );
    let names = (
        view.name("goodput"),
        view.title("Goodput of each contender"),
    );
    let chart = Chart::new("point")
        .number("x", ("goodput_bps", "goodput [bit/s]"))
        .name("y", ("contender", "contender"));
    Some(Figure::new(names, caption, alt, (csv, chart), plot))
}

/// The gain over the best path, as a share of the possible gain.
pub(super) fn gain(view: &View<'_>) -> Option<Figure> {
    let mut csv = Csv::new(&["contender", "point", "repetition", "run_id", "gain"]);
    let mut rows = Vec::new();
    for (series, contender) in view
        .contenders
        .iter()
        .enumerate()
        .filter(|(_, c)| !c.single)
    {
        let mut gains = Vec::new();
        for at in &view.points {
            for part in view.runs(at, &contender.name) {
                if let Some(gain) = gain_of(view, part) {
                    csv.row(&[
                        &contender.name,
                        &point(at),
                        &part.repetition,
                        &part.run_id,
                        &gain,
                    ]);
                    gains.push(gain);
                }
            }
        }
        let quartiles = [0.25, 0.5, 0.75].map(|share| quantile(&gains, share));
        let (Some(value), [Some(low), Some(middle), Some(high)]) = (mean(&gains), quartiles) else {
            continue;
        };
        let few = gains.len() <= 4 * SHOWN;
        let dot = Dot {
            series,
            value,
            interval: None,
            quartiles: (gains.len() >= 4).then_some([low, middle, high]),
            points: if few { gains } else { Vec::new() },
        };
        rows.push((contender.name.clone(), vec![dot]));
    }
    if rows.is_empty() {
        return None;
    }
    let references = vec![
        reference(0.0, "best path alone"),
        reference(1.0, "sum of all paths"),
    ];
    let unit = |_| Unit::bare("");
    let (alt, plot) = dots(rows, references, "gain", unit);
    let caption = "Gain over the best path alone: 1 if the goodputs of all paths add up, 0 if it \
                   is that of the best one, −1 if nothing arrives. Box: quartiles over all points \
                   and repetitions; mark: mean; squares: single runs."
        .to_owned();
    let names = (
        view.name("gain"),
        view.title("Gain of each contender over the best path"),
    );
    let chart = Chart::new("boxplot")
        .number("x", ("gain", "gain"))
        .name("y", ("contender", "contender"));
    Some(Figure::new(names, caption, alt, (csv, chart), plot))
}

fn gain_of(view: &View<'_>, part: &Part) -> Option<f64> {
    let singles = view.paths_alone(&part.swept, part.repetition);
    // All paths must have been measured alone, or their sum is too small.
    if singles.len() < part.outcome.paths.len().max(2) {
        return None;
    }
    aggregation_gain(part.outcome.goodput_bps?, &singles)
}

type Quantile = (&'static str, fn(&Part) -> Option<f64>);

const WAITS: [Quantile; 3] = [
    ("median", |part| part.outcome.reseq_wait_p50_s),
    ("95th percentile", |part| part.outcome.reseq_wait_p95_s),
    ("99th percentile", |part| part.outcome.reseq_wait_p99_s),
];

/// How long bytes wait for earlier ones.
pub(super) fn wait(view: &View<'_>) -> Option<Figure> {
    let mut csv = Csv::new(&["contender", "quantile", "mean_s", "low_s", "high_s", "runs"]);
    let mut rows = Vec::new();
    for contender in view.contenders.iter().filter(|contender| !contender.single) {
        let runs = view.runs(&view.at, &contender.name);
        let mut dots = Vec::new();
        for (series, (name, get)) in WAITS.iter().enumerate() {
            let values: Vec<f64> = runs.iter().filter_map(|part| get(part)).collect();
            let Some(mut one) = dot(series, &values) else {
                continue;
            };
            one.points.clear();
            // A wait cannot be negative, although a symmetric interval may reach below zero.
            one.interval = one.interval.map(|(low, high)| (low.max(0.0), high));
            let (low, high) = one.interval.unzip();
            let (low, high) = (super::maybe(low), super::maybe(high));
            csv.row(&[
                &contender.name,
                name,
                &one.value,
                &low,
                &high,
                &values.len(),
            ]);
            dots.push(one);
        }
        if !dots.is_empty() {
            rows.push((contender.name.clone(), dots));
        }
    }
    let most = rows
        .iter()
        .flat_map(|(_, dots)| dots)
        .map(|dot| dot.value)
        .fold(0.0, f64::max);
    if most <= 0.0 {
        return None;
    }
    let (alt, mut plot) = dots(rows, Vec::new(), "time behind a gap", Unit::time);
    plot.legend = WAITS
        .iter()
        .enumerate()
        .map(|(series, (name, _))| (series, (*name).to_owned()))
        .collect();
    let caption = format!(
        "How long bytes that had arrived waited for those before them{}: quantiles over bytes, \
         mean over runs with its 95 % interval (Student's t), {}.",
        view.place(),
        view.count(std::slice::from_ref(&view.at))
    );
    let names = (view.name("wait"), view.title("Delay by re-sequencing"));
    let chart = Chart::new("point")
        .number("x", ("mean_s", "delay by re-sequencing [s]"))
        .name("y", ("contender", "contender"))
        .name("color", ("quantile", "quantile"));
    Some(Figure::new(names, caption, alt, (csv, chart), plot))
}

fn reference(at: f64, name: &str) -> Reference {
    Reference {
        at,
        name: name.to_owned(),
    }
}

/// The mean of these values with its interval.
fn dot(series: usize, values: &[f64]) -> Option<Dot> {
    let summary = Summary::of(values)?;
    let few = values.len() > 1 && values.len() <= SHOWN;
    Some(Dot {
        series,
        value: summary.mean,
        interval: summary
            .interval
            .map(|interval| (interval.low, interval.high)),
        quartiles: None,
        points: if few { values.to_vec() } else { Vec::new() },
    })
}

/// Rows of figures in a suitable unit, and their description.
fn dots(
    mut rows: Vec<(String, Vec<Dot>)>,
    mut references: Vec<Reference>,
    what: &str,
    unit: impl Fn(f64) -> Unit,
) -> (String, Dots) {
    let values = rows.iter().flat_map(|(_, dots)| dots).flat_map(|dot| {
        let ends = dot
            .interval
            .map(|(low, high)| [low, high])
            .into_iter()
            .flatten();
        ends.chain([dot.value]).chain(dot.points.iter().copied())
    });
    let places = references.iter().map(|reference| reference.at);
    let all: Vec<f64> = values.chain(places).collect();
    let unit = unit(all.iter().copied().fold(0.0, f64::max));
    let factor = unit.factor;
    for dot in rows.iter_mut().flat_map(|(_, dots)| dots) {
        dot.value *= factor;
        dot.interval = dot
            .interval
            .map(|(low, high)| (low * factor, high * factor));
        dot.quartiles = dot.quartiles.map(|ends| ends.map(|end| end * factor));
        for point in &mut dot.points {
            *point *= factor;
        }
    }
    for reference in &mut references {
        reference.at *= factor;
    }
    let mut alt = format!("{}: ", unit.title(what));
    let texts: Vec<String> = rows
        .iter()
        .map(|(name, dots)| {
            let values: Vec<String> = dots.iter().map(|dot| format!("{:.2}", dot.value)).collect();
            format!("{name} {}", values.join(" / "))
        })
        .collect();
    alt.push_str(&texts.join(", "));
    let plot = Dots {
        rows,
        title: unit.title(what),
        scale: Scale::from_zero(all.into_iter().map(|value| value * factor)),
        references,
        legend: Vec::new(),
    };
    (alt, plot)
}
