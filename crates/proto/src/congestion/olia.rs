//! OLIA: increases coupled so that traffic leaves congested paths
//! (draft-khalili-mptcp-congestion-control).
//!
//! The first term is Kelly and Voice's, which is fair but careful; the second moves growth from the
//! paths with the largest windows to those that are best by what they carry between losses and
//! have small windows all the same.

use super::coupled::{Coupled, Linked, PARAMS, Policy, Share};
use super::registry::Entry;

pub(super) const ENTRY: Entry = Entry {
    name: "olia",
    summary: "coupled increases that move traffic to the best paths (draft-khalili-mptcp)",
    params: PARAMS,
    build: |params, init| Ok(Box::new(Linked::build(Olia, params, init)?)),
};

/// Paths this close to the best one are as good: counted in bytes no two are exactly equal.
const AS_GOOD: f64 = 0.99;

/// The opportunistic linked-increases algorithm.
#[derive(Debug)]
struct Olia;

/// Bytes between losses over RTT squared, as the kernel's implementation compares paths.
fn quality(path: &Share) -> f64 {
    path.between_losses / (path.rtt * path.rtt)
}

/// What moves growth between paths: positive for the best paths that do not have the largest
/// windows, negative for those that do. Windows are as they are in recovery, where the draft takes
/// thresholds: RFC 9002 sets both alike at once.
fn opportunity(paths: &Coupled) -> f64 {
    let (best, largest) = (
        paths.largest(quality) * AS_GOOD,
        paths.largest(|path| path.window) * AS_GOOD,
    );
    let is_large = |path: &Share| path.window >= largest;
    let is_collected = |path: &Share| quality(path) >= best && !is_large(path);
    let count = |is: &dyn Fn(&Share) -> bool| paths.shares.iter().filter(|path| is(path)).count();
    let (collected, large) = (count(&is_collected), count(&is_large));
    let all = paths.shares.len() as f64;
    if collected == 0 {
        0.0
    } else if is_collected(paths.own()) {
        1.0 / (all * collected as f64)
    } else if is_large(paths.own()) {
        -1.0 / (all * large as f64)
    } else {
        0.0
    }
}

impl Policy for Olia {
    fn growth(&self, paths: &Coupled, mds: f64) -> f64 {
        let own = paths.own();
        let rates = paths.sum(Share::rate);
        let fair = own.rate() / own.rtt / (rates * rates);
        (fair + opportunity(paths) / own.window) * mds
    }
}

#[cfg(test)]
mod tests {
    use super::super::Member;
    use super::super::tests::{about, growth, member};
    use super::*;

    fn pair(first: u64, second: u64) -> [Member; 2] {
        let with = |path, packets, bytes_between_losses| Member {
            bytes_between_losses,
            ..member(path, packets, 100)
        };
        [with(0, 20, first), with(1, 10, second)]
    }

    #[test]
    fn an_equally_good_path_with_a_small_window_gains_what_the_large_one_loses() {
        for group in [pair(50_000, 50_000), pair(50_400, 50_000)] {
            assert!((growth(Olia, &group) - -0.002_778).abs() < 1e-6);
            assert!((growth(Olia, &about(1, group)) - 0.061_111).abs() < 1e-6);
        }
    }

    #[test]
    fn nothing_moves_if_the_best_path_has_the_largest_window() {
        let group = pair(60_000, 50_000);
        assert!((growth(Olia, &group) - 0.022_222).abs() < 1e-6);
        assert!((growth(Olia, &about(1, group)) - 0.011_111).abs() < 1e-6);
    }

    #[test]
    fn a_shorter_rtt_makes_a_path_better() {
        let mut group = pair(60_000, 50_000);
        group[1].smoothed_rtt /= 2;
        assert!(opportunity(&super::super::coupled::Scope::Auto.of(&group).unwrap()) < 0.0);
    }
}
