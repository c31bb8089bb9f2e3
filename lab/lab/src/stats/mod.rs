//! What the figures of several runs show together, and with what confidence.

mod compare;
mod distribution;
mod gain;
mod summary;

#[cfg(test)]
mod tests;

pub use compare::{Comparison, compare, holm, wilcoxon};
pub use distribution::{normal_cdf, normal_quantile, student_cdf, student_quantile};
pub use gain::aggregation_gain;
pub use summary::{Estimate, Interval, Summary, bootstrap, quantile};
