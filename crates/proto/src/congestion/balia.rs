//! BALIA: a balance between LIA's responsiveness and OLIA's fairness
//! (draft-walid-mptcp-congestion-control).

use super::coupled::{Coupled, Linked, PARAMS, Policy, Share};
use super::registry::Entry;

pub(super) const ENTRY: Entry = Entry {
    name: "balia",
    summary: "coupled increases and reductions that are fair and quick (draft-walid-mptcp)",
    params: PARAMS,
    build: |params, init| Ok(Box::new(Linked::build(Balia, params, init)?)),
};

/// A reduction takes at most this many halves of a window.
const LARGEST_REDUCTION: f64 = 1.5;

/// The balanced linked adaptation.
#[derive(Debug)]
struct Balia;

/// By what factor the best path is faster than the one in question.
fn lag(paths: &Coupled) -> f64 {
    paths.largest(Share::rate) / paths.own().rate()
}

impl Policy for Balia {
    fn growth(&self, paths: &Coupled, mds: f64) -> f64 {
        let (own, lag) = (paths.own(), lag(paths));
        let rates = paths.sum(Share::rate);
        let fair = own.rate() / own.rtt / (rates * rates);
        fair * (1.0 + lag) / 2.0 * (4.0 + lag) / 5.0 * mds
    }

    fn after_loss(&self, paths: &Coupled, window: f64, _mds: f64) -> f64 {
        window - window / 2.0 * lag(paths).min(LARGEST_REDUCTION)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{about, growth, member, reduced};
    use super::*;

    #[test]
    fn growth_is_that_of_the_draft() {
        let group = [member(0, 20, 100), member(1, 10, 100)];
        assert!((growth(Balia, &group) - 0.022_222).abs() < 1e-6);
        assert!((growth(Balia, &about(1, group)) - 0.02).abs() < 1e-6);
    }

    #[test]
    fn the_slower_path_gives_up_more_on_loss() {
        let group = [member(0, 20, 100), member(1, 10, 100)];
        assert!((reduced(Balia, &group) - 10.0).abs() < 1e-9);
        assert!((reduced(Balia, &about(1, group)) - 2.5).abs() < 1e-9);
    }
}
