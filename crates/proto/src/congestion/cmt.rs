//! Congestion control of CMT-SCTP: plain, and with resource pooling (Dreibholz, Becke and others).
//!
//! With resource pooling all paths together grow like one. Version 1 gives each path the share its
//! slow-start threshold has of all thresholds, version 2 the share its rate has of all rates, and a
//! loss takes half of all windows from the path that lost.
//!
//! Other than in SCTP, bytes are counted and not acknowledgements, which cover more packets here;
//! and the smallest window is that of RFC 9002, two packets. The first window is not divided by the
//! number of paths: SCTP knows all addresses when an association begins, here paths open one by
//! one. To divide it, set the result: `initial-window=5` where two paths share ten packets.

use super::coupled::{Coupled, Linked, PARAMS, Policy, Scope, Share};
use super::new_reno;
use super::registry::Entry;
use super::window::InitialWindow;
use crate::spec::ParamDoc;

pub(super) const PLAIN: Entry = Entry {
    name: "cmt",
    summary: "NewReno on each path for itself, as plain CMT-SCTP has it",
    ..new_reno::ENTRY
};

pub(super) const RPV1: Entry = Entry {
    name: "cmt-rpv1",
    summary: "pooled by slow-start thresholds: CMT-SCTP with resource pooling, version 1",
    params: &[
        ParamDoc {
            key: "floor",
            default: "4",
            summary: "packets left by a reduction, times the path's share",
        },
        Scope::DOC,
        InitialWindow::DOC,
    ],
    build: |params, init| {
        let floor = params.take_in("floor", 4.0, 1.0..=100.0)?;
        Ok(Box::new(Linked::build(
            ByThreshold { floor },
            params,
            init,
        )?))
    },
};

pub(super) const RPV2: Entry = Entry {
    name: "cmt-rpv2",
    summary: "pooled by rates: CMT-SCTP with resource pooling, version 2",
    params: PARAMS,
    build: |params, init| Ok(Box::new(Linked::build(ByRate, params, init)?)),
};

/// Resource pooling, version 1.
#[derive(Debug)]
struct ByThreshold {
    floor: f64,
}

impl ByThreshold {
    /// The path's share of all thresholds. A path that lost nothing yet has none: it counts with
    /// the largest threshold of the others, or its window if that is more.
    fn share(paths: &Coupled) -> f64 {
        let known = paths.largest(|path| path.ssthresh.unwrap_or(0.0));
        let threshold = |path: &Share| path.ssthresh.unwrap_or(known.max(path.window)).max(1.0);
        threshold(paths.own()) / paths.sum(threshold)
    }
}

impl Policy for ByThreshold {
    fn growth(&self, paths: &Coupled, mds: f64) -> f64 {
        Self::share(paths) * mds / paths.own().window
    }

    fn slow_start(&self, paths: &Coupled) -> f64 {
        Self::share(paths)
    }

    fn after_loss(&self, paths: &Coupled, window: f64, mds: f64) -> f64 {
        let all = paths.sum(|path| path.window);
        (window - all / 2.0).max(self.floor * mds * Self::share(paths))
    }
}

/// Resource pooling, version 2.
#[derive(Debug)]
struct ByRate;

impl ByRate {
    fn share(paths: &Coupled) -> f64 {
        paths.own().rate() / paths.sum(Share::rate)
    }
}

impl Policy for ByRate {
    fn growth(&self, paths: &Coupled, mds: f64) -> f64 {
        Self::share(paths) * mds / paths.own().window
    }

    fn slow_start(&self, paths: &Coupled) -> f64 {
        Self::share(paths)
    }

    fn after_loss(&self, paths: &Coupled, window: f64, _mds: f64) -> f64 {
        let factor = (0.5 / Self::share(paths)).max(0.5);
        window - factor * window
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{about, ack, growth, linked, member, reduced};
    use super::super::{Controller, Member};
    use super::*;

    const V1: fn() -> ByThreshold = || ByThreshold { floor: 4.0 };

    fn pair() -> [Member; 2] {
        let with = |path, packets| Member {
            ssthresh: 12_000,
            ..member(path, packets, 100)
        };
        [with(0, 20), with(1, 10)]
    }

    #[test]
    fn version_1_takes_half_of_all_windows_from_the_path_that_lost() {
        assert!((reduced(V1(), &pair()) - 5.0).abs() < 1e-9);
        assert!((reduced(V1(), &about(1, pair())) - 2.0).abs() < 1e-9);
    }

    #[test]
    fn version_2_takes_more_from_a_path_with_a_small_share() {
        assert!((reduced(ByRate, &pair()) - 5.0).abs() < 1e-9);
        // One packet by the formula, two by RFC 9002.
        assert!((reduced(ByRate, &about(1, pair())) - 2.0).abs() < 1e-9);
        let paths = Scope::Auto.of(&about(1, pair())).unwrap();
        assert!(ByRate.after_loss(&paths, 10_000.0, 1000.0) < 0.0);
    }

    #[test]
    fn all_paths_together_grow_by_a_packet_per_round_trip() {
        let both = |policy: fn(&[Member]) -> f64| {
            policy(&pair()) * 20.0 + policy(&about(1, pair())) * 10.0
        };
        assert!((both(|group| growth(V1(), group)) - 1.0).abs() < 1e-6);
        assert!((both(|group| growth(ByRate, group)) - 1.0).abs() < 1e-6);
        assert!((growth(ByRate, &pair()) - 2.0 / 3.0 / 20.0).abs() < 1e-6);
        assert!((growth(V1(), &pair()) - 0.5 / 20.0).abs() < 1e-6);
    }

    #[test]
    fn slow_start_is_shared_too() {
        let mut rpv2 = linked(ByRate);
        for _ in 0..30 {
            rpv2.on_ack(&ack(10, 5, 1000), &about(1, pair()));
        }
        assert!(
            (19_999..=20_000).contains(&rpv2.window()),
            "{}",
            rpv2.window()
        );
    }

    #[test]
    fn a_path_that_lost_nothing_yet_counts_with_what_is_known_of_others() {
        let unset = |member: Member| Member {
            ssthresh: u64::MAX,
            ..member
        };
        let [first, second] = pair();
        let share = |group: &[Member]| ByThreshold::share(&Scope::Auto.of(group).unwrap());
        assert!((share(&[first, unset(second)]) - 0.5).abs() < 1e-9);
        assert!((share(&[unset(first), unset(second)]) - 2.0 / 3.0).abs() < 1e-9);
    }
}
