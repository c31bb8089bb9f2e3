//! Restores the order of numbered datagrams.
//!
//! ```text
//! number < next    late or a duplicate: passed on late, or dropped
//! number == next   passed on, with the run behind it
//! number > next    held until the missing numbers arrive or are given up, because
//!                  - the gap is older than the wait (the only timer)
//!                  - every path in use has passed it (RFC 1990, section 4.1), and no repair can
//!                    come in time
//!                  - too many items are held
//! ```
//! This is worth its delay where forward delays differ or jitter by more than about 5 ms; over
//! equal or lossy paths it only costs time, and an adaptive wait ends.

mod lateness;

use crate::duplicates::DuplicateFilter;
use anabranch_proto::path::MAX_OPEN_PATHS;
use anabranch_proto::time::{Duration, Instant};
use anabranch_wire::PathId;
use lateness::Lateness;
use std::collections::VecDeque;

/// After this many consecutive datagrams beyond the longest jump and close to each other, the
/// sender is believed: that many numbers must really have been lost.
const JUMPS_BEFORE_BELIEF: u32 = 8;

/// How much later than a round trip the sender may learn that something was lost.
const ACKNOWLEDGED: Duration = Duration::from_millis(5);

/// How long to wait for a missing number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// A fixed time, whatever the paths.
    Fixed(Duration),
    /// As long as missing numbers were late in the last seconds, and until a repair may come. No
    /// time at all where hardly any comes within the longest wait, or where there is one path and
    /// nothing is repaired. Before that is known, twice the lag of the slowest path behind the one
    /// that revealed the gap plus four times the slowest path's jitter, within these bounds.
    Adaptive {
        /// The shortest wait, where one is worth it.
        shortest: Duration,
        /// The longest wait.
        longest: Duration,
    },
}

impl Wait {
    /// Between 5 and 100 ms, depending on the paths.
    pub const ADAPTIVE: Self = Self::Adaptive {
        shortest: Duration::from_millis(5),
        longest: Duration::from_millis(100),
    };

    /// The longest possible wait.
    pub const fn longest(self) -> Duration {
        match self {
            Self::Fixed(wait) => wait,
            Self::Adaptive { longest, .. } => longest,
        }
    }
}

impl Default for Wait {
    fn default() -> Self {
        Self::Fixed(Duration::from_millis(50))
    }
}

/// How a resequencer behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResequencerConfig {
    /// How long to wait for a missing number.
    pub wait: Wait,
    /// The size of the window of numbers that can be held, and so the most items held.
    pub capacity: usize,
    /// Whether paths keep the order of what they carry, so that a gap which all of them have passed
    /// is a loss (RFC 1990, section 4.1).
    pub ordered_paths: bool,
    /// Whether the sender sends again what was lost: what all paths have passed may come then, a
    /// round trip later.
    pub repaired: bool,
    /// Whether items that arrive after their gap was given up are still passed on.
    pub deliver_late: bool,
    /// A number further ahead than this is not believed at once.
    pub longest_jump: u64,
    /// How far back duplicates are recognised, in numbers; raised to at least the capacity.
    pub duplicate_window: usize,
}

impl Default for ResequencerConfig {
    fn default() -> Self {
        Self {
            wait: Wait::default(),
            capacity: 1024,
            ordered_paths: true,
            repaired: false,
            deliver_late: true,
            longest_jump: 1 << 16,
            duplicate_window: 4096,
        }
    }
}

/// An item that is passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivered<T> {
    /// The item's number.
    pub number: u64,
    /// The item.
    pub item: T,
    /// How long it was held.
    pub held: Duration,
    /// Whether it comes after a higher number.
    pub is_late: bool,
}

/// Counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResequencerStats {
    /// Items passed on, including late ones.
    pub delivered: u64,
    /// Items that arrived after one of a higher number, whether they were waited for or not.
    pub reordered: u64,
    /// Items that arrived after their gap was given up.
    pub late: u64,
    /// Items dropped as duplicates, or because they were too old to tell.
    pub duplicates: u64,
    /// Items dropped because their number was not believed.
    pub implausible: u64,
    /// Numbers given up because the wait had expired.
    pub timed_out: u64,
    /// Numbers given up because every path in use had passed them.
    pub overtaken: u64,
    /// Numbers given up because too many items were held.
    pub squeezed_out: u64,
    /// The most items held at a time.
    pub peak_held: usize,
}

#[derive(Debug)]
struct Held<T> {
    item: T,
    arrived: Instant,
}

/// What is known about a path.
#[derive(Debug, Clone, Copy)]
struct PathState {
    id: PathId,
    /// The highest number it carried; `None` if only its delay is known yet.
    highest: Option<u64>,
    last: Instant,
    /// Forward delay relative to the other paths, and its mean deviation, in microseconds.
    delay_us: Option<(i64, u64)>,
    round_trip: Option<Duration>,
}

/// Why numbers are given up.
#[derive(Debug, Clone, Copy)]
enum GiveUp {
    TimedOut,
    Overtaken,
    SqueezedOut,
}

/// Orders the items of one context. Whatever a method passes on is appended to its `out`.
#[derive(Debug)]
pub struct Resequencer<T> {
    config: ResequencerConfig,
    /// The next number to pass on.
    next: u64,
    /// The items from number `next` on. The last slot is never empty.
    window: VecDeque<Option<Held<T>>>,
    held: usize,
    /// Held items in order of arrival, with their paths; may include items already passed on.
    arrivals: VecDeque<(u64, Instant, Option<PathId>)>,
    paths: Vec<PathState>,
    filter: DuplicateFilter,
    lateness: Lateness,
    /// The last number that was not believed, and how many consecutive ones were close to it.
    doubted: Option<(u64, u32)>,
    stats: ResequencerStats,
}

impl<T> Resequencer<T> {
    /// Expects number 0 first.
    pub fn new(config: ResequencerConfig) -> Self {
        let capacity = config.capacity.max(1);
        Self {
            config: ResequencerConfig { capacity, ..config },
            next: 0,
            window: VecDeque::new(),
            held: 0,
            arrivals: VecDeque::new(),
            paths: Vec::new(),
            filter: DuplicateFilter::new(config.duplicate_window.max(capacity)),
            lateness: Lateness::new(config.wait.longest()),
            doubted: None,
            stats: ResequencerStats::default(),
        }
    }

    /// The number expected next, against which truncated numbers are expanded.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Items held.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Counters.
    pub fn stats(&self) -> &ResequencerStats {
        &self.stats
    }

    /// Changes how long to wait, also for gaps that are known.
    pub fn set_wait(&mut self, wait: Wait) {
        self.config.wait = wait;
        self.lateness.set_longest(wait.longest());
    }

    /// Sets whether the sender sends lost items again from now on.
    pub fn set_repaired(&mut self, repaired: bool) {
        self.config.repaired = repaired;
    }

    /// Sets the forward delay of a path relative to the others, and its mean deviation, in
    /// microseconds. Without this, [`Wait::Adaptive`] waits for the longest time.
    pub fn set_path_delay(&mut self, id: PathId, delay_us: i64, jitter_us: u64) {
        if let Some(path) = self.path_mut(id) {
            path.delay_us = Some((delay_us, jitter_us));
        }
    }

    /// Sets the round-trip time of a path. Without it, waits are not extended for repairs.
    pub fn set_path_round_trip(&mut self, id: PathId, time: Duration) {
        if let Some(path) = self.path_mut(id) {
            path.round_trip = Some(time);
        }
    }

    /// Forgets a path, which carries nothing any more.
    pub fn forget_path(&mut self, now: Instant, id: PathId, out: &mut Vec<Delivered<T>>) {
        self.paths.retain(|path| path.id != id);
        self.skip_overtaken(now, out);
    }

    /// Takes an item that arrived. `path` is `None` for an item that came on a stream, which tells
    /// nothing about the paths.
    pub fn on_item(
        &mut self,
        now: Instant,
        path: Option<PathId>,
        number: u64,
        item: T,
        out: &mut Vec<Delivered<T>>,
    ) {
        if !self.is_plausible(number) {
            self.stats.implausible += 1;
            return;
        }
        if !self.filter.insert(number) {
            self.stats.duplicates += 1;
            return;
        }
        if let Some(path) = path {
            self.note_path(now, path, number);
        }
        self.stats.reordered += u64::from(self.lateness.note(now, number));
        if number < self.next {
            self.stats.late += 1;
            if self.config.deliver_late {
                self.pass_on(number, item, Duration::ZERO, true, out);
            }
        } else {
            self.make_room(now, number, out);
            self.hold(now, path, number, item);
            self.deliver_run(now, out);
        }
        self.skip_overtaken(now, out);
        // What is not worth a wait needs no timer.
        self.handle_timeout(now, out);
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    pub fn deadline(&self) -> Option<Instant> {
        let (_, arrived, path) = self.arrivals.front()?;
        Some(*arrived + self.wait_on(*path))
    }

    /// Gives up gaps that were waited for long enough. Calling this early does nothing.
    pub fn handle_timeout(&mut self, now: Instant, out: &mut Vec<Delivered<T>>) {
        while self.deadline().is_some_and(|deadline| deadline <= now) {
            self.skip_hole(now, u64::MAX, GiveUp::TimedOut, out);
        }
    }

    /// Passes on everything held, for example because the other side is gone.
    pub fn flush(&mut self, now: Instant, out: &mut Vec<Delivered<T>>) {
        while self.held > 0 {
            self.skip_hole(now, u64::MAX, GiveUp::TimedOut, out);
        }
    }

    /// Whether to believe a number. One absurdly far ahead must not move the window, unless the
    /// sender insists.
    fn is_plausible(&mut self, number: u64) -> bool {
        // The window cannot extend beyond the largest possible number.
        if number == u64::MAX {
            return false;
        }
        if number.saturating_sub(self.next) <= self.config.longest_jump {
            if number >= self.next {
                self.doubted = None;
            }
            return true;
        }
        let near = self.config.capacity as u64;
        let row = match self.doubted {
            Some((last, row)) if number.abs_diff(last) <= near => row + 1,
            _ => 1,
        };
        self.doubted = Some((number, row));
        let believed = row >= JUMPS_BEFORE_BELIEF;
        if believed {
            self.doubted = None;
        }
        believed
    }

    fn path_mut(&mut self, id: PathId) -> Option<&mut PathState> {
        if let Some(at) = self.paths.iter().position(|path| path.id == id) {
            return self.paths.get_mut(at);
        }
        if self.paths.len() >= MAX_OPEN_PATHS {
            let oldest = (0..self.paths.len()).min_by_key(|at| self.paths[*at].last)?;
            self.paths.swap_remove(oldest);
        }
        self.paths.push(PathState {
            id,
            highest: None,
            last: Instant::ZERO,
            delay_us: None,
            round_trip: None,
        });
        self.paths.last_mut()
    }

    fn note_path(&mut self, now: Instant, id: PathId, number: u64) {
        if let Some(path) = self.path_mut(id) {
            path.highest = path.highest.max(Some(number));
            path.last = now;
        }
    }

    /// How long to wait for a gap revealed by an item of this path.
    fn wait_on(&self, path: Option<PathId>) -> Duration {
        let (shortest, longest) = match self.config.wait {
            Wait::Fixed(wait) => return wait,
            Wait::Adaptive { shortest, longest } => (shortest, longest),
        };
        let expected = match path.and_then(|id| self.lag_behind(id)) {
            // What the only path has passed can come by no other.
            Some(_) if self.paths.len() == 1 => Duration::ZERO,
            Some(lag) => lag.max(shortest),
            None => longest,
        };
        self.lateness.wait(expected, self.repair_time())
    }

    /// How long after a loss its repair may arrive: a round trip of the slowest path for which that
    /// is within the longest wait. Zero if nothing is repaired, or no repair comes in time.
    fn repair_time(&self) -> Duration {
        if !self.config.repaired {
            return Duration::ZERO;
        }
        let longest = self.config.wait.longest();
        let round_trips = self.paths.iter().filter_map(|path| path.round_trip);
        let late = round_trips.map(|time| time + time / 4 + ACKNOWLEDGED);
        let in_time = late.filter(|late| *late <= longest);
        in_time.max().unwrap_or_default()
    }

    /// How long until the slowest path has delivered what was sent before an item of path `id`.
    /// `None` if nothing is known of that path.
    fn lag_behind(&self, id: PathId) -> Option<Duration> {
        let own = self.paths.iter().find(|path| path.id == id);
        let (own, _) = own.and_then(|path| path.delay_us)?;
        let delays = self.paths.iter().filter_map(|path| path.delay_us);
        let (slowest, jitter) = delays.max()?;
        let lag = u64::try_from(slowest.saturating_sub(own)).unwrap_or(0);
        let micros = lag.saturating_add(jitter.saturating_mul(4));
        Some(Duration::from_micros(micros))
    }

    /// Gives up numbers that are further below `number` than the capacity allows.
    fn make_room(&mut self, now: Instant, number: u64, out: &mut Vec<Delivered<T>>) {
        let capacity = self.config.capacity as u64;
        let lowest = (number + 1).saturating_sub(capacity);
        while self.next < lowest {
            self.skip_hole(now, lowest, GiveUp::SqueezedOut, out);
        }
    }

    fn hold(&mut self, now: Instant, path: Option<PathId>, number: u64, item: T) {
        let at = (number - self.next) as usize;
        if self.window.len() <= at {
            self.window.resize_with(at + 1, || None);
        }
        self.window[at] = Some(Held { item, arrived: now });
        self.held += 1;
        self.arrivals.push_back((number, now, path));
        // Items without a gap in front of them are not held.
        if self.window.front().is_some_and(Option::is_none) {
            self.stats.peak_held = self.stats.peak_held.max(self.held);
        }
    }

    fn deliver_run(&mut self, now: Instant, out: &mut Vec<Delivered<T>>) {
        while let Some(Some(_)) = self.window.front() {
            let Some(Some(Held { item, arrived })) = self.window.pop_front() else {
                return;
            };
            self.held -= 1;
            let number = self.next;
            self.next += 1;
            self.pass_on(number, item, now.since(arrived), false, out);
        }
        while self
            .arrivals
            .front()
            .is_some_and(|(number, ..)| *number < self.next)
        {
            self.arrivals.pop_front();
        }
    }

    /// Moves `next` to the lowest item held, or to `limit` if that is lower; passes on the run
    /// there.
    fn skip_hole(&mut self, now: Instant, limit: u64, why: GiveUp, out: &mut Vec<Delivered<T>>) {
        let missing = self.window.iter().take_while(|slot| slot.is_none()).count() as u64;
        // Nothing is held, so the gap extends to `limit`.
        let hole = if self.held == 0 { u64::MAX } else { missing };
        let skipped = hole.min(limit.saturating_sub(self.next));
        self.window.drain(..self.window.len().min(skipped as usize));
        self.next += skipped;
        match why {
            GiveUp::TimedOut => self.stats.timed_out += skipped,
            GiveUp::Overtaken => self.stats.overtaken += skipped,
            GiveUp::SqueezedOut => self.stats.squeezed_out += skipped,
        }
        self.deliver_run(now, out);
    }

    /// Gives up the numbers that every path in use has passed.
    fn skip_overtaken(&mut self, now: Instant, out: &mut Vec<Delivered<T>>) {
        let is_proof = self.config.ordered_paths && self.held > 0;
        if !is_proof || !self.repair_time().is_zero() {
            return;
        }
        let wait = self.config.wait.longest();
        let in_use = self
            .paths
            .iter()
            .filter(|path| now.since(path.last) <= wait);
        let passed = in_use.filter_map(|path| path.highest);
        let (paths, lowest) = passed.fold((0, u64::MAX), |(n, low), high| (n + 1, low.min(high)));
        // If only one path is in use, what it has passed may still arrive on one that was idle for
        // a while.
        if paths < 2 {
            return;
        }
        while self.held > 0 && self.next < lowest {
            self.skip_hole(now, lowest, GiveUp::Overtaken, out);
        }
    }

    fn pass_on(
        &mut self,
        number: u64,
        item: T,
        held: Duration,
        is_late: bool,
        out: &mut Vec<Delivered<T>>,
    ) {
        self.stats.delivered += 1;
        out.push(Delivered {
            number,
            item,
            held,
            is_late,
        });
    }
}

#[cfg(test)]
mod tests;
