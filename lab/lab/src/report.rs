//! Summarises results: each contender at each swept point, compared with the first one.

use crate::plan::{Plan, Run};
use crate::results::{Part, Status};
use crate::scenario::{Check, Metric, Reference};
use crate::stats::{Comparison, Estimate, Interval, Summary, aggregation_gain, compare, holm};
use std::collections::BTreeMap;

/// The whole report.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Report {
    /// One for each contender at each point, in the order of the plan.
    pub rows: Vec<Row>,
    /// One for each check at each point and contender.
    pub checks: Vec<CheckRow>,
    /// Runs that did not end well, with their reasons.
    pub failures: Vec<String>,
    /// Simulated runs that ended well in the instant in which they began: nothing on their bytes'
    /// way takes time, so their figures mean nothing.
    pub timeless: usize,
}

/// One contender at one point.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The swept keys and values.
    pub swept: Vec<(String, String)>,
    /// The contender.
    pub contender: String,
    /// Whether it only measures what one path can do alone.
    pub single: bool,
    /// Goodput in bits per second.
    pub goodput: Option<Summary>,
    /// Its median, with a bootstrap interval.
    pub goodput_median: Option<Estimate>,
    /// Completion in seconds.
    pub completion: Option<Summary>,
    /// Its median, with a bootstrap interval.
    pub completion_median: Option<Estimate>,
    /// Its 95th percentile, with a bootstrap interval; `None` with fewer than twenty runs, where it
    /// is just the longest of them.
    pub completion_p95: Option<Estimate>,
    /// Its goodput over the first contender's, repetition by repetition.
    pub against_first: Option<Comparison>,
    /// The p value of that comparison, corrected for the number of comparisons at this point
    /// (Holm).
    pub p: Option<f64>,
    /// 1 if it reaches the sum of the paths, 0 if it equals the best path, below 0 if it is worse.
    pub gain: Option<Estimate>,
    /// Mean time that bytes waited for those before them, in seconds.
    pub reseq_wait: Option<f64>,
    /// The number of runs that ended well, and of all runs.
    pub ok: (usize, usize),
}

/// Whether a bar was reached.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckRow {
    /// The requirement, in words.
    pub demand: String,
    /// The swept keys and values.
    pub swept: Vec<(String, String)>,
    /// The contender.
    pub contender: String,
    /// The measured value as a multiple of the reference; `None` if it could not be measured.
    pub ratio: Option<f64>,
    /// The bootstrap interval of `ratio`.
    pub interval: Option<Interval>,
    /// Whether it holds; `None` if it could not be measured.
    pub holds: Option<bool>,
}

impl Report {
    /// Whether every check holds and every run ended well.
    pub fn is_good(&self) -> bool {
        self.checks_hold() && self.failures.is_empty()
    }

    /// Whether every check that could be measured holds.
    pub fn checks_hold(&self) -> bool {
        self.checks.iter().all(|check| check.holds != Some(false))
    }

    /// Makes the report of these results of a plan.
    pub fn of(plan: &Plan, parts: &[Part]) -> Self {
        let by_id: BTreeMap<&str, &Part> = parts
            .iter()
            .map(|part| (part.run_id.as_str(), part))
            .collect();
        let mut report = Self::default();
        let mut at = 0;
        while at < plan.runs.len() {
            let swept = &plan.runs[at].swept;
            let count = plan.runs[at..]
                .iter()
                .take_while(|run| run.swept == *swept)
                .count();
            Point::of(&plan.runs[at..at + count], &by_id).report(&mut report);
            at += count;
        }
        report.timeless = parts.iter().filter(|part| is_timeless(part)).count();
        for part in parts
            .iter()
            .filter(|part| part.outcome.status != Status::Ok)
        {
            let outcome = &part.outcome;
            let swept: Vec<String> = part
                .swept
                .iter()
                .map(|(key, value)| format!("{key}={value}"))
                .collect();
            report.failures.push(format!(
                "{} {} {} repetition {}: {}: {}",
                part.run_id,
                part.contender,
                swept.join(" "),
                part.repetition,
                outcome.status.name(),
                outcome.reason
            ));
        }
        report
    }
}

fn is_timeless(part: &Part) -> bool {
    let outcome = &part.outcome;
    part.backend == "sim"
        && outcome.status == Status::Ok
        && outcome.bytes > 0
        && outcome.completion_s.is_some_and(|time| time <= 0.0)
}

/// The least number of runs with which a 95th percentile is more than the longest of them.
const TAIL: usize = 20;

/// All runs of one swept point: by contender, then by repetition.
struct Point<'a> {
    runs: &'a [Run],
    contenders: Vec<(&'a str, bool)>,
    parts: BTreeMap<(&'a str, u64), &'a Part>,
    repetitions: Vec<u64>,
}

impl<'a> Point<'a> {
    fn of(runs: &'a [Run], by_id: &BTreeMap<&str, &'a Part>) -> Self {
        let mut contenders: Vec<(&str, bool)> = Vec::new();
        let mut repetitions: Vec<u64> = Vec::new();
        let mut parts = BTreeMap::new();
        for run in runs {
            if !contenders.iter().any(|(name, _)| *name == run.contender) {
                contenders.push((&run.contender, run.single));
            }
            if !repetitions.contains(&run.repetition) {
                repetitions.push(run.repetition);
            }
            if let Some(part) = by_id.get(run.id.as_str()) {
                parts.insert((run.contender.as_str(), run.repetition), *part);
            }
        }
        Self {
            runs,
            contenders,
            parts,
            repetitions,
        }
    }

    fn report(&self, report: &mut Report) {
        let Some((first, _)) = self.contenders.first() else {
            return;
        };
        let mut rows: Vec<Row> = Vec::new();
        for (contender, single) in &self.contenders {
            rows.push(self.row(contender, *single, first));
        }
        let known: Vec<usize> = (0..rows.len())
            .filter(|at| {
                !rows[*at].single && rows[*at].against_first.is_some_and(|c| c.p.is_some())
            })
            .collect();
        let values: Vec<f64> = known
            .iter()
            .filter_map(|at| rows[*at].against_first.and_then(|c| c.p))
            .collect();
        for (at, p) in known.into_iter().zip(holm(&values)) {
            rows[at].p = Some(p);
        }
        report.rows.extend(rows);
        for check in &self.runs[0].scenario.checks {
            for (contender, _) in self.contenders.iter().filter(|(_, single)| !single) {
                report.checks.push(self.check(check, contender));
            }
        }
    }

    fn ok(&self, contender: &str, repetition: u64) -> Option<&'a Part> {
        let part = self.parts.get(&(contender, repetition)).copied();
        part.filter(|part| part.outcome.status == Status::Ok)
    }

    fn goodput(&self, contender: &str, repetition: u64) -> Option<f64> {
        self.ok(contender, repetition)?.outcome.goodput_bps
    }

    fn values(&self, contender: &str, get: impl Fn(&Part) -> Option<f64>) -> Vec<f64> {
        let parts = self
            .repetitions
            .iter()
            .filter_map(|r| self.ok(contender, *r));
        parts.filter_map(get).collect()
    }

    fn row(&self, contender: &str, single: bool, first: &str) -> Row {
        let pairs: Vec<(f64, f64)> = self
            .repetitions
            .iter()
            .filter_map(|r| Some((self.goodput(contender, *r)?, self.goodput(first, *r)?)))
            .collect();
        let gains: Vec<f64> = self
            .repetitions
            .iter()
            .filter_map(|r| self.gain(contender, *r))
            .collect();
        let waits = self.values(contender, |part| part.outcome.reseq_wait_mean_s);
        let goodputs = self.values(contender, |part| part.outcome.goodput_bps);
        let times = self.values(contender, |part| part.outcome.completion_s);
        let all = self
            .repetitions
            .iter()
            .filter(|r| self.parts.contains_key(&(contender, **r)));
        let ok = self
            .repetitions
            .iter()
            .filter(|r| self.ok(contender, **r).is_some());
        Row {
            swept: self.runs[0].swept.as_ref().clone(),
            contender: contender.to_owned(),
            single,
            goodput: Summary::of(&goodputs),
            goodput_median: Estimate::median(&goodputs),
            completion: Summary::of(&times),
            completion_median: Estimate::median(&times),
            completion_p95: Estimate::quantile(&times, 0.95).filter(|_| times.len() >= TAIL),
            against_first: (contender != first).then(|| compare(&pairs)).flatten(),
            p: None,
            gain: Estimate::mean(&gains).filter(|_| !single),
            reseq_wait: Summary::of(&waits).map(|waits| waits.mean),
            ok: (ok.count(), all.count()),
        }
    }

    /// The goodput of each path alone in a repetition.
    fn singles(&self, repetition: u64) -> Option<Vec<f64>> {
        let singles = self.contenders.iter().filter(|(_, single)| *single);
        let all: Option<Vec<f64>> = singles
            .map(|(name, _)| self.goodput(name, repetition))
            .collect();
        all.filter(|all| !all.is_empty())
    }

    fn gain(&self, contender: &str, repetition: u64) -> Option<f64> {
        let ours = self.goodput(contender, repetition)?;
        aggregation_gain(ours, &self.singles(repetition)?)
    }

    fn check(&self, check: &Check, contender: &str) -> CheckRow {
        let ratios: Vec<f64> = self
            .repetitions
            .iter()
            .filter_map(|repetition| self.ratio(check, contender, *repetition))
            .collect();
        let found = Estimate::mean(&ratios);
        let ratio = found.map(|found| found.value);
        let holds = |ratio: f64| {
            check.at_least.is_none_or(|bar| ratio >= bar)
                && check.at_most.is_none_or(|bar| ratio <= bar)
        };
        CheckRow {
            demand: demand(check),
            swept: self.runs[0].swept.as_ref().clone(),
            contender: contender.to_owned(),
            ratio,
            interval: found.and_then(|found| found.interval),
            holds: ratio.map(holds),
        }
    }

    fn ratio(&self, check: &Check, contender: &str, repetition: u64) -> Option<f64> {
        let figure = |part: &Part| match check.metric {
            Metric::Goodput => part.outcome.goodput_bps,
            Metric::Completion => part.outcome.completion_s,
        };
        let part = self.ok(contender, repetition)?;
        let ours = figure(part)?;
        let reference = match (&check.of, check.metric) {
            (Reference::Contender(name), _) => figure(self.ok(name, repetition)?)?,
            (Reference::SumOfRates, Metric::Goodput) => part.sum_rate_bps? as f64,
            (Reference::SumOfRates, Metric::Completion) => {
                part.outcome.bytes as f64 * 8.0 / part.sum_rate_bps? as f64
            }
            (Reference::BestSingle, _) => {
                let singles = self.contenders.iter().filter(|(_, single)| *single);
                let figures = singles.filter_map(|(name, _)| figure(self.ok(name, repetition)?));
                match check.metric {
                    Metric::Goodput => figures.reduce(f64::max)?,
                    Metric::Completion => figures.reduce(f64::min)?,
                }
            }
        };
        (reference > 0.0).then(|| ours / reference)
    }
}

fn demand(check: &Check) -> String {
    let metric = match check.metric {
        Metric::Goodput => "goodput",
        Metric::Completion => "completion",
    };
    let of = match &check.of {
        Reference::SumOfRates => "the sum of rates",
        Reference::BestSingle => "the best path alone",
        Reference::Contender(name) => name,
    };
    let percent = |bar: f64| format!("{} %", (bar * 1000.0).round() / 10.0);
    match (check.at_least, check.at_most) {
        (Some(low), Some(high)) => format!(
            "{metric} from {} to {} of {of}",
            percent(low),
            percent(high)
        ),
        (Some(low), None) => format!("{metric} at least {} of {of}", percent(low)),
        (None, Some(high)) => format!("{metric} at most {} of {of}", percent(high)),
        (None, None) => metric.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::sim::Sim;
    use crate::campaign::Campaign;
    use crate::plan::Changes;
    use crate::results::Outcome;
    use crate::scenario::Document;

    const FILE: &str = r#"
format = 1
name = "r"
stop = "10s"
[[path]]
name = "a"
forward = { rate = "10Mbit/s", loss = "1%" }
[[path]]
name = "b"
forward = { rate = "10Mbit/s" }
[[flow]]
kind = "bulk"
bytes = "1MB"
[contenders]
anabranch = { scheduler = ["min-rtt", "round-robin"] }
[repeat]
runs = 8
[check]
goodput = [{ of = "sum-of-rates", at-least = "70%" }, { of = "best-single", at-least = 1 }]
"#;

    fn report(goodput: impl Fn(&Run) -> f64) -> Report {
        let plan = Plan::make(&Document::parse("f", FILE).unwrap(), &Changes::default()).unwrap();
        let part = |run: &Run| Part {
            run_id: run.id.clone(),
            contender: run.contender.clone(),
            single: run.single,
            sum_rate_bps: Some(20_000_000),
            outcome: Outcome {
                goodput_bps: Some(goodput(run)),
                ..Outcome::default()
            },
            ..Part::default()
        };
        let parts: Vec<Part> = plan.runs.iter().map(part).collect();
        Report::of(&plan, &parts)
    }

    #[test]
    fn contenders_are_compared_in_pairs_and_gain_is_measured_against_single_paths() {
        let report = report(|run| {
            let luck = 1.0 + run.repetition as f64 / 100.0;
            let base = match run.contender.as_str() {
                "anabranch min-rtt" => 15e6,
                "anabranch round-robin" => 12e6 - run.repetition as f64 * 1000.0,
                _ => 10e6,
            };
            base * luck
        });
        assert_eq!(report.rows.len(), 4);
        let [first, second, ..] = report.rows.as_slice() else {
            panic!()
        };
        let gain = first.gain.unwrap();
        assert!((gain.value - 0.5).abs() < 1e-9);
        assert!(gain.interval.unwrap().low <= 0.5 + 1e-9);
        let median = first.goodput_median.unwrap();
        let interval = median.interval.unwrap();
        assert!(interval.low < median.value && median.value < interval.high);
        assert!(first.against_first.is_none());
        assert!((second.against_first.unwrap().ratio - 0.8).abs() < 1e-3);
        assert!(second.p.unwrap() < 0.05);
        assert!(report.rows[2].single && report.rows[2].gain.is_none());
        assert_eq!(report.checks.len(), 4);
        let held: Vec<Option<bool>> = report.checks.iter().map(|check| check.holds).collect();
        assert_eq!(held, [true, false, true, true].map(Some));
        let (check, interval) = (&report.checks[0], report.checks[0].interval.unwrap());
        assert!(interval.low < check.ratio.unwrap() && check.ratio.unwrap() < interval.high);
        assert!(!report.is_good());
    }

    #[test]
    fn runs_in_which_no_time_passes_are_counted() {
        let wires = "format = 1\nname = \"w\"\nstop = \"10s\"\n[[path]]\nname = \"a\"\n\
                     [[path]]\nname = \"b\"\nforward = {}\n[[flow]]\nkind = \"bulk\"\n\
                     bytes = \"1MB\"\nstart = \"1s\"\n[repeat]\nruns = 1\n";
        let timeless = |text: &str| {
            let plan = Plan::make(&Document::parse("f", text).unwrap(), &Changes::default());
            let plan = plan.unwrap();
            let run = Campaign::default().run(&plan, &Sim::default(), &|_| ());
            let report = Report::of(&plan, &run.unwrap().parts);
            assert!(report.is_good(), "{:?}", report.failures);
            (report.timeless, plan.runs.len())
        };
        assert_eq!(timeless(wires), (3, 3), "both paths, and each alone");
        assert_eq!(timeless(&wires.replace("{}", "{ delay = \"1ms\" }")).0, 2);
        let alone = wires.replace("stop =", "singles = false\nstop =");
        let slow = alone.replace(
            "{}",
            "{ rate = \"10Mbit/s\" }\n[transport]\npaths = [\"b\"]",
        );
        assert_eq!(timeless(&slow).0, 0);
    }

    #[test]
    fn below_the_best_path_gain_is_negative() {
        let report = report(|run| if run.single { 10e6 } else { 5e6 });
        assert!((report.rows[0].gain.unwrap().value + 0.5).abs() < 1e-9);
    }
}
