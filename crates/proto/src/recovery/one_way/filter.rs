//! What is kept of a series of delays: a moving average, its variation, and the smallest recent
//! value.

use crate::time::{Duration, Instant};

/// A sample is an outlier if it is this far from the average, or eight times the variation if that
/// is more.
pub(super) const OUTLIER: i64 = 50_000;

/// Outliers in a row that are no outliers: the path has changed.
const OUTLIERS_BELIEVED: u8 = 3;

/// Variation counts no further: what varies more is of no use.
const LARGEST_JITTER: i64 = 1_000_000;

/// Binary digits kept behind the point: an average of eighths must not lose them to rounding.
const FRACTION: u32 = 4;

/// The least of the samples of late, in two buckets of half the window each: it covers at least
/// half of the window and at most all of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct WindowedMin {
    half: Duration,
    began: Instant,
    older: Option<i64>,
    newer: Option<i64>,
}

impl WindowedMin {
    pub(super) const fn new(window: Duration) -> Self {
        Self {
            half: Duration::from_nanos(window.as_nanos() as u64 / 2),
            began: Instant::ZERO,
            older: None,
            newer: None,
        }
    }

    pub(super) fn take(&mut self, now: Instant, sample: i64) {
        let passed = now.since(self.began);
        if passed >= self.half {
            self.older = self.newer.take().filter(|_| passed < self.half * 2);
            self.began = now;
        }
        self.newer = Some(self.newer.map_or(sample, |least| least.min(sample)));
    }

    pub(super) fn get(&self) -> Option<i64> {
        self.older.into_iter().chain(self.newer).min()
    }

    pub(super) fn clear(&mut self) {
        (self.older, self.newer) = (None, None);
    }
}

/// A filtered series of delays, in microseconds of any epoch.
#[derive(Debug, Clone, Copy)]
pub(super) struct DelayFilter {
    base: WindowedMin,
    /// Moving average and mean deviation, with [`FRACTION`] digits behind the point.
    current: i64,
    jitter: i64,
    outliers: u8,
    /// When a sample was believed last.
    updated: Option<Instant>,
}

impl DelayFilter {
    pub(super) const fn new(window: Duration) -> Self {
        Self {
            base: WindowedMin::new(window),
            current: 0,
            jitter: 0,
            outliers: 0,
            updated: None,
        }
    }

    /// Takes a sample; tells whether it was believed.
    pub(super) fn take(&mut self, now: Instant, sample: i64) -> bool {
        let fine = sample << FRACTION;
        if self.updated.is_none() {
            self.current = fine;
        }
        let off = fine - self.current;
        if off.abs() > (8 * self.jitter).max(OUTLIER << FRACTION) {
            self.outliers += 1;
            if self.outliers < OUTLIERS_BELIEVED {
                return false;
            }
            self.restart();
            self.current = fine;
        } else {
            // Shifts round down whatever the sign, so an offset common to all samples changes
            // nothing.
            self.current += off >> 3;
            self.jitter += (off.abs() - self.jitter) >> 2;
            self.jitter = self.jitter.min(LARGEST_JITTER << FRACTION);
        }
        self.outliers = 0;
        self.updated = Some(now);
        self.base.take(now, sample);
        true
    }

    /// Forgets everything.
    pub(super) fn restart(&mut self) {
        self.base.clear();
        (self.current, self.jitter, self.outliers) = (0, 0, 0);
        self.updated = None;
    }

    /// The moving average, if a sample was believed within `age`.
    pub(super) fn current(&self, now: Instant, age: Duration) -> Option<i64> {
        self.is_fresh(now, age).then_some(self.current >> FRACTION)
    }

    /// The mean deviation from the moving average.
    pub(super) fn jitter(&self) -> u64 {
        (self.jitter >> FRACTION).unsigned_abs()
    }

    /// The recent minimum, if a sample was believed within `age`.
    pub(super) fn base(&self, now: Instant, age: Duration) -> Option<i64> {
        self.base.get().filter(|_| self.is_fresh(now, age))
    }

    /// How far a sample is from the average; nothing before the first.
    pub(super) fn jump(&self, sample: i64) -> Option<i64> {
        self.updated.map(|_| sample - (self.current >> FRACTION))
    }

    /// When a sample was believed last.
    pub(super) fn updated(&self) -> Option<Instant> {
        self.updated
    }

    fn is_fresh(&self, now: Instant, age: Duration) -> bool {
        self.updated.is_some_and(|at| now.since(at) <= age)
    }
}
