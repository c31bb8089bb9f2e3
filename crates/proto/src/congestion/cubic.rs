//! CUBIC (RFC 9438): a window that is a cubic function of the time since the last loss.
//!
//! Fast to return to where the last loss was, careful around it, then bolder. Where plain Reno
//! would be faster, it grows like Reno. Unlike in the RFC, [losses by chance](RandomLoss) leave the
//! window as it is, and few beside a short queue shrink it by less.

use super::hystart::{CONSERVATIVE_DIVISOR, HyStart, Pace};
use super::least_rtt::LeastRtt;
use super::random_loss::{Cause, RANDOM_LOSS, RandomLoss};
use super::registry::Entry;
use super::window::{InitialWindow, LossBased, Window};
use super::{AckEvent, CongestionEvent, Member};
use crate::spec::ParamDoc;
use crate::time::{Duration, Instant};

pub(super) const ENTRY: Entry = Entry {
    name: "cubic",
    summary: "a window that is cubic in the time since the last loss (RFC 9438 with random-loss=0)",
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
        RANDOM_LOSS,
        InitialWindow::DOC,
    ],
    build: |params, init| {
        let mut cubic = Cubic::new(init.max_datagram_size);
        cubic.fast_convergence = params.take("fast-convergence", true)?;
        let hystart = params.take("hystart", true)?;
        cubic.hystart = hystart.then(HyStart::default);
        cubic.random_loss = RandomLoss::take(params)?;
        cubic.window = Window::build(params, init)?;
        Ok(Box::new(cubic))
    },
};

/// RFC 9438, section 5: how steep the cubic is, in segments per cubic second.
const C: f64 = 0.4;
/// RFC 9438, section 4.6: what is left of the window after a reduction.
const BETA: f64 = 0.7;

/// The controller of RFC 9438.
#[derive(Debug)]
pub struct Cubic {
    window: Window,
    fast_convergence: bool,
    hystart: Option<HyStart>,
    least_rtt: LeastRtt,
    random_loss: RandomLoss,
    curve: Curve,
    /// The curve before the latest reduction, in case it was a mistake.
    previous: Curve,
    /// Bytes of growth below one.
    fraction: f64,
    last_ack: Instant,
}

/// The shape of growth, in bytes and seconds.
#[derive(Debug, Clone, Copy)]
struct Curve {
    /// Where the curve is flat: the window at the last loss, or less.
    plateau: f64,
    /// The window before the last reduction.
    prior: f64,
    /// What the last reduction left of it.
    factor: f64,
    /// The current stage of congestion avoidance; none before its first acknowledgement.
    epoch: Option<Epoch>,
}

impl Default for Curve {
    fn default() -> Self {
        Self {
            plateau: 0.0,
            prior: 0.0,
            factor: BETA,
            epoch: None,
        }
    }
}

impl Curve {
    /// That after a reduction to `factor` of the window. One that shrinks from loss to loss makes
    /// room for newcomers, if it shall (RFC 9438, section 4.7).
    fn after(prior: f64, factor: f64, before: Self, makes_room: bool) -> Self {
        let plateau = if makes_room && prior < before.plateau {
            prior * (1.0 + factor) / 2.0
        } else {
            prior
        };
        Self {
            plateau,
            prior,
            factor,
            epoch: None,
        }
    }

    /// Reno's increase that is fair at this reduction, in datagrams a window (RFC 9438, section
    /// 4.3).
    fn fair_increase(&self) -> f64 {
        3.0 * (1.0 - self.factor) / (1.0 + self.factor)
    }
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
            least_rtt: LeastRtt::default(),
            random_loss: RandomLoss::default(),
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

    fn avoid_congestion(&mut self, event: &AckEvent, acked: u64) {
        let mds = self.window.mds as f64;
        let window = self.window.size as f64 + self.fraction;
        // Without a higher window to return to, the curve starts at its plateau.
        if self.curve.epoch.is_none() {
            self.curve.plateau = self.curve.plateau.max(window);
        }
        let Curve { plateau, prior, .. } = self.curve;
        let fair_increase = self.curve.fair_increase();
        let epoch = self
            .curve
            .epoch
            .get_or_insert_with(|| Epoch::new(event.now, plateau, window, mds));
        let windows_acked = acked as f64 / window;
        let alpha = if epoch.reno >= prior {
            1.0
        } else {
            fair_increase
        };
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
        if self.least_rtt.observe(&event.rtt)
            && let Some(hystart) = &mut self.hystart
        {
            hystart.restart();
        }
        self.random_loss.on_ack(event);
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
        let least_rtt = self.least_rtt.get();
        let cause = self.random_loss.judge(event, &self.window, least_rtt);
        if cause == Cause::Chance && self.window.ignore_loss(event) {
            return;
        }
        let factor = match cause {
            Cause::Queue { emptied } => emptied.max(BETA),
            Cause::Chance | Cause::Congestion => BETA,
        };
        let before = self.curve;
        // Asked before a mark among the same flight, which leaves it for good.
        let was_for_losses = self.window.is_reduced_for_losses();
        let reduced = self.window.reduce(event, factor);
        self.random_loss.on_answer(reduced.is_some());
        if let Some(prior) = reduced {
            self.previous = before;
            self.curve = Curve::after(prior as f64, factor, before, self.fast_convergence);
            self.fraction = 0.0;
        } else if was_for_losses && factor < before.factor {
            // The first losses of the round passed for few.
            self.window.shrink_to(before.prior * factor);
            self.curve = Curve::after(before.prior, factor, self.previous, self.fast_convergence);
            self.fraction = 0.0;
        }
        if event.persistent {
            self.curve.epoch = None;
            self.fraction = 0.0;
        }
    }

    fn on_late_arrival(&mut self, bytes: u64) {
        self.random_loss.on_late_arrival(bytes);
    }

    fn undo(&mut self) {
        self.curve = self.previous;
        self.random_loss.undo_answer();
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

    /// A CUBIC that takes every loss for congestion, and had one of 100 packets.
    fn reduced() -> Cubic {
        let mut cubic = Cubic::new(1000);
        cubic.random_loss = RandomLoss::of(0.0);
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

    /// A CUBIC of 100 packets in its first slow start, with this RTT of late and 50 ms at least.
    fn doubling(rtt_ms: u64) -> Cubic {
        let mut cubic = Cubic::new(1000);
        cubic.on_ack(&ack(100, 50, 1000), &[]);
        for now_ms in 896..900 {
            let mut latest = ack(now_ms, now_ms - 50, 1);
            latest.rtt.latest = Duration::from_millis(rtt_ms);
            latest.rtt_sample = Some(latest.rtt.latest);
            cubic.on_ack(&latest, &[]);
        }
        cubic.window.size = 100_000;
        cubic
    }

    /// A loss of a full window.
    fn lost(now_ms: u64, sent_ms: u64, bytes: u64) -> CongestionEvent {
        CongestionEvent {
            sent_in_flight: 100_000,
            ..loss(now_ms, sent_ms, bytes)
        }
    }

    /// The window and the slow-start threshold that losses of so many bytes, of one round, leave.
    fn left_after(mut cubic: Cubic, losses: &[u64]) -> (u64, u64) {
        for (now_ms, bytes) in (1000..).zip(losses) {
            cubic.on_congestion(&lost(now_ms, 990, *bytes), &[]);
        }
        (cubic.window(), cubic.ssthresh())
    }

    #[test]
    fn losses_by_chance_leave_the_window_as_it_is() {
        assert_eq!(left_after(doubling(50), &[4000]), (100_000, u64::MAX));
        let mut later = doubling(50);
        later.window.ssthresh = 80_000;
        assert_eq!(left_after(later, &[4000]), (100_000, 80_000));
    }

    #[test]
    fn more_losses_than_chance_explains_reduce_it() {
        assert_eq!(left_after(doubling(50), &[5000]), (70_000, 70_000));
        assert_eq!(left_after(doubling(50), &[4000, 1000]), (70_000, 70_000));
    }

    #[test]
    fn losses_beside_a_queue_reduce_it_by_what_empties_the_queue_or_three_tenths() {
        assert_eq!(left_after(doubling(62), &[4000]), (80_645, 80_645));
        assert_eq!(left_after(doubling(62), &[5000]), (70_000, 70_000));
        assert_eq!(left_after(doubling(100), &[4000]), (70_000, 70_000));
    }

    #[test]
    fn a_round_that_begins_with_few_losses_and_goes_on_with_many_is_reduced_to_seven_tenths() {
        assert_eq!(left_after(doubling(62), &[4000, 1000]), (70_000, 70_000));
        assert_eq!(
            left_after(doubling(62), &[4000, 1000, 9000]),
            (70_000, 70_000),
            "once"
        );
    }

    #[test]
    fn losses_of_the_round_that_are_found_after_its_recovery_count_too() {
        let mut cubic = doubling(62);
        cubic.on_congestion(&lost(1000, 990, 1000), &[]);
        for sent_ms in [1001, 1002] {
            cubic.on_ack(&ack(sent_ms + 50, sent_ms, 1000), &[]);
            cubic.on_congestion(&lost(sent_ms + 50, 1000, 9000), &[]);
        }
        for i in 0..70 {
            cubic.on_ack(&ack(1060 + i, 1010 + i, 1000), &[]);
        }
        assert!((70_000..73_000).contains(&cubic.window()), "{cubic:?}");
        assert!(near(cubic.curve.plateau, 100_000.0));
    }

    #[test]
    fn a_reduction_that_is_taken_back_answered_nothing() {
        let mut cubic = doubling(50);
        cubic.on_congestion(&lost(1000, 980, 4000), &[]);
        cubic.on_congestion(&lost(1001, 990, 1000), &[]);
        cubic.on_spurious_loss(&spurious(1010, 1001, 1000));
        assert_eq!(cubic.window(), 100_000);
        cubic.on_ack(&ack(1060, 1010, 1), &[]);
        assert_eq!(left_after(cubic, &[2000]), (70_000, 70_000));
    }

    #[test]
    fn what_a_restart_answered_is_not_held_against_losses_by_chance_after_it() {
        let mut cubic = doubling(50);
        cubic.window.ssthresh = 80_000;
        cubic.restart(at(1100));
        cubic.on_congestion(&lost(1100, 990, 98_000), &[]);
        for round in 0..6 {
            for i in 0..cubic.window() / 1000 {
                let now_ms = 1200 + 100 * round + i;
                cubic.on_ack(&ack(now_ms, now_ms - 50, 1000), &[]);
            }
        }
        let window = cubic.window();
        assert!(window > 60_000, "{window}");
        cubic.on_congestion(&lost(1900, 1890, 1000), &[]);
        assert_eq!((cubic.window(), cubic.ssthresh()), (window, 80_000));
    }

    #[test]
    fn who_gives_up_less_makes_less_room_and_grows_more_slowly() {
        let mut cubic = doubling(62);
        cubic.on_congestion(&lost(1000, 990, 1000), &[]);
        assert!(near(cubic.curve.plateau, 100_000.0));
        assert!(cubic.curve.fair_increase() < 0.33, "{:?}", cubic.curve);
        cubic.on_congestion(&lost(1100, 1001, 1000), &[]);
        assert!(near(cubic.curve.prior, 80_645.0));
        let expected = 80_645.0 * (1.0 + 50.0 / 62.0) / 2.0;
        assert!((cubic.curve.plateau - expected).abs() < 1.0);
    }

    #[test]
    fn a_loss_before_the_first_rtt_reduces_it() {
        let mut cubic = Cubic::new(1000);
        cubic.window.size = 100_000;
        assert_eq!(left_after(cubic, &[1000]), (70_000, 70_000));
    }

    #[test]
    fn every_loss_reduces_it_if_none_may_be_by_chance() {
        let mut plain = doubling(50);
        plain.random_loss = RandomLoss::of(0.0);
        assert_eq!(left_after(plain, &[1000]), (70_000, 70_000));
    }

    #[test]
    fn a_packet_lost_by_chance_that_arrives_takes_no_reduction_back() {
        let mut cubic = doubling(50);
        cubic.on_congestion(&lost(1000, 990, 30_000), &[]);
        cubic.on_ack(&ack(1050, 1005, 70_000), &[]);
        cubic.on_congestion(&lost(1060, 1010, 1000), &[]);
        let window = cubic.window();
        for lost_at in [1000; 29].into_iter().chain([1060]) {
            cubic.on_spurious_loss(&spurious(1070, lost_at, 1000));
        }
        assert_eq!(cubic.window(), window);
    }

    #[test]
    fn what_was_lost_before_a_restart_reduces_nothing_after_it() {
        let mut cubic = doubling(50);
        cubic.restart(at(1100));
        assert_eq!(left_after(cubic, &[50_000]), (2000, u64::MAX));
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
