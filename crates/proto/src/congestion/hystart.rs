//! `HyStart`++: leaving slow start when the RTT rises, before packets are lost (RFC 9406).

use super::{AckEvent, RttView};
use crate::time::{Duration, Instant};

/// RFC 9406, section 4.3, for the four constants below.
const RTT_THRESHOLD_MIN: Duration = Duration::from_millis(4);
const RTT_THRESHOLD_MAX: Duration = Duration::from_millis(16);
const RTT_SAMPLES: u32 = 8;
const CONSERVATIVE_ROUNDS: u32 = 5;
/// Growth in conservative slow start is this much slower.
pub(super) const CONSERVATIVE_DIVISOR: u64 = 4;
/// An RTT that is longer than the least one by more than this part of it shows a queue.
const QUEUE_PART: u32 = 4;

/// Watches the RTT during the first slow start of a path.
#[derive(Debug, Clone, Default)]
pub(super) struct HyStart {
    /// The round ends with the first acknowledgement of a packet sent after this.
    round_started: Instant,
    /// The least sample of all, and the latest one.
    least: Option<Duration>,
    latest: Duration,
    last_min: Option<Duration>,
    current_min: Option<Duration>,
    samples: u32,
    conservative: Option<Conservative>,
    /// Whether it began anew, as acknowledgements took another way back.
    has_restarted: bool,
}

/// The RTT rose; whether for good, the next rounds tell.
#[derive(Debug, Clone, Copy)]
struct Conservative {
    baseline: Duration,
    rounds: u32,
}

/// How to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    /// Slow start as ever.
    Full,
    /// At a quarter of the pace.
    Conservative,
    /// Slow start is over.
    Done,
}

impl HyStart {
    pub(super) fn on_ack(&mut self, ack: &AckEvent) -> Pace {
        if ack.largest_sent > self.round_started && self.end_round(ack.now) {
            return Pace::Done;
        }
        let sample = ack.rtt.latest;
        self.current_min = Some(self.current_min.map_or(sample, |min| min.min(sample)));
        self.samples = self.samples.saturating_add(1);
        self.judge();
        if self.conservative.is_some() {
            Pace::Conservative
        } else {
            Pace::Full
        }
    }

    /// Takes the RTT of any acknowledgement, also of one that does not count for slow start.
    pub(super) fn observe(&mut self, rtt: &RttView) {
        if !self.has_restarted && self.least.is_some_and(|least| least < rtt.min) {
            // The path forgot its least RTT: acknowledgements take another way back, as they do
            // once the path is proven to the peer, and what was measured before is no measure any
            // more. Once: a way that changes again and again would hide every queue.
            *self = Self {
                round_started: self.round_started,
                has_restarted: true,
                ..Self::default()
            };
        }
        let sample = rtt.latest;
        self.latest = sample;
        self.least = Some(self.least.map_or(sample, |least| least.min(sample)));
    }

    /// Whether packets may wait in a queue: the RTT has risen for long, is high right now, or is
    /// not known.
    pub(super) fn is_queue_seen(&self) -> bool {
        let is_high = |least: Duration| self.latest > least.saturating_add(least / QUEUE_PART);
        self.conservative.is_some() || self.least.is_none_or(is_high)
    }

    /// Starts a new round; true if that was the last one.
    fn end_round(&mut self, now: Instant) -> bool {
        self.round_started = now;
        self.last_min = self.current_min.take().or(self.last_min);
        self.samples = 0;
        let Some(conservative) = &mut self.conservative else {
            return false;
        };
        conservative.rounds += 1;
        conservative.rounds >= CONSERVATIVE_ROUNDS
    }

    fn judge(&mut self) {
        let (Some(current), Some(last)) = (self.current_min, self.last_min) else {
            return;
        };
        if self.samples < RTT_SAMPLES {
            return;
        }
        match self.conservative {
            Some(Conservative { baseline, .. }) if current < baseline => self.conservative = None,
            Some(_) => {}
            None => {
                let threshold = (last / 8).clamp(RTT_THRESHOLD_MIN, RTT_THRESHOLD_MAX);
                if current >= last.saturating_add(threshold) {
                    self.conservative = Some(Conservative {
                        baseline: current,
                        rounds: 0,
                    });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::ack;
    use super::*;

    fn round(hystart: &mut HyStart, start_ms: u64, rtt_ms: u64) -> Pace {
        let mut pace = Pace::Full;
        for i in 0..10 {
            let mut ack = ack(start_ms + 1 + i, start_ms + i, 1000);
            ack.largest_sent = Instant::from_nanos(if i == 0 { start_ms * 1_000_000 } else { 1 });
            ack.rtt.latest = Duration::from_millis(rtt_ms);
            pace = hystart.on_ack(&ack);
            if pace == Pace::Done {
                break;
            }
        }
        pace
    }

    #[test]
    fn a_steady_rtt_is_full_pace() {
        let mut hystart = HyStart::default();
        for i in 1..20 {
            assert_eq!(round(&mut hystart, i * 100, 50), Pace::Full);
        }
    }

    #[test]
    fn a_rise_by_an_eighth_slows_down_and_five_rounds_end_it() {
        let mut hystart = HyStart::default();
        assert_eq!(round(&mut hystart, 100, 80), Pace::Full);
        assert_eq!(round(&mut hystart, 200, 89), Pace::Full);
        assert_eq!(round(&mut hystart, 300, 99), Pace::Full, "below 89 + 89/8");
        assert_eq!(round(&mut hystart, 400, 112), Pace::Conservative);
        for i in 5..9 {
            assert_eq!(round(&mut hystart, i * 100, 112), Pace::Conservative);
        }
        assert_eq!(round(&mut hystart, 900, 112), Pace::Done);
    }

    #[test]
    fn a_longer_way_back_of_acknowledgements_is_no_rise() {
        let by = |way_ms| RttView {
            latest: Duration::from_millis(way_ms),
            min: Duration::from_millis(way_ms),
            smoothed: Duration::from_millis(way_ms),
        };
        let mut hystart = HyStart::default();
        hystart.observe(&by(264));
        assert_eq!(round(&mut hystart, 1_000, 264), Pace::Full);
        hystart.observe(&by(461));
        assert!(!hystart.is_queue_seen());
        assert_eq!(round(&mut hystart, 2_000, 461), Pace::Full);
        let queue = RttView {
            latest: Duration::from_millis(600),
            ..by(461)
        };
        hystart.observe(&queue);
        assert!(hystart.is_queue_seen(), "of the new way's own");
        assert_eq!(round(&mut hystart, 3_000, 600), Pace::Conservative);
    }

    #[test]
    fn a_way_back_that_changes_again_and_again_hides_no_queue() {
        let mut hystart = HyStart::default();
        let mut paces = Vec::new();
        for i in 1..10 {
            for way_ms in [100, 130] {
                let rtt = Duration::from_millis(way_ms + 40 * i);
                hystart.observe(&RttView {
                    latest: rtt,
                    min: rtt,
                    smoothed: rtt,
                });
            }
            paces.push(round(&mut hystart, i * 1_000, 100 + 40 * i));
        }
        assert!(hystart.is_queue_seen());
        assert!(paces.contains(&Pace::Conservative), "{paces:?}");
    }

    #[test]
    fn a_rise_that_goes_away_was_none() {
        let mut hystart = HyStart::default();
        assert_eq!(round(&mut hystart, 100, 80), Pace::Full);
        assert_eq!(round(&mut hystart, 200, 95), Pace::Conservative);
        assert_eq!(round(&mut hystart, 300, 80), Pace::Full);
    }
}
