//! Resequencing: how long bytes that have arrived wait for earlier ones.

use anabranch_proto::time::{Duration, Instant};
use anabranch_proto::wire::{PathId, StreamId};
use std::collections::BTreeMap;

/// Buckets per power of two: values are resolved to within 1/32.
const PARTS: usize = 32;

/// Powers of two that a nanosecond count of 64 bits has beyond the first buckets.
const POWERS: usize = 60;

/// A distribution of times, weighted by bytes, in bounded space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram {
    buckets: Vec<u64>,
    total: u64,
    sum: u128,
    max: Duration,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: vec![0; PARTS * POWERS],
            total: 0,
            sum: 0,
            max: Duration::ZERO,
        }
    }
}

impl Histogram {
    /// Adds a time with this weight.
    pub fn add(&mut self, value: Duration, weight: u64) {
        let nanos = value.as_nanos() as u64;
        self.buckets[bucket(nanos)] += weight;
        self.total += weight;
        self.sum += u128::from(nanos) * u128::from(weight);
        self.max = self.max.max(value);
    }

    /// The sum of all weights.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The mean.
    pub fn mean(&self) -> Duration {
        let mean = self.sum.checked_div(u128::from(self.total)).unwrap_or(0);
        Duration::from_nanos(mean as u64)
    }

    /// The largest value.
    pub fn max(&self) -> Duration {
        self.max
    }

    /// The value that this share (0.0 to 1.0) of the weight did not exceed, within 3 %.
    pub fn quantile(&self, share: f64) -> Duration {
        let wanted = (share * self.total as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return Duration::from_nanos(upper(index)).min(self.max);
            }
        }
        self.max
    }
}

fn bucket(nanos: u64) -> usize {
    if nanos < PARTS as u64 {
        return nanos as usize;
    }
    let power = nanos.ilog2() as usize;
    let part = (nanos >> (power - 5)) as usize - PARTS;
    (power - 4) * PARTS + part
}

/// The largest value of a bucket.
fn upper(index: usize) -> u64 {
    if index < PARTS {
        return index as u64;
    }
    let shift = index / PARTS - 1;
    ((PARTS + index % PARTS + 1) as u64).wrapping_shl(shift as u32) - 1
}

/// A run of bytes behind a gap.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    end: u64,
    since: Instant,
}

#[derive(Debug, Default)]
struct StreamState {
    /// The first byte that has not arrived.
    frontier: u64,
    waiting: BTreeMap<u64, Waiting>,
}

/// What one path delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PathBytes {
    /// Stream bytes that no other packet had delivered before.
    pub first_copy: u64,
    /// Stream bytes that had already arrived.
    pub duplicate: u64,
}

/// The receiver's view of ordering, derived from the stream frames that arrive.
#[derive(Debug, Default)]
pub struct Resequencing {
    streams: BTreeMap<StreamId, StreamState>,
    paths: BTreeMap<PathId, PathBytes>,
    waits: Histogram,
    waiting_bytes: u64,
    waiting_runs: u64,
    peak_bytes: u64,
    peak_runs: u64,
    /// The most since the last sample.
    recent_peak: u64,
    recent_peak_runs: u64,
    /// Waiting bytes times nanoseconds, summed up to the given time.
    area: (u128, Instant),
    began: Option<Instant>,
}

impl Resequencing {
    /// How long each byte waited for earlier bytes of its stream; most do not wait at all.
    pub fn waits(&self) -> &Histogram {
        &self.waits
    }

    /// Bytes that are waiting now.
    pub fn waiting_bytes(&self) -> u64 {
        self.waiting_bytes
    }

    /// The most bytes that ever waited.
    pub fn peak_bytes(&self) -> u64 {
        self.peak_bytes
    }

    /// The most separate runs of bytes that ever waited: the depth of disorder.
    pub fn peak_runs(&self) -> u64 {
        self.peak_runs
    }

    /// What each path delivered.
    pub fn path(&self, path: PathId) -> PathBytes {
        self.paths.get(&path).copied().unwrap_or_default()
    }

    /// The most bytes and the most runs that waited since the last call.
    pub(super) fn take_recent_peaks(&mut self) -> (u64, u64) {
        (
            std::mem::replace(&mut self.recent_peak, self.waiting_bytes),
            std::mem::replace(&mut self.recent_peak_runs, self.waiting_runs),
        )
    }

    /// The mean number of bytes that waited, from the first arrival until now.
    pub fn mean_bytes(&self, now: Instant) -> f64 {
        let Some(begin) = self.began else { return 0.0 };
        let time = now.since(begin).as_nanos();
        if time == 0 {
            return 0.0;
        }
        self.area_until(now) as f64 / time as f64
    }

    fn area_until(&self, now: Instant) -> u128 {
        let (area, since) = self.area;
        area + u128::from(self.waiting_bytes) * now.since(since).as_nanos()
    }

    /// Bytes `start..end` of a stream arrived on a path.
    pub(super) fn on_arrival(
        &mut self,
        now: Instant,
        path: PathId,
        stream: StreamId,
        start: u64,
        end: u64,
    ) {
        self.began.get_or_insert(now);
        self.area = (self.area_until(now), now);
        let state = self.streams.entry(stream).or_default();
        let mut fresh = 0;
        let mut at = start.max(state.frontier);
        if at == state.frontier && end > at {
            // In order, up to the next run that is waiting.
            let stop = state.waiting.keys().next().copied().unwrap_or(u64::MAX);
            let stop = stop.min(end);
            fresh += stop - at;
            self.waits.add(Duration::ZERO, stop - at);
            state.frontier = stop;
            at = stop;
        }
        while at < end {
            let before = state.waiting.range(..=at).next_back();
            if let Some((_, run)) = before.filter(|(_, run)| run.end > at) {
                at = run.end;
                continue;
            }
            let after = state.waiting.range(at..).next().map(|(next, _)| *next);
            let stop = after.unwrap_or(u64::MAX).min(end);
            let since = now;
            state.waiting.insert(at, Waiting { end: stop, since });
            self.waiting_bytes += stop - at;
            self.waiting_runs += 1;
            fresh += stop - at;
            at = stop;
        }
        while let Some(first) = state.waiting.first_entry() {
            if *first.key() != state.frontier {
                break;
            }
            let (start, run) = first.remove_entry();
            self.waits.add(now.since(run.since), run.end - start);
            self.waiting_bytes -= run.end - start;
            self.waiting_runs -= 1;
            state.frontier = run.end;
        }
        self.peak_bytes = self.peak_bytes.max(self.waiting_bytes);
        self.peak_runs = self.peak_runs.max(self.waiting_runs);
        self.recent_peak = self.recent_peak.max(self.waiting_bytes);
        self.recent_peak_runs = self.recent_peak_runs.max(self.waiting_runs);
        let bytes = self.paths.entry(path).or_default();
        bytes.first_copy += fresh;
        bytes.duplicate += end - start - fresh;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: PathId = PathId(0);
    const STREAM: StreamId = StreamId(2);

    fn ms(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn bytes_wait_from_their_arrival_until_the_gap_before_them_closes() {
        let mut order = Resequencing::default();
        order.on_arrival(ms(0), PATH, STREAM, 0, 100);
        order.on_arrival(ms(10), PATH, STREAM, 200, 300);
        order.on_arrival(ms(20), PathId(1), STREAM, 300, 400);
        assert_eq!((order.waiting_bytes(), order.peak_runs()), (200, 2));
        order.on_arrival(ms(50), PathId(1), STREAM, 100, 200);
        assert_eq!(order.waiting_bytes(), 0);
        assert_eq!(order.waits().total(), 400);
        assert_eq!(order.waits().max(), Duration::from_millis(40));
        // Four times a hundred bytes, which waited 0, 0, 30 and 40 ms.
        assert_eq!(order.waits().mean(), Duration::from_micros(17_500));
        assert_eq!(order.peak_bytes(), 200);
        // A hundred bytes waited for 10 ms and two hundred for 30 ms, in 100 ms.
        assert!((order.mean_bytes(ms(100)) - 70.0).abs() < 1e-9);
        assert_eq!(order.path(PathId(1)).first_copy, 200);
    }

    #[test]
    fn what_was_there_before_counts_as_duplicate_wherever_it_overlaps() {
        let mut order = Resequencing::default();
        order.on_arrival(ms(0), PATH, STREAM, 100, 200);
        order.on_arrival(ms(1), PATH, STREAM, 50, 250);
        let bytes = order.path(PATH);
        assert_eq!((bytes.first_copy, bytes.duplicate), (200, 100));
        order.on_arrival(ms(2), PATH, STREAM, 0, 250);
        let bytes = order.path(PATH);
        assert_eq!((bytes.first_copy, bytes.duplicate), (250, 300));
        assert_eq!(order.waiting_bytes(), 0);
        order.on_arrival(ms(3), PATH, STREAM, 0, 250);
        assert_eq!(order.path(PATH).duplicate, 550);
    }

    #[test]
    fn quantiles_are_within_three_per_cent() {
        let mut waits = Histogram::default();
        for value in 1..=1000 {
            waits.add(Duration::from_micros(value), 1);
        }
        for (share, expected) in [(0.5, 500.0), (0.95, 950.0), (1.0, 1000.0)] {
            let found = waits.quantile(share).as_nanos() as f64 / 1000.0;
            assert!((found / expected - 1.0).abs() < 0.032, "{share} {found}");
        }
        assert_eq!(Histogram::default().quantile(0.5), Duration::ZERO);
    }

    #[test]
    fn every_bucket_holds_what_its_upper_end_says() {
        for nanos in (0..70).chain([1 << 20, (1 << 40) + 12345, u64::MAX / 2]) {
            let index = bucket(nanos);
            assert!(upper(index) >= nanos, "{nanos}");
            assert!(index == 0 || upper(index - 1) < nanos, "{nanos}");
        }
    }
}
