//! CUBIC (RFC 9438): a window that is a cubic function of the time since the last loss.
//!
//! Fast to return to where the last loss was, careful around it, then bolder. Where plain Reno
//! would be faster, it grows like Reno.

use super::hystart::{CONSERVATIVE_DIVISOR, HyStart, Pace};
use super::registry::Entry;
use super::window::{InitialWindow, LossBased, Window};
use super::{AckEvent, CongestionEvent, Member};
use crate::spec::ParamDoc;
use crate::time::{Duration, Instant};

pub(super) const ENTRY: Entry = Entry {
    name: "cubic",
    summary: "a window that is cubic in the time since the last loss (RFC 9438)",
    params: &[
        ParamDoc {
            key: "fast-convergence",
            default: "true",
            summary: "make room for newcomers when the window shrinks from loss to loss",
        },
        ParamDoc {
            key: "hystart",
            default: "true",
            summary: "end the first slow start when the RTT rises (RFC 9406)",
        },
        SLOW_START_LOSS,
        InitialWindow::DOC,
    ],
    build: |params, init| {
        let mut cubic = Cubic::new(init.max_datagram_size);
        cubic.fast_convergence = params.take("fast-convergence", true)?;
        let hystart = params.take("hystart", true)?;
        cubic.hystart = hystart.then(HyStart::default);
        cubic.spared_share =
            params.take_in(SLOW_START_LOSS.key, SPARED_PERCENT, 0.0..=50.0)? / 100.0;
        cubic.window = Window::build(params, init)?;
        Ok(Box::new(cubic))
    },
};

/// A single packet lost by chance ends a slow start for good, on a link that could carry a hundred
/// times as much, and whether that happens early is luck. So the window shrinks by such a loss, as
/// by any other, but goes on to double. What overflows a queue is more than this, or comes with a
/// longer RTT; a router that drops single packets early is heeded by the reduction alone.
const SLOW_START_LOSS: ParamDoc = ParamDoc {
    key: "slow-start-loss",
    default: "2",
    summary: "percent of a window, or up to two packets that are an eighth of it at most, that may \
              be lost without ending the first slow start while the RTT shows no queue (needs \
              hystart); 0: any loss ends it (RFC 9438)",
};
/// The default of [`SLOW_START_LOSS`].
const SPARED_PERCENT: f64 = 2.0;
/// Packets that may be lost in the first slow start, of a window that is not smaller than that by
/// [`SPARED_PART`].
const SPARED_PACKETS: u64 = 2;
const SPARED_PART: u64 = 8;

/// RFC 9438, section 5: how steep the cubic is, in segments per cubic second.
const C: f64 = 0.4;
/// RFC 9438, section 4.6: what is left of the window after a reduction.
const BETA: f64 = 0.7;
/// RFC 9438, section 4.3: Reno's increase that is fair at CUBIC's reduction.
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// The controller of RFC 9438.
#[derive(Debug)]
pub struct Cubic {
    window: Window,
    fast_convergence: bool,
    hystart: Option<HyStart>,
    /// The share of a window that may be lost in the first slow start without ending it.
    spared_share: f64,
    curve: Curve,
    /// The curve before the latest reduction, in case it was a mistake.
    previous: Curve,
    /// Bytes of growth below one.
    fraction: f64,
    last_ack: Instant,
}

/// The shape of growth, in bytes and seconds.
#[derive(Debug, Clone, Copy, Default)]
struct Curve {
    /// Where the curve is flat: the window at the last loss, or less.
    plateau: f64,
    /// The window before the last reduction.
    prior: f64,
    /// The current stage of congestion avoidance; none before its first acknowledgement.
    epoch: Option<Epoch>,
}

#[derive(Debug, Clone, Copy)]
struct Epoch {
    start: Instant,
    /// Seconds from the start until the plateau is reached.
    k: f64,
    /// What Reno's window would be.
    reno: f64,
}

impl Epoch {
    fn new(start: Instant, plateau: f64, window: f64, mds: f64) -> Self {
        Self {
            start,
            k: ((plateau - window).max(0.0) / mds / C).cbrt(),
            reno: window,
        }
    }

    /// The cubic window, `after` the start of the epoch.
    fn window(&self, after: Duration, plateau: f64, mds: f64) -> f64 {
        let offset = after.as_secs_f64() - self.k;
        C * offset * offset * offset * mds + plateau
    }
}

impl Cubic {
    /// A controller in slow start.
    pub fn new(max_datagram_size: u16) -> Self {
        Self {
            window: Window::new(max_datagram_size),
            fast_convergence: true,
            hystart: Some(HyStart::default()),
            spared_share: SPARED_PERCENT / 100.0,
            curve: Curve::default(),
            previous: Curve::default(),
            fraction: 0.0,
            last_ack: Instant::ZERO,
        }
    }

    /// Grows in slow start and returns the bytes left for congestion avoidance.
    fn slow_start(&mut self, event: &AckEvent, counted: u64) -> u64 {
        let first = self.window.ssthresh == u64::MAX;
        let pace = match &mut self.hystart {
            Some(hystart) if first => hystart.on_ack(event),
            _ => Pace::Full,
        };
        match pace {
            Pace::Full => self.window.slow_start(counted),
            Pace::Conservative => self.window.slow_start(counted / CONSERVATIVE_DIVISOR),
            Pace::Done => {
                self.window.ssthresh = self.window.size;
                counted
            }
        }
    }

    /// Whether so little of the window was lost, and without a queue, that slow start goes on.
    fn is_spared(&self) -> bool {
        let is_queue_seen = self.hystart.as_ref().is_none_or(HyStart::is_queue_seen);
        let spared = |lost: u64, window: u64| {
            let share = (window as f64 * self.spared_share) as u64;
            let packets = SPARED_PACKETS * self.window.mds;
            lost <= share.max(packets.min(window / SPARED_PART))
        };
        let loss = self.window.latest_loss();
        self.spared_share > 0.0 && !is_queue_seen && loss.is_some_and(|(lost, of)| spared(lost, of))
    }

    fn avoid_congestion(&mut self, event: &AckEvent, acked: u64) {
        let mds = self.window.mds as f64;
        let window = self.window.size as f64 + self.fraction;
        // Without a higher window to return to, the curve starts at its plateau.
        if self.curve.epoch.is_none() {
            self.curve.plateau = self.curve.plateau.max(window);
        }
        let Curve { plateau, prior, .. } = self.curve;
        let epoch = self
            .curve
            .epoch
            .get_or_insert_with(|| Epoch::new(event.now, plateau, window, mds));
        let windows_acked = acked as f64 / window;
        let alpha = if epoch.reno >= prior { 1.0 } else { ALPHA };
        epoch.reno += alpha * mds * windows_acked;
        let elapsed = event.now.since(epoch.start);
        let grown = if epoch.window(elapsed, plateau, mds) < epoch.reno {
            window.max(epoch.reno)
        } else {
            let ahead = epoch.window(elapsed.saturating_add(event.rtt.smoothed), plateau, mds);
            window + (ahead.clamp(window, 1.5 * window) - window) * windows_acked
        };
        self.window.size = grown as u64;
        self.fraction = grown.fract();
    }
}

impl LossBased for Cubic {
    fn base(&self) -> &Window {
        &self.window
    }

    fn base_mut(&mut self) -> &mut Window {
        &mut self.window
    }

    fn grow(&mut self, event: &AckEvent, _group: &[Member]) {
        let idle = event.now.since(self.last_ack);
        self.last_ack = event.now;
        if event.app_limited
            && let Some(epoch) = &mut self.curve.epoch
        {
            // The clock stands still while the window is not used (RFC 9438, section 5.8).
            epoch.start = (epoch.start + idle).min(event.now);
        }
        if let Some(hystart) = &mut self.hystart {
            hystart.observe(&event.rtt);
        }
        let mut rest = self.window.on_ack(event);
        if rest > 0 && self.window.in_slow_start() {
            rest = self.slow_start(event, rest);
        }
        if rest > 0 && !self.window.in_slow_start() {
            self.avoid_congestion(event, rest);
        }
    }

    fn is_coupled(&self) -> bool {
        false
    }

    fn shrink(&mut self, event: &CongestionEvent, _group: &[Member]) {
        let (before, size) = (self.curve, self.window.size);
        let first = self.window.ssthresh == u64::MAX;
        // In the first slow start a loss that reduced was spared; more of its window may be lost.
        let spared = self.window.latest_loss().filter(|_| first);
        let reduced = self.window.reduce(event, BETA);
        if first && self.is_spared() {
            self.window.ssthresh = u64::MAX;
            self.previous = before;
            return;
        }
        if let Some(prior) = reduced.or(spared.map(|(_, window)| window)) {
            if reduced.is_none() {
                self.window.ssthresh = size;
            }
            let prior = prior as f64;
            let shrinking = self.fast_convergence && prior < before.plateau;
            let plateau = if shrinking {
                prior * (1.0 + BETA) / 2.0
            } else {
                prior
            };
            self.previous = before;
            self.curve = Curve {
                plateau,
                prior,
                epoch: None,
            };
            self.fraction = 0.0;
        }
        if event.persistent {
            self.curve.epoch = None;
            self.fraction = 0.0;
        }
    }

    fn undo(&mut self) {
        self.curve = self.previous;
    }

    fn start_over(&mut self) {
        // The curve counts in datagrams, from the window it started at.
        self.curve.epoch = None;
        self.fraction = 0.0;
    }
}

#[cfg(test)]
mod tests {
    use super::super::Controller;
    use super::super::tests::{ack, at, loss, spurious};
    use super::*;

    const MDS: f64 = 1000.0;

    fn near(value: f64, expected: f64) -> bool {
        (value - expected).abs() < 0.005
    }

    #[test]
    fn the_curve_is_that_of_rfc_9438() {
        let epoch = Epoch::new(Instant::ZERO, 100.0 * MDS, 70.0 * MDS, MDS);
        assert!(near(epoch.k, 4.217), "{}", epoch.k);
        let window = |secs| epoch.window(Duration::from_secs(secs), 100.0 * MDS, MDS) / MDS;
        assert!(near(window(0), 70.0), "{}", window(0));
        assert!(near(window(2), 95.64), "{}", window(2));
        assert!(near(window(6), 102.27), "{}", window(6));
    }

    fn reduced() -> Cubic {
        let mut cubic = Cubic::new(1000);
        cubic.window.size = 100_000;
        cubic.on_congestion(&loss(1000, 990, 1000), &[]);
        cubic
    }

    #[test]
    fn a_loss_leaves_seven_tenths() {
        let cubic = reduced();
        assert_eq!((cubic.window(), cubic.ssthresh()), (70_000, 70_000));
        assert!(near(cubic.curve.plateau, 100_000.0));
    }

    #[test]
    fn fast_convergence_lowers_the_plateau_of_a_shrinking_window() {
        let mut cubic = reduced();
        cubic.on_congestion(&loss(2000, 1990, 1000), &[]);
        assert!(
            near(cubic.curve.plateau, 70_000.0 * 0.85),
            "{:?}",
            cubic.curve
        );
        let mut plain = reduced();
        plain.fast_convergence = false;
        plain.on_congestion(&loss(2000, 1990, 1000), &[]);
        assert!(near(plain.curve.plateau, 70_000.0));
    }

    /// Acknowledges a window per round trip of `rtt_ms` from `start_ms` on, for `secs` seconds.
    fn run(cubic: &mut Cubic, start_ms: u64, rtt_ms: u64, secs: u64) {
        for round in 0..secs * 1000 / rtt_ms {
            let packets = cubic.window() / 1000;
            for i in 0..packets {
                let now = start_ms + round * rtt_ms + i * rtt_ms / packets;
                let mut ack = ack(now, now - rtt_ms / 2, 1000);
                ack.rtt.smoothed = Duration::from_millis(rtt_ms);
                cubic.on_ack(&ack, &[]);
            }
        }
    }

    #[test]
    fn the_window_follows_the_curve() {
        let mut cubic = reduced();
        cubic.window.size = 70_000;
        run(&mut cubic, 2000, 100, 2);
        assert!(
            (94_500..97_500).contains(&cubic.window()),
            "{}",
            cubic.window()
        );
        run(&mut cubic, 4000, 100, 2);
        assert!(
            (99_000..101_000).contains(&cubic.window()),
            "{}",
            cubic.window()
        );
    }

    #[test]
    fn on_short_paths_it_is_no_slower_than_reno() {
        let mut cubic = Cubic::new(1000);
        cubic.window.size = 20_000;
        cubic.on_congestion(&loss(1000, 990, 1000), &[]);
        run(&mut cubic, 2000, 10, 1);
        // 100 rounds at 0.53 datagrams and, from the prior window on, at 1 datagram each.
        assert!(
            (90_000..112_000).contains(&cubic.window()),
            "{}",
            cubic.window()
        );
    }

    #[test]
    fn time_without_demand_does_not_count() {
        let mut cubic = reduced();
        run(&mut cubic, 2000, 100, 1);
        let before = cubic.window();
        for now in (3000..60_000).step_by(100) {
            let idle = AckEvent {
                app_limited: true,
                ..ack(now, now - 50, 1)
            };
            cubic.on_ack(&idle, &[]);
        }
        assert_eq!(cubic.window(), before);
        run(&mut cubic, 60_000, 100, 1);
        assert!(cubic.window() < 99_000, "{}", cubic.window());
    }

    #[test]
    fn a_spurious_loss_restores_the_curve() {
        let mut cubic = Cubic::new(1000);
        cubic.window.size = 100_000;
        cubic.on_congestion(&loss(1000, 990, 1000), &[]);
        cubic.on_spurious_loss(&spurious(1010, 1000, 1000));
        assert_eq!((cubic.window(), cubic.ssthresh()), (100_000, u64::MAX));
        assert!(near(cubic.curve.plateau, 0.0));
    }

    #[test]
    fn without_a_loss_it_grows_no_slower_than_reno() {
        let mut cubic = Cubic::new(1000);
        cubic.window.ssthresh = cubic.window.size;
        run(&mut cubic, 1000, 100, 1);
        assert!(
            (19_000..21_000).contains(&cubic.window()),
            "{}",
            cubic.window()
        );
    }

    /// A default CUBIC that doubled to 100 packets, with an RTT of 50 ms, and the RTT last seen.
    fn doubling(rtt_ms: u64) -> Cubic {
        let mut cubic = Cubic::new(1000);
        cubic.on_ack(&ack(100, 50, 1000), &[]);
        cubic.window.size = 100_000;
        let mut latest = ack(900, 850, 1);
        latest.rtt.latest = Duration::from_millis(rtt_ms);
        cubic.on_ack(&latest, &[]);
        cubic.window.size = 100_000;
        cubic
    }

    #[test]
    fn two_lost_packets_shrink_the_window_but_do_not_end_the_first_slow_start() {
        let mut cubic = doubling(50);
        cubic.on_congestion(&loss(1000, 990, 2000), &[]);
        assert_eq!((cubic.window(), cubic.ssthresh()), (70_000, u64::MAX));
        cubic.on_ack(&ack(1060, 1010, 5000), &[]);
        assert_eq!(cubic.window(), 75_000, "it doubles on");
    }

    #[test]
    fn a_third_lost_packet_of_the_window_ends_the_first_slow_start() {
        let mut cubic = doubling(50);
        cubic.on_congestion(&loss(1000, 980, 2000), &[]);
        cubic.on_congestion(&loss(1001, 990, 1000), &[]);
        assert_eq!((cubic.window(), cubic.ssthresh()), (70_000, 70_000));
        assert!(near(cubic.curve.plateau, 100_000.0));
    }

    #[test]
    fn two_percent_of_a_large_window_are_spared_and_more_are_not() {
        for (lost, ssthresh) in [(20_000, u64::MAX), (21_000, 700_000)] {
            let mut cubic = doubling(50);
            cubic.window.size = 1_000_000;
            cubic.on_congestion(&loss(1000, 990, lost), &[]);
            assert_eq!((cubic.window(), cubic.ssthresh()), (700_000, ssthresh));
        }
    }

    #[test]
    fn a_loss_beside_a_queue_or_a_mark_ends_the_first_slow_start() {
        let mut queued = doubling(63);
        queued.on_congestion(&loss(1000, 990, 1000), &[]);
        assert_eq!(queued.ssthresh(), 70_000);
        let mut marked = doubling(50);
        marked.on_congestion(
            &CongestionEvent {
                ecn: true,
                ..loss(1000, 990, 0)
            },
            &[],
        );
        assert_eq!(marked.ssthresh(), 70_000);
    }

    #[test]
    fn a_mark_after_a_spared_loss_ends_the_first_slow_start() {
        let mut cubic = doubling(50);
        cubic.on_congestion(&loss(1000, 980, 1000), &[]);
        let mark = CongestionEvent {
            ecn: true,
            ..loss(1001, 990, 0)
        };
        cubic.on_congestion(&mark, &[]);
        assert_eq!((cubic.window(), cubic.ssthresh()), (70_000, 70_000));
    }

    #[test]
    fn more_of_a_window_may_be_lost_after_datagrams_got_another_size() {
        let mut cubic = doubling(50);
        cubic.on_congestion(&loss(1000, 980, 1000), &[]);
        cubic.on_mtu(1400);
        cubic.on_congestion(&loss(1001, 990, 30_000), &[]);
        assert_eq!(cubic.ssthresh(), 70_000);
    }

    #[test]
    fn two_packets_of_a_small_window_end_the_first_slow_start_and_one_does_not() {
        for (lost, ssthresh) in [(1000, u64::MAX), (2000, 7000)] {
            let mut cubic = doubling(50);
            cubic.window.size = 10_000;
            cubic.on_congestion(&loss(1000, 990, lost), &[]);
            assert_eq!(cubic.ssthresh(), ssthresh);
        }
    }

    #[test]
    fn a_queue_that_is_seen_after_a_spared_loss_ends_the_first_slow_start_with_the_next_one() {
        let mut cubic = doubling(50);
        cubic.on_congestion(&loss(1000, 980, 1000), &[]);
        let mut late = ack(1001, 985, 1000);
        late.rtt.latest = Duration::from_millis(63);
        cubic.on_ack(&late, &[]);
        cubic.on_congestion(&loss(1002, 990, 1000), &[]);
        assert_eq!(cubic.ssthresh(), 70_000);
    }

    #[test]
    fn a_spared_loss_that_was_none_leaves_the_window_as_it_was() {
        let mut cubic = doubling(50);
        cubic.on_congestion(&loss(1000, 990, 1000), &[]);
        cubic.on_spurious_loss(&spurious(1010, 1000, 1000));
        assert_eq!((cubic.window(), cubic.ssthresh()), (100_000, u64::MAX));
    }

    #[test]
    fn what_was_lost_before_a_restart_does_not_end_the_slow_start_after_it() {
        let mut cubic = doubling(50);
        cubic.on_congestion(&loss(1000, 980, 1000), &[]);
        cubic.restart(at(1100));
        cubic.on_congestion(&loss(1110, 990, 50_000), &[]);
        assert_eq!((cubic.window(), cubic.ssthresh()), (2000, u64::MAX));
    }

    #[test]
    fn only_the_first_slow_start_is_spared() {
        let mut cubic = doubling(50);
        cubic.window.ssthresh = 200_000;
        cubic.on_congestion(&loss(1000, 990, 1000), &[]);
        assert_eq!(cubic.ssthresh(), 70_000);
    }

    #[test]
    fn it_starts_over_after_a_restart() {
        let mut cubic = reduced();
        cubic.restart(at(3000));
        assert_eq!((cubic.window(), cubic.ssthresh()), (2000, 70_000));
        cubic.on_ack(&ack(3100, 3050, 2000), &[]);
        assert_eq!(cubic.window(), 4000);
    }
}
