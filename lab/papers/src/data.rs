//! The queries that experiments make on results.

use super::Statement;
use anabranch_lab::results::{Part, Status};
use anabranch_lab::stats::{Comparison, Summary, compare};

/// The results of an experiment's plan.
#[derive(Debug, Clone, Copy)]
pub struct Data<'a> {
    parts: &'a [Part],
}

/// A point of a sweep: the last parts of the keys, and the values as written in the file.
pub(super) type At<'p> = &'p [(&'p str, &'p str)];

impl<'a> Data<'a> {
    /// The results of these runs.
    pub fn new(parts: &'a [Part]) -> Self {
        Self { parts }
    }

    /// Why these results allow no statement; `None` if they do.
    pub(super) fn unusable(&self) -> Option<String> {
        let bad =
            |part: &&Part| matches!(part.outcome.status, Status::Unsupported | Status::Failed);
        let first = self.parts.iter().find(bad);
        match first {
            Some(part) => Some(format!(
                "{}: {}",
                part.outcome.status.name(),
                part.outcome.reason
            )),
            None if self.parts.is_empty() => Some("no results".to_owned()),
            None => None,
        }
    }

    /// The usable runs of a contender at a point: a run whose links or hosts were late says
    /// nothing.
    pub(super) fn runs(
        &self,
        contender: &str,
        at: At<'_>,
    ) -> impl Iterator<Item = &'a Part> + use<'a, '_> {
        let wanted: Vec<(String, String)> = at
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        let contender = contender.to_owned();
        self.parts.iter().filter(move |part| {
            let has = |(key, value): &(String, String)| {
                let same = |(known, at): &(String, String)| {
                    known.rsplit('.').next() == Some(key) && at == value
                };
                part.swept.iter().any(same)
            };
            let counts = part.outcome.status != Status::Invalid;
            counts && part.contender == contender && wanted.iter().all(has)
        })
    }

    /// The mean of a figure at a point; NaN if there is none, so that every comparison with it
    /// fails.
    pub(super) fn mean(
        &self,
        contender: &str,
        at: At<'_>,
        get: impl Fn(&Part) -> Option<f64>,
    ) -> f64 {
        let values: Vec<f64> = self.runs(contender, at).filter_map(get).collect();
        Summary::of(&values).map_or(f64::NAN, |summary| summary.mean)
    }

    /// Mean goodput in Mbit/s at a point.
    pub(super) fn goodput(&self, contender: &str, at: At<'_>) -> f64 {
        self.mean(contender, at, |part| part.outcome.goodput_bps) / 1e6
    }

    /// The goodputs of all repetitions at a point in Mbit/s.
    pub(super) fn goodputs(&self, contender: &str, at: At<'_>) -> Vec<f64> {
        let runs = self.runs(contender, at);
        runs.filter_map(|part| part.outcome.goodput_bps)
            .map(|bps| bps / 1e6)
            .collect()
    }

    /// Goodput of one contender over that of another, repetition by repetition.
    pub(super) fn against(&self, one: &str, other: &str, at: At<'_>) -> Option<Comparison> {
        let others: Vec<&Part> = self.runs(other, at).collect();
        let pair = |part: &Part| {
            let same = others.iter().find(|o| o.repetition == part.repetition)?;
            Some((part.outcome.goodput_bps?, same.outcome.goodput_bps?))
        };
        let pairs: Vec<(f64, f64)> = self.runs(one, at).filter_map(pair).collect();
        compare(&pairs)
    }

    /// The points of the sweep, in order.
    pub(super) fn points(&self) -> Vec<&'a [(String, String)]> {
        let mut points: Vec<&[(String, String)]> = Vec::new();
        for part in self.parts {
            if !points.contains(&part.swept.as_slice()) {
                points.push(&part.swept);
            }
        }
        points
    }

    /// The value of a key at each point of the sweep, in order.
    pub(super) fn zipped(&self, key: &str) -> Vec<String> {
        let points = self.points();
        let of = |(known, _): &&(String, String)| known.rsplit('.').next() == Some(key);
        let values = points.iter().filter_map(|point| point.iter().find(of));
        values.map(|(_, value)| value.clone()).collect()
    }

    /// The values a key was swept over, in order.
    pub(super) fn values(&self, key: &str) -> Vec<String> {
        let mut values: Vec<String> = Vec::new();
        for (known, value) in self.parts.iter().flat_map(|part| &part.swept) {
            if known.rsplit('.').next() == Some(key) && !values.contains(value) {
                values.push(value.clone());
            }
        }
        values
    }
}

/// `value` in readable form.
pub(super) fn figure(value: f64) -> String {
    if value.is_nan() {
        "-".to_owned()
    } else {
        format!("{value:.3}")
    }
}

/// A change in percent.
pub(super) fn percent(ratio: f64) -> String {
    if ratio.is_nan() {
        "-".to_owned()
    } else {
        format!("{:+.1} %", (ratio - 1.0) * 100.0)
    }
}

/// The worst of several figures, with where it was found.
#[derive(Debug, Clone, Default)]
pub(super) struct Worst {
    found: Option<(f64, String)>,
    pub(super) count: usize,
    pub(super) bad: usize,
    unknown: bool,
    /// Whether figures are stored negated, because larger ones are worse.
    turned: bool,
}

impl Worst {
    /// Adds a figure of which smaller is worse; `good` tells whether it is good enough.
    pub(super) fn add(&mut self, value: f64, place: impl Into<String>, good: bool) {
        self.count += 1;
        if value.is_nan() {
            self.unknown = true;
            return;
        }
        self.bad += usize::from(!good);
        if self.found.as_ref().is_none_or(|(worst, _)| value < *worst) {
            self.found = Some((value, place.into()));
        }
    }

    /// Adds a figure of which larger is worse; `good` tells whether it is good enough.
    pub(super) fn most(&mut self, value: f64, place: impl Into<String>, good: bool) {
        self.turned = true;
        self.add(-value, place, good);
    }

    /// Whether there were figures and all of them were good.
    pub(super) fn all_good(&self) -> bool {
        self.count > 0 && self.bad == 0 && !self.unknown
    }

    /// The statement that all were good.
    pub(super) fn statement(&self, number: (&str, &str), text: &str, published: &str) -> Statement {
        let statement = Statement::new(number, text, published, self.text(), self.all_good());
        if self.unknown && self.bad == 0 {
            statement.missing_figures()
        } else {
            statement
        }
    }

    /// The worst figure and how many were not good.
    pub(super) fn text(&self) -> String {
        let (worst, place) = self.found.clone().unwrap_or((f64::NAN, String::new()));
        let worst = if self.turned { -worst } else { worst };
        format!(
            "{} of {} miss; worst {} at {place}",
            self.bad,
            self.count,
            figure(worst)
        )
    }
}

/// The part of `text` before its unit, as a number.
pub(super) fn amount(text: &str) -> f64 {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    text[..end].parse().unwrap_or(f64::NAN)
}
