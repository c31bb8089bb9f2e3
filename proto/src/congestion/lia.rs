//! LIA: increases coupled over the paths that share a bottleneck (RFC 6356).
//!
//! Together the paths take no more than one NewReno connection on the best of them would. Slow
//! start and reductions are each path's own. The coupling comes in as data: the group's snapshot.

use super::new_reno::LOSS_REDUCTION_FACTOR;
use super::registry::Entry;
use super::window::{LossBased, Window};
use super::{AckEvent, CongestionEvent, Member};

pub(super) const ENTRY: Entry = Entry {
    name: "lia",
    summary: "NewReno with increases coupled over a group of paths (RFC 6356)",
    params: &[],
    build: |_, init| Ok(Box::new(Lia::new(init.max_datagram_size))),
};

/// The linked-increases algorithm.
#[derive(Debug)]
pub struct Lia {
    window: Window,
    /// Bytes of growth below one.
    fraction: f64,
}

impl Lia {
    /// A controller in slow start.
    pub fn new(max_datagram_size: u16) -> Self {
        Self {
            window: Window::new(max_datagram_size),
            fraction: 0.0,
        }
    }

    /// min(alpha * acked * mds / sum of windows, acked * mds / own window): RFC 6356, section 3.
    fn increase(&mut self, acked: u64, group: &[Member]) {
        let coupling = Coupling::of(group);
        let per_byte = self.window.mds as f64 / self.window.size.max(1) as f64;
        let own = acked as f64 * per_byte;
        let linked = match coupling {
            Some(group) => group.alpha() * acked as f64 * self.window.mds as f64 / group.windows,
            None => own,
        };
        let growth = self.fraction + linked.min(own);
        self.window.size = self.window.size.saturating_add(growth as u64);
        self.fraction = growth.fract();
    }
}

/// Sums over the members of a group that have data to send and an RTT.
#[derive(Debug, Clone, Copy, Default)]
struct Coupling {
    /// Sum of windows.
    windows: f64,
    /// Sum of window over RTT.
    rates: f64,
    /// Largest window over RTT squared.
    best: f64,
}

impl Coupling {
    /// `None` if there is nothing to couple with: fewer than two members that count.
    fn of(group: &[Member]) -> Option<Self> {
        let mut sums = Self::default();
        let mut members = 0;
        let counts = |m: &&Member| (m.active || m.is_self) && !m.smoothed_rtt.is_zero();
        for member in group.iter().filter(counts) {
            let (window, rtt) = (member.window as f64, member.smoothed_rtt.as_secs_f64());
            sums.windows += window;
            sums.rates += window / rtt;
            sums.best = sums.best.max(window / (rtt * rtt));
            members += 1;
        }
        let own = group
            .iter()
            .any(|member| member.is_self && !member.smoothed_rtt.is_zero());
        (own && members > 1 && sums.rates > 0.0).then_some(sums)
    }

    fn alpha(&self) -> f64 {
        self.windows * self.best / (self.rates * self.rates)
    }
}

impl LossBased for Lia {
    fn base(&self) -> &Window {
        &self.window
    }

    fn base_mut(&mut self) -> &mut Window {
        &mut self.window
    }

    fn grow(&mut self, event: &AckEvent, group: &[Member]) {
        let counted = self.window.on_ack(event);
        let rest = self.window.slow_start(counted);
        if rest > 0 {
            self.increase(rest, group);
        }
    }

    fn shrink(&mut self, event: &CongestionEvent) {
        if self.window.reduce(event, LOSS_REDUCTION_FACTOR).is_some() {
            self.fraction = 0.0;
        }
    }

    fn start_over(&mut self) {
        self.fraction = 0.0;
    }
}

#[cfg(test)]
mod tests {
    use super::super::Controller;
    use super::super::tests::{ack, loss};
    use super::*;
    use crate::time::Duration;
    use anabranch_wire::PathId;

    fn member(path: u32, packets: u64, rtt_ms: u64) -> Member {
        Member {
            path: PathId(path),
            is_self: path == 0,
            window: packets * 1000,
            ssthresh: packets * 1000,
            smoothed_rtt: Duration::from_millis(rtt_ms),
            bytes_between_losses: 0,
            active: true,
        }
    }

    /// What one acknowledged packet adds, in packets.
    fn growth(group: &[Member]) -> f64 {
        let mut lia = Lia::new(1000);
        lia.window.size = group[0].window;
        lia.window.ssthresh = group[0].window;
        lia.on_ack(&ack(10, 5, 1000), group);
        ((lia.window.size - group[0].window) as f64 + lia.fraction) / 1000.0
    }

    #[test]
    fn two_equal_paths_grow_a_quarter_as_fast_as_one() {
        let group = [member(0, 10, 50), member(1, 10, 50)];
        assert!((Coupling::of(&group).unwrap().alpha() - 0.5).abs() < 1e-9);
        assert!((growth(&group) - 0.025).abs() < 1e-9);
    }

    #[test]
    fn the_better_path_sets_the_pace() {
        let group = [member(0, 20, 20), member(1, 10, 100)];
        assert!((Coupling::of(&group).unwrap().alpha() - 1.239_669).abs() < 1e-6);
        assert!((growth(&group) - 0.041_322).abs() < 1e-6);
    }

    #[test]
    fn no_path_grows_faster_than_alone() {
        let group = [member(0, 10, 100), member(1, 2, 5)];
        assert!(growth(&group) <= 0.1 + 1e-9);
    }

    #[test]
    fn a_path_alone_is_plain_newreno() {
        assert!((growth(&[member(0, 10, 50)]) - 0.1).abs() < 1e-9);
        let idle = Member {
            active: false,
            ..member(1, 10, 50)
        };
        assert!((growth(&[member(0, 10, 50), idle]) - 0.1).abs() < 1e-9);
        let unsampled = member(1, 10, 0);
        assert!((growth(&[member(0, 10, 50), unsampled]) - 0.1).abs() < 1e-9);
    }

    #[test]
    fn slow_start_and_reductions_are_not_coupled() {
        let group = [member(0, 10, 50), member(1, 10, 50)];
        let mut lia = Lia::new(1000);
        lia.on_ack(&ack(10, 5, 1000), &group);
        assert_eq!(lia.window(), 11_000);
        lia.on_congestion(&loss(20, 15, 1000), &group);
        assert_eq!(lia.window(), 5500);
    }
}
