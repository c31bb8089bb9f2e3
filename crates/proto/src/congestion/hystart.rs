//! `HyStart`++: leaving slow start when the RTT rises, before packets are lost (RFC 9406).

use super::AckEvent;
use crate::time::{Duration, Instant};

/// RFC 9406, section 4.3, for the four constants below.
const RTT_THRESHOLD_MIN: Duration = Duration::from_millis(4);
const RTT_THRESHOLD_MAX: Duration = Duration::from_millis(16);
const RTT_SAMPLES: u32 = 8;
const CONSERVATIVE_ROUNDS: u32 = 5;
/// Growth in conservative slow start is this much slower.
pub(super) const CONSERVATIVE_DIVISOR: u64 = 4;

/// Watches the RTT during the first slow start of a path.
#[derive(Debug, Clone, Default)]
pub(super) struct HyStart {
    /// The round ends with the first acknowledgement of a packet sent after this.
    round_started: Instant,
    last_min: Option<Duration>,
    current_min: Option<Duration>,
    samples: u32,
    conservative: Option<Conservative>,
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
        if let Some(sample) = ack.rtt_sample {
            self.current_min = Some(self.current_min.map_or(sample, |min| min.min(sample)));
            self.samples = self.samples.saturating_add(1);
            self.judge();
        }
        if self.conservative.is_some() {
            Pace::Conservative
        } else {
            Pace::Full
        }
    }

    /// Forgets what was measured: acknowledgements take another way back.
    pub(super) fn restart(&mut self) {
        *self = Self {
            round_started: self.round_started,
            ..Self::default()
        };
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
            ack.rtt_sample = Some(Duration::from_millis(rtt_ms));
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
    fn acknowledgements_of_older_packets_are_no_samples() {
        let mut hystart = HyStart::default();
        round(&mut hystart, 100, 80);
        for i in 0..20 {
            let mut ack = ack(200 + i, 200, 1000);
            ack.rtt.latest = Duration::from_millis(160);
            ack.rtt_sample = (i == 0).then_some(ack.rtt.latest);
            assert_eq!(hystart.on_ack(&ack), Pace::Full);
        }
    }

    #[test]
    fn a_longer_way_back_of_acknowledgements_is_no_rise() {
        let mut hystart = HyStart::default();
        assert_eq!(round(&mut hystart, 1_000, 264), Pace::Full);
        hystart.restart();
        assert_eq!(round(&mut hystart, 2_000, 461), Pace::Full);
        assert_eq!(round(&mut hystart, 3_000, 600), Pace::Conservative);
    }

    #[test]
    fn a_rise_that_goes_away_was_none() {
        let mut hystart = HyStart::default();
        assert_eq!(round(&mut hystart, 100, 80), Pace::Full);
        assert_eq!(round(&mut hystart, 200, 95), Pace::Conservative);
        assert_eq!(round(&mut hystart, 300, 80), Pace::Full);
    }
}
