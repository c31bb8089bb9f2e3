//! Which delay series are put into one group.

use super::*;
use crate::rng::Rng;

const ONE_WAY: Measure = Measure {
    generation: 0,
    kind: MeasureKind::OneWay(0),
};

/// A queue in front of a link, as TCP flows fill it: it grows at a rate, now and then it overflows
/// and a share of it drains at once. Microseconds.
#[derive(Debug)]
struct Queue {
    rng: Rng,
    level: f64,
    full: f64,
    /// Microseconds of growth per millisecond.
    growth: f64,
}

impl Queue {
    fn new(seed: u8, full_ms: f64, growth: f64) -> Self {
        Self {
            rng: Rng::from_seed([seed; 32]),
            level: 0.0,
            full: full_ms * 1000.0,
            growth,
        }
    }

    /// One millisecond passes.
    fn step(&mut self) -> f64 {
        let spread = self.rng.below(2000) as f64 / 1000.0;
        self.level = (self.level + self.growth * spread).min(self.full);
        if self.level >= self.full && self.rng.below(100) == 0 {
            self.level *= 0.3 + self.rng.below(300) as f64 / 1000.0;
        }
        self.level
    }

    /// A queue that is empty but for bursts of others.
    fn idle(&mut self) -> f64 {
        if self.rng.below(400) == 0 {
            self.level = 3000.0 + self.rng.below(5000) as f64;
        }
        self.level = (self.level - 300.0).max(0.0);
        self.level
    }
}

fn path(id: usize) -> PathId {
    PathId(id as u32)
}

/// Runs for some seconds; `delays` gives each path's delay in microseconds, every millisecond. Each
/// path takes a sample every 5 to 9 milliseconds.
fn run<const N: usize>(
    bottlenecks: &mut Bottlenecks,
    from_s: u64,
    to_s: u64,
    mut delays: impl FnMut(u64) -> [f64; N],
) {
    let mut rng = Rng::from_seed([99; 32]);
    let mut next = [from_s * 1000; N];
    for ms in from_s * 1000..to_s * 1000 {
        let now = Instant::from_nanos(ms * 1_000_000);
        for (id, delay) in delays(ms).into_iter().enumerate() {
            if ms >= next[id] {
                next[id] = ms + 5 + rng.below(5);
                let noise = rng.below(400) as f64;
                let sample = delay + noise + 20_000.0 * (id + 1) as f64;
                bottlenecks.on_sample(now, path(id), ONE_WAY, sample as i64);
            }
        }
    }
}

#[test]
fn paths_behind_one_queue_are_grouped_after_fifteen_seconds() {
    for seed in 0..20 {
        let mut queue = Queue::new(seed, 60.0, 40.0);
        let mut bottlenecks = Bottlenecks::default();
        let mut shared = |_| [queue.step(); 2];
        run(&mut bottlenecks, 0, 10, &mut shared);
        assert_eq!(bottlenecks.shares(path(0), path(1)), None);
        assert_eq!(bottlenecks.group(path(0)), 0);
        run(&mut bottlenecks, 10, 16, &mut shared);
        assert_eq!(bottlenecks.shares(path(1), path(0)), Some(true), "{seed}");
        assert_eq!(bottlenecks.group(path(0)), 1);
        assert_eq!(bottlenecks.group(path(1)), 1);
    }
}

#[test]
fn paths_behind_queues_of_their_own_are_kept_apart() {
    for seed in 0..20 {
        let mut first = Queue::new(seed, 60.0, 40.0);
        let mut second = Queue::new(seed + 100, 25.0, 120.0);
        let mut bottlenecks = Bottlenecks::default();
        run(&mut bottlenecks, 0, 20, |_| [first.step(), second.step()]);
        assert_eq!(bottlenecks.shares(path(0), path(1)), Some(false), "{seed}");
        assert_eq!(bottlenecks.group(path(0)), 0);
    }
}

#[test]
fn two_of_three_paths_form_a_group() {
    for seed in 0..10 {
        let mut common = Queue::new(seed, 60.0, 40.0);
        let mut own = Queue::new(seed + 100, 20.0, 10.0);
        let mut bottlenecks = Bottlenecks::default();
        run(&mut bottlenecks, 0, 20, |_| {
            let (own, common) = (own.step(), common.step());
            [own, common, common]
        });
        let groups = [0, 1, 2].map(|id| bottlenecks.group(path(id)));
        assert_eq!(groups, [0, 2, 2], "{seed}");
        assert_eq!(bottlenecks.shares(path(0), path(2)), Some(false));
    }
}

#[test]
fn a_path_without_a_queue_is_not_where_a_full_queue_is() {
    let mut full = Queue::new(1, 60.0, 40.0);
    let mut empty = Queue::new(2, 0.0, 0.0);
    let mut bottlenecks = Bottlenecks::default();
    run(&mut bottlenecks, 0, 20, |_| [full.step(), empty.idle()]);
    assert_eq!(bottlenecks.shares(path(0), path(1)), Some(false));
}

#[test]
fn nothing_is_said_of_paths_without_queues() {
    let mut queues = [Queue::new(1, 0.0, 0.0), Queue::new(2, 0.0, 0.0)];
    let mut bottlenecks = Bottlenecks::default();
    run(&mut bottlenecks, 0, 60, |_| {
        let [first, second] = &mut queues;
        [first.idle(), second.idle()]
    });
    assert_eq!(bottlenecks.shares(path(0), path(1)), None);
}

#[test]
fn a_verdict_follows_the_bottleneck_when_it_moves() {
    let mut common = Queue::new(1, 60.0, 40.0);
    let mut own = Queue::new(2, 25.0, 120.0);
    let mut bottlenecks = Bottlenecks::default();
    run(&mut bottlenecks, 0, 20, |_| [common.step(); 2]);
    assert_eq!(bottlenecks.shares(path(0), path(1)), Some(true));
    run(&mut bottlenecks, 20, 45, |_| [common.step(), own.step()]);
    assert_eq!(bottlenecks.shares(path(0), path(1)), Some(false));
    assert_eq!(bottlenecks.group(path(0)), 0);
}

#[test]
fn where_much_is_lost_the_share_of_loss_decides() {
    for (lost, together) in [(8, true), (16, false)] {
        let mut queue = Queue::new(3, 60.0, 40.0);
        let mut bottlenecks = Bottlenecks::default();
        run(&mut bottlenecks, 0, 1, |_| [queue.step(); 2]);
        for second in 1..20 {
            bottlenecks.on_packets(path(0), 100, 8);
            bottlenecks.on_packets(path(1), 100, lost);
            run(&mut bottlenecks, second, second + 1, |_| [queue.step(); 2]);
        }
        assert_eq!(bottlenecks.shares(path(0), path(1)), Some(together));
    }
}

#[test]
fn another_route_or_silence_is_measured_from_the_beginning() {
    let mut queue = Queue::new(1, 60.0, 40.0);
    let mut bottlenecks = Bottlenecks::default();
    run(&mut bottlenecks, 0, 20, |_| [queue.step(); 2]);
    let late = Instant::from_nanos(100_000_000_000);
    bottlenecks.on_sample(late, path(0), ONE_WAY, 1000);
    assert!(bottlenecks.flows.iter().all(|flow| flow.history.is_empty()));
    assert_eq!(bottlenecks.shares(path(0), path(1)), Some(true));
    let moved = Measure {
        generation: 1,
        ..ONE_WAY
    };
    bottlenecks.on_sample(late, path(0), moved, 1000);
    assert_eq!(bottlenecks.shares(path(0), path(1)), None);
    assert_eq!(bottlenecks.group(path(1)), 0);
}

#[test]
fn a_path_that_is_given_up_leaves_its_group() {
    let mut queue = Queue::new(1, 60.0, 40.0);
    let mut bottlenecks = Bottlenecks::default();
    run(&mut bottlenecks, 0, 20, |_| [queue.step(); 3]);
    assert_eq!([0, 1, 2].map(|id| bottlenecks.group(path(id))), [1; 3]);
    bottlenecks.forget(path(0));
    assert_eq!([0, 1, 2].map(|id| bottlenecks.group(path(id))), [0, 2, 2]);
}

#[test]
fn values_are_cut_where_neighbours_differ_too_much() {
    let of = |id, variation| {
        let statistics = Statistics {
            skew: 0.0,
            variation,
            frequency: 0.1,
            loss: 0.0,
        };
        (path(id), statistics)
    };
    let flows = vec![of(0, 100.0), of(1, 50.0), of(2, 93.0), of(3, 88.0)];
    let groups = divide(flows);
    assert_eq!(groups, [vec![path(0), path(2), path(3)], vec![path(1)]]);
}
