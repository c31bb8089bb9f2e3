//! Numbered datagrams of one request: each once, and in order where that costs little time.
//!
//! ```text
//! context, number, path ──> Order: a Resequencer for each number space ──> in order, once
//! PathDelay of each path ───^   how long a gap is worth waiting for
//! ```

use crate::numbers::NumberSize;
use crate::resequencer::{Delivered, Resequencer, ResequencerConfig, ResequencerStats, Wait};
use anabranch_proto::connection::PathStats;
use anabranch_proto::time::{Duration, Instant};
use anabranch_wire::PathId;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

/// The least wait chosen by measured delays, unless the class allows less.
const SHORTEST: Duration = Duration::from_millis(1);

/// Number spaces of one request that are kept in order: as many as it has remote ends. Others are
/// passed on as they come.
const MAX_SPACES: usize = 128;

/// How long measured delays of paths count.
const MEASURED_FOR: Duration = Duration::from_millis(50);

fn adaptive(longest: Duration) -> Wait {
    Wait::Adaptive {
        shortest: SHORTEST.min(longest),
        longest,
    }
}

fn config(grace: Grace) -> ResequencerConfig {
    ResequencerConfig {
        wait: adaptive(grace.longest),
        capacity: 1024,
        ordered_paths: true,
        repaired: grace.repaired,
        deliver_late: true,
        longest_jump: 1 << 14,
        duplicate_window: 4096,
    }
}

/// How long to wait for missing items of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grace {
    /// The longest that an item waits for those before it.
    pub longest: Duration,
    /// Whether the peer sends again what was lost.
    pub repaired: bool,
}

/// How long a path takes from the peer to here, against the others, and how much that varies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathDelay {
    /// The path.
    pub path: PathId,
    /// The path's delay, comparable only with that of the other paths.
    pub delay_us: i64,
    /// The mean deviation from that delay.
    pub jitter_us: u64,
    /// How long a packet and its acknowledgement take.
    pub round_trip: Duration,
}

impl PathDelay {
    /// The delays of the paths in use: by the peer's clock if both ends have agreed on timestamps,
    /// else by half of the round trip.
    fn of(paths: &[(PathId, PathStats)]) -> Arc<[Self]> {
        let in_use = paths
            .iter()
            .filter(|(_, stats)| stats.validated && !stats.closing);
        // What a path carries stays in order: alone it has nothing that may come by another.
        let is_alone = in_use.clone().count() < 2;
        let micros = |time: Duration| time.as_micros() as i64;
        let delays = in_use.map(|(path, stats)| Self {
            path: *path,
            delay_us: stats
                .backward_delay_us
                .unwrap_or_else(|| micros(stats.smoothed_rtt) / 2),
            jitter_us: if is_alone {
                0
            } else {
                stats.rttvar.as_micros() as u64 / 2
            },
            round_trip: stats.smoothed_rtt,
        });
        delays.collect()
    }

    fn tell<T>(&self, space: &mut Resequencer<T>) {
        space.set_path_delay(self.path, self.delay_us, self.jitter_us);
        space.set_path_round_trip(self.path, self.round_trip);
    }
}

/// The delays of the paths of a connection, measured anew when they have become old.
#[derive(Debug, Default)]
pub struct Delays(Option<(Instant, Arc<[PathDelay]>)>);

impl Delays {
    /// The delays of the paths in use, by what `paths` tells; kept for a moment.
    pub fn at(
        &mut self,
        now: Instant,
        paths: impl FnOnce() -> Vec<(PathId, PathStats)>,
    ) -> Arc<[PathDelay]> {
        if let Some((at, delays)) = &self.0
            && now.since(*at) < MEASURED_FOR
        {
            return Arc::clone(delays);
        }
        let delays = PathDelay::of(&paths());
        self.0 = Some((now, Arc::clone(&delays)));
        delays
    }
}

/// How a numbered item came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// In turn: before all items with higher numbers, as far as can be told.
    InTurn,
    /// Late: behind an item with a higher number.
    Reordered,
    /// A second time, so it was dropped.
    Repeated,
    /// With a number that is not believed, so it was dropped.
    Implausible,
}

/// The number spaces of a request, by their contexts. Whatever a method passes on is appended to
/// its `out`.
#[derive(Debug)]
pub struct Order<T> {
    spaces: BTreeMap<u64, Resequencer<T>>,
    delays: Arc<[PathDelay]>,
}

impl<T> Default for Order<T> {
    /// None yet.
    fn default() -> Self {
        Self {
            spaces: BTreeMap::new(),
            delays: Arc::new([]),
        }
    }
}

impl<T> Order<T> {
    /// Takes an item with the lowest bits of its number, from a context and a path (`None` if it
    /// came on a stream); returns how it came. `grace` says how long to wait for missing items of
    /// the context from now on.
    pub fn take(
        &mut self,
        now: Instant,
        grace: Grace,
        (context, path): (u64, Option<PathId>),
        (truncated, size): (u64, NumberSize),
        item: T,
        out: &mut Vec<Delivered<T>>,
    ) -> Taken {
        let is_full = self.spaces.len() >= MAX_SPACES;
        let space = match self.spaces.entry(context) {
            Entry::Occupied(known) => {
                let space = known.into_mut();
                space.set_wait(adaptive(grace.longest));
                space.set_repaired(grace.repaired);
                space
            }
            Entry::Vacant(_) if is_full => {
                out.push(Delivered {
                    number: truncated,
                    item,
                    held: Duration::ZERO,
                    is_late: false,
                });
                return Taken::InTurn;
            }
            Entry::Vacant(free) => {
                let mut space = Resequencer::new(config(grace));
                self.delays.iter().for_each(|delay| delay.tell(&mut space));
                free.insert(space)
            }
        };
        let number = size.expand(truncated, space.next());
        let before = *space.stats();
        space.on_item(now, path, number, item, out);
        let after = space.stats();
        if after.duplicates > before.duplicates {
            Taken::Repeated
        } else if after.implausible > before.implausible {
            Taken::Implausible
        } else if after.reordered > before.reordered {
            Taken::Reordered
        } else {
            Taken::InTurn
        }
    }

    /// Ends number spaces, and drops the items they hold.
    pub fn forget(&mut self, is_over: impl Fn(u64) -> bool) {
        self.spaces.retain(|context, _| !is_over(*context));
    }

    /// Whether the paths' delays have to be known.
    pub fn is_used(&self) -> bool {
        !self.spaces.is_empty()
    }

    /// Number spaces that are kept in order, with what became of their items.
    pub fn spaces(&self) -> impl Iterator<Item = (u64, &ResequencerStats)> {
        self.spaces
            .iter()
            .map(|(context, space)| (*context, space.stats()))
    }

    /// Sets the delays of the paths in use, and releases what the new delays show to be in order.
    pub fn set_delays(
        &mut self,
        now: Instant,
        delays: Arc<[PathDelay]>,
        out: &mut Vec<Delivered<T>>,
    ) {
        if Arc::ptr_eq(&self.delays, &delays) {
            return;
        }
        let is_gone = |path: PathId| delays.iter().all(|delay| delay.path != path);
        for space in self.spaces.values_mut() {
            for before in self.delays.iter().filter(|before| is_gone(before.path)) {
                space.forget_path(now, before.path, out);
            }
            delays.iter().for_each(|delay| delay.tell(space));
        }
        self.delays = delays;
    }

    /// Items that wait for others.
    pub fn held(&self) -> usize {
        self.spaces.values().map(Resequencer::held).sum()
    }

    /// When [`give_up`](Self::give_up) is due.
    pub fn deadline(&self) -> Option<Instant> {
        let deadlines = self.spaces.values().filter_map(Resequencer::deadline);
        deadlines.min()
    }

    /// Passes on what has waited long enough for what came before it.
    pub fn give_up(&mut self, now: Instant, out: &mut Vec<Delivered<T>>) {
        for space in self.spaces.values_mut() {
            space.handle_timeout(now, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Taken::{InTurn, Reordered, Repeated};
    use super::*;

    const A: Option<PathId> = Some(PathId(0));
    const B: Option<PathId> = Some(PathId(1));
    const SIZE: NumberSize = NumberSize::Two;
    const WAIT: Grace = wait(20);

    const fn wait(millis: u64) -> Grace {
        Grace {
            longest: Duration::from_millis(millis),
            repaired: false,
        }
    }

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    fn items(out: Vec<Delivered<&'static str>>) -> Vec<&'static str> {
        out.into_iter().map(|one| one.item).collect()
    }

    #[test]
    fn items_come_out_in_order_and_once() {
        let (mut order, mut out) = (Order::default(), Vec::new());
        let come = [(B, 1, "b"), (B, 1, "b"), (A, 0, "a"), (B, 0, "a")];
        let how = come.map(|(path, number, item)| {
            order.take(at(0), WAIT, (2, path), (number, SIZE), item, &mut out)
        });
        assert_eq!(items(out), ["a", "b"]);
        assert_eq!(how, [InTurn, Repeated, Reordered, Repeated]);
        assert_eq!((order.deadline(), order.held()), (None, 0));
    }

    #[test]
    fn what_is_missing_is_given_up_after_20_ms_and_passed_on_late() {
        let (mut order, mut out) = (Order::default(), Vec::new());
        order.take(at(5), WAIT, (2, A), (1, SIZE), "b", &mut out);
        assert_eq!((order.deadline(), order.held()), (Some(at(25)), 1));
        order.give_up(at(24), &mut out);
        assert_eq!(out, []);
        order.give_up(at(25), &mut out);
        assert_eq!(out[0].held, Duration::from_millis(20));
        order.take(at(30), WAIT, (2, A), (0, SIZE), "a", &mut out);
        assert!(out[1].is_late);
        assert_eq!(items(out), ["b", "a"]);
        let stats: Vec<_> = order.spaces().collect();
        assert_eq!((stats[0].0, stats[0].1.late), (2, 1));
    }

    #[test]
    fn a_class_may_wait_longer_or_not_at_all() {
        for millis in [0, 50] {
            let (mut order, mut out) = (Order::default(), Vec::new());
            order.take(at(5), wait(millis), (2, A), (1, SIZE), "b", &mut out);
            let wait = Duration::from_millis(millis);
            // What is not waited for needs no timer either.
            let deadline = (!wait.is_zero()).then_some(at(5) + wait);
            assert_eq!(
                (order.deadline(), out.len()),
                (deadline, usize::from(wait.is_zero()))
            );
            order.give_up(at(5) + wait, &mut out);
            assert_eq!(items(out), ["b"]);
        }
    }

    #[test]
    fn contexts_of_one_request_may_be_of_different_classes_and_change_them() {
        let (mut order, mut out) = (Order::default(), Vec::new());
        order.take(at(0), wait(50), (2, A), (1, SIZE), "b", &mut out);
        assert_eq!(order.deadline(), Some(at(50)));
        order.take(at(0), wait(10), (4, A), (1, SIZE), "d", &mut out);
        assert_eq!(order.deadline(), Some(at(10)));
        order.give_up(at(10), &mut out);
        assert_eq!(order.deadline(), Some(at(50)), "that of the other goes on");
        order.take(at(10), WAIT, (4, A), (3, SIZE), "f", &mut out);
        assert_eq!(
            order.deadline(),
            Some(at(30)),
            "as long as now, not as before"
        );
        order.take(at(11), wait(5), (4, A), (4, SIZE), "g", &mut out);
        assert_eq!(order.deadline(), Some(at(15)));
        order.give_up(at(15), &mut out);
        assert_eq!(items(out), ["d", "f", "g"]);
    }

    #[test]
    fn paths_that_hardly_differ_are_hardly_waited_for() {
        let (mut order, mut out) = (Order::default(), Vec::new());
        order.take(at(0), WAIT, (2, A), (0, SIZE), "a", &mut out);
        let delay = |path: Option<PathId>, delay_us| PathDelay {
            path: path.unwrap(),
            delay_us,
            jitter_us: 500,
            round_trip: Duration::ZERO,
        };
        let delays = [delay(A, 10_000), delay(B, 13_000)];
        order.set_delays(at(0), delays.into(), &mut out);
        order.take(at(0), WAIT, (2, A), (2, SIZE), "c", &mut out);
        assert_eq!(order.deadline(), Some(at(10)));
        // A space that begins later knows them too.
        order.take(at(1), WAIT, (4, A), (1, SIZE), "e", &mut out);
        order.give_up(at(10), &mut out);
        assert_eq!(order.deadline(), Some(at(11)));
    }

    #[test]
    fn delays_are_measured_anew_when_they_are_old() {
        let (mut delays, mut measured) = (Delays::default(), 0);
        let looked = [0, 49, 50, 99, 1000].map(|ms| {
            delays.at(at(ms), || {
                measured += 1;
                Vec::new()
            });
            measured
        });
        assert_eq!(looked, [1, 1, 2, 2, 3]);
    }

    #[test]
    fn what_the_only_path_has_passed_is_not_waited_for() {
        let (mut order, mut out) = (Order::default(), Vec::new());
        order.take(at(0), WAIT, (2, A), (0, SIZE), "a", &mut out);
        let only = PathDelay {
            path: A.unwrap(),
            delay_us: 10_000,
            jitter_us: 0,
            round_trip: Duration::ZERO,
        };
        order.set_delays(at(0), [only].into(), &mut out);
        order.take(at(1), WAIT, (2, A), (2, SIZE), "c", &mut out);
        assert_eq!((order.deadline(), order.held()), (None, 0));
        let how = order.take(at(2), WAIT, (2, A), (1, SIZE), "b", &mut out);
        assert_eq!(how, Reordered);
        assert_eq!(items(out), ["a", "c", "b"]);
    }

    #[test]
    fn what_the_only_path_has_passed_is_waited_for_while_a_repair_may_come() {
        let (mut order, mut out) = (Order::default(), Vec::new());
        let with_repairs = |longest| Grace {
            repaired: true,
            ..wait(longest)
        };
        order.take(at(0), with_repairs(50), (2, A), (0, SIZE), "a", &mut out);
        let only = PathDelay {
            path: A.unwrap(),
            delay_us: 10_000,
            jitter_us: 0,
            round_trip: Duration::from_millis(20),
        };
        order.set_delays(at(0), [only].into(), &mut out);
        order.take(at(1), with_repairs(50), (2, A), (2, SIZE), "c", &mut out);
        assert_eq!(order.deadline(), Some(at(1 + 20 + 5 + 5)));
        // A class that waits less than a round trip gets nothing by waiting.
        order.take(at(2), with_repairs(20), (2, A), (3, SIZE), "d", &mut out);
        assert_eq!((order.deadline(), order.held()), (None, 0));
        assert_eq!(items(out), ["a", "c", "d"]);
    }

    #[test]
    fn what_came_on_a_stream_says_nothing_of_the_paths() {
        let (mut order, mut out) = (Order::default(), Vec::new());
        order.take(at(0), WAIT, (2, A), (0, SIZE), "a", &mut out);
        let paths = [A, B].map(|path| PathDelay {
            path: path.unwrap(),
            delay_us: 10_000,
            jitter_us: 0,
            round_trip: Duration::ZERO,
        });
        order.set_delays(at(0), paths.into(), &mut out);
        order.take(at(1), WAIT, (2, B), (3, SIZE), "d", &mut out);
        order.take(at(1), WAIT, (2, None), (2, SIZE), "c", &mut out);
        assert_eq!(order.held(), 2, "A may still bring what is missing");
        order.take(at(1), WAIT, (2, A), (1, SIZE), "b", &mut out);
        assert_eq!(items(out), ["a", "b", "c", "d"]);
    }

    #[test]
    fn number_spaces_are_apart_and_bounded() {
        let (mut order, mut out) = (Order::default(), Vec::new());
        for context in 0..=MAX_SPACES as u64 {
            let how = order.take(at(0), WAIT, (context, A), (0, SIZE), "a", &mut out);
            assert_eq!(how, InTurn);
        }
        assert_eq!(out.len(), MAX_SPACES + 1);
        assert_eq!(order.spaces().count(), MAX_SPACES);
        order.forget(|context| context > 0);
        let how = |order: &mut Order<_>, context| {
            order.take(at(0), WAIT, (context, A), (0, SIZE), "a", &mut Vec::new())
        };
        let kept = how(&mut order, 0);
        assert_eq!(kept, Repeated, "one that is kept knows its past");
        let forgotten = how(&mut order, 1);
        assert_eq!(forgotten, InTurn, "one that was forgotten begins anew");
    }
}
