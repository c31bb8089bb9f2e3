//! ECF, earliest completion first: a slow path is used only if the backlog would not be finished
//! sooner by waiting for the fast one.
//!
//! Lim et al., `CoNEXT` 2017, in the form of multipath-tcp's `mptcp_ecf.c`. Data assigned to a path
//! and not yet sent counts for that path alone, as in alibaba's xquic. With a long backlog it
//! equals `min-rtt`; it matters at the ends of transfers and for bursts.

use crate::toolkit::Patience;
use crate::toolkit::units::{micros, size};
use anabranch_proto::sched::{
    Choice, Contest, Entry, ParamDoc, PathEvent, PathView, Reason, Scheduler, SendView, UnitKind,
};
use anabranch_proto::spec::{Params, SpecError};
use anabranch_proto::wire::PathId;

pub(crate) const ENTRY: Entry = Entry {
    name: "ecf",
    summary: "the lowest RTT; a slower path only if that ends the backlog earlier",
    params: &[BETA],
    build: |params| Ok(Box::new(Ecf::from_params(params)?)),
};

pub(super) const BETA: ParamDoc = ParamDoc {
    key: "beta",
    default: "0.25",
    summary: "how much longer a wait goes on once it began, 0 to 1: hysteresis",
};

/// Fractions are counted in thousandths.
const SCALE: u128 = 1000;

/// Compares times of completion.
#[derive(Debug, Default)]
pub(crate) struct Ecf {
    rule: Rule,
    /// The last comparison said to wait, and for which path.
    waiting: Option<PathId>,
    patience: Patience,
}

impl Ecf {
    fn from_params(params: &mut Params) -> Result<Self, SpecError> {
        Ok(Self {
            rule: Rule::from_params(params)?,
            ..Self::default()
        })
    }
}

impl Scheduler for Ecf {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        let Some(contest) = Contest::of(view) else {
            return view.no_room();
        };
        if !contest.is_decided() {
            let (fast, slow) = (contest.fastest, contest.open);
            let before = self.waiting == Some(fast.id);
            let (wait, waiting) = self.rule.weigh(fast, slow, unassigned(view), before);
            self.waiting = waiting.then_some(fast.id);
            if wait {
                return self.patience.wait_for(view, fast, Reason::WaitForBetter);
            }
        }
        self.patience.end();
        contest.send()
    }

    fn on_event(&mut self, event: &PathEvent) {
        self.patience.on_event(event);
        if let PathEvent::Abandoned { path } | PathEvent::Doubted { path } = event
            && self.waiting == Some(*path)
        {
            self.waiting = None;
        }
    }
}

/// Bytes that wait and are assigned to no path.
pub(super) fn unassigned(view: &SendView<'_>) -> u64 {
    let assigned = view
        .paths
        .iter()
        .fold(0, |sum: u64, path| sum.saturating_add(path.queued));
    let waiting = match view.unit.kind {
        UnitKind::Idle => 0,
        _ => view.backlog.total().max(view.unit.bytes),
    };
    waiting.saturating_sub(assigned)
}

/// The comparison, shared with the scheduler that makes it for each stream.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rule {
    /// Hysteresis, in thousandths.
    beta: u128,
}

impl Rule {
    pub(super) fn from_params(params: &mut Params) -> Result<Self, SpecError> {
        let beta = params.take_in("beta", 0.25, 0.0..=1.0)?;
        Ok(Self {
            beta: (beta * SCALE as f64).round() as u128,
        })
    }

    /// Whether `bytes` should wait for `fast` though `slow` is free, and whether that goes on.
    ///
    /// Waiting pays if the fast path, after one RTT for the acknowledgement, is done before the
    /// slow one would be; and if the slow path could not deliver within two RTTs of the fast one.
    pub(super) fn weigh(
        &self,
        fast: &PathView,
        slow: &PathView,
        bytes: u64,
        waiting: bool,
    ) -> (bool, bool) {
        let window = |path: &PathView| size(path.congestion_window).max(1);
        let load = |path: &PathView| (size(bytes) + size(path.queued)).max(window(path));
        let margin = micros(fast.rttvar.max(slow.rttvar));
        let (rtt_fast, rtt_slow) = (micros(fast.smoothed_rtt), micros(slow.smoothed_rtt));
        let factor = if waiting { SCALE + self.beta } else { SCALE };
        // Both sides are products of a time, a size and a number below 2^11: 99 bits and a carry.
        let by_fast = rtt_fast * (load(fast) + window(fast)) * SCALE;
        if by_fast >= window(fast) * (rtt_slow + margin) * factor {
            return (false, false);
        }
        let soon = window(slow) * (2 * rtt_fast + margin);
        if rtt_slow * load(slow) >= soon {
            (true, true)
        } else {
            (false, waiting)
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::tests::{at, built, fresh, full, send};
    use anabranch_proto::sched::Decision;
    use anabranch_proto::time::Duration;

    /// The fast path is full, the slow one free; packets of 1 kB, windows of ten.
    pub(crate) fn vector() -> [PathView; 2] {
        let path = |id, rtt, in_flight| PathView {
            smoothed_rtt: Duration::from_millis(rtt),
            rttvar: Duration::from_millis(5),
            congestion_window: 10_000,
            bytes_in_flight: in_flight,
            max_datagram_size: 1000,
            ..PathView::new(id)
        };
        [path(0, 20, 10_000), path(1, 100, 0)]
    }

    fn ask(ecf: &mut dyn Scheduler, paths: &[PathView], packets: u64) -> Choice {
        let mut view = fresh(paths);
        view.unit.bytes = 1000;
        view.backlog.unsent = packets * 1000;
        ecf.select(&view)
    }

    fn is_wait(choice: Choice) -> bool {
        choice.reason == Reason::WaitForBetter
    }

    #[test]
    fn a_short_backlog_waits_for_the_fast_path_and_a_long_one_does_not() {
        let paths = vector();
        assert!(is_wait(ask(&mut *built("ecf"), &paths, 5)));
        assert_eq!(ask(&mut *built("ecf"), &paths, 45), send(1, Reason::Spill));
    }

    #[test]
    fn a_wait_that_began_goes_on_a_little_longer() {
        let paths = vector();
        let mut ecf = built("ecf");
        assert!(is_wait(ask(&mut *ecf, &paths, 5)));
        assert!(is_wait(ask(&mut *ecf, &paths, 45)));
        assert_eq!(ask(&mut *ecf, &paths, 100), send(1, Reason::Spill));
        assert_eq!(
            ask(&mut *ecf, &paths, 45),
            send(1, Reason::Spill),
            "the wait is over"
        );
        let mut plain = built("ecf:beta=0");
        assert!(is_wait(ask(&mut *plain, &paths, 5)));
        assert_eq!(ask(&mut *plain, &paths, 45), send(1, Reason::Spill));
    }

    #[test]
    fn what_is_assigned_elsewhere_does_not_count() {
        let mut paths = vector();
        // 40 packets wait, of which 35 are assigned to the slow path already.
        paths[1].queued = 35_000;
        paths[1].congestion_window = 40_000;
        let mut ecf = built("ecf");
        assert!(is_wait(ask(&mut *ecf, &paths, 40)));
        paths[1].queued = 0;
        assert!(!is_wait(ask(&mut *built("ecf"), &paths, 45)));
    }

    #[test]
    fn another_fast_path_begins_a_new_wait() {
        let mut ecf = built("ecf");
        let paths = vector();
        assert!(is_wait(ask(&mut *ecf, &paths, 5)));
        let other = PathView {
            id: PathId(2),
            ..paths[0]
        };
        let with_other = [
            PathView {
                smoothed_rtt: Duration::from_millis(21),
                ..paths[0]
            },
            paths[1],
            other,
        ];
        assert_eq!(ask(&mut *ecf, &with_other, 45), send(1, Reason::Spill));
    }

    #[test]
    fn equal_paths_are_both_used() {
        let [full_one, free] = vector();
        let free = PathView {
            smoothed_rtt: full_one.smoothed_rtt,
            ..free
        };
        for packets in [1, 2, 45, 1000] {
            let choice = ask(&mut *built("ecf"), &[full_one, free], packets);
            assert_eq!(choice, send(1, Reason::Spill), "{packets}");
        }
        let unmeasured = PathView::new(1);
        assert_eq!(
            ask(&mut *built("ecf"), &[full(0), unmeasured], 1),
            send(1, Reason::Spill)
        );
    }

    #[test]
    fn the_last_packet_waits_no_longer_than_a_round_trip() {
        let choice = ask(&mut *built("ecf"), &vector(), 1);
        assert_eq!(choice, Choice::hold_until(at(20), Reason::WaitForBetter));
        assert!(matches!(choice.decision, Decision::Hold { .. }));
    }
}
