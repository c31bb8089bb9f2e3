//! Examples, properties, and a model that applies the rules step by step.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const A: PathId = PathId(0);
const B: PathId = PathId(1);

fn ms(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

/// A resequencer of plain numbers, and what it passed on since it was last asked.
struct Bench {
    inner: Resequencer<u64>,
    out: Vec<Delivered<u64>>,
}

impl Bench {
    fn new(config: ResequencerConfig) -> Self {
        Self {
            inner: Resequencer::new(config),
            out: Vec::new(),
        }
    }

    fn put(&mut self, at: u64, path: PathId, number: u64) -> Vec<u64> {
        self.inner
            .on_item(ms(at), Some(path), number, number, &mut self.out);
        self.take()
    }

    fn time(&mut self, at: u64) -> Vec<u64> {
        self.inner.handle_timeout(ms(at), &mut self.out);
        self.take()
    }

    fn take(&mut self) -> Vec<u64> {
        let taken = self.out.drain(..);
        taken
            .map(|delivered| {
                assert_eq!(delivered.number, delivered.item);
                delivered.number
            })
            .collect()
    }
}

#[test]
fn what_another_path_brings_fills_the_hole() {
    let mut bench = Bench::new(ResequencerConfig::default());
    let mut got = Vec::new();
    for number in [0, 1, 3] {
        got.extend(bench.put(0, A, number));
    }
    assert_eq!(got, [0, 1]);
    assert_eq!(bench.put(1, B, 2), [2, 3]);
    assert_eq!(bench.inner.deadline(), None);
}

#[test]
fn a_hole_that_every_path_has_passed_is_given_up() {
    let mut bench = Bench::new(ResequencerConfig::default());
    bench.put(0, A, 0);
    bench.put(0, B, 1);
    assert!(bench.put(1, A, 3).is_empty());
    assert_eq!(bench.put(1, B, 5), [3]);
    assert_eq!((bench.inner.held(), bench.inner.stats().overtaken), (1, 1));
}

#[test]
fn paths_that_do_not_keep_order_prove_nothing() {
    let config = ResequencerConfig {
        ordered_paths: false,
        ..ResequencerConfig::default()
    };
    let mut bench = Bench::new(config);
    bench.put(0, A, 0);
    bench.put(0, B, 1);
    bench.put(1, A, 3);
    assert!(bench.put(1, B, 5).is_empty());
}

#[test]
fn one_path_alone_waits_for_the_timer() {
    let mut bench = Bench::new(ResequencerConfig::default());
    for number in [0, 1, 3] {
        bench.put(10, A, number);
    }
    assert_eq!(bench.inner.deadline(), Some(ms(60)));
    assert!(bench.time(59).is_empty());
    bench.inner.handle_timeout(ms(60), &mut bench.out);
    assert_eq!(bench.out[0].held, Duration::from_millis(50));
    assert_eq!(bench.take(), [3]);
    assert_eq!(bench.inner.deadline(), None);
}

#[test]
fn a_path_that_is_gone_holds_nothing_up() {
    let mut bench = Bench::new(ResequencerConfig::default());
    let c = PathId(2);
    bench.put(0, c, 0);
    bench.put(0, A, 2);
    assert!(bench.put(0, B, 4).is_empty(), "the third path may bring it");
    bench.inner.forget_path(ms(0), c, &mut bench.out);
    assert_eq!(bench.take(), [2]);
}

#[test]
fn each_hole_is_waited_for_since_it_was_first_seen() {
    let mut bench = Bench::new(ResequencerConfig::default());
    bench.put(0, A, 1);
    bench.put(30, A, 4);
    bench.put(40, A, 3);
    assert_eq!(bench.time(50), [1]);
    assert_eq!(bench.inner.deadline(), Some(ms(80)));
    assert_eq!(bench.time(80), [3, 4]);
    assert_eq!(bench.inner.stats().timed_out, 2);
}

#[test]
fn the_wait_follows_the_lag_of_the_slowest_path() {
    let config = ResequencerConfig {
        wait: Wait::ADAPTIVE,
        ..ResequencerConfig::default()
    };
    let mut bench = Bench::new(config);
    bench.put(0, A, 1);
    assert_eq!(bench.inner.deadline(), Some(ms(100)), "nothing is known");
    bench.inner.set_path_delay(A, 10_000, 500);
    bench.inner.set_path_delay(B, 40_000, 1_000);
    assert_eq!(bench.inner.deadline(), Some(ms(2 * 34)));
    bench.inner.set_path_delay(B, 10_000, 0);
    assert_eq!(bench.inner.deadline(), Some(ms(2 * 5)));
}

#[test]
fn no_more_is_held_than_fits_and_the_oldest_hole_goes_first() {
    let config = ResequencerConfig {
        capacity: 4,
        ..ResequencerConfig::default()
    };
    let mut bench = Bench::new(config);
    for number in [1, 3] {
        assert!(bench.put(0, A, number).is_empty());
    }
    // The window of four now ends with 4, so it begins with 1.
    assert_eq!(bench.put(0, A, 4), [1]);
    assert_eq!(bench.put(0, A, 9), [3, 4]);
    assert_eq!(bench.inner.stats().squeezed_out, 3);
    assert_eq!(bench.inner.next(), 6);
}

#[test]
fn late_items_are_passed_on_once_or_dropped() {
    for deliver_late in [true, false] {
        let config = ResequencerConfig {
            deliver_late,
            ..ResequencerConfig::default()
        };
        let mut bench = Bench::new(config);
        bench.put(0, A, 1);
        bench.time(50);
        let late = bench.put(51, B, 0);
        assert_eq!(late, if deliver_late { vec![0] } else { vec![] });
        assert!(bench.put(52, A, 0).is_empty());
        let stats = bench.inner.stats();
        assert_eq!((stats.late, stats.duplicates), (1, 1));
    }
}

#[test]
fn an_absurd_number_moves_nothing_unless_others_confirm_it() {
    let mut bench = Bench::new(ResequencerConfig::default());
    bench.put(0, A, 0);
    let far = 1 << 40;
    assert!(bench.put(0, A, far).is_empty());
    assert_eq!(bench.put(0, A, 1), [1]);
    assert_eq!(bench.inner.stats().implausible, 1);
    let mut got = Vec::new();
    for number in far..far + 20 {
        got.extend(bench.put(0, A, number));
    }
    got.extend(bench.time(1000));
    assert_eq!(got, (far + 7..far + 20).collect::<Vec<_>>());
    assert!(bench.put(0, A, u64::MAX).is_empty());
}

/// The rules, item by item, without clever data structures.
struct Model {
    config: ResequencerConfig,
    next: u64,
    seen: BTreeSet<u64>,
    held: BTreeMap<u64, (Instant, u64)>,
    paths: BTreeMap<PathId, (u64, Instant)>,
    order: u64,
}

impl Model {
    fn run(&mut self, out: &mut Vec<u64>) {
        while self.held.remove(&self.next).is_some() {
            out.push(self.next);
            self.next += 1;
        }
    }

    fn skip(&mut self, limit: u64, out: &mut Vec<u64>) {
        let lowest = self.held.keys().next().copied().unwrap_or(u64::MAX);
        self.next = self.next.max(lowest.min(limit));
        self.run(out);
    }

    fn deadline(&self) -> Option<Instant> {
        let first = self.held.values().min_by_key(|(_, order)| *order)?;
        Some(first.0 + self.config.wait.longest())
    }

    fn time(&mut self, now: Instant, out: &mut Vec<u64>) {
        while self.deadline().is_some_and(|at| at <= now) {
            self.skip(u64::MAX, out);
        }
    }

    fn put(&mut self, now: Instant, path: PathId, number: u64, out: &mut Vec<u64>) {
        if !self.seen.insert(number) {
            return;
        }
        let highest = self
            .paths
            .get(&path)
            .map_or(number, |known| known.0.max(number));
        self.paths.insert(path, (highest, now));
        if number < self.next {
            out.push(number);
        } else {
            while self.next + (self.config.capacity as u64) <= number {
                self.skip(number + 1 - self.config.capacity as u64, out);
            }
            self.order += 1;
            self.held.insert(number, (now, self.order));
            self.run(out);
        }
        let wait = self.config.wait.longest();
        let in_use: Vec<u64> = self
            .paths
            .values()
            .filter(|(_, last)| now.since(*last) <= wait)
            .map(|(highest, _)| *highest)
            .collect();
        if in_use.len() < 2 {
            return;
        }
        let lowest = in_use.into_iter().min().expect("there are two");
        while !self.held.is_empty() && self.next < lowest {
            self.skip(lowest, out);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    #[test]
    fn it_does_what_the_rules_say(
        steps in prop::collection::vec((0..40u64, 0..4u32, 0..30u64, 0..6u8), 1..200),
        capacity in 1..40usize,
    ) {
        let config = ResequencerConfig { capacity, ..ResequencerConfig::default() };
        let mut bench = Bench::new(config);
        let mut model = Model {
            config,
            next: 0,
            seen: BTreeSet::new(),
            held: BTreeMap::new(),
            paths: BTreeMap::new(),
            order: 0,
        };
        let (mut now, mut base) = (0, 0);
        let mut all = BTreeSet::new();
        for (offset, path, wait, leap) in steps {
            now += wait;
            base += u64::from(leap);
            let mut expected = Vec::new();
            model.time(ms(now), &mut expected);
            let mut got = bench.time(now);
            let number = (base + offset).saturating_sub(20);
            model.put(ms(now), PathId(path), number, &mut expected);
            got.extend(bench.put(now, PathId(path), number));
            prop_assert_eq!(&got, &expected, "{} on {}", number, path);
            prop_assert_eq!(bench.inner.deadline(), model.deadline());
            let (next, held) = (bench.inner.next(), bench.inner.held());
            prop_assert_eq!((next, held), (model.next, model.held.len()));
            prop_assert!(bench.inner.held() <= capacity);
            prop_assert!(bench.inner.window.len() <= capacity);
            prop_assert!(bench.inner.arrivals.len() <= 2 * capacity);
            for number in got {
                prop_assert!(all.insert(number), "{} twice", number);
            }
        }
    }

    #[test]
    fn what_lags_less_than_the_wait_comes_in_order(
        delays in prop::collection::vec((0..3u32, 0..49u64), 1..200),
    ) {
        // Paths with jitter do not keep the order of packets.
        let config = ResequencerConfig { ordered_paths: false, ..ResequencerConfig::default() };
        let mut bench = Bench::new(config);
        let mut arrivals: Vec<(u64, u64, u32)> = Vec::new();
        for (number, (path, delay)) in delays.iter().enumerate() {
            arrivals.push((number as u64 * 2 + delay, number as u64, *path));
        }
        arrivals.sort_unstable();
        let mut got = Vec::new();
        for (at, number, path) in arrivals {
            got.extend(bench.time(at));
            got.extend(bench.put(at, PathId(path), number));
        }
        prop_assert_eq!(got, (0..delays.len() as u64).collect::<Vec<_>>());
    }

    #[test]
    fn any_numbers_at_any_times_are_survived(
        steps in prop::collection::vec((any::<u64>(), 0..64u32, 0..200u64, any::<u8>()), 1..300),
        adaptive in any::<bool>(),
    ) {
        let wait = if adaptive { Wait::ADAPTIVE } else { Wait::default() };
        let config = ResequencerConfig { wait, capacity: 32, ..ResequencerConfig::default() };
        let mut inner = Resequencer::new(config);
        let (mut now, mut out) = (0, Vec::new());
        let mut count = 0u64;
        for (number, path, wait, kind) in steps {
            now += wait;
            let path = PathId(path);
            let near = inner.next().saturating_add(number % 80).saturating_sub(40);
            match kind % 16 {
                0 => inner.set_path_delay(path, number as i64, number),
                1 => inner.forget_path(ms(now), path, &mut out),
                2 => inner.on_item(ms(now), Some(path), number, (), &mut out),
                3 => inner.on_item(ms(now), Some(path), u64::MAX - number % 4, (), &mut out),
                4 => inner.handle_timeout(ms(now), &mut out),
                _ => inner.on_item(ms(now), Some(path), near, (), &mut out),
            }
            count += 1;
            prop_assert!(inner.held() <= 32 && out.len() as u64 <= count);
            prop_assert_eq!(inner.held() > 0, inner.deadline().is_some());
            prop_assert!(inner.paths.len() <= MAX_OPEN_PATHS);
        }
        inner.flush(ms(now), &mut out);
        prop_assert_eq!(inner.held(), 0);
    }
}
