//! A rate that is not to be exceeded, whatever shares it.

use crate::output::units::ByteSize;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// How much later than planned bytes may pass without the plan being put off: what a busy machine
/// missed is made up for, and a pause is not.
const SLACK: Duration = Duration::from_millis(200);

/// Bytes that pass at once at most, so that a low rate does not become a burst and a pause.
pub(crate) const STEP: usize = 16 << 10;

/// Lets bytes pass at a rate, or at any.
#[derive(Debug)]
pub(crate) struct Limit {
    bytes_per_second: Option<u64>,
    next: Mutex<Option<Instant>>,
}

impl Limit {
    /// So many bytes a second; any number if nothing is given.
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

    /// Returns when the next bytes may pass, after these ones.
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
