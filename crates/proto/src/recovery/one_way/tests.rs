//! A network whose delays are known, and what is made of its samples.

use super::*;
use proptest::prelude::*;

const A: PathId = PathId(0);
const B: PathId = PathId(1);

/// A path's delays in microseconds, and by which path the peer acknowledges.
#[derive(Debug, Clone, Copy)]
struct Line {
    forward: i64,
    backward: i64,
    back: usize,
}

/// Two hosts whose clocks differ by `offset`.
struct Net {
    lines: Vec<Line>,
    offset: i64,
    ack_delay: i64,
    stamps: bool,
    now: i64,
    one_way: OneWay,
}

fn at(micros: i64) -> Instant {
    Instant::from_nanos(micros as u64 * 1000)
}

fn id(path: usize) -> PathId {
    PathId(path as u32)
}

impl Net {
    fn new(lines: &[Line], offset: i64) -> Self {
        let mut one_way = OneWay::new();
        one_way.set_exponent(0);
        Self {
            lines: lines.to_vec(),
            offset,
            ack_delay: 0,
            stamps: true,
            now: 1_000_000,
            one_way,
        }
    }

    /// A packet there and its acknowledgement back.
    fn exchange(&mut self, path: usize) {
        let line = self.lines[path];
        let answered = self.now + line.forward + self.ack_delay;
        let received = answered + self.lines[line.back].backward;
        self.one_way.note_echo(Echo {
            path: id(path),
            generation: 0,
            sent: at(self.now),
            ack_delay: Duration::from_micros(self.ack_delay as u64),
        });
        if self.stamps {
            self.one_way.note_stamp((answered + self.offset) as u64);
        }
        self.one_way.settle(Carrier {
            path: id(line.back),
            generation: 0,
            received: at(received),
        });
        self.now = received + 1000;
    }

    fn rounds(&mut self, count: usize) {
        for _ in 0..count {
            (0..self.lines.len()).for_each(|path| self.exchange(path));
        }
    }

    fn forward(&self, one: usize, two: usize) -> Option<DelayDifference> {
        let now = at(self.now);
        self.one_way.forward_difference(now, id(one), id(two))
    }

    fn backward(&self, one: usize, two: usize) -> Option<DelayDifference> {
        let now = at(self.now);
        self.one_way.backward_difference(now, id(one), id(two))
    }

    fn view(&self, path: usize) -> Option<i64> {
        self.one_way.forward(at(self.now), id(path))
    }
}

fn line(forward_ms: i64, backward_ms: i64, back: usize) -> Line {
    Line {
        forward: forward_ms * 1000,
        backward: backward_ms * 1000,
        back,
    }
}

/// 10 ms there and 40 back, 50 ms there and 10 back; the peer's clock is a second ahead.
fn crossed() -> Net {
    Net::new(&[line(10, 40, 0), line(50, 10, 1)], 1_000_000)
}

#[test]
fn a_path_that_is_given_up_by_the_packet_that_acknowledges_it_is_forgotten() {
    let mut net = crossed();
    net.rounds(3);
    let sent = at(net.now);
    net.one_way.note_echo(Echo {
        path: B,
        generation: 0,
        sent,
        ack_delay: Duration::ZERO,
    });
    net.one_way.forget(sent, B);
    net.one_way.settle(Carrier {
        path: A,
        generation: 0,
        received: sent + Duration::from_millis(60),
    });
    assert!(net.one_way.delays().is_empty());
    assert!(net.one_way.entry(B).is_none());
}

#[test]
fn timestamps_tell_the_differences_and_bound_the_clock_offset() {
    let mut net = crossed();
    net.rounds(3);
    let forward = net.forward(1, 0).expect("both paths were measured");
    assert_eq!((forward.current_us, forward.base_us), (40_000, 40_000));
    assert_eq!(forward.method, DelayMethod::Timestamps);
    let backward = net.backward(1, 0).expect("both paths were measured");
    assert_eq!((backward.current_us, backward.base_us), (-30_000, -30_000));
    let offset = net.one_way.clock_offset().expect("timestamps came");
    assert_eq!(offset, 990_000..=1_010_000);
    assert_eq!((net.view(0), net.view(1)), (Some(0), Some(40_000)));
    assert_eq!(net.one_way.backward(at(net.now), A), Some(30_000));
    assert_eq!(net.one_way.outliers(), 0);
}

#[test]
fn one_path_alone_has_no_relative_delay() {
    let mut net = Net::new(&[line(10, 40, 0)], 7);
    net.rounds(3);
    assert_eq!(net.view(0), None);
    assert_eq!(net.one_way.backward(at(net.now), A), None);
    assert_eq!(net.forward(0, 1), None);
}

#[test]
fn rtts_with_one_way_back_differ_by_the_forward_delays() {
    // The published case: 10 ms there and 200 back against 50 there and 10 back.
    let h10 = |back: [usize; 2]| {
        let mut net = Net::new(&[line(10, 200, back[0]), line(50, 10, back[1])], 0);
        net.stamps = false;
        net.rounds(3);
        net
    };
    let common = h10([1, 1]);
    let forward = common
        .forward(1, 0)
        .expect("the acknowledgements share a path");
    assert_eq!((forward.current_us, forward.base_us), (40_000, 40_000));
    assert_eq!(forward.method, DelayMethod::Shared(B));
    assert_eq!((common.view(0), common.view(1)), (Some(0), Some(40_000)));
    assert_eq!(common.backward(1, 0), None);

    let own = h10([0, 1]);
    assert_eq!((own.forward(1, 0), own.view(0)), (None, None));
}

#[test]
fn packets_of_one_path_acknowledged_by_two_tell_the_backward_difference() {
    let mut net = crossed();
    net.stamps = false;
    for back in [0, 1, 0, 1] {
        net.lines[0].back = back;
        net.exchange(0);
        net.exchange(1);
    }
    let backward = net.backward(1, 0).expect("both ways back were taken");
    assert_eq!(backward.base_us, -30_000);
    assert_eq!(backward.method, DelayMethod::Shared(A));
}

#[test]
fn the_acknowledgement_delay_does_not_count() {
    for stamps in [true, false] {
        let mut net = Net::new(&[line(10, 40, 1), line(50, 10, 1)], 5_000);
        net.stamps = stamps;
        for delay in [0, 25_000, 3_000, 12_000] {
            net.ack_delay = delay;
            net.exchange(0);
            net.ack_delay = 25_000 - delay;
            net.exchange(1);
        }
        let forward = net.forward(1, 0).expect("both paths were measured");
        assert_eq!(forward.current_us, 40_000, "{stamps}");
    }
}

#[test]
fn frames_may_come_in_any_order_and_the_largest_timestamp_counts() {
    let mut one_way = OneWay::new();
    one_way.set_exponent(3);
    let carrier = |path, micros| Carrier {
        path,
        generation: 0,
        received: at(micros),
    };
    for (path, forward) in [(A, 10_000), (B, 18_000)] {
        one_way.note_stamp(3);
        one_way.note_stamp((20_000 + forward) as u64 / 8);
        one_way.note_echo(Echo {
            path,
            generation: 0,
            sent: at(20_000),
            ack_delay: Duration::ZERO,
        });
        one_way.note_stamp(17);
        one_way.settle(carrier(path, 60_000));
    }
    let forward = one_way.forward_difference(at(60_000), B, A);
    assert_eq!(forward.map(|found| found.base_us), Some(8000));
    assert_eq!(forward.map(|found| found.uncertainty_us), Some(16));
}

#[test]
fn a_single_outlier_is_ignored_and_a_lasting_change_is_believed() {
    let mut net = crossed();
    net.rounds(5);
    net.lines[0].forward += 200_000;
    net.exchange(0);
    assert_eq!(
        net.forward(1, 0).map(|found| found.current_us),
        Some(40_000)
    );
    assert_eq!(net.one_way.outliers(), 1);
    net.exchange(0);
    net.exchange(0);
    assert_eq!(
        net.forward(1, 0)
            .map(|found| (found.current_us, found.base_us)),
        Some((-160_000, -160_000))
    );
}

#[test]
fn a_clock_that_is_set_is_noticed_at_once_on_all_paths() {
    for step in [3_600_000_000, 80_000, -700_000] {
        let mut net = crossed();
        net.rounds(5);
        net.offset += step;
        net.exchange(0);
        assert_eq!(net.one_way.clock_steps(), 1, "{step}");
        // The other path's delay is one by the old clock.
        assert_eq!(net.forward(1, 0), None);
        net.exchange(1);
        assert_eq!(net.forward(1, 0).map(|found| found.base_us), Some(40_000));
        let offset = net.one_way.clock_offset().expect("timestamps came");
        assert!(offset.contains(&net.offset), "{offset:?}");
        assert_eq!((net.one_way.clock_steps(), net.one_way.outliers()), (1, 0));
    }
}

#[test]
fn the_bounds_of_the_offset_follow_a_clock_that_drifts() {
    // Round trips of 200 us cannot hold a drift of a millisecond.
    let near = Line {
        forward: 100,
        backward: 100,
        back: 0,
    };
    for drift in [37, -37] {
        let mut net = Net::new(&[near, Line { back: 1, ..near }], 5_000_000);
        for _ in 0..200 {
            net.offset += drift;
            net.rounds(1);
        }
        let offset = net.one_way.clock_offset().expect("timestamps came");
        let off = (offset.start() - net.offset)
            .abs()
            .max((offset.end() - net.offset).abs());
        assert!(off < 1000, "{offset:?} is far from {}", net.offset);
        assert!(net.one_way.outliers() > 0);
        assert_eq!(net.one_way.clock_steps(), 0);
    }
}

#[test]
fn the_average_follows_a_queue_and_the_least_does_not() {
    let mut net = crossed();
    net.rounds(5);
    net.lines[1].forward += 20_000;
    net.rounds(40);
    let forward = net.forward(1, 0).expect("both paths were measured");
    assert!(
        (59_000..=60_000).contains(&forward.current_us),
        "{forward:?}"
    );
    assert_eq!(forward.base_us, 40_000);
    net.now += 12_000_000;
    net.rounds(2);
    assert_eq!(net.forward(1, 0).map(|found| found.base_us), Some(60_000));
}

#[test]
fn old_samples_make_a_difference_less_certain_and_then_none() {
    let mut net = crossed();
    net.rounds(3);
    let certain = net.forward(1, 0).expect("both paths were measured");
    assert_eq!(certain.uncertainty_us, 2);
    net.now += 11_000_000;
    let old = net.forward(1, 0).expect("clocks do not drift so far");
    assert!((1000..1100).contains(&old.uncertainty_us), "{old:?}");
    net.now += 20_000_000;
    assert_eq!((net.forward(1, 0), net.view(0)), (None, None));
}

#[test]
fn another_route_of_a_path_is_another_way() {
    let mut net = Net::new(&[line(10, 40, 1), line(50, 10, 1)], 0);
    net.stamps = false;
    net.rounds(3);
    assert!(net.forward(1, 0).is_some());
    net.one_way.note_stamp(1);
    net.one_way.settle(Carrier {
        path: B,
        generation: 1,
        received: at(net.now),
    });
    assert_eq!(net.forward(1, 0), None);
}

#[test]
fn a_path_that_was_given_up_leaves_nothing() {
    let mut net = Net::new(&[line(10, 40, 1), line(50, 10, 1), line(5, 5, 1)], 9);
    net.rounds(3);
    net.one_way.forget(at(net.now), B);
    assert_eq!((net.forward(1, 0), net.view(1)), (None, None));
    assert_eq!((net.view(0), net.view(2)), (Some(5_000), Some(0)));
    assert!(
        net.one_way
            .entries
            .iter()
            .all(|entry| entry.trip(B).is_none())
    );
}

#[test]
fn timestamps_that_cannot_be_true_choose_no_path() {
    let mut net = crossed();
    net.rounds(3);
    // The peer claims that path 0 takes an hour, without a round trip that long.
    for _ in 0..4 {
        let sent = net.now;
        net.one_way.note_echo(Echo {
            path: A,
            generation: 0,
            sent: at(sent),
            ack_delay: Duration::ZERO,
        });
        net.one_way
            .note_stamp((sent + net.offset + 3_600_000_000) as u64);
        net.one_way.settle(Carrier {
            path: B,
            generation: 0,
            received: at(sent + 20_000),
        });
        net.now += 30_000;
    }
    assert!(net.one_way.outliers() > 0 || net.one_way.clock_steps() > 0);
    let claimed = net.forward(0, 1).map(|found| found.method);
    assert_ne!(claimed, Some(DelayMethod::Timestamps));
    assert!(net.view(0).is_none_or(|delay| delay < 1_000_000));
}

#[test]
fn more_paths_than_can_be_open_are_not_kept() {
    let mut one_way = OneWay::new();
    for path in 0..100 {
        one_way.note_stamp(u64::from(path));
        one_way.settle(Carrier {
            path: PathId(path),
            generation: 0,
            received: at(1),
        });
    }
    assert_eq!(one_way.entries.len(), MAX_OPEN_PATHS);
}

fn lines(stamps: bool) -> impl Strategy<Value = Vec<Line>> {
    let delay = || 10_i64..400_000;
    (2_usize..6).prop_flat_map(move |count| {
        let back = if stamps { 0..count } else { 0..1 };
        let line = (delay(), delay(), back);
        let line = line.prop_map(|(forward, backward, back)| Line {
            forward,
            backward,
            back,
        });
        prop::collection::vec(line, count)
    })
}

proptest! {
    #[test]
    fn no_clock_offset_and_no_return_delay_changes_a_forward_difference(
        lines in lines(true),
        offset in 0_i64..1 << 50,
        returns in prop::collection::vec(10_i64..400_000, 6),
        backs in prop::collection::vec(0_usize..2, 6),
    ) {
        let mut net = Net::new(&lines, offset);
        net.rounds(4);
        for (path, line) in net.lines.iter_mut().enumerate() {
            line.backward = returns[path];
            line.back = backs[path];
        }
        net.rounds(4);
        for (one, first) in lines.iter().enumerate() {
            for (two, second) in lines.iter().enumerate() {
                let found = net.forward(one, two).map(|found| (found.current_us, found.base_us));
                let expected = first.forward - second.forward;
                prop_assert_eq!(found, Some((expected, expected)));
            }
        }
        let fastest = lines.iter().map(|line| line.forward).min().unwrap_or_default();
        for (path, line) in lines.iter().enumerate() {
            prop_assert_eq!(net.view(path), Some(line.forward - fastest));
        }
        prop_assert!(net.one_way.clock_offset().expect("timestamps came").contains(&offset));
    }

    #[test]
    fn the_delay_of_the_common_way_back_changes_no_forward_difference(
        lines in lines(false),
        backward in 10_i64..400_000,
    ) {
        let mut net = Net::new(&lines, 0);
        net.stamps = false;
        net.lines[0].backward = backward;
        net.rounds(4);
        for (one, first) in lines.iter().enumerate() {
            let expected = first.forward - lines[0].forward;
            prop_assert_eq!(net.forward(one, 0).map(|found| found.base_us), Some(expected));
        }
    }

    #[test]
    fn whatever_a_peer_claims_nothing_overflows(
        claims in prop::collection::vec(
            (0_u32..20, 0_u32..3, any::<u64>(), any::<u64>(), any::<u64>(), 0_u64..=20), 0..60),
    ) {
        let mut one_way = OneWay::new();
        for (path, generation, time, delay, sent, exponent) in claims {
            one_way.set_exponent(exponent);
            one_way.note_stamp(time >> (sent % 60));
            one_way.note_echo(Echo {
                path: PathId(path),
                generation,
                sent: Instant::from_nanos(sent),
                ack_delay: Duration::from_micros(delay >> (time % 60)),
            });
            let received = Instant::from_nanos(sent.saturating_add(time % 1_000_000_000));
            one_way.settle(Carrier { path: PathId(path % 3), generation, received });
            for other in 0..3 {
                let _ = one_way.forward_difference(received, PathId(path), PathId(other));
                let _ = one_way.backward_difference(received, PathId(path), PathId(other));
            }
            let _ = (one_way.clock_offset(), one_way.forward(received, PathId(path)));
        }
        prop_assert!(one_way.entries.len() <= MAX_OPEN_PATHS);
    }
}

#[test]
fn jitter_is_that_of_the_forward_delay() {
    let line = |forward| Line {
        forward,
        backward: 10_000,
        back: 0,
    };
    for stamps in [true, false] {
        let mut net = Net::new(&[line(10_000), line(20_000)], 500);
        net.stamps = stamps;
        assert_eq!(net.one_way.forward_jitter(A), None);
        for turn in 0..200 {
            net.lines[1].forward = if turn % 2 == 0 { 18_000 } else { 22_000 };
            net.exchange(0);
            net.exchange(1);
        }
        let jitter = |path| net.one_way.forward_jitter(path).expect("measured");
        assert_eq!(jitter(A), 0, "stamps: {stamps}");
        assert!((1_500..2_500).contains(&jitter(B)), "{}", jitter(B));
    }
}
