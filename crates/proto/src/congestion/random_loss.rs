//! Losses that are no sign of congestion: few of a window, with nothing queued before the link.
//!
//! A loss-based controller takes each loss for a queue that overflowed. Radio loses packets
//! whatever is sent, and one in a hundred leaves such a controller a third of the link. A queue
//! that overflows makes the RTT longer first; losses without that are put down to chance, up to the
//! share that BBR version 3 allows, too (`LossThresh` of draft-ietf-ccwg-bbr). As few beside a
//! queue may be either: the window shrinks by what empties the queue, as in H-TCP's adaptive
//! backoff (draft-leith-tcp-htcp), but no further than for any other loss.
//!
//! It is fooled by a buffer that overflows before it shows, and by a router that drops before
//! packets queue for as long: there the share is the limit. Where the RTT varies by more for other
//! reasons, losses count.

use super::window::Window;
use super::{AckEvent, CongestionEvent};
use crate::spec::{ParamDoc, Params, SpecError};
use crate::time::{Duration, Instant};

/// The parameter of controllers that tell such losses.
pub(super) const RANDOM_LOSS: ParamDoc = ParamDoc {
    key: "random-loss",
    default: "2",
    summary: "percent of what is sent, and two deviations, that may be lost without being taken \
              for congestion while the RTT shows no queue; 0: every loss is (RFC 9438)",
};
/// The default of [`RANDOM_LOSS`].
const PERCENT: f64 = 2.0;
/// Standard deviations by which losses may exceed the share.
const DEVIATIONS: f64 = 2.0;
/// What each round leaves of the memory of losses.
const MEMORY: f64 = 0.9;
/// A queue is seen if all of so many RTT samples are long: jitter lengthens only some. More of them
/// would see it a round late where windows are small.
const SAMPLES: usize = 2;
/// An RTT is long that exceeds the least one by more than this part of it, as in slow start (RFC
/// 9406, section 4.3), or by more than this: `CoDel` leaves 5 ms (RFC 8289, section 3.2).
const QUEUE_PART: u32 = 8;
const LONGEST_QUEUE: Duration = Duration::from_millis(4);

/// What losses come from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Cause {
    /// Something that loses packets whatever is sent.
    Chance,
    /// No more than chance explains, but beside a queue, which a window of this part empties.
    Queue { emptied: f64 },
    /// More than chance explains, or a router says so.
    Congestion,
}

/// Tells losses by chance from congestion, on one path.
#[derive(Debug, Clone)]
pub(super) struct RandomLoss {
    /// The share of what is sent that may be lost.
    share: f64,
    latest_rtts: [Duration; SAMPLES],
    /// When the round began: it ends with an acknowledgement of what was sent after that.
    round_started: Instant,
    /// Bytes lost in the round.
    lost: u64,
    /// Bytes lost that nothing was done about, those that the window shrank for the last time, and
    /// bytes sent, over the last rounds.
    lost_lately: f64,
    answered: f64,
    sent_lately: f64,
}

impl Default for RandomLoss {
    fn default() -> Self {
        Self::of(PERCENT)
    }
}

impl RandomLoss {
    pub(super) fn take(params: &mut Params) -> Result<Self, SpecError> {
        let percent = params.take_in(RANDOM_LOSS.key, PERCENT, 0.0..=50.0)?;
        Ok(Self::of(percent))
    }

    pub(super) fn of(percent: f64) -> Self {
        Self {
            share: percent / 100.0,
            latest_rtts: [Duration::MAX; SAMPLES],
            round_started: Instant::ZERO,
            lost: 0,
            lost_lately: 0.0,
            answered: 0.0,
            sent_lately: 0.0,
        }
    }

    pub(super) fn on_ack(&mut self, ack: &AckEvent) {
        if let Some(sample) = ack.rtt_sample {
            self.latest_rtts.rotate_right(1);
            self.latest_rtts[0] = sample;
        }
        if ack.largest_sent > self.round_started {
            self.round_started = ack.now;
            self.lost = 0;
            self.lost_lately *= MEMORY;
            self.answered *= MEMORY;
            self.sent_lately *= MEMORY;
        }
        self.sent_lately += ack.bytes as f64;
    }

    /// Counts a loss, and tells what it and the others of its round come from, by the least RTT of
    /// the path.
    pub(super) fn judge(
        &mut self,
        event: &CongestionEvent,
        window: &Window,
        least_rtt: Duration,
    ) -> Cause {
        self.lost = self.lost.saturating_add(event.bytes_lost);
        self.lost_lately += event.bytes_lost as f64;
        self.sent_lately += event.bytes_lost as f64;
        let in_flight = event.bytes_in_flight.saturating_add(event.bytes_lost);
        let used = window.size.min(in_flight.max(event.sent_in_flight)) as f64;
        let is_little = |lost: f64, sent: f64| {
            let expected = sent * self.share;
            lost <= expected + DEVIATIONS * (expected * window.mds as f64).sqrt()
        };
        let is_chance = is_little(self.lost as f64, used)
            && is_little(self.lost_lately, self.sent_lately.max(used));
        if !is_chance || event.ecn || event.persistent {
            return Cause::Congestion;
        }
        let rtt = self.latest_rtts.into_iter().min().unwrap_or(Duration::MAX);
        let queue = (least_rtt / QUEUE_PART).min(LONGEST_QUEUE);
        if rtt <= least_rtt.saturating_add(queue) {
            return Cause::Chance;
        }
        Cause::Queue {
            emptied: least_rtt.as_secs_f64() / rtt.as_secs_f64(),
        }
    }

    /// The window shrank for what was lost until now, or had before for losses of the same flight.
    pub(super) fn on_answer(&mut self, shrinks: bool) {
        if shrinks {
            self.answered = 0.0;
        }
        self.answered += std::mem::take(&mut self.lost_lately);
    }

    /// The window need not have shrunk the last time.
    pub(super) fn undo_answer(&mut self) {
        self.lost_lately += std::mem::take(&mut self.answered);
    }

    /// Bytes that were declared lost arrived after all.
    pub(super) fn on_late_arrival(&mut self, bytes: u64) {
        self.lost = self.lost.saturating_sub(bytes);
        let answered = self.answered.min(bytes as f64);
        self.answered -= answered;
        self.lost_lately = (self.lost_lately + answered - bytes as f64).max(0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{ack, loss};
    use super::*;

    const WINDOW: u64 = 1_000_000;
    const LEAST: Duration = Duration::from_millis(80);

    /// After a window each with an RTT of so many milliseconds, where the least one is 80 ms.
    fn after(percent: f64, rtts_ms: &[u64]) -> RandomLoss {
        let mut random = RandomLoss::of(percent);
        for (sent_ms, latest) in (500..).zip(rtts_ms) {
            let mut sample = ack(900, sent_ms, WINDOW);
            sample.rtt_sample = Some(Duration::from_millis(*latest));
            random.on_ack(&sample);
        }
        random
    }

    fn window() -> Window {
        let mut window = Window::new(1000);
        window.size = WINDOW;
        window
    }

    /// A loss of so many bytes, with so many in flight.
    fn lost(bytes: u64, in_flight: u64) -> CongestionEvent {
        CongestionEvent {
            sent_in_flight: in_flight,
            ..loss(1000, 990, bytes)
        }
    }

    fn judge(random: &mut RandomLoss, bytes: u64, in_flight: u64) -> Cause {
        random.judge(&lost(bytes, in_flight), &window(), LEAST)
    }

    #[test]
    fn two_percent_and_two_deviations_of_a_window_are_put_down_to_chance() {
        // 20 packets and twice the root of 20.
        assert_eq!(judge(&mut after(2.0, &[80]), 28_000, WINDOW), Cause::Chance);
        assert_eq!(
            judge(&mut after(2.0, &[80]), 29_000, WINDOW),
            Cause::Congestion
        );
    }

    #[test]
    fn the_share_is_one_of_what_is_in_flight() {
        for (in_flight, allowed) in [(2000, 0), (10_000, 1), (30_000, 2), (2 * WINDOW, 28)] {
            let is_chance =
                |lost: &u64| judge(&mut after(2.0, &[80]), lost * 1000, in_flight) == Cause::Chance;
            assert_eq!((0..40).rev().find(is_chance), Some(allowed), "{in_flight}");
        }
    }

    #[test]
    fn losses_of_a_round_are_counted_together() {
        let mut random = after(2.0, &[80]);
        assert_eq!(judge(&mut random, 20_000, WINDOW), Cause::Chance);
        assert_eq!(judge(&mut random, 10_000, WINDOW), Cause::Congestion);
        random.on_ack(&ack(1010, 901, WINDOW));
        assert_eq!(judge(&mut random, 20_000, WINDOW), Cause::Chance);
    }

    #[test]
    fn more_than_the_share_in_the_long_run_is_congestion_until_it_is_answered() {
        let mut random = after(2.0, &[80]);
        let mut round = |now_ms| {
            random.on_ack(&ack(now_ms, now_ms - 50, 10_000));
            judge(&mut random, 1000, 10_000)
        };
        let causes: Vec<_> = (0..100).map(|i| round(1000 + 100 * i)).collect();
        assert_eq!(causes[0], Cause::Chance);
        assert_eq!(causes[99], Cause::Congestion, "a tenth is lost");
        random.on_answer(true);
        assert_eq!(judge(&mut random, 0, 10_000), Cause::Chance);
    }

    #[test]
    fn what_arrives_after_all_is_no_loss_and_a_reduction_for_it_no_answer() {
        let mut random = after(2.0, &[80]);
        assert_eq!(judge(&mut random, 28_000, WINDOW), Cause::Chance);
        random.on_late_arrival(20_000);
        assert_eq!(judge(&mut random, 20_000, WINDOW), Cause::Chance);
        random.on_answer(true);
        random.on_late_arrival(5_000);
        random.undo_answer();
        assert!((random.lost_lately - 23_000.0).abs() < 1e-6, "{random:?}");
    }

    #[test]
    fn a_queue_is_seen_in_two_long_rtts_and_not_in_one() {
        let cause = |rtts: [u64; 3]| judge(&mut after(2.0, &rtts), 1000, WINDOW);
        assert_eq!(cause([100, 84, 120]), Cause::Chance);
        assert_eq!(cause([120, 100, 84]), Cause::Chance);
        let queued = cause([84, 100, 120]);
        let emptied = |cause| match cause {
            Cause::Queue { emptied } => emptied,
            _ => f64::NAN,
        };
        assert!((emptied(queued) - 0.8).abs() < 1e-9, "{queued:?}");
    }

    #[test]
    fn an_acknowledgement_of_older_packets_brings_no_sample() {
        let mut random = after(2.0, &[80, 100]);
        for _ in 0..2 {
            let mut late = ack(910, 400, 1000);
            late.rtt_sample = None;
            random.on_ack(&late);
        }
        assert_eq!(judge(&mut random, 1000, WINDOW), Cause::Chance);
    }

    #[test]
    fn without_an_rtt_nothing_is_put_down_to_chance() {
        let event = lost(1000, WINDOW);
        let cause = after(2.0, &[]).judge(&event, &window(), Duration::ZERO);
        assert!(matches!(cause, Cause::Queue { emptied: 0.0 }), "{cause:?}");
    }

    #[test]
    fn marks_and_persistent_congestion_are_congestion() {
        let plain = loss(1000, 990, 0);
        for event in [
            CongestionEvent { ecn: true, ..plain },
            CongestionEvent {
                persistent: true,
                ..plain
            },
        ] {
            let cause = after(2.0, &[80]).judge(&event, &window(), LEAST);
            assert_eq!(cause, Cause::Congestion);
        }
    }

    #[test]
    fn nothing_is_put_down_to_chance_at_a_share_of_zero() {
        let cause = judge(&mut after(0.0, &[80]), 1, WINDOW);
        assert_eq!(cause, Cause::Congestion);
    }
}
