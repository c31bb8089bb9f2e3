//! A folder's results, arranged for figures.

use crate::load::Folder;
use crate::sweep::{Swept, point};
use anabranch_lab::results::{Part, PathOutcome, Status};
use anabranch_lab::stats::quantile;
use std::collections::BTreeMap;

/// A contender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Contender {
    pub(crate) name: String,
    /// Whether it used one of several paths.
    pub(crate) single: bool,
    /// Whether it only measures what one path can do. A contender with one path may also be a rival
    /// in its own right, such as the kernel's TCP.
    pub(crate) alone: bool,
}

type Point = Vec<(String, String)>;
/// By contender.
type Runs<'a> = BTreeMap<&'a str, Vec<&'a Part>>;

/// A folder, seen by contender and point.
#[derive(Debug)]
pub(crate) struct View<'a> {
    pub(crate) folder: &'a Folder,
    /// In the order of the plan; the index is the number of the series.
    pub(crate) contenders: Vec<Contender>,
    /// The keys that vary.
    pub(crate) swept: Vec<Swept>,
    /// All points, in the order of the plan.
    pub(crate) points: Vec<Point>,
    /// The point that figures over time show.
    pub(crate) at: Point,
    label: Option<String>,
    cells: BTreeMap<&'a [(String, String)], Runs<'a>>,
}

impl<'a> View<'a> {
    /// `None` if no run ended well. `label` distinguishes the folder from others of its study.
    pub(crate) fn of(folder: &'a Folder, label: Option<String>) -> Option<Self> {
        let mut contenders: Vec<Contender> = Vec::new();
        let mut points: Vec<Point> = Vec::new();
        let mut cells: BTreeMap<&[(String, String)], Runs<'_>> = BTreeMap::new();
        let ok = |part: &&Part| part.outcome.status == Status::Ok;
        for part in folder.parts.iter().filter(ok) {
            if !contenders.iter().any(|known| known.name == part.contender) {
                contenders.push(Contender {
                    name: part.contender.clone(),
                    single: is_single(folder, part),
                    alone: part.single,
                });
            }
            if points.last() != Some(&part.swept) && !points.contains(&part.swept) {
                points.push(part.swept.clone());
            }
            let runs = cells.entry(part.swept.as_slice()).or_default();
            runs.entry(part.contender.as_str()).or_default().push(part);
        }
        // Single paths come last in every legend, whichever contender ended first.
        contenders.sort_by_key(|contender| contender.single);
        let mut view = Self {
            folder,
            contenders,
            swept: Swept::of(&folder.parts),
            at: Vec::new(),
            points,
            label,
            cells,
        };
        view.at = view.telling_point()?;
        Some(view)
    }

    /// The point where contenders differ most; the middle point if there is only one contender.
    fn telling_point(&self) -> Option<Point> {
        let rivals: Vec<&Contender> = self.contenders.iter().filter(|c| !c.single).collect();
        let middle = self.points.get(self.points.len() / 2)?;
        if rivals.len() < 2 {
            return Some(middle.clone());
        }
        let spread = |point: &Point| {
            let means: Vec<f64> = rivals
                .iter()
                .filter_map(|rival| mean(&self.goodputs(point, &rival.name)))
                .collect();
            let most = means.iter().copied().fold(0.0, f64::max);
            let least = means.iter().copied().fold(f64::INFINITY, f64::min);
            if least > 0.0 { most / least } else { 0.0 }
        };
        let best = self
            .points
            .iter()
            .max_by(|a, b| spread(a).total_cmp(&spread(b)));
        best.or(Some(middle)).cloned()
    }

    /// Runs that ended well.
    pub(crate) fn runs(&self, point: &[(String, String)], contender: &str) -> &[&'a Part] {
        let runs = self.cells.get(point).and_then(|runs| runs.get(contender));
        runs.map_or(&[], Vec::as_slice)
    }

    /// Goodputs in bits per second.
    pub(crate) fn goodputs(&self, point: &[(String, String)], contender: &str) -> Vec<f64> {
        let runs = self.runs(point, contender).iter();
        runs.filter_map(|part| part.outcome.goodput_bps).collect()
    }

    /// Goodput of the best contender with one path in a repetition: several paths are worthwhile
    /// only if they beat every such rival.
    pub(crate) fn best_single(&self, point: &[(String, String)], repetition: u64) -> Option<f64> {
        let singles = self.goodputs_of(point, repetition, |contender| contender.single);
        singles.into_iter().reduce(f64::max)
    }

    /// Goodput of each path alone in a repetition. Rivals that also use one path are left out, or
    /// their path would count twice.
    pub(crate) fn paths_alone(&self, point: &[(String, String)], repetition: u64) -> Vec<f64> {
        self.goodputs_of(point, repetition, |contender| contender.alone)
    }

    fn goodputs_of(
        &self,
        point: &[(String, String)],
        repetition: u64,
        which: fn(&Contender) -> bool,
    ) -> Vec<f64> {
        let contenders = self.contenders.iter().filter(|one| which(one));
        let goodput = |contender: &Contender| {
            let runs = self.runs(point, &contender.name).iter();
            let mut runs = runs.filter(|part| part.repetition == repetition);
            runs.next()?.outcome.goodput_bps
        };
        contenders.filter_map(goodput).collect()
    }

    /// The run whose goodput is nearest to the median, of those that recorded a series at the
    /// view's point.
    pub(crate) fn typical(&self, contender: &str) -> Option<&'a Part> {
        let runs = self.runs(&self.at, contender);
        let goodputs = self.goodputs(&self.at, contender);
        let middle = quantile(&goodputs, 0.5).unwrap_or(0.0);
        let with_series = runs.iter().filter(|part| !part.outcome.series.is_empty());
        let distance = |part: &&&Part| (part.outcome.goodput_bps.unwrap_or(0.0) - middle).abs();
        with_series
            .min_by(|a, b| distance(a).total_cmp(&distance(b)))
            .copied()
    }

    /// Typical runs of contenders that have several paths, with their series' numbers.
    pub(crate) fn typical_rivals(&self) -> Vec<(usize, &'a Part)> {
        let rivals = self
            .contenders
            .iter()
            .enumerate()
            .filter(|(_, c)| !c.single);
        rivals
            .filter_map(|(series, contender)| Some((series, self.typical(&contender.name)?)))
            .collect()
    }

    /// The name of a figure.
    pub(crate) fn name(&self, what: &str) -> String {
        let safe = |text: &str| -> String {
            let keep = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
            text.chars().map(keep).collect()
        };
        let scenario = safe(self.folder.scenario());
        match &self.label {
            Some(label) => format!("{scenario}-{}-{what}", safe(label)),
            None => format!("{scenario}-{what}"),
        }
    }

    /// The title of a figure.
    pub(crate) fn title(&self, what: &str) -> String {
        match &self.label {
            Some(label) => format!("{what} ({label})"),
            None => what.to_owned(),
        }
    }

    /// ` at rate = 5Mbit/s`, or nothing if nothing is swept.
    pub(crate) fn place(&self) -> String {
        if self.swept.is_empty() || self.at.is_empty() {
            String::new()
        } else {
            format!(" at {}", point(&self.at))
        }
    }

    /// How many runs each mean has: `n = 12`, or `n = 10 to 12`.
    pub(crate) fn count(&self, points: &[Point]) -> String {
        let counts = points.iter().flat_map(|point| {
            let runs = |contender: &Contender| self.runs(point, &contender.name).len();
            self.contenders.iter().map(runs)
        });
        let counts: Vec<usize> = counts.filter(|count| *count > 0).collect();
        let (least, most) = (counts.iter().min(), counts.iter().max());
        match (least, most) {
            (Some(least), Some(most)) if least < most => format!("n = {least} to {most}"),
            (Some(1), _) => "n = 1, so that there is no interval".to_owned(),
            (Some(least), _) => format!("n = {least}"),
            _ => "n = 0".to_owned(),
        }
    }
}

/// The mean; `None` without values.
pub(crate) fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The mean of a figure of paths over runs, path by path.
pub(crate) fn mean_of_paths(
    runs: &[&Part],
    get: impl Fn(&PathOutcome) -> Option<f64>,
) -> Vec<Option<f64>> {
    let paths = runs
        .iter()
        .map(|part| part.outcome.paths.len())
        .max()
        .unwrap_or(0);
    (0..paths)
        .map(|at| {
            let values = runs
                .iter()
                .filter_map(|part| get(part.outcome.paths.get(at)?));
            mean(&values.collect::<Vec<f64>>())
        })
        .collect()
}

fn is_single(folder: &Folder, part: &Part) -> bool {
    let one_of_many = |scenario: &std::sync::Arc<anabranch_lab::scenario::Scenario>| {
        scenario.transport.paths.len() == 1 && scenario.network.paths.len() > 1
    };
    part.single || folder.scenario_of(part).is_some_and(one_of_many)
}
