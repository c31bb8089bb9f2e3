//! Pacing: spreading packets over time (RFC 9002, section 7.7).
//!
//! A token bucket that is refilled at the pacing rate. It decides when a packet may leave, not
//! whether the congestion window lets it. One timer: [`Pacer::ready_at`].

use crate::time::{Duration, Instant};

/// Packets that may always leave at once (RFC 9002, section 7.7, allows the initial window).
pub const BURST_PACKETS: u64 = 10;

/// At higher rates this much time's worth of packets may leave at once. Twice the batch, so that a
/// driver that wakes up late by less than a batch loses nothing.
pub const BURST_TIME: Duration = Duration::from_millis(2);

/// An empty bucket is left alone for this long: a batch of datagrams per wake-up and system call
/// instead of one, in a round trip that is longer by far on any path worth pacing.
pub const BATCH_TIME: Duration = Duration::from_millis(1);

/// The slowest rate in bytes per second: lower ones, and zero, would stop a path for good.
pub const MIN_RATE: u64 = 1_000;

/// The fastest rate in bytes per second, about 2^53 bits: keeps the arithmetic within 128 bits.
pub const MAX_RATE: u64 = 1 << 50;

const NANOS: u64 = 1_000_000_000;

/// The pacing rate for a window (RFC 9002, section 7.7): it may be sent twice per smoothed RTT in
/// slow start, so that pacing does not slow its growth, and 1.25 times afterwards.
pub fn rate_for_window(window: u64, smoothed_rtt: Duration, slow_start: bool) -> u64 {
    let quarters = if slow_start { 8 } else { 5 };
    let nanos = smoothed_rtt.as_nanos().max(1);
    let rate = u128::from(window) * quarters * u128::from(NANOS) / (4 * nanos);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// The pacer of one route.
#[derive(Debug, Clone)]
pub struct Pacer {
    /// Bytes per second; `None` lets everything through.
    rate: Option<u64>,
    burst: u64,
    batch: u64,
    /// What may leave, in bytes times 10^9: then a nanosecond adds exactly `rate`. Negative after
    /// packets that did not ask.
    tokens: i128,
    updated: Instant,
    /// The bucket ran empty; it is used again from here on.
    resume_at: Instant,
}

impl Pacer {
    /// A pacer that lets everything through until it gets a rate, and a full bucket with it.
    pub fn new(now: Instant) -> Self {
        Self {
            rate: None,
            burst: 0,
            batch: 0,
            tokens: 0,
            updated: now,
            resume_at: Instant::ZERO,
        }
    }

    /// Paces at `rate` bytes per second from now on, on a path of this datagram size. Cheap if
    /// nothing changes; may be called after each acknowledgement.
    pub fn set_rate(&mut self, now: Instant, rate: u64, max_datagram_size: u16) {
        let rate = rate.clamp(MIN_RATE, MAX_RATE);
        let burst = in_time(rate, BURST_TIME).max(BURST_PACKETS * u64::from(max_datagram_size));
        if self.rate == Some(rate) && self.burst == burst {
            return;
        }
        self.refill(now);
        let first = self.rate.is_none();
        self.rate = Some(rate);
        self.burst = burst;
        self.batch = in_time(rate, BATCH_TIME).max(u64::from(max_datagram_size));
        let limit = scaled(burst);
        self.tokens = if first { limit } else { self.tokens.min(limit) };
        if self.resume_at > now {
            self.resume_at = now + self.time_until(self.batch);
        }
    }

    /// The rate in bytes per second, if there is one.
    pub fn rate(&self) -> Option<u64> {
        self.rate
    }

    /// The most bytes that leave at once after a pause; 0 before there is a rate.
    #[cfg(test)]
    pub fn burst(&self) -> u64 {
        self.burst
    }

    /// When `bytes` may leave: not later than `now` if at once.
    pub fn ready_at(&self, now: Instant, bytes: u64) -> Instant {
        if self.rate.is_none() {
            return now;
        }
        // No bucket ever holds more than a burst.
        let need = bytes.min(self.burst);
        let refilled = self.updated + self.time_until(need);
        refilled.max(self.resume_at).max(now)
    }

    /// Takes note that these bytes left. Packets that may not wait (probes) are counted, too:
    /// others wait for them.
    pub fn on_sent(&mut self, now: Instant, bytes: u64) {
        if self.rate.is_none() {
            return;
        }
        self.refill(now);
        // The debt is limited, or a run of probes would silence the path.
        self.tokens = (self.tokens - scaled(bytes)).max(-scaled(self.burst));
        if self.tokens < scaled(bytes) {
            self.resume_at = now + self.time_until(self.batch.max(bytes.min(self.burst)));
        }
    }

    fn refill(&mut self, now: Instant) {
        let Some(rate) = self.rate else {
            self.updated = now;
            return;
        };
        let added = i128::from(rate) * now.since(self.updated).as_nanos() as i128;
        self.tokens = (self.tokens + added).min(scaled(self.burst));
        self.updated = self.updated.max(now);
    }

    /// How long after `updated` the bucket holds `bytes`.
    fn time_until(&self, bytes: u64) -> Duration {
        let missing = scaled(bytes) - self.tokens;
        let (Some(rate), true) = (self.rate, missing > 0) else {
            return Duration::ZERO;
        };
        let nanos = missing.unsigned_abs().div_ceil(u128::from(rate));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

fn scaled(bytes: u64) -> i128 {
    i128::from(bytes) * i128::from(NANOS)
}

/// Bytes that pass at `rate` in `time`.
fn in_time(rate: u64, time: Duration) -> u64 {
    let bytes = u128::from(rate) * time.as_nanos() / u128::from(NANOS);
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
