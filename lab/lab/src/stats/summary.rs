//! Statistics of one set of figures.

use super::distribution::{normal_cdf, normal_quantile, student_quantile};
use anabranch_sim::{Dice, Seed};

/// The interval that contains the value with 95 % confidence.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// A summary of a set of figures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// The number of figures.
    pub count: usize,
    /// Their mean.
    pub mean: f64,
    /// Their sample standard deviation; `None` with fewer than two figures.
    pub deviation: Option<f64>,
    /// Their median.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// The confidence interval of the mean; `None` with fewer than two figures.
    pub interval: Option<Interval>,
}

impl Summary {
    /// Summarises `values`; `None` if there are none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let count = values.len();
        if count == 0 {
            return None;
        }
        let mean = values.iter().sum::<f64>() / count as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = (count > 1).then(|| (squares / (count - 1) as f64).sqrt());
        let interval = deviation.map(|deviation| {
            let half =
                student_quantile(0.975, (count - 1) as f64) * deviation / (count as f64).sqrt();
            Interval {
                low: mean - half,
                high: mean + half,
            }
        });
        Some(Self {
            count,
            mean,
            deviation,
            median: quantile(values, 0.5)?,
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            interval,
        })
    }
}

/// A figure whose distribution is unknown, with its bootstrap interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The figure.
    pub value: f64,
    /// Its confidence interval; `None` with too few values: fewer than six for a mean or a median,
    /// fewer than 59 for a 95th percentile.
    pub interval: Option<Interval>,
}

/// The seed of all bootstrap draws. It is fixed, so that a repeated report has the same figures.
const DRAWS: u64 = 1;

impl Estimate {
    /// The mean where Student's distribution does not fit: for a few, skewed ratios.
    pub fn mean(values: &[f64]) -> Option<Self> {
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        (!values.is_empty()).then(|| Self {
            value: mean(values),
            interval: bootstrap(values, DRAWS, mean),
        })
    }

    /// The `share` quantile (0 to 1).
    pub fn quantile(values: &[f64], share: f64) -> Option<Self> {
        let of = |values: &[f64]| quantile(values, share).unwrap_or(f64::NAN);
        Some(Self {
            value: quantile(values, share)?,
            interval: held(values.len(), share)
                .then(|| bootstrap(values, DRAWS, of))
                .flatten(),
        })
    }

    /// The median.
    pub fn median(values: &[f64]) -> Option<Self> {
        Self::quantile(values, 0.5)
    }
}

/// The `share` quantile (0 to 1) by linear interpolation between order statistics; `None` without
/// values.
pub fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    quantile_sorted(&sorted, share)
}

fn quantile_sorted(sorted: &[f64], share: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let at = share.clamp(0.0, 1.0) * last as f64;
    let (below, above) = (at.floor() as usize, at.ceil() as usize);
    Some(sorted[below] + (sorted[above] - sorted[below]) * at.fract())
}

/// Whether the range of `count` values contains the `share` quantile of their distribution in 95 %
/// of cases. If not, no interval within that range can.
fn held(count: usize, share: f64) -> bool {
    let missed = |side: f64| side.powi(count as i32);
    missed(share) + missed(1.0 - share) <= 1.0 - LEVEL
}

/// The confidence level of all intervals.
const LEVEL: f64 = 0.95;

/// Resamples drawn by the bootstrap.
const RESAMPLES: usize = 2000;

/// The 95 % interval of any statistic by the bias-corrected and accelerated bootstrap (Efron 1987).
/// The draws come from `seed`, so it is repeatable. `None` with fewer than six values: resamples
/// never leave the range of the values, and the range of five contains the median in only 94 % of
/// cases.
pub fn bootstrap(values: &[f64], seed: u64, statistic: impl Fn(&[f64]) -> f64) -> Option<Interval> {
    let count = values.len();
    if !held(count, 0.5) {
        return None;
    }
    let observed = statistic(values);
    let mut dice = Dice::new(Seed(seed));
    let mut sample = vec![0.0; count];
    let mut drawn: Vec<f64> = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        for slot in &mut sample {
            *slot = values[dice.below(count as u64) as usize];
        }
        drawn.push(statistic(&sample));
    }
    drawn.sort_by(f64::total_cmp);
    let (first, last) = (drawn[0], drawn[RESAMPLES - 1]);
    if first.total_cmp(&last).is_eq() {
        return Some(Interval {
            low: first,
            high: last,
        });
    }
    let below = drawn.iter().filter(|value| **value < observed).count();
    let same = |value: &&f64| value.total_cmp(&observed).is_eq();
    let equal = drawn.iter().filter(same).count();
    // Many resampled medians equal the observed one. Half of these count as below; otherwise an
    // unbiased statistic would seem biased, and its interval would be cut off at the upper end.
    let share = ((below as f64 + 0.5 * equal as f64) / RESAMPLES as f64)
        .clamp(0.5 / RESAMPLES as f64, 1.0 - 0.5 / RESAMPLES as f64);
    let bias = normal_quantile(share);
    let acceleration = acceleration(values, &statistic);
    let end = |z: f64| {
        let shifted = bias + (bias + z) / (1.0 - acceleration * (bias + z));
        quantile_sorted(&drawn, normal_cdf(shifted))
    };
    let z = normal_quantile(0.975);
    Some(Interval {
        low: end(-z)?,
        high: end(z)?,
    })
}

/// The skewness of the statistic, from leaving out one value at a time.
fn acceleration(values: &[f64], statistic: &impl Fn(&[f64]) -> f64) -> f64 {
    let left_out: Vec<f64> = (0..values.len())
        .map(|at| {
            let mut rest = values.to_vec();
            rest.remove(at);
            statistic(&rest)
        })
        .collect();
    let mean = left_out.iter().sum::<f64>() / left_out.len() as f64;
    let cubes: f64 = left_out.iter().map(|value| (mean - value).powi(3)).sum();
    let squares: f64 = left_out.iter().map(|value| (mean - value).powi(2)).sum();
    if squares > 0.0 {
        cubes / (6.0 * squares.powf(1.5))
    } else {
        0.0
    }
}
