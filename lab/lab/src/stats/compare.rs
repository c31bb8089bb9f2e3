//! Compares two contenders that met the same networks.

use super::distribution::normal_cdf;
use super::summary::{Interval, Summary};

/// How one contender does against another, repetition by repetition.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// Pairs compared.
    pub pairs: usize,
    /// Geometric mean of the ratios.
    pub ratio: f64,
    /// The confidence interval of `ratio`; `None` with fewer than two pairs.
    pub interval: Option<Interval>,
    /// The probability of differences as large as these if there were none (Wilcoxon's signed-rank
    /// test); `None` with fewer than six pairs, where it cannot fall below 5 %.
    pub p: Option<f64>,
    /// Correlation of the logarithms: how far chance affected both alike. `None` without variance.
    pub correlation: Option<f64>,
}

/// Compares pairs of positive figures: `(ours, theirs)`. Other pairs are left out; `None` if none
/// remains.
pub fn compare(pairs: &[(f64, f64)]) -> Option<Comparison> {
    let usable = |pair: &&(f64, f64)| pair.0 > 0.0 && pair.1 > 0.0;
    let logs: Vec<(f64, f64)> = pairs
        .iter()
        .filter(usable)
        .map(|(ours, theirs)| (ours.ln(), theirs.ln()))
        .collect();
    let differences: Vec<f64> = logs.iter().map(|(ours, theirs)| ours - theirs).collect();
    let summary = Summary::of(&differences)?;
    Some(Comparison {
        pairs: summary.count,
        ratio: summary.mean.exp(),
        interval: summary.interval.map(|interval| Interval {
            low: interval.low.exp(),
            high: interval.high.exp(),
        }),
        p: wilcoxon(&differences),
        correlation: correlation(&logs),
    })
}

fn correlation(pairs: &[(f64, f64)]) -> Option<f64> {
    let count = pairs.len() as f64;
    let mean_a = pairs.iter().map(|pair| pair.0).sum::<f64>() / count;
    let mean_b = pairs.iter().map(|pair| pair.1).sum::<f64>() / count;
    let (mut both, mut a, mut b) = (0.0, 0.0, 0.0);
    for (x, y) in pairs {
        both += (x - mean_a) * (y - mean_b);
        a += (x - mean_a).powi(2);
        b += (y - mean_b).powi(2);
    }
    (a > 0.0 && b > 0.0).then(|| both / (a * b).sqrt())
}

/// Up to this number the rank sum's distribution is counted exactly; beyond it, it is close to
/// normal.
const EXACT: usize = 25;

/// The two-sided p value of Wilcoxon's signed-rank test that differences are centred on zero. Exact
/// for up to 25 differences without ties, else by the normal approximation with corrections for
/// ties and continuity. `None` with fewer than six differences other than zero.
pub fn wilcoxon(differences: &[f64]) -> Option<f64> {
    let mut sorted: Vec<f64> = differences.iter().copied().filter(|d| *d != 0.0).collect();
    let count = sorted.len();
    if count < 6 {
        return None;
    }
    sorted.sort_by(|a, b| a.abs().total_cmp(&b.abs()));
    let (mut positive, mut ties, mut at) = (0.0, 0.0, 0);
    while at < count {
        let same = |value: &&f64| value.abs().total_cmp(&sorted[at].abs()).is_eq();
        let length = sorted[at..].iter().take_while(same).count();
        // Ties share the mean of their ranks.
        let rank = f64::midpoint(at as f64 + 1.0, (at + length) as f64);
        let above = sorted[at..at + length].iter().filter(|value| **value > 0.0);
        positive += rank * above.count() as f64;
        ties += (length * (length * length - 1)) as f64;
        at += length;
    }
    let total = (count * (count + 1) / 2) as f64;
    let smaller = positive.min(total - positive);
    if count <= EXACT && ties == 0.0 {
        return Some(exact(count, smaller.round() as usize));
    }
    let n = count as f64;
    let variance = n * (n + 1.0) * (2.0 * n + 1.0) / 24.0 - ties / 48.0;
    let z = (smaller - total / 2.0 + 0.5).min(0.0) / variance.sqrt();
    Some((2.0 * normal_cdf(z)).min(1.0))
}

/// The share of all sign assignments whose rank sum is at least as extreme as `smaller`, on both
/// sides.
fn exact(count: usize, smaller: usize) -> f64 {
    let total = count * (count + 1) / 2;
    let mut ways = vec![0.0f64; total + 1];
    ways[0] = 1.0;
    for rank in 1..=count {
        for sum in (rank..=total).rev() {
            ways[sum] += ways[sum - rank];
        }
    }
    let extreme: f64 = ways[..=smaller.min(total)].iter().sum();
    (2.0 * extreme / 2f64.powi(count as i32)).min(1.0)
}

/// Holm's correction of p values for several comparisons made at once, in the order given.
pub fn holm(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut corrected = vec![0.0; values.len()];
    let mut highest = 0.0f64;
    for (rank, at) in order.iter().enumerate() {
        let factor = (values.len() - rank) as f64;
        highest = highest.max((values[*at] * factor).min(1.0));
        corrected[*at] = highest;
    }
    corrected
}
