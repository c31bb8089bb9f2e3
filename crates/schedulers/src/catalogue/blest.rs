//! BLEST, blocking estimation: a slow path is used only if its data would not fill the send window
//! before it is acknowledged, and so keep a faster path from sending.
//!
//! Ferlin et al., IFIP Networking 2016, in the form of multipath-tcp's `mptcp_blest.c`. The send
//! window is counted from the oldest unacknowledged byte to where flow control or the send buffer
//! stops us. Deviations: the extremes of the RTT age (two periods of ten seconds), because they
//! would never come together again otherwise. As there, the estimate grows when data of one path
//! had to be copied onto a faster one, so it only shrinks unless the configuration's `rescue` is
//! on: that flow control or the send buffer stops the connection is normal in bulk transfer and
//! says nothing about the choice of paths.

use crate::toolkit::units::{micros, packet, size};
use crate::toolkit::{Patience, PerPath};
use anabranch_proto::sched::{
    Choice, Contest, Entry, ParamDoc, PathEvent, PathView, Reason, Scheduler, SendView,
};
use anabranch_proto::spec::{Params, SpecError};
use anabranch_proto::time::{Duration, Instant};

pub(crate) const ENTRY: Entry = Entry {
    name: "blest",
    summary: "the lowest RTT; a slower path only if its data would not block the send window",
    params: &[
        ParamDoc {
            key: "scale",
            default: "1.2",
            summary: "factor on what the fast path could send meanwhile, 1.0 to 1.3",
        },
        ParamDoc {
            key: "adapt",
            default: "true",
            summary: "raise the factor when a path had to be overtaken, lower it otherwise",
        },
    ],
    build: |params| Ok(Box::new(Blest::from_params(params)?)),
};

/// The factor is counted in thousandths.
const SCALE: u128 = 1000;
const SCALE_MIN: u128 = 1000;
const SCALE_MAX: u128 = 1300;
const STEP_UP: u128 = 40;
const STEP_DOWN: u128 = 10;

/// Doublings of a window in slow start that are looked ahead.
const ROUNDS_MAX: u128 = 16;

/// Extremes of the RTT are those of the present and the last period of this length.
const PERIOD: Duration = Duration::from_secs(10);

/// Weighs a slower path against the send window.
#[derive(Debug)]
pub(crate) struct Blest {
    scale: u128,
    adapt: bool,
    /// Data of a path was copied onto a faster one since the factor was changed last.
    overtaken: bool,
    adapted: Instant,
    ranges: PerPath<Range>,
    patience: Patience,
}

/// The extremes of a path's smoothed RTT, in microseconds.
#[derive(Debug, Clone, Copy)]
struct Range {
    since: Instant,
    now: (u128, u128),
    before: (u128, u128),
}

impl Range {
    fn new(now: Instant, rtt: u128) -> Self {
        Self {
            since: now,
            now: (rtt, rtt),
            before: (rtt, rtt),
        }
    }

    fn update(&mut self, now: Instant, rtt: u128) {
        if now.since(self.since) >= PERIOD {
            (self.before, self.now) = (self.now, (rtt, rtt));
            self.since = now;
        }
        self.now = (self.now.0.min(rtt), self.now.1.max(rtt));
    }

    fn min(&self) -> u128 {
        self.now.0.min(self.before.0)
    }

    fn max(&self) -> u128 {
        self.now.1.max(self.before.1)
    }
}

impl Blest {
    fn from_params(params: &mut Params) -> Result<Self, SpecError> {
        let scale = params.take_in("scale", 1.2, 1.0..=1.3)?;
        Ok(Self {
            scale: (scale * SCALE as f64).round() as u128,
            adapt: params.take("adapt", true)?,
            overtaken: false,
            adapted: Instant::ZERO,
            ranges: PerPath::default(),
            patience: Patience::default(),
        })
    }

    fn range(&mut self, view: &SendView<'_>, path: &PathView) -> Range {
        let rtt = micros(path.smoothed_rtt);
        let new = || Range::new(view.now, rtt);
        let range = self.ranges.entry(view, path.id, new);
        range.update(view.now, rtt);
        *range
    }

    /// Whether data on `slow` would keep `fast` from sending before it is acknowledged.
    fn would_block(&mut self, view: &SendView<'_>, fast: &PathView, slow: &PathView) -> bool {
        let (of_fast, of_slow) = (self.range(view, fast), self.range(view, slow));
        if self.adapt && micros(view.now.since(self.adapted)) >= of_slow.min() {
            self.adapt(view.now);
        }
        let pending = size(slow.bytes_in_flight) + size(view.unit.bytes.max(packet(slow)));
        let window = size(slow.congestion_window);
        let spread = of_slow.max() - of_slow.min();
        let linger = if pending < window {
            of_slow.min() + spread * pending / window
        } else {
            of_slow.max()
        };
        // Nothing in flight: the smoothed RTT is that of a queue that has gone since, and would
        // stay so for good, as a path that is not used is not measured.
        let linger = match slow.bytes_in_flight {
            0 => linger,
            _ => linger.max(micros(slow.smoothed_rtt)),
        };
        let average = u128::midpoint(of_fast.min(), of_fast.max());
        let rounds = linger / average.max(1) + 1;
        let meanwhile = sendable(fast, rounds) * self.scale / SCALE;
        meanwhile > size(view.backlog.send_window).saturating_sub(pending)
    }

    fn adapt(&mut self, now: Instant) {
        self.adapted = now;
        let scale = if std::mem::take(&mut self.overtaken) {
            self.scale + STEP_UP
        } else {
            self.scale - STEP_DOWN
        };
        self.scale = scale.clamp(SCALE_MIN, SCALE_MAX);
    }
}

/// Bytes that `path` could send in `rounds` round trips.
fn sendable(path: &PathView, rounds: u128) -> u128 {
    let window = size(path.congestion_window);
    if path.ssthresh == u64::MAX {
        return window * ((1 << rounds.min(ROUNDS_MAX)) - 1);
    }
    let packet = u128::from(packet(path));
    let start = window.max(size(path.ssthresh) + packet);
    rounds * (start + (rounds - 1) / 2 * packet)
}

impl Scheduler for Blest {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        let Some(contest) = Contest::of(view) else {
            return view.no_room();
        };
        let (fast, slow) = (contest.fastest, contest.open);
        if !contest.is_decided() && self.would_block(view, fast, slow) {
            return self.patience.wait_for(view, fast, Reason::WouldBlock);
        }
        self.patience.end();
        contest.send()
    }

    fn on_event(&mut self, event: &PathEvent) {
        self.patience.on_event(event);
        self.ranges.on_event(event);
        self.overtaken |= matches!(event, PathEvent::Overtaken { .. });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{at, built, fresh, send};
    use anabranch_proto::sched::Decision;

    const KB: u64 = 1000;

    /// A path of packets of 1 kB.
    fn path(id: u32, rtt_ms: u64, window: u64, in_flight: u64) -> PathView {
        PathView {
            smoothed_rtt: Duration::from_millis(rtt_ms),
            congestion_window: window * KB,
            bytes_in_flight: in_flight * KB,
            ssthresh: 9 * KB,
            max_datagram_size: 1000,
            ..PathView::new(id)
        }
    }

    fn ask(blest: &mut dyn Scheduler, paths: &[PathView], window: u64) -> Choice {
        let mut view = fresh(paths);
        view.unit.bytes = KB;
        view.backlog.send_window = window.saturating_mul(KB);
        blest.select(&view)
    }

    fn waits(text: &str, paths: &[PathView], window: u64) -> bool {
        ask(&mut *built(text), paths, window).reason == Reason::WouldBlock
    }

    #[test]
    fn a_slow_path_is_used_if_the_window_has_room_for_what_the_fast_one_sends_meanwhile() {
        // Six rounds of 12 packets each, and a fifth more: 86.4 kB, beside 3 kB on the slow path.
        let paths = [path(0, 20, 10, 10), path(1, 100, 10, 2)];
        assert_eq!(
            ask(&mut *built("blest"), &paths, 100),
            send(1, Reason::Spill)
        );
        assert!(waits("blest", &paths, 80));
        assert!(waits("blest", &paths, 89) && !waits("blest", &paths, 90));
        assert!(waits("blest:scale=1.0", &paths, 74) && !waits("blest:scale=1.0", &paths, 75));
    }

    #[test]
    fn an_endless_window_makes_it_lowest_rtt_first() {
        let slow_start = PathView {
            ssthresh: u64::MAX,
            ..path(0, 20, 10, 10)
        };
        let paths = [slow_start, path(1, 500, 10, 2)];
        assert!(!waits("blest", &paths, u64::MAX));
        // 26 rounds are cut to 16 doublings.
        assert!(waits("blest", &paths, 786_000) && !waits("blest", &paths, 787_000));
    }

    #[test]
    fn a_free_fast_path_and_an_unmeasured_slow_one_are_used_at_once() {
        let free = [path(0, 20, 10, 5), path(1, 100, 10, 2)];
        assert_eq!(
            ask(&mut *built("blest"), &free, 1),
            send(0, Reason::LowestRtt)
        );
        let unmeasured = [path(0, 20, 10, 10), path(1, 0, 10, 2)];
        assert_eq!(
            ask(&mut *built("blest"), &unmeasured, 1),
            send(1, Reason::Spill)
        );
    }

    #[test]
    fn a_path_that_was_overtaken_raises_the_factor_and_its_absence_lowers_it() {
        let mut blest = Blest::from_params(&mut Params::default()).unwrap();
        let paths = [path(0, 20, 10, 10), path(1, 100, 10, 2)];
        let mut ask = |ms, overtaken: bool| {
            blest.on_event(&PathEvent::FlowBlocked);
            if overtaken {
                let (path, by) = (paths[1].id, paths[0].id);
                blest.on_event(&PathEvent::Overtaken { path, by });
            }
            let mut view = fresh(&paths);
            view.now = at(ms);
            view.backlog.send_window = u64::MAX;
            blest.select(&view);
            blest.scale
        };
        assert_eq!(ask(100, true), 1240);
        assert_eq!(ask(199, true), 1240, "once per RTT of the slow path");
        assert_eq!(ask(200, false), 1280);
        assert_eq!(ask(300, true), 1300);
        for round in 4..50 {
            ask(round * 100, false);
        }
        assert_eq!(ask(5000, false), 1000);
    }

    #[test]
    fn extremes_of_the_rtt_age() {
        let mut range = Range::new(at(0), 100);
        range.update(at(5_000), 900);
        assert_eq!((range.min(), range.max()), (100, 900));
        range.update(at(10_000), 500);
        assert_eq!((range.min(), range.max()), (100, 900));
        range.update(at(20_000), 500);
        assert_eq!((range.min(), range.max()), (500, 500));
    }

    #[test]
    fn a_path_whose_queue_has_drained_is_judged_by_its_least_rtt() {
        let mut blest = Blest::from_params(&mut Params::default()).unwrap();
        // Once without a queue, then with 300 ms of one.
        let fast = path(0, 60, 30, 30);
        for (ms, rtt, in_flight) in [(100, 25, 1), (200, 330, 10)] {
            let mut view = fresh(&[]);
            view.now = at(ms);
            blest.range(&view, &path(1, rtt, 10, in_flight));
        }
        let stale = [fast, path(1, 330, 10, 0)];
        let queued = [fast, path(1, 330, 10, 9)];
        let mut ask = |paths: &[PathView]| {
            let mut view = fresh(paths);
            view.now = at(300);
            view.unit.bytes = KB;
            view.backlog.send_window = 100 * KB;
            blest.select(&view).reason
        };
        assert_eq!(ask(&queued), Reason::WouldBlock);
        assert_eq!(ask(&stale), Reason::Spill);
    }

    #[test]
    fn the_wait_ends_although_the_window_stays_small() {
        let mut blest = built("blest");
        let paths = [path(0, 20, 10, 10), path(1, 100, 10, 2)];
        let Decision::Hold { until: Some(until) } = ask(&mut *blest, &paths, 80).decision else {
            panic!("it waits")
        };
        let mut view = fresh(&paths);
        view.now = until;
        view.backlog.send_window = 80 * KB;
        assert_eq!(blest.select(&view), send(1, Reason::Spill));
    }
}
