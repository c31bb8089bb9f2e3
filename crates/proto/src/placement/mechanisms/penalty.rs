//! What a path may have in flight at most because of what happened on it: the cap against
//! bufferbloat and the penalties (docs/mechanisms.md).

use crate::path::state::Path;
use crate::time::{Duration, Instant};

/// The cap against bufferbloat leaves at least this many packets.
const MIN_PACKETS: u64 = 4;

/// A smallest RTT is forgotten after one to two of these.
const MIN_RTT_PERIOD: Duration = Duration::from_secs(5);

/// The smallest RTT of the last five to ten seconds.
#[derive(Debug, Clone, Copy, Default)]
struct RecentMinimum {
    before: Option<Duration>,
    current: Option<Duration>,
    since: Instant,
    generation: u32,
}

impl RecentMinimum {
    /// Takes a sample of the route of this generation; returns the minimum.
    fn update(&mut self, now: Instant, generation: u32, sample: Duration) -> Duration {
        if generation != self.generation {
            *self = Self {
                generation,
                since: now,
                ..Self::default()
            };
        }
        if now.since(self.since) >= MIN_RTT_PERIOD {
            self.before = self.current.take();
            self.since = now;
        }
        let current = self.current.map_or(sample, |known| known.min(sample));
        self.current = Some(current);
        self.before.map_or(current, |before| before.min(current))
    }
}

/// A slow path that blocked others may have this much in flight, growing by a packet per RTT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Penalty {
    window: u64,
    since: Instant,
}

/// The window that keeps the standing queue of a path below `factor - 1` times its
/// bandwidth-delay product.
fn bloat_cap(window: u64, min: Duration, smoothed: Duration, factor: f64, packet: u64) -> u64 {
    let share = min.as_secs_f64() / smoothed.as_secs_f64().max(1e-9);
    let allowed = (factor * window as f64 * share) as u64;
    allowed.min(window).max(MIN_PACKETS * packet)
}

/// What mechanisms keep of one path.
#[derive(Debug, Default)]
pub(super) struct Record {
    recent_min: RecentMinimum,
    penalty: Option<Penalty>,
    penalised_at: Option<Instant>,
}

impl Record {
    /// A path that blocked others while a faster one had room gets half its window, unless that was
    /// done within the faster one's RTT.
    pub(super) fn penalise(&mut self, now: Instant, path: &Path, fast_rtt: Duration) {
        let route = path.route();
        let recent = self.penalised_at.is_some_and(|at| now.since(at) < fast_rtt);
        if recent || route.rtt().smoothed() <= fast_rtt || route.is_in_recovery() {
            return;
        }
        let window = path.window() / 2;
        self.penalty = Some(Penalty {
            window: window.max(u64::from(route.max_datagram_size())),
            since: now,
        });
        self.penalised_at = Some(now);
    }

    /// The cap that comes from what the path itself did; `bloat` is the factor of the cap against
    /// bufferbloat.
    pub(super) fn cap(&mut self, now: Instant, path: &Path, bloat: Option<f64>) -> u64 {
        let route = path.route();
        let window = route.congestion_window();
        let packet = u64::from(route.max_datagram_size());
        let smoothed = route.rtt().smoothed();
        let mut cap = u64::MAX;
        if let Some(factor) = bloat
            && route.rtt().has_sample()
        {
            let latest = route.rtt().latest();
            let min = self.recent_min.update(now, route.generation(), latest);
            cap = bloat_cap(window, min, smoothed, factor, packet);
        }
        if let Some(Penalty {
            window: start,
            since,
        }) = self.penalty
        {
            let rtts = now.since(since).as_nanos() / smoothed.as_nanos().max(1);
            let grown = start.saturating_add(packet.saturating_mul(rtts as u64));
            if grown >= window {
                self.penalty = None;
            } else {
                cap = cap.min(grown);
            }
        }
        cap
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_bloated_path_gets_less_than_its_window() {
        let cap = |smoothed| bloat_cap(100, ms(50), ms(smoothed), 3.0, 1);
        assert_eq!(cap(300), 50);
        assert_eq!(cap(120), 100);
        assert_eq!(cap(100_000), 4, "a few packets always pass");
        assert_eq!(bloat_cap(100, ms(50), ms(150), 1.5, 1), 50);
    }

    #[test]
    fn a_minimum_is_forgotten_after_ten_seconds() {
        let mut minimum = RecentMinimum::default();
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        assert_eq!(minimum.update(at(0), 0, ms(10)), ms(10));
        assert_eq!(minimum.update(at(4), 0, ms(40)), ms(10));
        assert_eq!(minimum.update(at(6), 0, ms(30)), ms(10));
        assert_eq!(minimum.update(at(11), 0, ms(50)), ms(30));
        assert_eq!(minimum.update(at(12), 1, ms(60)), ms(60), "another route");
    }
}
