//! A token bucket before the pacer: a path is kept below a rate that its link always carries, so
//! that no queue builds up there. Window that it leaves unused is treated as limited by the
//! application.

use crate::recovery::rate::RateSample;
use crate::time::{Duration, Instant};
use std::collections::VecDeque;

/// Without a burst of its own a bucket holds this many of the largest packets, or what passes in
/// [`BURST_TIME`].
const BURST_PACKETS: u64 = 10;
const BURST_TIME: Duration = Duration::from_millis(10);

/// The largest packet of a path whose size is not known here.
const PACKET: u64 = 1500;

/// [`Shape::Auto`] looks at rates of this many seconds.
const AUTO_SECONDS: usize = 60;

/// It shapes once it has seen this many.
const AUTO_MINIMUM: usize = 5;

const SECOND: Duration = Duration::from_secs(1);

const NANOS: u64 = 1_000_000_000;

/// How fast a path may be used at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// A given rate.
    Fixed {
        /// Bytes per second; at least 1000 are allowed.
        rate: u64,
        /// Bytes that may leave at once; `None` means ten packets or what passes in 10 ms.
        burst: Option<u64>,
    },
    /// Nine tenths of the delivery rate that the path exceeded in all but a twentieth of the last
    /// minute. Rates are measured while the path is in full use; where shaping prevents that for a
    /// minute, it is let go and measured anew.
    Auto,
}

/// Tokens that are refilled at a rate.
#[derive(Debug, Clone)]
struct Bucket {
    rate: u64,
    burst: u64,
    /// Bytes times 10^9; negative after packets that did not ask.
    tokens: i128,
    updated: Instant,
}

impl Bucket {
    fn new(rate: u64, burst: Option<u64>, now: Instant) -> Self {
        let rate = rate.clamp(1000, 1 << 50);
        let in_time = u128::from(rate) * BURST_TIME.as_nanos() / u128::from(NANOS);
        let usual = (in_time as u64).max(BURST_PACKETS * PACKET);
        let burst = burst.unwrap_or(usual).max(1);
        Self {
            rate,
            burst,
            tokens: scaled(burst),
            updated: now,
        }
    }

    fn refill(&mut self, now: Instant) {
        let added = i128::from(self.rate) * now.since(self.updated).as_nanos() as i128;
        self.tokens = (self.tokens + added).min(scaled(self.burst));
        self.updated = self.updated.max(now);
    }

    fn ready_at(&self, now: Instant, bytes: u64) -> Instant {
        // No bucket ever holds more than a burst.
        let missing = scaled(bytes.min(self.burst)) - self.tokens;
        if missing <= 0 {
            return now;
        }
        let nanos = missing.unsigned_abs().div_ceil(u128::from(self.rate));
        let wait = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        (self.updated + wait).max(now)
    }

    fn on_sent(&mut self, now: Instant, bytes: u64) {
        self.refill(now);
        // The debt is limited, or a run of probes would silence the path.
        self.tokens = (self.tokens - scaled(bytes)).max(-scaled(self.burst));
    }
}

fn scaled(bytes: u64) -> i128 {
    i128::from(bytes) * i128::from(NANOS)
}

/// The shaper of one path.
#[derive(Debug, Clone)]
pub(crate) struct Shaper {
    shape: Option<Shape>,
    bucket: Option<Bucket>,
    /// The mean rate of each second that had one, for [`Shape::Auto`].
    seconds: VecDeque<(Instant, u64)>,
    /// The second that is being measured: since when, sum of rates, how many.
    current: (Instant, u128, u64),
}

impl Shaper {
    pub(crate) fn new(shape: Option<Shape>, now: Instant) -> Self {
        let bucket = match shape {
            Some(Shape::Fixed { rate, burst }) => Some(Bucket::new(rate, burst, now)),
            Some(Shape::Auto) | None => None,
        };
        Self {
            shape,
            bucket,
            seconds: VecDeque::new(),
            current: (now, 0, 0),
        }
    }

    /// Shapes differently from now on; the same shape changes nothing.
    pub(crate) fn set(&mut self, shape: Option<Shape>, now: Instant) {
        if self.shape != shape {
            *self = Self::new(shape, now);
        }
    }

    /// When `bytes` may leave: not later than `now` if at once.
    pub(crate) fn ready_at(&self, now: Instant, bytes: u64) -> Instant {
        self.bucket
            .as_ref()
            .map_or(now, |bucket| bucket.ready_at(now, bytes))
    }

    pub(crate) fn on_sent(&mut self, now: Instant, bytes: u64) {
        if let Some(bucket) = &mut self.bucket {
            bucket.on_sent(now, bytes);
        }
    }

    /// The path delivered at this rate.
    pub(crate) fn on_rate(&mut self, now: Instant, sample: &RateSample) {
        if self.shape != Some(Shape::Auto) {
            return;
        }
        // A rate that was held down says nothing about the link, also if it is above the present
        // one, as the first packets of a burst are: rates of this shaper's own making would pull
        // it down further and further.
        if !sample.app_limited {
            self.current.1 += u128::from(sample.rate);
            self.current.2 += 1;
        }
        let (since, sum, count) = self.current;
        if now.since(since) < SECOND {
            return;
        }
        self.current = (now, 0, 0);
        if count > 0 {
            let rate = (sum / u128::from(count)) as u64;
            // The seconds before it were no full use of the path: its window was still growing.
            if self
                .seconds
                .iter()
                .all(|(_, before)| *before < rate / 5 * 4)
            {
                self.seconds.clear();
            }
            self.seconds.push_back((now, rate));
        }
        while self.seconds.len() > AUTO_SECONDS
            || self
                .seconds
                .front()
                .is_some_and(|(at, _)| now.since(*at) >= SECOND * AUTO_SECONDS as u32)
        {
            self.seconds.pop_front();
        }
        self.adapt(now);
    }

    fn adapt(&mut self, now: Instant) {
        if self.seconds.is_empty() {
            self.bucket = None;
        }
        if self.seconds.len() < AUTO_MINIMUM {
            return;
        }
        let mut rates: Vec<u64> = self.seconds.iter().map(|(_, rate)| *rate).collect();
        rates.sort_unstable();
        let rate = rates[(rates.len() - 1) / 20] / 10 * 9;
        let tokens = self
            .bucket
            .as_ref()
            .map(|bucket| (bucket.tokens, bucket.updated));
        let mut bucket = Bucket::new(rate, None, now);
        if let Some((tokens, updated)) = tokens {
            bucket.tokens = tokens.min(scaled(bucket.burst));
            bucket.updated = updated;
        }
        self.bucket = Some(bucket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    fn sample(rate: u64, app_limited: bool) -> RateSample {
        RateSample {
            rate,
            delivered: 0,
            prior_delivered: 0,
            newly_acked: 0,
            lost: 0,
            in_flight_at_send: 0,
            interval: Duration::ZERO,
            app_limited,
        }
    }

    #[test]
    fn a_bucket_lets_its_burst_pass_and_then_its_rate() {
        let shape = Shape::Fixed {
            rate: 1_000_000,
            burst: Some(2000),
        };
        let mut shaper = Shaper::new(Some(shape), ms(0));
        for _ in 0..2 {
            assert_eq!(shaper.ready_at(ms(0), 1000), ms(0));
            shaper.on_sent(ms(0), 1000);
        }
        assert_eq!(shaper.ready_at(ms(0), 1000), ms(1));
        shaper.on_sent(ms(1), 1000);
        assert_eq!(shaper.ready_at(ms(1), 1000), ms(2));
        assert_eq!(shaper.ready_at(ms(50), 2000), ms(50));
        shaper.set(None, ms(50));
        assert_eq!(shaper.ready_at(ms(50), 1 << 40), ms(50));
    }

    #[test]
    fn a_path_that_is_not_shaped_waits_for_nothing() {
        let mut shaper = Shaper::new(None, ms(0));
        shaper.on_sent(ms(0), 1 << 40);
        assert_eq!(shaper.ready_at(ms(0), 1 << 40), ms(0));
    }

    #[test]
    fn the_automatic_rate_is_below_what_the_link_nearly_always_carried() {
        let mut shaper = Shaper::new(Some(Shape::Auto), ms(0));
        for second in 1..=40u64 {
            let rate = if second % 10 == 0 { 500_000 } else { 1_000_000 };
            shaper.on_rate(ms(second * 1000), &sample(rate, false));
            assert_eq!(shaper.bucket.is_some(), second >= 5);
        }
        let rate = shaper.bucket.as_ref().expect("a rate").rate;
        assert_eq!(rate, 450_000);
        // Held down by the shaper itself, it learns nothing; after a minute it starts anew.
        for second in 41..=101 {
            shaper.on_rate(ms(second * 1000), &sample(460_000, true));
        }
        assert!(shaper.bucket.is_none());
    }

    #[test]
    fn the_automatic_rate_leaves_out_the_seconds_in_which_the_window_grew() {
        let mut shaper = Shaper::new(Some(Shape::Auto), ms(0));
        let rates = [3_000, 9_000, 17_000, 30_000, 60_000, 58_000, 61_000, 59_000];
        for (second, rate) in (1..).zip(rates) {
            shaper.on_rate(ms(second * 1000), &sample(rate, false));
            assert!(shaper.bucket.is_none(), "{second}");
        }
        shaper.on_rate(ms(9_000), &sample(60_000, false));
        assert_eq!(shaper.bucket.as_ref().expect("a rate").rate, 52_200);
    }
}
