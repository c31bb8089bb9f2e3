//! This project's own experiments: the engine beside the kernel's multipath TCP, over the same
//! links in the same run. They are meaningful only in real kernels.

use super::data::{Data, Worst, figure};
use super::{Check, Experiment, Statement};
use anabranch_lab::results::Part;

pub(super) const EXPERIMENTS: &[Experiment] = &[
    experiment(
        &["rivals-pairs"],
        "pairs of links, alike and unlike",
        include_str!("rivals-pairs.toml"),
        |data| goodput(data, "rivals-pairs"),
    ),
    experiment(
        &["rivals-loss"],
        "random loss up to 8 %",
        include_str!("rivals-loss.toml"),
        |data| goodput(data, "rivals-loss"),
    ),
    experiment(
        &["rivals-files"],
        "small files",
        include_str!("rivals-files.toml"),
        files,
    ),
    experiment(
        &["rivals-buffer"],
        "small receive buffers",
        include_str!("rivals-buffer.toml"),
        buffer,
    ),
    experiment(
        &["rivals-cut"],
        "a path that goes silent and returns",
        include_str!("rivals-cut.toml"),
        cut,
    ),
];

const fn experiment(
    ids: &'static [&'static str],
    about: &'static str,
    scenario: &'static str,
    judge: fn(&Data<'_>) -> Vec<Statement>,
) -> Experiment {
    Experiment {
        ids,
        source: "this project",
        about,
        check: Check::Measured {
            scenario,
            quick: &[],
            quick_set: &[],
            quick_runs: None,
            judge,
        },
    }
}

/// A figure counts as less if it is below this part of the rival's, the margin that reports use.
const NOT_LESS: f64 = 0.98;

const ENGINE: &str = "engine";
const RIVAL: &str = "kernel-mptcp";

/// Our figure where the rival did not run.
const NO_RIVAL: &str = "no rival here";

/// When the path of `rivals-cut` fails, when it comes back, and when the flow ends, in seconds.
const CUT: (f64, f64, f64) = (4.0, 10.0, 16.0);

/// How many times sooner the engine must resume.
const SOONER: f64 = 5.0;

/// The statement that at each point of the sweep, the figure of `engine` is at least `factor` times
/// that of the kernel's multipath TCP, or the inverse where less is better. Without that rival it
/// is reported, not judged.
fn against(
    data: &Data<'_>,
    number: (&str, &str),
    engine: &str,
    text: &str,
    (factor, get): (f64, impl Fn(&Data<'_>, &str, &[(&str, &str)]) -> f64),
) -> Statement {
    let bar = format!("{factor} or more");
    if !has_rival(data) {
        return Statement::new(number, text, &bar, NO_RIVAL, false).told();
    }
    let mut worst = Worst::default();
    for point in data.points() {
        let at: Vec<(&str, &str)> = point
            .iter()
            .map(|(key, value)| (key.rsplit('.').next().unwrap_or(key), value.as_str()))
            .collect();
        let ratio = get(data, engine, &at);
        let place: Vec<&str> = at.iter().map(|(_, value)| *value).collect();
        worst.add(ratio, place.join(" "), ratio >= factor);
    }
    worst.statement(number, text, &bar)
}

/// Whether the rival ran at all: the simulator does not have it.
fn has_rival(data: &Data<'_>) -> bool {
    data.runs(RIVAL, &[]).next().is_some()
}

fn goodput_ratio(data: &Data<'_>, engine: &str, at: &[(&str, &str)]) -> f64 {
    data.goodput(engine, at) / data.goodput(RIVAL, at)
}

fn goodput(data: &Data<'_>, id: &str) -> Vec<Statement> {
    let text = "goodput over that of the kernel's multipath TCP";
    vec![against(
        data,
        (id, "R1"),
        ENGINE,
        text,
        (NOT_LESS, goodput_ratio),
    )]
}

fn files(data: &Data<'_>) -> Vec<Statement> {
    let time = |data: &Data<'_>, engine: &str, at: &[(&str, &str)]| {
        let median = |who: &str| data.mean(who, at, |part| part.outcome.unit_p50_s);
        median(RIVAL) / median(engine)
    };
    let text = "time for a file: the kernel's multipath TCP over the engine";
    vec![against(
        data,
        ("rivals-files", "R1"),
        ENGINE,
        text,
        (NOT_LESS, time),
    )]
}

fn buffer(data: &Data<'_>) -> Vec<Statement> {
    let id = "rivals-buffer";
    let equal = "goodput over that of the kernel's multipath TCP, same buffer asked for";
    let wide = "the same with the window that the kernel really advertises";
    vec![
        against(data, (id, "R1"), ENGINE, equal, (NOT_LESS, goodput_ratio)),
        against(data, (id, "R2"), "as-wide", wide, (NOT_LESS, goodput_ratio)),
    ]
}

fn cut(data: &Data<'_>) -> Vec<Statement> {
    let id = "rivals-cut";
    let ratio = |get: fn(&Part) -> Option<f64>| {
        move |data: &Data<'_>, engine: &str, at: &[(&str, &str)]| {
            data.mean(RIVAL, at, get) / data.mean(engine, at, get)
        }
    };
    let timed = |number: &str, text: &str, get: fn(&Part) -> Option<f64>| {
        let of = |who: &str| figure(data.mean(who, &[], get));
        let statement = against(data, (id, number), ENGINE, text, (SOONER, ratio(get)));
        let kernel = if has_rival(data) {
            format!(", kernel {} s", of(RIVAL))
        } else {
            String::new()
        };
        let ours = format!("{} s{kernel}; {}", of(ENGINE), statement.ours);
        Statement { ours, ..statement }
    };
    let text = "goodput over that of the kernel's multipath TCP";
    vec![
        timed("R1", "pause after the silence: kernel over engine", pause),
        timed(
            "R2",
            "until both paths carry again: kernel over engine",
            back,
        ),
        against(data, (id, "R3"), ENGINE, text, (NOT_LESS, goodput_ratio)),
    ]
}

/// The ends of bins, and the bytes delivered to the application in each.
fn delivered(part: &Part) -> Vec<(f64, u64)> {
    let series = part.outcome.series.iter().filter(|bin| bin.path == 0);
    series.map(|bin| (bin.t_s, bin.goodput_bytes)).collect()
}

/// The longest time in seconds without delivery that begins while the path is silent; it ends with
/// the flow at the latest. `None` if nothing was delivered before.
fn pause(part: &Part) -> Option<f64> {
    let (from, to, end) = CUT;
    let bins = delivered(part);
    let times = bins.iter().filter(|(_, bytes)| *bytes > 0).map(|bin| bin.0);
    let before = times
        .clone()
        .filter(|time| *time <= from)
        .max_by(f64::total_cmp)?;
    let after = times.filter(|time| *time > from).chain([end]);
    let times: Vec<f64> = [before].into_iter().chain(after).collect();
    let pairs = times.windows(2).filter(|pair| pair[0] < to);
    pairs.map(|pair| pair[1] - pair[0]).max_by(f64::total_cmp)
}

/// Seconds from the path's return until half a second reaches four fifths of the rate before the
/// silence, or until the end of the flow if none does.
fn back(part: &Part) -> Option<f64> {
    let (from, to, end) = CUT;
    let bins = delivered(part);
    let sum = |a: f64, b: f64| -> u64 {
        let within = bins.iter().filter(|(t, _)| *t > a + 1e-9 && *t <= b + 1e-9);
        within.map(|bin| bin.1).sum()
    };
    let before = sum(from - 2.0, from) as f64 / 2.0;
    let starts = bins
        .iter()
        .map(|bin| bin.0)
        .filter(|t| *t >= to && *t + 0.5 <= end);
    let again = starts
        .into_iter()
        .find(|&t| sum(t, t + 0.5) as f64 / 0.5 >= 0.8 * before);
    (before > 0.0).then(|| again.unwrap_or(end) - to)
}
