//! Weighted round robin whose weights follow what each path delivers.
//!
//! A reconstruction (the documents name capacity-proportional splitting, Rico et al. 2014, and no
//! formula): turns as of [`weighted`](super::weighted), each weight an average of the path's best
//! measured rate. More weight brings more traffic and so a higher measured rate; so that this does
//! not starve a path, a rate measured while the path had room to spare never lowers its weight, and
//! no weight falls below 1 % of the highest.

use crate::toolkit::units::{nanos, passed};
use crate::toolkit::{Shares, bandwidth, position, window_rate};
use anabranch_proto::path::MAX_OPEN_PATHS;
use anabranch_proto::sched::{Choice, Entry, ParamDoc, PathEvent, PathView, Scheduler, SendView};
use anabranch_proto::spec::{Params, SpecError};
use anabranch_proto::time::{Duration, Instant};
use anabranch_proto::wire::PathId;
use smallvec::SmallVec;

pub(crate) const ENTRY: Entry = Entry {
    name: "dynamic-weighted-like",
    summary: "packets in proportion to what each path is measured to deliver",
    params: &[ParamDoc {
        key: "interval-ms",
        default: "250",
        summary: "time between changes of the weights, or the longest RTT if that is more",
    }],
    build: |params| Ok(Box::new(DynamicWeighted::from_params(params)?)),
};

/// A weight moves by this part of its distance per interval.
const GAIN: i64 = 8;
/// Of the highest rate: the least weight of a path, so that it is measured again.
const FLOOR: i64 = 100;
/// Changes below this part of a weight are noise.
const NOISE: i64 = 10;
/// A rate is the best of this many RTTs.
const RTTS: u64 = 10;
/// Rates beyond this (bytes per second) count as this: sums stay far from overflow.
const RATE_MAX: i64 = 1 << 48;

/// Shares traffic by measured rate.
#[derive(Debug)]
pub(crate) struct DynamicWeighted {
    interval: Duration,
    changed: Option<Instant>,
    rates: SmallVec<[Rate; MAX_OPEN_PATHS]>,
    shares: Shares,
}

/// The best rate of a path in this period and in the one before, and the weight it led to.
#[derive(Debug, Clone, Copy)]
struct Rate {
    path: PathId,
    best: [i64; 2],
    since: Instant,
    /// Zero until a rate is known.
    weight: i64,
    /// Whether it has a share.
    is_shared: bool,
}

impl DynamicWeighted {
    fn from_params(params: &mut Params) -> Result<Self, SpecError> {
        let interval = params.take_in("interval-ms", 250, 1..=60_000)?;
        Ok(Self {
            interval: Duration::from_millis(interval),
            changed: None,
            rates: SmallVec::new(),
            shares: Shares::default(),
        })
    }

    /// Notes the rates, and moves the weights if it is time.
    fn refresh(&mut self, view: &SendView<'_>) {
        let mut interval = nanos(self.interval);
        let mut unweighted = false;
        for (at, path) in view.paths.iter().enumerate() {
            let rtt = nanos(path.smoothed_rtt);
            interval = interval.max(rtt);
            let rate = self.rate(view, at, path);
            rate.note(view.now, path, rtt);
            unweighted |= !rate.is_shared || (rate.weight == 0 && rate.best() > 0);
        }
        let changed = |at| passed(at, view.now) >= interval;
        let due = self.changed.is_none_or(changed);
        if due || unweighted {
            self.changed = Some(view.now);
            self.move_weights(view);
        }
    }

    /// What is kept of `path`, most likely `at` its place in the view.
    fn rate(&mut self, view: &SendView<'_>, at: usize, path: &PathView) -> &mut Rate {
        let found = position(&self.rates, at, |rate| rate.path == path.id);
        let at = found.unwrap_or_else(|| {
            if self.rates.len() >= MAX_OPEN_PATHS {
                self.rates.retain(|rate| view.path(rate.path).is_some());
            }
            self.rates.push(Rate {
                path: path.id,
                best: [0; 2],
                since: view.now,
                weight: 0,
                is_shared: false,
            });
            self.rates.len() - 1
        });
        &mut self.rates[at]
    }

    fn move_weights(&mut self, view: &SendView<'_>) {
        let spare = |rate: &Rate| view.path(rate.path).is_some_and(|path| path.app_limited);
        let target = |rate: &Rate| {
            let kept = if spare(rate) { rate.weight } else { 0 };
            rate.best().max(kept)
        };
        let highest = self.rates.iter().map(target).max().unwrap_or(0);
        for rate in &mut self.rates {
            let target = target(rate).max(highest / FLOOR);
            if rate.weight == 0 {
                rate.weight = if rate.best() > 0 { target } else { 0 };
            } else if rate.weight.abs_diff(target) as i64 > rate.weight / NOISE {
                rate.weight += (target - rate.weight) / GAIN;
            }
        }
        // A path without a rate is unknown, not fast: it has the least weight that one has.
        let known = self.rates.iter().map(|rate| rate.weight);
        let least = known.filter(|weight| *weight > 0).min().unwrap_or(1);
        for (at, rate) in self.rates.iter_mut().enumerate() {
            rate.is_shared = true;
            let weight = if rate.weight == 0 { least } else { rate.weight };
            self.shares.set_weight(view, at, rate.path, weight.max(1));
        }
    }
}

impl Rate {
    fn best(&self) -> i64 {
        self.best[0].max(self.best[1])
    }

    fn note(&mut self, now: Instant, path: &PathView, rtt: u64) {
        let period = rtt * RTTS / 2;
        if passed(self.since, now) > period && period > 0 {
            (self.best, self.since) = ([0, self.best[0]], now);
        }
        // Without a measurement, the window tells the rate if it is what limits.
        let rate = match path.delivery_rate {
            0 if path.app_limited => 0,
            0 => window_rate(path),
            _ => bandwidth(path),
        };
        self.best[0] = self.best[0].max(rate.min(RATE_MAX as u64) as i64);
    }
}

impl Scheduler for DynamicWeighted {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        self.refresh(view);
        self.shares.next(view, None)
    }

    fn on_event(&mut self, event: &PathEvent) {
        if let PathEvent::Abandoned { path } | PathEvent::Doubted { path } = event {
            self.shares.forget(*path);
            self.rates.retain(|rate| rate.path != *path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{at, built, fresh};
    use anabranch_proto::sched::Decision;

    fn path(id: u32, rate: u64) -> PathView {
        PathView {
            smoothed_rtt: Duration::from_millis(50),
            delivery_rate: rate,
            ..PathView::new(id)
        }
    }

    /// How many of `count` packets go on each of two paths.
    fn shares(
        weighted: &mut dyn Scheduler,
        paths: &[PathView],
        from_ms: u64,
        count: u64,
    ) -> [u64; 2] {
        let mut sent = [0; 2];
        for packet in 0..count {
            let mut view = fresh(paths);
            view.now = at(from_ms + packet);
            let Decision::Send(id) = weighted.select(&view).decision else {
                panic!("both paths are open")
            };
            sent[id.0 as usize] += 1;
        }
        sent
    }

    #[test]
    fn packets_go_in_proportion_to_the_rates() {
        let mut weighted = built("dynamic-weighted-like");
        let paths = [path(0, 3_000_000), path(1, 1_000_000)];
        assert_eq!(shares(&mut *weighted, &paths, 0, 8), [6, 2]);
    }

    #[test]
    fn weights_follow_a_rate_that_changes() {
        let mut weighted = built("dynamic-weighted-like");
        let before = [path(0, 3_000_000), path(1, 1_000_000)];
        let after = [path(0, 1_000_000), path(1, 1_000_000)];
        shares(&mut *weighted, &before, 0, 100);
        let early = shares(&mut *weighted, &after, 1000, 100);
        assert!(early[0] > 60, "{early:?}: one step is an eighth of the way");
        shares(&mut *weighted, &after, 2000, 20_000);
        let late = shares(&mut *weighted, &after, 30_000, 200);
        assert!(late[0].abs_diff(100) <= 5, "{late:?}");
    }

    #[test]
    fn a_path_with_room_to_spare_keeps_its_weight() {
        let mut weighted = built("dynamic-weighted-like");
        let busy = [path(0, 3_000_000), path(1, 3_000_000)];
        shares(&mut *weighted, &busy, 0, 100);
        let spare = PathView {
            app_limited: true,
            ..path(1, 10_000)
        };
        shares(&mut *weighted, &[path(0, 3_000_000), spare], 1000, 20_000);
        let sent = shares(&mut *weighted, &[path(0, 3_000_000), spare], 30_000, 200);
        assert!(sent[1].abs_diff(100) <= 5, "{sent:?}");
    }

    #[test]
    fn a_weak_path_still_gets_a_hundredth_of_the_packets() {
        let mut weighted = built("dynamic-weighted-like");
        let paths = [path(0, 100_000_000), path(1, 1000)];
        let sent = shares(&mut *weighted, &paths, 0, 10_100);
        assert!((90..=110).contains(&sent[1]), "{sent:?}");
    }

    #[test]
    fn a_path_without_a_rate_has_the_least_weight() {
        let mut weighted = built("dynamic-weighted-like");
        let paths = [path(0, 3_000_000), path(1, 1_000_000), PathView::new(2)];
        let mut sent = [0; 3];
        for _ in 0..50 {
            let Decision::Send(id) = weighted.select(&fresh(&paths)).decision else {
                panic!("all paths are open")
            };
            sent[id.0 as usize] += 1;
        }
        assert_eq!(sent, [30, 10, 10]);
    }
}
