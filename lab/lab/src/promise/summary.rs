//! Many worlds in a few figures, by class.

use super::measure::{Figure, Measured};
use super::world::Condition;
use crate::stats::quantile;

/// Seconds that the best link alone may take, by which files are told apart.
const SHORT: f64 = 0.3;
/// See [`SHORT`].
const LONG: f64 = 1.0;

/// How many worlds took longer than `factor` times the best link alone, and one round trip of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bar {
    /// The factor.
    pub factor: f64,
    /// Worlds that took longer.
    pub broken: usize,
}

/// Some quantiles of a ratio.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quantiles {
    /// The least.
    pub least: f64,
    /// The first percentile.
    pub p1: f64,
    /// The fifth percentile.
    pub p5: f64,
    /// Half are below.
    pub median: f64,
}

/// A class of worlds.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// What they have in common.
    pub class: String,
    /// How many worlds there are.
    pub worlds: usize,
    /// The figure of the best link alone over that of all links.
    pub gain: Quantiles,
    /// The oracle's time over that of all links; for files.
    pub of_oracle: Option<Quantiles>,
    /// What was promised, and how often it was not kept.
    pub bars: [Bar; 2],
}

impl Quantiles {
    fn of(values: &[f64]) -> Option<Self> {
        Some(Self {
            least: quantile(values, 0.0)?,
            p1: quantile(values, 0.01)?,
            p5: quantile(values, 0.05)?,
            median: quantile(values, 0.5)?,
        })
    }
}

/// Sums up: all worlds, then by what was sent and how long it took, then by condition.
pub fn summarise(measured: &[Measured]) -> Vec<Summary> {
    let file = |low: f64, high: f64| {
        move |one: &Measured| one.figure == Figure::Completion && one.best >= low && one.best < high
    };
    let mut found = Vec::new();
    let mut class = |name: String, of: &dyn Fn(&Measured) -> bool| {
        let chosen: Vec<&Measured> = measured.iter().filter(|one| of(one)).collect();
        found.extend(summary(name, &chosen));
    };
    class("all".into(), &|_| true);
    class(format!("files below {SHORT} s"), &file(0.0, SHORT));
    class(format!("files, {SHORT} to {LONG} s"), &file(SHORT, LONG));
    class(format!("files above {LONG} s"), &file(LONG, f64::INFINITY));
    class("requests".into(), &|one| one.figure == Figure::Requests);
    class("datagrams".into(), &|one| one.figure == Figure::Late);
    for condition in Condition::ALL {
        let of = |one: &Measured| one.conditions.contains(&condition);
        class(condition.name().into(), &of);
    }
    found
}

fn summary(class: String, chosen: &[&Measured]) -> Option<Summary> {
    let gains: Vec<f64> = chosen.iter().map(|one| one.gain()).collect();
    let reached: Vec<f64> = chosen.iter().filter_map(|one| one.of_oracle()).collect();
    let bar = |factor: f64| Bar {
        factor,
        broken: chosen.iter().filter(|one| one.breaks(factor)).count(),
    };
    Some(Summary {
        class,
        worlds: chosen.len(),
        gain: Quantiles::of(&gains)?,
        of_oracle: Quantiles::of(&reached),
        bars: [bar(1.02), bar(1.10)],
    })
}
