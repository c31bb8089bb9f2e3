//! A rate limit, shared by everything that uses it.

use crate::output::units::ByteSize;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// How late bytes may pass while the schedule stays. Time lost on a busy machine is made up for; a
/// pause is not.
const SLACK: Duration = Duration::from_millis(200);

/// The most bytes that pass at once, so that a low rate does not become bursts and pauses.
pub(crate) const STEP: usize = 16 << 10;

/// Lets bytes pass at a rate, or without a limit.
#[derive(Debug)]
pub(crate) struct Limit {
    bytes_per_second: Option<u64>,
    next: Mutex<Option<Instant>>,
}

impl Limit {
    /// Limits to so many bytes a second; no limit if `None`.
    pub(crate) fn new(rate: Option<ByteSize>) -> Self {
        Self {
            bytes_per_second: rate.map(|rate| rate.0),
            next: Mutex::new(None),
        }
    }

    /// Whether there is a rate.
    pub(crate) fn is_limited(&self) -> bool {
        self.bytes_per_second.is_some()
    }

    /// Counts these bytes. Returns when the next ones may pass.
    pub(crate) async fn pass(&self, bytes: u64) {
        if let Some(at) = self.reserve(bytes, Instant::now()) {
            sleep_until(at).await;
        }
    }

    fn reserve(&self, bytes: u64, now: Instant) -> Option<Instant> {
        let rate = self.bytes_per_second?.max(1);
        let takes = Duration::from_secs_f64(bytes as f64 / rate as f64);
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let earliest = now.checked_sub(SLACK).unwrap_or(now);
        let start = next.unwrap_or(now).max(earliest);
        *next = Some(start + takes);
        *next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn bytes_pass_at_the_rate_whoever_moves_them() {
        let limit = Limit::new(Some(ByteSize(1_000_000)));
        let started = Instant::now();
        let mover = async {
            for _ in 0..100 {
                limit.pass(20_000).await;
            }
        };
        tokio::join!(mover, async {
            for _ in 0..50 {
                limit.pass(20_000).await;
            }
        });
        let took = started.elapsed().as_secs_f64();
        assert!((3.0..3.01).contains(&took), "{took}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_is_not_made_up_for() {
        let limit = Limit::new(Some(ByteSize(1000)));
        limit.pass(1000).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        let started = Instant::now();
        limit.pass(2000).await;
        let took = started.elapsed().as_secs_f64();
        assert!((1.79..1.82).contains(&took), "{took}");
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_rate_nothing_waits() {
        let limit = Limit::new(None);
        let started = Instant::now();
        limit.pass(u64::MAX).await;
        assert_eq!(started.elapsed(), Duration::ZERO);
    }
}
