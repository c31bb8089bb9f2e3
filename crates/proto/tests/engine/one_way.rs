//! Forward and backward delays of paths, told apart by timestamps or by a common way back.

use crate::pair::{MBIT, Pair, Way};
use crate::policies;
use anabranch_proto::config::{AckReturn, TransportConfig};
use anabranch_proto::connection::{DelayDifference, DelayMethod};
use anabranch_proto::sched::{Choice, Reason, Scheduler, SchedulerFactory, SendView};
use anabranch_proto::wire::PathId;
use std::time::Duration;

const FIRST: PathId = PathId(0);
const SECOND: PathId = PathId(1);
const LIMIT: Duration = Duration::from_secs(60);

fn with_timestamps() -> TransportConfig {
    TransportConfig {
        timestamps: true,
        ..TransportConfig::default()
    }
}

fn returning(ack_return: AckReturn) -> TransportConfig {
    TransportConfig {
        ack_return,
        ..TransportConfig::default()
    }
}

/// A client whose packets take both paths in turn.
fn taking_turns(timestamps: bool) -> TransportConfig {
    TransportConfig {
        timestamps,
        scheduler: policies::turns(),
        ..TransportConfig::default()
    }
}

/// 10 ms there and 40 back, 50 ms there and 10 back.
fn crossed(client: TransportConfig, server: TransportConfig) -> Pair {
    let ways = vec![Way::new(1).delays(10, 40), Way::new(2).delays(50, 10)];
    let mut pair = Pair::with(ways, client, server);
    pair.connect();
    pair.open_all();
    pair
}

/// PINGs on both paths, `rounds` times.
fn ping(pair: &mut Pair, rounds: usize) {
    for _ in 0..rounds {
        for path in [FIRST, SECOND] {
            pair.client_conn().ping(path).expect("the path is open");
        }
        pair.run_for(Duration::from_millis(200));
    }
}

/// Asserts that the least delays differ by so many milliseconds, as well as the clocks can tell.
#[track_caller]
fn assert_differ(found: Option<DelayDifference>, ms: i64, method: DelayMethod) {
    let found = found.expect("both paths were measured");
    assert_eq!(found.method, method);
    let off = (found.base_us - ms * 1000).unsigned_abs();
    assert!(off <= 16, "{found:?} is not {ms} ms");
}

#[track_caller]
fn acks_come_by(pair: &mut Pair, expected: [u32; 2]) {
    let by = [FIRST, SECOND].map(|path| {
        let stats = pair
            .client_conn()
            .path_stats(path)
            .expect("the path is open");
        stats.acks_came_by
    });
    assert_eq!(by, expected.map(|path| Some(PathId(path))));
}

#[test]
fn timestamps_tell_both_directions_whatever_way_acknowledgements_take() {
    let ways = [
        AckReturn::SamePath,
        AckReturn::LowestRtt,
        AckReturn::Path(SECOND),
    ];
    for ack_return in ways {
        let server = TransportConfig {
            ack_return,
            ..with_timestamps()
        };
        let mut pair = crossed(with_timestamps(), server);
        pair.upload(200_000, LIMIT);
        ping(&mut pair, 12);
        let client = pair.client_conn();
        let stamps = DelayMethod::Timestamps;
        assert_differ(client.forward_difference(SECOND, FIRST), 40, stamps);
        assert_differ(client.forward_difference(FIRST, SECOND), -40, stamps);
        if ack_return == AckReturn::SamePath {
            assert_differ(client.backward_difference(SECOND, FIRST), -30, stamps);
            let stats = client.path_stats(FIRST).expect("the path is open");
            assert_eq!(stats.forward_delay_us, Some(0));
            let back = stats.backward_delay_us.expect("both paths were measured");
            assert!((29_000..31_000).contains(&back), "{back}");
        }
        assert!(client.clock_offset_us().is_some());
        assert_eq!(client.stats().clock_steps, 0);
    }
}

#[test]
fn the_other_side_measures_the_same_delays_from_its_end() {
    let mut pair = crossed(with_timestamps(), with_timestamps());
    pair.upload(200_000, LIMIT);
    for _ in 0..12 {
        for path in [FIRST, SECOND] {
            pair.server_conn().ping(path).expect("the path is open");
        }
        pair.run_for(Duration::from_millis(200));
    }
    let server = pair.server_conn();
    let stamps = DelayMethod::Timestamps;
    assert_differ(server.forward_difference(SECOND, FIRST), -30, stamps);
    assert_differ(server.backward_difference(SECOND, FIRST), 40, stamps);
}

#[test]
fn a_common_way_back_tells_the_same_without_timestamps() {
    for (home, by) in [(FIRST, 0), (SECOND, 1)] {
        let mut pair = crossed(taking_turns(false), returning(AckReturn::Path(home)));
        pair.upload(200_000, LIMIT);
        acks_come_by(&mut pair, [by; 2]);
        let client = pair.client_conn();
        let forward = client.forward_difference(SECOND, FIRST);
        assert_differ(forward, 40, DelayMethod::Shared(home));
        // One path may have been acknowledged by both before this one was chosen.
        let backward = client.backward_difference(SECOND, FIRST);
        assert!(backward.is_none_or(|found| found.base_us == -30_000));
        assert_eq!(client.clock_offset_us(), None);
    }
}

#[test]
fn round_trips_of_separate_paths_tell_nothing() {
    let offers = [
        (taking_turns(false), TransportConfig::default()),
        (taking_turns(true), TransportConfig::default()),
        (taking_turns(false), with_timestamps()),
    ];
    for (client, server) in offers {
        let mut pair = crossed(client, server);
        pair.upload(200_000, LIMIT);
        // While the second path was being opened its acknowledgements came by the first.
        pair.run_for(Duration::from_secs(11));
        pair.upload(200_000, LIMIT);
        let client = pair.client_conn();
        assert_eq!(client.forward_difference(SECOND, FIRST), None);
        assert_eq!(client.backward_difference(SECOND, FIRST), None);
        let stats = client.path_stats(FIRST).expect("the path is open");
        assert_eq!(
            (stats.forward_delay_us, stats.backward_delay_us),
            (None, None)
        );
        assert!(!client.receives_timestamps() && !client.sends_timestamps());
    }
}

#[test]
fn the_way_of_acknowledgements_can_be_changed_at_run_time() {
    let mut pair = crossed(taking_turns(false), TransportConfig::default());
    pair.upload(300_000, LIMIT);
    acks_come_by(&mut pair, [0, 1]);
    let changes = [
        (AckReturn::Path(SECOND), [1, 1]),
        (AckReturn::Path(FIRST), [0, 0]),
        (AckReturn::SamePath, [0, 1]),
        (AckReturn::Path(PathId(7)), [0, 1]),
        (AckReturn::LowestId, [0, 0]),
    ];
    for (ack_return, expected) in changes {
        // The round trips change by 30 ms: with much under way that would be doubted.
        pair.run_for(Duration::from_millis(200));
        pair.server_conn().set_ack_return(ack_return);
        pair.upload(2_000, LIMIT);
        pair.upload(300_000, LIMIT);
        acks_come_by(&mut pair, expected);
    }
}

#[test]
fn the_lowest_rtt_is_one_way_for_all_and_not_left_for_a_little_gain() {
    let mut pair = crossed(taking_turns(false), TransportConfig::default());
    let server = pair.server_conn();
    server.set_ack_return(AckReturn::LowestRtt);
    // 50 ms against 60 ms.
    for path in [FIRST, SECOND] {
        server.ping(path).expect("the path is open");
    }
    pair.run_for(Duration::from_millis(200));
    pair.upload(300_000, LIMIT);
    acks_come_by(&mut pair, [0, 0]);
    for (up_ms, by) in [(8, 0), (1, 1)] {
        // Second path: 48 ms, hardly better; then 11 ms.
        pair.ways[1].delay = Duration::from_millis(up_ms);
        pair.ways[1].delay_down = Some(Duration::from_millis(up_ms * 5));
        for _ in 0..30 {
            pair.server_conn().ping(SECOND).expect("the path is open");
            pair.run_for(Duration::from_millis(100));
        }
        pair.upload(300_000, LIMIT);
        acks_come_by(&mut pair, [by; 2]);
    }
}

#[test]
fn the_peers_clock_may_be_set() {
    let mut pair = crossed(with_timestamps(), with_timestamps());
    ping(&mut pair, 5);
    pair.server_ahead = Duration::from_millis(700);
    ping(&mut pair, 5);
    let client = pair.client_conn();
    let stamps = DelayMethod::Timestamps;
    assert_differ(client.forward_difference(SECOND, FIRST), 40, stamps);
    assert_differ(client.backward_difference(SECOND, FIRST), -30, stamps);
    assert_eq!(client.stats().clock_steps, 1);
}

#[test]
fn measuring_is_not_taken_for_doubt() {
    let mut pair = crossed(with_timestamps(), with_timestamps());
    pair.run_for(Duration::from_millis(500));
    for _ in 0..8 {
        ping(&mut pair, 1);
        // PINGs alone would send the acknowledgements on a detour after the second.
        acks_come_by(&mut pair, [0, 1]);
        let rtt = |pair: &mut Pair, path| {
            let stats = pair
                .client_conn()
                .path_stats(path)
                .expect("the path is open");
            stats.latest_rtt.as_millis()
        };
        assert_eq!([rtt(&mut pair, FIRST), rtt(&mut pair, SECOND)], [50, 60]);
    }
}

/// Sends on the path with the least forward delay, as the delivery delay scheduler does.
#[derive(Debug)]
struct LeastForward;

impl Scheduler for LeastForward {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        let key = |path: &&anabranch_proto::sched::PathView| {
            (path.forward_delay_us.unwrap_or(i64::MAX), path.id)
        };
        match view.candidates().min_by_key(key) {
            Some(path) => Choice::send(path.id, Reason::Other("least forward delay")),
            None => view.no_room(),
        }
    }
}

#[test]
fn a_scheduler_sees_that_a_long_way_back_is_no_slow_path() {
    // 10 ms there and 200 back against 50 ms there and 10 back: RTTs say the contrary.
    for (timestamps, ack_return) in [
        (true, AckReturn::SamePath),
        (false, AckReturn::Path(SECOND)),
    ] {
        let server = TransportConfig {
            timestamps,
            ack_return,
            ..TransportConfig::default()
        };
        let client = TransportConfig {
            timestamps,
            scheduler: SchedulerFactory::from_fn("least-forward", || Box::new(LeastForward)),
            ..TransportConfig::default()
        };
        let way = |index| Way::new(index).rate(50 * MBIT);
        let ways = vec![way(1).delays(10, 200), way(2).delays(50, 10)];
        let mut pair = Pair::with(ways, client, server);
        pair.connect();
        pair.open_all();
        ping(&mut pair, 4);
        let fresh = |pair: &mut Pair, path| {
            let stats = pair
                .client_conn()
                .path_stats(path)
                .expect("the path is open");
            stats.counters.fresh_bytes
        };
        let before = [fresh(&mut pair, FIRST), fresh(&mut pair, SECOND)];
        pair.upload(100_000, LIMIT);
        let first = fresh(&mut pair, FIRST) - before[0];
        let second = fresh(&mut pair, SECOND) - before[1];
        assert!(first > 9 * second, "{first} and {second}");
    }
}
