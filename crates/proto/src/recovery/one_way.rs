//! Delays in one direction, relative to those of other paths.
//!
//! What can be known without a common clock is how much longer one path takes than another. There
//! are two ways to know it, and [`OneWay`] keeps the state of both:
//!
//! - **Timestamps** (draft-huitema-quic-ts-08). A packet that acknowledges packet *s* of path *i*
//!   after `ack_delay` and left at `ts` of the peer's clock says that *s* arrived at
//!   `ts - ack_delay`. That minus the time of sending is the forward delay of *i* plus the offset
//!   of the peer's clock, by whatever path the acknowledgement came; the time of its arrival
//!   minus `ts` is the backward delay of that path minus the offset. In differences between paths
//!   the offset is gone.
//! - **A common way back.** RTTs of two paths whose acknowledgements came by the same third path,
//!   or by one of the two, differ by the forward delays alone. So RTTs are kept for each pair of
//!   path and return path.
//!
//! The peer asserts timestamps and delays. They decide nothing but the choice between paths, and
//! those that cannot be true are not used.

mod filter;

use crate::congestion::bottleneck::{Measure, MeasureKind};
use crate::path::MAX_OPEN_PATHS;
use crate::time::{Duration, Instant};
use anabranch_wire::PathId;
use filter::{DelayFilter, OUTLIER, WindowedMin};
use smallvec::SmallVec;
use std::ops::RangeInclusive;

/// Minima are taken over this long.
const WINDOW: Duration = Duration::from_secs(10);

/// The bounds of the clock offset come from this long: clocks drift by a millisecond a minute.
const CLOCK_WINDOW: Duration = Duration::from_secs(30);

/// Samples older than this make a difference less certain, by 100 ppm of their age.
const FRESH: Duration = Duration::from_secs(1);

/// Timestamps older than this say nothing any more: 3 ms of drift are as much as paths differ.
const STAMP_AGE: Duration = Duration::from_secs(30);

/// RTTs older than this are not compared with newer ones: queues on the common way back change.
const TRIP_AGE: Duration = Duration::from_secs(10);

/// Timestamps beyond this many microseconds, 71 years, are not believed.
const LARGEST_STAMP: u64 = 1 << 51;

/// The slack of the plausibility check in microseconds, beside resolution.
const SLACK: i64 = 1000;

/// How a difference was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DelayMethod {
    /// The peer's timestamps.
    Timestamps,
    /// RTTs that share one direction: acknowledgements that came back by this path, or (for
    /// backward delays) packets that went out on it.
    Shared(PathId),
}

/// By how much one path takes longer than another in one direction. Microseconds; negative if it
/// is faster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DelayDifference {
    /// Difference of the moving averages, queues included.
    pub current_us: i64,
    /// Difference of the least delays of the last 5 to 10 seconds.
    pub base_us: i64,
    /// Largest error from clock resolution and sample age.
    pub uncertainty_us: u64,
    /// How the difference was measured.
    pub method: DelayMethod,
}

/// The first acknowledgement of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Echo {
    /// The path the packet was sent on.
    pub path: PathId,
    /// The generation of the path's route.
    pub generation: u32,
    /// When it was sent.
    pub sent: Instant,
    /// How long the peer says that it waited before it acknowledged.
    pub ack_delay: Duration,
}

/// The delay of one packet as it was measured, whether it is believed or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delay {
    /// The path the packet was sent on.
    pub path: PathId,
    /// What earlier delays it can be compared with.
    pub measure: Measure,
    /// The delay, with an offset that is the same for all of the same measure.
    pub micros: i64,
}

/// The packet in which acknowledgements and a timestamp arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Carrier {
    /// The path it arrived on.
    pub path: PathId,
    /// The generation of the path's route.
    pub generation: u32,
    /// When it arrived.
    pub received: Instant,
}

/// What is known of one path.
#[derive(Debug)]
struct Entry {
    path: PathId,
    generation: u32,
    /// Forward delay plus clock offset.
    forward: DelayFilter,
    /// Backward delay minus clock offset.
    backward: DelayFilter,
    /// RTTs without acknowledgement delay, by return path.
    trips: SmallVec<[(PathId, DelayFilter); 2]>,
}

impl Entry {
    fn new(path: PathId, generation: u32) -> Self {
        Self {
            path,
            generation,
            forward: DelayFilter::new(WINDOW),
            backward: DelayFilter::new(WINDOW),
            trips: SmallVec::new(),
        }
    }

    fn trip(&self, via: PathId) -> Option<&DelayFilter> {
        let found = self.trips.iter().find(|(path, _)| *path == via);
        found.map(|(_, filter)| filter)
    }

    fn take_trip(&mut self, now: Instant, via: PathId, rtt: i64) -> bool {
        let at = self.trips.iter().position(|(path, _)| *path == via);
        let at = at.unwrap_or_else(|| {
            self.trips.push((via, DelayFilter::new(WINDOW)));
            self.trips.len() - 1
        });
        self.trips[at].1.take(now, rtt)
    }

    /// No delay in one direction exceeds this: the least RTT of late, whatever the way back.
    fn least_rtt(&self, now: Instant) -> Option<i64> {
        let trips = self.trips.iter();
        trips.filter_map(|(_, trip)| trip.base(now, WINDOW)).min()
    }
}

/// What makes delays of all paths comparable now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Basis {
    None,
    /// Timestamps; the fastest path's delay is this.
    Stamps(i64),
    /// RTTs with this way back; the fastest path's is this.
    Shared(PathId, i64),
}

/// One-way delays of all paths of a connection, relative to each other.
#[derive(Debug)]
pub struct OneWay {
    entries: Vec<Entry>,
    /// What the packet being read acknowledged.
    echoes: SmallVec<[Echo; 4]>,
    /// The timestamp in the packet being read, microseconds.
    stamp: Option<i64>,
    /// What the packet read last told.
    delays: SmallVec<[Delay; 4]>,
    /// Microseconds in the peer's unit of timestamps and acknowledgement delays.
    unit: u64,
    /// The least forward delay plus clock offset, over all paths.
    forward_least: WindowedMin,
    /// The least backward delay minus clock offset, over all paths.
    backward_least: WindowedMin,
    basis: Basis,
    outliers: u64,
    clock_steps: u64,
}

impl Default for OneWay {
    fn default() -> Self {
        Self::new()
    }
}

impl OneWay {
    /// A state in which nothing is known yet.
    pub fn new() -> Self {
        Self {
            entries: Vec::new(),
            echoes: SmallVec::new(),
            stamp: None,
            delays: SmallVec::new(),
            unit: 8,
            forward_least: WindowedMin::new(CLOCK_WINDOW),
            backward_least: WindowedMin::new(CLOCK_WINDOW),
            basis: Basis::None,
            outliers: 0,
            clock_steps: 0,
        }
    }

    /// The peer's `ack_delay_exponent`, at most 20.
    pub fn set_exponent(&mut self, exponent: u64) {
        self.unit = 1 << exponent.min(20);
    }

    /// The packet being read acknowledged something for the first time.
    pub fn note_echo(&mut self, echo: Echo) {
        if self.echoes.len() < MAX_OPEN_PATHS {
            self.echoes.push(echo);
        }
    }

    /// The packet being read held a timestamp, in the peer's unit. Of several the largest counts.
    pub fn note_stamp(&mut self, time: u64) {
        match time.checked_mul(self.unit) {
            Some(micros) if micros <= LARGEST_STAMP => {
                self.stamp = self.stamp.max(Some(micros as i64));
            }
            _ => self.outliers += 1,
        }
    }

    /// The packet has been read: takes what was noted, whichever frame came first.
    #[inline]
    pub fn settle(&mut self, carrier: Carrier) {
        self.delays.clear();
        // Most packets hold data and tell nothing.
        if self.stamp.is_some() || !self.echoes.is_empty() {
            self.take_noted(carrier);
            self.echoes.clear();
        }
    }

    fn take_noted(&mut self, carrier: Carrier) {
        let stamp = self.stamp.take();
        let Some(via) = self.find_or_add(carrier.path, carrier.generation) else {
            return;
        };
        let now = carrier.received;
        if let Some(stamp) = stamp {
            let mut echoes = self.echoes.iter();
            if echoes.any(|echo| self.is_step(via, now, echo, stamp)) {
                self.restart_clock();
                self.clock_steps += 1;
            }
            self.take_backward(via, now, micros(now) - stamp);
        }
        for at in 0..self.echoes.len() {
            let echo = self.echoes[at];
            self.take_echo(carrier.path, now, &echo, stamp);
        }
        self.check_clock(now);
        self.basis = self.find_basis(now);
    }

    /// The packet has been read, but by which path it came is not known.
    pub fn discard(&mut self) {
        self.delays.clear();
        self.stamp = None;
        self.echoes.clear();
    }

    /// What the packet read last told of packets sent. With timestamps delays are one-way, else
    /// round trips.
    pub fn delays(&self) -> &[Delay] {
        &self.delays
    }

    fn note_delay(&mut self, echo: &Echo, kind: MeasureKind, micros: i64) {
        self.delays.push(Delay {
            path: echo.path,
            measure: Measure {
                generation: echo.generation,
                kind,
            },
            micros,
        });
    }

    fn take_echo(&mut self, via: PathId, now: Instant, echo: &Echo, stamp: Option<i64>) {
        let Some(at) = self.find_or_add(echo.path, echo.generation) else {
            return;
        };
        let delay = echo.ack_delay.as_micros().min(u128::from(LARGEST_STAMP)) as i64;
        let rtt = micros(now) - micros(echo.sent) - delay;
        if rtt < -(2 * self.unit as i64) {
            // It would have arrived before it was sent, or been answered after the answer arrived.
            self.outliers += 1;
            return;
        }
        let entry = &mut self.entries[at];
        let mut believed = entry.take_trip(now, via, rtt.max(0));
        if let Some(stamp) = stamp {
            let forward = stamp - delay - micros(echo.sent);
            let is_believed = entry.forward.take(now, forward);
            if is_believed {
                self.forward_least.take(now, forward);
            }
            believed &= is_believed;
            self.note_delay(echo, MeasureKind::OneWay(self.clock_steps), forward);
        } else if self.forward_least.get().is_none() {
            self.note_delay(echo, MeasureKind::RoundTrip(via), rtt.max(0));
        }
        self.outliers += u64::from(!believed);
    }

    fn take_backward(&mut self, via: usize, now: Instant, backward: i64) {
        if self.entries[via].backward.take(now, backward) {
            self.backward_least.take(now, backward);
        } else {
            self.outliers += 1;
        }
    }

    /// Whether the peer's clock was set: then the forward delay seems to jump, and the backward
    /// delay of the same round trip takes it back. No path does that, and all paths are concerned.
    fn is_step(&self, via: usize, now: Instant, echo: &Echo, stamp: i64) -> bool {
        let Some(entry) = self.entries.iter().find(|entry| entry.path == echo.path) else {
            return false;
        };
        let delay = echo.ack_delay.as_micros().min(u128::from(LARGEST_STAMP)) as i64;
        let there = entry.forward.jump(stamp - delay - micros(echo.sent));
        let back = self.entries[via].backward.jump(micros(now) - stamp);
        let (Some(there), Some(back)) = (there, back) else {
            return false;
        };
        there.abs() > OUTLIER && back.abs() > OUTLIER && (there + back).abs() <= there.abs() / 4
    }

    fn restart_clock(&mut self) {
        for entry in &mut self.entries {
            entry.forward.restart();
            entry.backward.restart();
        }
        self.forward_least.clear();
        self.backward_least.clear();
    }

    /// The offset cannot exceed any forward delay nor fall below any backward delay taken
    /// negative. If it had to, the clocks have drifted apart since: then newer samples decide.
    fn check_clock(&mut self, now: Instant) {
        let (Some(forward), Some(backward)) = (self.forward_least.get(), self.backward_least.get())
        else {
            return;
        };
        if forward + backward >= -(2 * self.unit as i64) {
            return;
        }
        self.outliers += 1;
        self.forward_least.clear();
        self.backward_least.clear();
        for entry in &self.entries {
            if let Some(forward) = entry.forward.current(now, FRESH) {
                self.forward_least.take(now, forward);
            }
            if let Some(backward) = entry.backward.current(now, FRESH) {
                self.backward_least.take(now, backward);
            }
        }
    }

    /// Forgets a path that was given up.
    pub fn forget(&mut self, now: Instant, path: PathId) {
        self.entries.retain(|entry| entry.path != path);
        for entry in &mut self.entries {
            entry.trips.retain(|(via, _)| *via != path);
        }
        // The packet that gives the path up may have acknowledged some of it before.
        self.echoes.retain(|echo| echo.path != path);
        self.basis = self.find_basis(now);
    }

    /// Where the path is; a route that was not there before is another way, so nothing known of
    /// the path holds. `None` if there are more paths than can be open.
    fn find_or_add(&mut self, path: PathId, generation: u32) -> Option<usize> {
        let at = self.entries.iter().position(|entry| entry.path == path);
        if let Some(at) = at {
            if self.entries[at].generation != generation {
                for entry in &mut self.entries {
                    entry.trips.retain(|(via, _)| *via != path);
                }
                self.entries[at] = Entry::new(path, generation);
            }
            return Some(at);
        }
        if self.entries.len() >= MAX_OPEN_PATHS {
            return None;
        }
        self.entries.push(Entry::new(path, generation));
        Some(self.entries.len() - 1)
    }

    fn entry(&self, path: PathId) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.path == path)
    }

    /// How much longer packets take to the peer on `path` than on `other`.
    pub fn forward_difference(
        &self,
        now: Instant,
        path: PathId,
        other: PathId,
    ) -> Option<DelayDifference> {
        let (one, two) = (self.entry(path)?, self.entry(other)?);
        let stamped = || {
            let filters = (&one.forward, &two.forward);
            let found = self.compare(now, filters, DelayMethod::Timestamps)?;
            self.is_plausible(now, one, two).then_some(found)
        };
        let shared = one.trips.iter().filter_map(|(via, first)| {
            let filters = (first, two.trip(*via)?);
            let found = self.compare(now, filters, DelayMethod::Shared(*via))?;
            Some((both_updated(filters), found))
        });
        stamped().or_else(|| newest(shared))
    }

    /// How much longer packets take from the peer on `path` than on `other`.
    pub fn backward_difference(
        &self,
        now: Instant,
        path: PathId,
        other: PathId,
    ) -> Option<DelayDifference> {
        let (one, two) = (self.entry(path)?, self.entry(other)?);
        let stamped = || {
            let filters = (&one.backward, &two.backward);
            self.compare(now, filters, DelayMethod::Timestamps)
        };
        let shared = self.entries.iter().filter_map(|sent| {
            let filters = (sent.trip(path)?, sent.trip(other)?);
            let found = self.compare(now, filters, DelayMethod::Shared(sent.path))?;
            Some((both_updated(filters), found))
        });
        stamped().or_else(|| newest(shared))
    }

    fn compare(
        &self,
        now: Instant,
        (one, two): (&DelayFilter, &DelayFilter),
        method: DelayMethod,
    ) -> Option<DelayDifference> {
        let (limit, units) = match method {
            DelayMethod::Timestamps => (STAMP_AGE, 2),
            DelayMethod::Shared(_) => (TRIP_AGE, 1),
        };
        let age = now.since(one.updated()?.min(two.updated()?));
        let widened = age.checked_sub(FRESH).unwrap_or_default() / 10_000;
        Some(DelayDifference {
            current_us: one.current(now, limit)? - two.current(now, limit)?,
            base_us: one.base(now, limit)? - two.base(now, limit)?,
            uncertainty_us: units * self.unit + widened.as_micros() as u64,
            method,
        })
    }

    /// A path is slower than another by its own RTT at most, and faster by the other's.
    fn is_plausible(&self, now: Instant, one: &Entry, two: &Entry) -> bool {
        let least = |entry: &Entry| entry.forward.base(now, STAMP_AGE);
        let (Some(first), Some(second)) = (least(one), least(two)) else {
            return true;
        };
        let slack = SLACK + 2 * self.unit as i64;
        let exceeds = |by: i64, entry: &Entry| {
            let bound = entry.least_rtt(now);
            bound.is_some_and(|rtt| by > rtt + slack)
        };
        !exceeds(first - second, one) && !exceeds(second - first, two)
    }

    /// By how much packets take longer to the peer on `path` than on the fastest path, in
    /// microseconds: moving averages, queues included. `None` unless measured for two paths.
    pub fn forward(&self, now: Instant, path: PathId) -> Option<i64> {
        match self.basis {
            Basis::None => None,
            Basis::Stamps(zero) => {
                let delay = self.entry(path)?.forward.current(now, STAMP_AGE)?;
                Some(delay - zero)
            }
            Basis::Shared(via, zero) => {
                let delay = self.entry(path)?.trip(via)?.current(now, TRIP_AGE)?;
                Some(delay - zero)
            }
        }
    }

    /// The mean deviation of what [`forward`](Self::forward) tells, in microseconds. Where paths
    /// are compared by round trips on a way back they share, that of the way back is in it.
    pub fn forward_jitter(&self, path: PathId) -> Option<u64> {
        let entry = self.entry(path)?;
        match self.basis {
            Basis::None => None,
            Basis::Stamps(_) => Some(entry.forward.jitter()),
            Basis::Shared(via, _) => entry.trip(via).map(DelayFilter::jitter),
        }
    }

    /// By how much packets take longer from the peer on `path` than on the fastest path, in
    /// microseconds; by timestamps alone.
    pub fn backward(&self, now: Instant, path: PathId) -> Option<i64> {
        let own = self.entry(path)?.backward.current(now, STAMP_AGE)?;
        let all = self.entries.iter();
        let known = all.filter_map(|entry| entry.backward.current(now, STAMP_AGE));
        let (count, zero) = known.fold((0, own), |(count, zero), delay| {
            (count + 1, zero.min(delay))
        });
        (count > 1).then_some(own - zero)
    }

    fn find_basis(&self, now: Instant) -> Basis {
        if self.entries.len() < 2 {
            return Basis::None;
        }
        self.by_stamps(now)
            .or_else(|| self.by_shared(now))
            .unwrap_or(Basis::None)
    }

    fn by_stamps(&self, now: Instant) -> Option<Basis> {
        let delay = |entry: &Entry| entry.forward.current(now, STAMP_AGE);
        let known = || {
            let all = self.entries.iter();
            all.filter_map(|entry| delay(entry).map(|delay| (delay, entry)))
        };
        let (zero, fastest) = known().min_by_key(|(delay, entry)| (*delay, entry.path))?;
        let comparable =
            known().count() > 1 && known().all(|(_, entry)| self.is_plausible(now, entry, fastest));
        comparable.then_some(Basis::Stamps(zero))
    }

    /// The way back that most paths share lately, if any two do.
    fn by_shared(&self, now: Instant) -> Option<Basis> {
        // How many paths share a way back, when the first of them was heard of, the least delay.
        let sharing = |via: PathId| {
            let trips = self.entries.iter().filter_map(|entry| entry.trip(via));
            let known =
                trips.filter_map(|trip| Some((trip.updated(), trip.current(now, TRIP_AGE)?)));
            known.fold(
                (0, None, i64::MAX),
                |(count, oldest, zero), (updated, delay)| {
                    let oldest = if count == 0 {
                        updated
                    } else {
                        updated.min(oldest)
                    };
                    (count + 1, oldest, zero.min(delay))
                },
            )
        };
        let ways = self
            .entries
            .iter()
            .map(|entry| (sharing(entry.path), entry.path));
        let ((count, _, zero), via) = ways
            .max_by_key(|((count, oldest, _), via)| (*count, *oldest, std::cmp::Reverse(*via)))?;
        (count > 1).then_some(Basis::Shared(via, zero))
    }

    /// What the peer's clock, counted from its epoch, shows more than ours: from, and to,
    /// microseconds. As wide as the shortest round trip of any two paths. `None` without
    /// timestamps.
    pub fn clock_offset(&self) -> Option<RangeInclusive<i64>> {
        let (most, least) = (self.forward_least.get()?, -self.backward_least.get()?);
        Some(least.min(most)..=most)
    }

    /// Samples that were not believed.
    pub fn outliers(&self) -> u64 {
        self.outliers
    }

    /// Times the peer's clock was set.
    pub fn clock_steps(&self) -> u64 {
        self.clock_steps
    }
}

/// Since when both are known.
fn both_updated((one, two): (&DelayFilter, &DelayFilter)) -> Option<Instant> {
    one.updated().min(two.updated())
}

/// Of several differences the one with the newest samples.
fn newest(
    found: impl Iterator<Item = (Option<Instant>, DelayDifference)>,
) -> Option<DelayDifference> {
    let newest = found.max_by_key(|(updated, _)| *updated);
    newest.map(|(_, difference)| difference)
}

/// Our time in microseconds.
fn micros(at: Instant) -> i64 {
    (at.as_nanos() / 1000) as i64
}

#[cfg(test)]
mod tests;
