//! LIA: increases coupled over the paths that share a bottleneck (RFC 6356).
//!
//! Together the paths take no more than one NewReno connection on the best of them would. Slow
//! start and reductions are each path's own.

use super::coupled::{Coupled, Linked, PARAMS, Policy, Share};
use super::registry::Entry;

pub(super) const ENTRY: Entry = Entry {
    name: "lia",
    summary: "NewReno with increases coupled over a group of paths (RFC 6356)",
    params: PARAMS,
    build: |params, init| Ok(Box::new(Linked::build(Lia, params, init)?)),
};

/// The linked-increases algorithm.
#[derive(Debug)]
struct Lia;

/// RFC 6356, section 3: the sum of windows times the largest window over RTT squared, over the
/// square of the sum of window over RTT.
fn alpha(paths: &Coupled) -> f64 {
    let rates = paths.sum(Share::rate);
    let best = paths.largest(|path| path.rate() / path.rtt);
    paths.sum(|path| path.window) * best / (rates * rates)
}

impl Policy for Lia {
    /// min(alpha / sum of windows, 1 / own window): RFC 6356, section 3.
    fn growth(&self, paths: &Coupled, mds: f64) -> f64 {
        let linked = alpha(paths) / paths.sum(|path| path.window);
        linked.min(1.0 / paths.own().window) * mds
    }
}

#[cfg(test)]
mod tests {
    use super::super::coupled::Scope;
    use super::super::tests::{ack, growth, linked, loss, member};
    use super::super::{Controller, Member};
    use super::*;

    #[test]
    fn two_equal_paths_grow_a_quarter_as_fast_as_one() {
        let group = [member(0, 10, 50), member(1, 10, 50)];
        assert!((alpha(&Scope::Auto.of(&group).unwrap()) - 0.5).abs() < 1e-9);
        assert!((growth(Lia, &group) - 0.025).abs() < 1e-9);
    }

    #[test]
    fn the_better_path_sets_the_pace() {
        let group = [member(0, 20, 20), member(1, 10, 100)];
        assert!((alpha(&Scope::Auto.of(&group).unwrap()) - 1.239_669).abs() < 1e-6);
        assert!((growth(Lia, &group) - 0.041_322).abs() < 1e-6);
    }

    #[test]
    fn no_path_grows_faster_than_alone() {
        let group = [member(0, 10, 100), member(1, 2, 5)];
        assert!(growth(Lia, &group) <= 0.1 + 1e-9);
    }

    #[test]
    fn a_path_alone_is_plain_newreno() {
        let own = member(0, 10, 50);
        let other = member(1, 10, 50);
        let idle = Member {
            active: false,
            ..other
        };
        let elsewhere = Member {
            shares_bottleneck: false,
            ..other
        };
        let unsampled = member(1, 10, 0);
        for group in [
            &[own][..],
            &[own, idle],
            &[own, elsewhere],
            &[own, unsampled],
        ] {
            assert!((growth(Lia, group) - 0.1).abs() < 1e-9);
        }
    }

    #[test]
    fn slow_start_and_reductions_are_not_coupled() {
        let group = [member(0, 10, 50), member(1, 10, 50)];
        let mut lia = linked(Lia);
        lia.on_ack(&ack(10, 5, 1000), &group);
        assert_eq!(lia.window(), 11_000);
        lia.on_congestion(&loss(20, 15, 1000), &group);
        assert_eq!(lia.window(), 5500);
    }

    #[test]
    fn the_operator_decides_what_is_coupled() {
        let own = member(0, 10, 50);
        let elsewhere = Member {
            shares_bottleneck: false,
            ..member(1, 10, 50)
        };
        assert!(Scope::All.of(&[own, elsewhere]).is_some());
        assert!(Scope::Auto.of(&[own, elsewhere]).is_none());
        assert!(Scope::None.of(&[own, member(1, 10, 50)]).is_none());
    }
}
