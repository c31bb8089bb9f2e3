//! Compares two folders of results: simulator and emulator, or two versions.

use crate::error::ReportError;
use crate::load::Folder;
use crate::sweep::point;
use anabranch_lab::results::{Part, Status};
use anabranch_lab::stats::{self, Interval, student_quantile};
use anabranch_lab::words::counted;
use serde::Serialize;
use std::collections::BTreeMap;

/// How far results may differ.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// For the ratio of goodputs: 0.05 means 5 %.
    pub goodput: f64,
    /// For the ratio of completion times, of short flows and of units.
    pub completion: f64,
    /// A flow that takes fewer seconds than this is short: its time is compared, not its goodput.
    pub short_s: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            goodput: 0.05,
            completion: 0.10,
            short_s: 2.0,
        }
    }
}

/// The result of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Judgement {
    /// The ratio and its whole interval are within the tolerance.
    Agrees,
    /// The ratio is within the tolerance, but its interval is not, or there is none for single
    /// runs. More repetitions would decide.
    Unclear,
    /// The ratio is beyond the tolerance.
    Disagrees,
    /// Not measured on one side.
    Missing,
}

impl Judgement {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Agrees => "agrees",
            Self::Unclear => "unclear",
            Self::Disagrees => "DISAGREES",
            Self::Missing => "missing",
        }
    }
}

/// One figure of one contender at one point in both folders.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    /// The scenario.
    pub scenario: String,
    /// The swept values in readable form; empty if nothing is swept.
    pub point: String,
    /// The contender.
    pub contender: String,
    /// `goodput`, `completion` or `unit` (median time of a file, request or datagram).
    pub metric: &'static str,
    /// Mean in the first folder: bits per second, or seconds.
    pub first: Option<f64>,
    /// Mean in the second.
    pub second: Option<f64>,
    /// The number of runs that ended well in each folder.
    pub runs: (usize, usize),
    /// Whether the comparison is paired by repetition.
    pub paired: bool,
    /// The second over the first, as a geometric mean.
    pub ratio: Option<f64>,
    /// Lower end of its 95 % interval.
    pub low: Option<f64>,
    /// Upper end of its 95 % interval.
    pub high: Option<f64>,
    /// How far the ratio may be from 1.
    pub tolerance: f64,
    /// The verdict.
    pub judgement: Judgement,
}

/// The comparison of two sets of folders.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Comparison {
    /// All figures.
    pub lines: Vec<Line>,
    /// Scenarios that only one of them has, and runs that did not end well.
    pub remarks: Vec<String>,
}

impl Comparison {
    /// The number of figures with this judgement.
    pub fn count(&self, judgement: Judgement) -> usize {
        let lines = self.lines.iter();
        lines.filter(|line| line.judgement == judgement).count()
    }

    /// Whether nothing disagrees and nothing is missing.
    pub fn is_good(&self) -> bool {
        self.count(Judgement::Disagrees) + self.count(Judgement::Missing) == 0
    }

    /// All figures as comma-separated values.
    pub fn csv(&self) -> String {
        let mut csv = crate::figures::Csv::new(&[
            "scenario",
            "point",
            "contender",
            "metric",
            "first",
            "second",
            "runs_first",
            "runs_second",
            "paired",
            "ratio",
            "low",
            "high",
            "tolerance",
            "judgement",
        ]);
        for line in &self.lines {
            let [first, second, ratio, low, high] =
                [line.first, line.second, line.ratio, line.low, line.high]
                    .map(crate::figures::maybe);
            csv.row(&[
                &line.scenario,
                &line.point,
                &line.contender,
                &line.metric,
                &first,
                &second,
                &line.runs.0,
                &line.runs.1,
                &line.paired,
                &ratio,
                &low,
                &high,
                &line.tolerance,
                &line.judgement.name().to_lowercase(),
            ]);
        }
        csv.text()
    }
}

/// Compares folders scenario by scenario. What only one side has is reported as missing.
///
/// # Errors
/// [`ReportError::Input`] if they have no scenario in common.
pub fn compare(
    first: &[Folder],
    second: &[Folder],
    options: &Options,
) -> Result<Comparison, ReportError> {
    let mut comparison = Comparison::default();
    let mut met = false;
    for a in first {
        let Some(b) = second.iter().find(|b| b.scenario() == a.scenario()) else {
            let remark = format!("{}: only in {}", a.scenario(), a.path.display());
            comparison.remarks.push(remark);
            comparison.lines.extend(lines(a, None, options));
            continue;
        };
        met = true;
        comparison.lines.extend(lines(a, Some(b), options));
        for folder in [a, b] {
            let failures = folder.report.failures.len();
            if failures > 0 {
                let (path, runs) = (folder.path.display(), counted(failures, "run"));
                let remark = format!("{path}: {runs} left out, as not ended well");
                comparison.remarks.push(remark);
            }
            if folder.busy > 0 {
                let (path, busy) = (folder.path.display(), folder.busy);
                let all = counted(folder.parts.len(), "run");
                let remark = format!(
                    "{path}: the machine was busy with other things during {busy} of {all}: \
                     hosts answered late"
                );
                comparison.remarks.push(remark);
            }
        }
    }
    for b in second {
        if !first.iter().any(|a| a.scenario() == b.scenario()) {
            let remark = format!("{}: only in {}", b.scenario(), b.path.display());
            comparison.remarks.push(remark);
            let gap = |line: Line| Line {
                first: None,
                second: line.first,
                runs: (0, line.runs.0),
                ..line
            };
            let missing = lines(b, None, options).into_iter().map(gap);
            comparison.lines.extend(missing);
        }
    }
    if met {
        return Ok(comparison);
    }
    let name = |folders: &[Folder]| {
        let names: Vec<&str> = folders.iter().map(Folder::scenario).collect();
        names.join(", ")
    };
    let what = format!("holds {}, the other {}", name(second), name(first));
    let path = second
        .first()
        .map(|folder| folder.path.clone())
        .unwrap_or_default();
    Err(ReportError::input(
        &path,
        what,
        "compare two results of the same scenario",
    ))
}

type Cells<'a> = BTreeMap<(String, &'a str), BTreeMap<u64, &'a Part>>;

/// Compares two folders of one scenario; without a second one, all figures of the first are missing
/// there.
pub(crate) fn lines(first: &Folder, second: Option<&Folder>, options: &Options) -> Vec<Line> {
    let (ours, theirs) = (&first.parts[..], second.map_or(&[][..], |b| &b.parts[..]));
    let (a, b) = (cells(ours), cells(theirs));
    let mut order: Vec<(String, &str)> = Vec::new();
    for part in ours.iter().chain(theirs) {
        let key = (point(&part.swept), part.contender.as_str());
        if !order.contains(&key) {
            order.push(key);
        }
    }
    let empty = BTreeMap::new();
    let mut found = Vec::new();
    for key in &order {
        let pair = (a.get(key).unwrap_or(&empty), b.get(key).unwrap_or(&empty));
        for metric in metrics(pair, options) {
            let (point, contender) = (key.0.clone(), key.1.to_owned());
            let mut line = line(pair, &metric);
            (line.scenario, line.point, line.contender) =
                (first.scenario().to_owned(), point, contender);
            found.push(line);
        }
    }
    found
}

fn cells(parts: &[Part]) -> Cells<'_> {
    let mut cells: Cells<'_> = BTreeMap::new();
    let ok = |part: &&Part| part.outcome.status == Status::Ok;
    for part in parts.iter().filter(ok) {
        let key = (point(&part.swept), part.contender.as_str());
        cells.entry(key).or_default().insert(part.repetition, part);
    }
    cells
}

struct Metric {
    name: &'static str,
    get: fn(&Part) -> Option<f64>,
    tolerance: f64,
}

type Runs<'r, 'a> = &'r BTreeMap<u64, &'a Part>;

/// The figures to compare: completion time if all flows are too short for a meaningful goodput,
/// else goodput.
fn metrics((a, b): (Runs<'_, '_>, Runs<'_, '_>), options: &Options) -> Vec<Metric> {
    let completion: fn(&Part) -> Option<f64> = |part| part.outcome.completion_s;
    let unit: fn(&Part) -> Option<f64> = |part| part.outcome.unit_p50_s;
    let times: Vec<f64> = a
        .values()
        .chain(b.values())
        .filter_map(|p| completion(p))
        .collect();
    let longest = times.into_iter().reduce(f64::max);
    let mut metrics = Vec::new();
    if longest.is_some_and(|longest| longest < options.short_s) {
        metrics.push(Metric {
            name: "completion",
            get: completion,
            tolerance: options.completion,
        });
    } else {
        metrics.push(Metric {
            name: "goodput",
            get: |part| part.outcome.goodput_bps,
            tolerance: options.goodput,
        });
    }
    let many = |runs: Runs<'_, '_>| {
        runs.values()
            .any(|part| part.outcome.units > 1 && unit(part).is_some())
    };
    if many(a) && many(b) {
        metrics.push(Metric {
            name: "unit",
            get: unit,
            tolerance: options.completion,
        });
    }
    metrics
}

fn line((a, b): (Runs<'_, '_>, Runs<'_, '_>), metric: &Metric) -> Line {
    let values = |runs: Runs<'_, '_>| -> BTreeMap<u64, f64> {
        let value = |(repetition, part): (&u64, &&Part)| Some((*repetition, (metric.get)(part)?));
        runs.iter().filter_map(value).collect()
    };
    let (first, second) = (values(a), values(b));
    let mean = |values: &BTreeMap<u64, f64>| {
        (!values.is_empty()).then(|| values.values().sum::<f64>() / values.len() as f64)
    };
    let paired = first.keys().eq(second.keys());
    let found = if paired {
        let pairs: Vec<(f64, f64)> = second
            .values()
            .zip(first.values())
            .map(|(b, a)| (*b, *a))
            .collect();
        stats::compare(&pairs).map(|found| (found.ratio, found.interval))
    } else {
        welch(&second, &first)
    };
    let interval = found.and_then(|(_, interval)| interval);
    let ratio = found.map(|(ratio, _)| ratio);
    Line {
        scenario: String::new(),
        point: String::new(),
        contender: String::new(),
        metric: metric.name,
        first: mean(&first),
        second: mean(&second),
        runs: (first.len(), second.len()),
        paired,
        ratio,
        low: interval.map(|interval| interval.low),
        high: interval.map(|interval| interval.high),
        tolerance: metric.tolerance,
        judgement: judge(ratio, interval, metric.tolerance),
    }
}

fn judge(ratio: Option<f64>, interval: Option<Interval>, tolerance: f64) -> Judgement {
    let Some(ratio) = ratio else {
        return Judgement::Missing;
    };
    // Symmetric: a ratio and its inverse get the same judgement.
    let within = |ratio: f64| ratio.ln().abs() <= tolerance.ln_1p() + 1e-12;
    let all = interval.is_some_and(|i| within(i.low) && within(i.high));
    match (within(ratio), all) {
        (false, _) => Judgement::Disagrees,
        (true, false) => Judgement::Unclear,
        (true, true) => Judgement::Agrees,
    }
}

/// The ratio of geometric means of independent samples, with Welch's interval.
fn welch(
    ours: &BTreeMap<u64, f64>,
    theirs: &BTreeMap<u64, f64>,
) -> Option<(f64, Option<Interval>)> {
    let moments = |values: &BTreeMap<u64, f64>| {
        let logs: Vec<f64> = values
            .values()
            .filter(|v| **v > 0.0)
            .map(|v| v.ln())
            .collect();
        let summary = stats::Summary::of(&logs)?;
        let count = summary.count as f64;
        Some((
            summary.mean,
            summary.deviation.unwrap_or(0.0).powi(2) / count,
            count,
        ))
    };
    let ((mean_a, error_a, a), (mean_b, error_b, b)) = (moments(ours)?, moments(theirs)?);
    let difference = mean_a - mean_b;
    let error = error_a + error_b;
    let interval = (a > 1.0 && b > 1.0).then(|| {
        let parts = error_a.powi(2) / (a - 1.0) + error_b.powi(2) / (b - 1.0);
        let half = if parts > 0.0 {
            student_quantile(0.975, error.powi(2) / parts) * error.sqrt()
        } else {
            0.0
        };
        Interval {
            low: (difference - half).exp(),
            high: (difference + half).exp(),
        }
    });
    Some((difference.exp(), interval))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(values: &[f64]) -> BTreeMap<u64, f64> {
        (1..).zip(values.iter().copied()).collect()
    }

    #[test]
    fn welch_is_what_scipy_says() {
        // scipy.stats.ttest_ind(log a, log b, equal_var=False).confidence_interval(0.95)
        let a = numbered(&[10.0, 11.0, 10.5, 9.8, 10.2]);
        let b = numbered(&[9.0, 9.5, 8.8]);
        let (ratio, interval) = welch(&a, &b).unwrap();
        let interval = interval.unwrap();
        assert!((ratio - WELCH[0]).abs() < 1e-8, "{ratio}");
        assert!((interval.low - WELCH[1]).abs() < 1e-7, "{interval:?}");
        assert!((interval.high - WELCH[2]).abs() < 1e-7, "{interval:?}");
    }

    const WELCH: [f64; 3] = [1.131_528_205_498, 1.045_929_009_664, 1.224_132_869_447];

    #[test]
    fn a_ratio_is_judged_like_its_inverse() {
        let interval = |low, high| Some(Interval { low, high });
        let exactly = |ratio: f64| judge(Some(ratio), interval(ratio, ratio), 0.05);
        assert_eq!(exactly(1.05), Judgement::Agrees);
        assert_eq!(exactly(1.0 / 1.05), Judgement::Agrees);
        assert_eq!(exactly(0.95), Judgement::Disagrees);
        // Single runs do not show how far results scatter by chance.
        assert_eq!(judge(Some(1.0), None, 0.05), Judgement::Unclear);
        assert_eq!(judge(Some(0.95), None, 0.05), Judgement::Disagrees);
        let wide = interval(0.9, 1.1);
        assert_eq!(judge(Some(1.0), wide, 0.05), Judgement::Unclear);
        assert_eq!(judge(Some(1.2), wide, 0.05), Judgement::Disagrees);
        assert_eq!(judge(None, None, 0.05), Judgement::Missing);
    }
}
