//! Paths that fail, in every way a network can fail them, and their return.

#![allow(
    clippy::print_stdout,
    reason = "measurements are shown beside their bounds"
)]

use crate::pair::{MBIT, Pair, Way};
use anabranch_proto::config::{AckReturn, TransportConfig};
use anabranch_proto::connection::AbandonPathError;
use anabranch_proto::datagram::SocketId;
use anabranch_proto::event::{Event, PathNotice};
use anabranch_proto::path::PathOptions;
use anabranch_proto::path::PathState;
use anabranch_proto::time::Instant;
use anabranch_proto::wire::PathId;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);
const MAX_ACK_DELAY: Duration = Duration::from_millis(25);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Two ways of 20 Mbit/s and 20 ms round trip with queues of 50 ms.
fn two_ways() -> Vec<Way> {
    let way = |index| Way::new(index).rate(20 * MBIT).queue_ms(50);
    vec![way(1), way(2)]
}

fn connected(ways: Vec<Way>) -> Pair {
    let mut pair = Pair::new(ways, TransportConfig::default());
    pair.connect();
    pair.open_all();
    pair.run_for(ms(300));
    pair
}

/// Two ways to a server with settings of its own.
fn connected_to(server: TransportConfig) -> Pair {
    let mut pair = Pair::with(two_ways(), TransportConfig::default(), server);
    pair.connect();
    pair.open_all();
    pair.run_for(ms(300));
    pair
}

/// Largest smoothed RTT, and largest probe time-out, as the sender sees its paths now.
fn estimates(pair: &mut Pair, server: bool) -> (Duration, Duration) {
    let connection = pair.side(server).expect("a connection");
    let ids: Vec<PathId> = connection.paths().collect();
    let stats: Vec<_> = ids
        .into_iter()
        .filter_map(|id| connection.path_stats(id))
        .collect();
    let rtt = stats.iter().map(|path| path.smoothed_rtt).max();
    let pto = stats
        .iter()
        .map(|path| path.smoothed_rtt + (4 * path.rttvar).max(ms(1)) + MAX_ACK_DELAY)
        .max();
    (rtt.unwrap_or_default(), pto.unwrap_or_default())
}

fn state(pair: &mut Pair, server: bool, path: u32) -> PathState {
    let connection = pair.side(server).expect("a connection");
    let stats = connection.path_stats(PathId(path)).expect("an open path");
    stats.state
}

/// Stream bytes one side has sent on a path.
fn carried(pair: &mut Pair, server: bool, path: u32) -> u64 {
    let connection = pair.side(server).expect("a connection");
    let stats = connection.path_stats(PathId(path));
    stats.map_or(0, |stats| stats.counters.acked_bytes)
}

/// Cuts `way` in the middle of a transfer; returns the longest time without progress, and the
/// estimates of the sender at the cut.
fn cut(to_server: bool, way: usize, up: bool, down: bool) -> (Duration, Duration, Duration) {
    let mut pair = connected(two_ways());
    pair.watch(false);
    pair.watch(true);
    let flow = pair.start(to_server, 6_000_000);
    pair.run_for(ms(500));
    assert!(pair.flows[flow].received > 1_000_000, "a running transfer");
    let (rtt, pto) = estimates(&mut pair, !to_server);
    let at = pair.now;
    pair.ways[way].up &= up;
    pair.ways[way].down &= down;
    let took = pair.finish(flow, LIMIT);
    let gap = pair.flows[flow].longest_gap(at);
    println!("cut way {way} up {up} down {down} upload {to_server}: {took:?}");
    println!("    gap {gap:?}, rtt {rtt:?}, pto {pto:?}");
    assert!(
        took < Duration::from_secs(4),
        "took {took:?}\n{}",
        pair.report()
    );
    (gap, rtt, pto)
}

/// The sender hears nothing for at most one RTT before the cut shows, waits a probe time-out, and
/// what it sends again needs half an RTT and its place in the queue.
fn assert_recovers(to_server: bool, up: bool, down: bool) {
    for way in [0, 1] {
        let (gap, rtt, pto) = cut(to_server, way, up, down);
        assert!(
            gap <= 3 * rtt + pto,
            "{gap:?} with rtt {rtt:?}, pto {pto:?}"
        );
    }
}

#[test]
fn an_upload_survives_the_silent_death_of_either_path() {
    assert_recovers(true, false, false);
}

#[test]
fn an_upload_survives_the_loss_of_either_uplink() {
    assert_recovers(true, false, true);
}

#[test]
fn an_upload_survives_the_loss_of_either_downlink() {
    assert_recovers(true, true, false);
}

#[test]
fn a_download_survives_the_silent_death_of_either_path() {
    assert_recovers(false, false, false);
}

#[test]
fn a_download_survives_the_loss_of_either_uplink() {
    assert_recovers(false, false, true);
}

#[test]
fn a_download_survives_the_loss_of_either_downlink() {
    assert_recovers(false, true, false);
}

#[test]
fn a_repaired_path_carries_data_again_within_a_second() {
    for (to_server, dead) in [(true, 3), (false, 3), (true, 20), (false, 20)] {
        let way = |index| Way::new(index).rate(4 * MBIT).queue_ms(50);
        let mut pair = connected(vec![way(1), way(2)]);
        let flow = pair.start(to_server, 16_000_000);
        pair.run_for(ms(500));
        pair.ways[0].set_open(false);
        pair.run_for(Duration::from_secs(dead));
        let server = !to_server;
        assert_eq!(state(&mut pair, server, 0), PathState::Doubtful);
        pair.ways[0].set_open(true);
        let (repaired, before) = (pair.now, carried(&mut pair, server, 0));
        let back = pair.run_until(Duration::from_secs(1), |pair| {
            carried(pair, server, 0) > before + 20_000
        });
        let after = pair.now.since(repaired);
        println!("dead {dead} s, upload {to_server}: back in use after {after:?}");
        assert!(back, "not in use after {after:?}\n{}", pair.report());
        assert!(!pair.flows[flow].is_done(), "the transfer was too short");
    }
}

#[test]
fn a_path_dead_for_a_minute_is_given_up_and_its_successor_works() {
    let way = |index| Way::new(index).rate(MBIT).queue_ms(50);
    let mut pair = connected(vec![way(1), way(2)]);
    let flow = pair.start(true, 20_000_000);
    pair.run_for(ms(500));
    pair.ways[1].set_open(false);
    pair.run_for(Duration::from_secs(60));
    assert!(
        pair.has_notice(|notice| matches!(notice, PathNotice::Abandoned { id, .. } if id.0 == 1))
    );
    let clients: Vec<PathId> = pair.client_conn().paths().collect();
    let servers: Vec<PathId> = pair.server_conn().paths().collect();
    assert_eq!((clients, servers), (vec![PathId(0)], vec![PathId(0)]));
    pair.ways[1].set_open(true);
    let id = pair.open_path(1);
    assert_eq!(id, PathId(2), "the ID of a path given up is spent");
    pair.run_for(Duration::from_secs(1));
    assert!(carried(&mut pair, false, 2) > 50_000, "{}", pair.report());
    assert!(!pair.flows[flow].is_done());
}

#[test]
fn path_ids_are_not_leaked_over_two_hundred_flaps() {
    let mut pair = connected(two_ways());
    pair.watch(false);
    pair.watch(true);
    for flap in 0..200_u32 {
        let id = PathId(flap + 1);
        let now = pair.now;
        let abandoned = pair.client_conn().abandon_path(now, id, 0x3e);
        assert_eq!(abandoned, Ok(()), "flap {flap}");
        assert_eq!(pair.open_path(1), PathId(flap + 2));
        if flap % 20 == 0 {
            pair.transfer(flap % 40 == 0, 50_000, Duration::from_secs(5));
        }
    }
    // Three probe time-outs of a path without an RTT sample, counted from the peer's agreement.
    pair.run_for(Duration::from_secs(5));
    let paths: Vec<PathId> = pair.client_conn().paths().collect();
    assert_eq!(paths, [PathId(0), PathId(201)]);
    let stale = (1..=200).filter(|id| pair.client_conn().path_stats(PathId(*id)).is_some());
    assert_eq!(stale.count(), 0, "the client keeps paths it gave up");
    let stale = (1..=200).filter(|id| pair.server_conn().path_stats(PathId(*id)).is_some());
    assert_eq!(stale.count(), 0, "the server keeps paths it gave up");
}

#[test]
fn a_full_path_that_falls_silent_is_doubted_before_a_probe_time_out_is_over() {
    for way in [0, 1] {
        let mut pair = connected(two_ways());
        pair.start(true, 6_000_000);
        pair.run_for(ms(500));
        let (_, pto) = estimates(&mut pair, false);
        pair.ways[way].up = false;
        pair.ways[way].down = false;
        let at = pair.now;
        while state(&mut pair, false, way as u32) == PathState::Active {
            assert!(pair.now.since(at) < pto, "{}", pair.report());
            pair.run_for(ms(1));
        }
        let took = pair.now.since(at);
        // Acknowledgements that are under way arrive for another 10 ms.
        let half = pto / 2 + ms(10);
        assert!(took + ms(5) > half && took < half + ms(5), "{took:?}");
    }
}

/// The last acknowledgement arrives after the packet left, and says nothing about it.
#[test]
fn what_leaves_by_a_link_that_fails_one_way_waits_for_one_time_out() {
    for later in [2, 7, 19] {
        let mut pair = connected(two_ways());
        for _ in 0..40 {
            pair.transfer(true, 1_000, LIMIT);
            pair.run_for(ms(20));
        }
        let (_, pto) = estimates(&mut pair, false);
        pair.start(true, 1_000);
        pair.run_for(ms(later));
        let carried = |pair: &mut Pair, id| {
            let stats = pair.client_conn().path_stats(PathId(id));
            stats.expect("a path").counters.fresh_bytes
        };
        let in_use = usize::from(carried(&mut pair, 1) > carried(&mut pair, 0));
        pair.ways[in_use].up = false;
        let took = pair.transfer(true, 1_000, LIMIT);
        assert!(took < pto * 7 / 4, "{took:?} of {pto:?}, {later} ms later");
    }
}

#[test]
fn a_path_that_stalls_again_and_again_is_doubted_early_only_once() {
    let mut pair = connected(two_ways());
    let flow = pair.start(true, 60_000_000);
    pair.run_for(ms(800));
    for _ in 0..8 {
        // Longer than half a probe time-out and shorter than the whole.
        let stats = pair.client_conn().path_stats(PathId(0)).expect("a path");
        let pto = stats.smoothed_rtt + (4 * stats.rttvar).max(ms(1)) + MAX_ACK_DELAY;
        let more = pto * 3 / 4;
        pair.ways[0].delay += more;
        pair.run_for(ms(300));
        pair.ways[0].delay -= more;
        pair.run_for(ms(300));
    }
    let stats = pair.client_conn().path_stats(PathId(0));
    let doubts = stats.expect("an open path").counters.doubts;
    assert_eq!(doubts, 1, "{}", pair.report());
    pair.finish(flow, LIMIT);
}

#[test]
fn a_queue_that_grows_is_not_taken_for_silence() {
    // A second of queue fills within a few round trips: packets get late, and still arrive.
    let way = |index| Way::new(index).rate(20 * MBIT).queue_ms(1000);
    let mut pair = connected(vec![way(1), way(2)]);
    let flow = pair.start(true, 20_000_000);
    pair.finish(flow, LIMIT);
    for path in [0, 1] {
        let stats = pair.client_conn().path_stats(PathId(path));
        let stats = stats.expect("an open path");
        assert!(stats.smoothed_rtt > ms(100), "{}", pair.report());
        assert_eq!(stats.counters.doubts, 0, "{}", pair.report());
    }
}

#[test]
fn a_delay_spike_does_not_restart_the_window() {
    let mut pair = connected(two_ways());
    let flow = pair.start(true, 20_000_000);
    pair.run_for(ms(800));
    let before = pair.client_conn().path_stats(PathId(0)).expect("a path");
    pair.ways[0].delay += ms(400);
    pair.run_for(ms(250));
    assert_eq!(
        state(&mut pair, false, 0),
        PathState::Doubtful,
        "{}",
        pair.report()
    );
    pair.run_for(ms(400));
    let after = pair.client_conn().path_stats(PathId(0)).expect("a path");
    assert_eq!(after.state, PathState::Active, "{}", pair.report());
    assert!(
        after.congestion_window * 2 >= before.congestion_window,
        "{} before, {} after",
        before.congestion_window,
        after.congestion_window
    );
    pair.finish(flow, LIMIT);
}

#[test]
fn all_paths_may_die_and_one_come_back() {
    for back in [0, 1] {
        let mut pair = connected(two_ways());
        let flow = pair.start(true, 5_000_000);
        pair.run_for(ms(400));
        pair.ways[0].set_open(false);
        pair.ways[1].set_open(false);
        pair.run_for(Duration::from_secs(8));
        pair.ways[back].set_open(true);
        let (repaired, before) = (pair.now, pair.flows[flow].received);
        let moved = pair.run_until(Duration::from_secs(8), |pair| {
            pair.flows[flow].received > before
        });
        let after = pair.now.since(repaired);
        println!("both dead 8 s, way {back} back: progress after {after:?}");
        assert!(moved, "{}", pair.report());
        assert!(after < Duration::from_secs(1), "progress after {after:?}");
        pair.finish(flow, LIMIT);
    }
}

#[test]
fn acknowledgements_take_a_detour_while_only_the_return_direction_is_dead() {
    let mut pair = connected(two_ways());
    let flow = pair.start(true, 40_000_000);
    pair.run_for(ms(500));
    pair.ways[0].down = false;
    pair.run_for(Duration::from_secs(2));
    let before = carried(&mut pair, false, 0);
    pair.run_for(Duration::from_secs(4));
    let more = carried(&mut pair, false, 0) - before;
    assert!(
        more > 2_000_000,
        "only {more} bytes by the path that still works forwards\n{}",
        pair.report()
    );
    pair.finish(flow, LIMIT);
}

#[test]
fn a_dead_socket_moves_its_data_at_once() {
    let mut pair = connected(two_ways());
    let flow = pair.start(true, 4_000_000);
    pair.run_for(ms(400));
    pair.ways[0].set_open(false);
    let now = pair.now;
    pair.client_conn().on_socket_error(now, SocketId(1));
    assert_eq!(state(&mut pair, false, 0), PathState::Doubtful);
    let (rtt, _) = estimates(&mut pair, false);
    pair.finish(flow, LIMIT);
    let gap = pair.flows[flow].longest_gap(now);
    assert!(gap <= 2 * rtt, "{gap:?} with an RTT of {rtt:?}");
}

#[test]
fn a_dead_socket_does_not_doubt_the_only_path() {
    let mut pair = connected(vec![Way::new(1)]);
    let now = pair.now;
    pair.client_conn().on_socket_error(now, SocketId(1));
    assert_eq!(state(&mut pair, false, 0), PathState::Active);
    pair.transfer(true, 100_000, Duration::from_secs(2));
}

#[test]
fn a_route_without_a_way_is_doubted_and_others_of_its_socket_are_not() {
    let mut pair = connected(two_ways());
    pair.run_for(ms(400));
    let (now, tuple) = (
        pair.now,
        pair.client_conn().path_stats(PathId(1)).unwrap().tuple,
    );
    let mut elsewhere = tuple;
    elsewhere.remote.set_port(tuple.remote.port() ^ 1);
    pair.client_conn().on_route_error(now, elsewhere);
    assert_eq!(state(&mut pair, false, 1), PathState::Active);
    pair.client_conn().on_route_error(now, tuple);
    assert_eq!(state(&mut pair, false, 0), PathState::Active);
    assert_eq!(state(&mut pair, false, 1), PathState::Doubtful);
}

/// Nothing in flight means no probe time-out.
#[test]
fn a_path_that_was_refused_while_nothing_was_in_flight_is_asked_until_it_answers() {
    let mut pair = connected(two_ways());
    pair.run_for(ms(400));
    let tuple = pair.client_conn().path_stats(PathId(1)).unwrap().tuple;
    pair.ways[1].set_open(false);
    let now = pair.now;
    pair.client_conn().on_route_error(now, tuple);
    pair.run_for(Duration::from_secs(5));
    assert_eq!(state(&mut pair, false, 1), PathState::Doubtful);
    pair.ways[1].set_open(true);
    pair.run_for(Duration::from_secs(1));
    assert_eq!(state(&mut pair, false, 1), PathState::Active);
}

#[test]
fn a_path_is_freed_although_the_peer_never_answers_its_abandonment() {
    let mut pair = connected(two_ways());
    // Whatever the server sends with PATH_ABANDON in it is lost.
    let seen = pair.watch(true);
    pair.swallow = Some(seen);
    let now = pair.now;
    pair.client_conn()
        .abandon_path(now, PathId(1), 7)
        .expect("an open path");
    pair.run_for(Duration::from_secs(3));
    assert!(pair.client_conn().path_stats(PathId(1)).is_none());
    assert!(
        pair.client_events
            .iter()
            .any(|(_, event)| { *event == Event::Path(PathNotice::Discarded { id: PathId(1) }) })
    );
}

#[test]
fn an_abandonment_is_repeated_until_the_peer_has_it() {
    let mut pair = connected(two_ways());
    pair.watch(false);
    pair.watch(true);
    pair.ways[0].up = false;
    pair.ways[1].up = false;
    let now = pair.now;
    pair.client_conn()
        .abandon_path(now, PathId(1), 7)
        .expect("an open path");
    pair.run_for(ms(100));
    pair.ways[0].up = true;
    pair.ways[1].up = true;
    pair.run_for(Duration::from_secs(5));
    let left: Vec<PathId> = pair.server_conn().paths().collect();
    assert_eq!(left, [PathId(0)], "{}", pair.report());
    pair.transfer(false, 100_000, Duration::from_secs(2));
}

#[test]
fn the_last_path_cannot_be_abandoned() {
    let mut pair = connected(two_ways());
    let now = pair.now;
    assert!(pair.client_conn().abandon_path(now, PathId(0), 0).is_ok());
    let client = pair.client_conn();
    let gone = client.abandon_path(now, PathId(0), 0);
    assert_eq!(gone, Err(AbandonPathError::Unknown));
    let last = client.abandon_path(now, PathId(1), 0);
    assert_eq!(last, Err(AbandonPathError::LastPath));
    pair.transfer(true, 200_000, Duration::from_secs(5));
    pair.transfer(false, 200_000, Duration::from_secs(5));
}

#[test]
fn a_path_cannot_be_abandoned_for_one_that_is_not_proven_yet() {
    let mut pair = Pair::new(two_ways(), TransportConfig::default());
    pair.connect();
    pair.run_for(ms(200));
    let (now, tuple) = (pair.now, pair.ways[1].client);
    let client = pair.client_conn();
    let id = client.open_path(now, tuple, PathOptions::default());
    assert_eq!(id, Ok(PathId(1)));
    assert!(client.abandon_path(now, PathId(0), 0).is_err());
    assert!(client.abandon_path(now, PathId(1), 0).is_ok());
}

#[test]
fn both_sides_giving_up_different_paths_end_the_connection_cleanly() {
    let mut pair = connected(two_ways());
    let now = pair.now;
    pair.client_conn()
        .abandon_path(now, PathId(0), 0)
        .expect("an open path");
    pair.server_conn()
        .abandon_path(now, PathId(1), 0)
        .expect("an open path");
    pair.run_for(Duration::from_secs(40));
    let ends =
        |events: &[(Instant, Event)]| events.iter().any(|(_, event)| *event == Event::Drained);
    assert!(ends(&pair.client_events), "{:?}", pair.client_events);
    assert!(ends(&pair.server_events), "{:?}", pair.server_events);
}

#[test]
fn a_path_opened_late_doubles_the_rate() {
    let mut pair = Pair::new(two_ways(), TransportConfig::default());
    pair.connect();
    let flow = pair.start(true, 20_000_000);
    pair.run_for(Duration::from_secs(2));
    let first = pair.flows[flow].received;
    pair.open_all();
    pair.run_for(ms(500));
    let before = pair.flows[flow].received;
    pair.run_for(Duration::from_secs(2));
    let second = pair.flows[flow].received - before;
    assert!(
        second * 10 > first * 17,
        "{first} bytes alone, {second} with a second path"
    );
}

#[test]
fn three_paths_carry_nearly_three_times_as_much_as_one() {
    let way = |index| Way::new(index).rate(10 * MBIT).queue_ms(50);
    let mut pair = Pair::new(vec![way(1), way(2), way(3)], TransportConfig::default());
    pair.connect();
    pair.open_all();
    let took = pair.transfer(true, 10_000_000, LIMIT).as_secs_f64();
    let rate = 10_000_000.0 / took / MBIT as f64;
    assert!(rate > 25.0, "{rate:.1} of 30 Mbit/s");
}

#[test]
fn two_path_ids_may_share_a_tuple() {
    let way = |index| Way::new(index).rate(20 * MBIT).queue_ms(50);
    let mut pair = Pair::new(vec![way(1)], TransportConfig::default());
    pair.connect();
    let id = pair.open_path(0);
    assert_eq!(id, PathId(1));
    let took = pair.transfer(true, 3_000_000, LIMIT);
    assert!(took < Duration::from_secs(2), "{took:?}");
    let now = pair.now;
    pair.client_conn()
        .abandon_path(now, PathId(0), 0)
        .expect("an open path");
    pair.transfer(false, 1_000_000, LIMIT);
}

#[test]
fn a_path_opened_into_nothing_is_given_up_without_harm() {
    let mut pair = Pair::new(two_ways(), TransportConfig::default());
    pair.connect();
    pair.run_for(ms(200));
    pair.ways[1].set_open(false);
    let (now, tuple) = (pair.now, pair.ways[1].client);
    let id = pair
        .client_conn()
        .open_path(now, tuple, PathOptions::default())
        .expect("room for a path");
    let took = pair.transfer(true, 2_000_000, LIMIT);
    assert!(took < Duration::from_secs(2), "{took:?}");
    pair.run_for(Duration::from_secs(10));
    assert!(
        pair.client_conn().path_stats(id).is_none(),
        "{}",
        pair.report()
    );
    pair.ways[1].set_open(true);
    assert!(pair.open_path(1) > id);
}

#[test]
fn a_path_follows_a_nat_that_changes_the_port() {
    rebind("10.0.1.1:2222");
}

#[test]
fn a_path_follows_a_nat_that_changes_the_address() {
    rebind("10.0.77.1:1000");
}

fn rebind(address: &str) {
    for (to_server, ways) in [(true, 1), (false, 1), (true, 2), (false, 2)] {
        let mut pair = connected(two_ways()[..ways].to_vec());
        let flow = pair.start(to_server, 6_000_000);
        pair.run_for(ms(400));
        pair.ways[0].server.remote = address.parse().expect("an address");
        pair.finish(flow, Duration::from_secs(6));
        pair.run_for(Duration::from_secs(1));
        let stats = pair.server_conn().path_stats(PathId(0)).expect("path 0");
        assert_eq!(stats.tuple.remote, pair.ways[0].server.remote);
        assert!(
            stats.validated && stats.state == PathState::Active,
            "{stats:?}"
        );
        pair.transfer(to_server, 500_000, Duration::from_secs(3));
    }
}

#[test]
fn a_new_address_that_is_cut_off_for_two_seconds_is_asked_again_in_time() {
    let mut pair = connected(two_ways()[..1].to_vec());
    pair.transfer(false, 500_000, Duration::from_secs(3));
    pair.ways[0].server.remote = "10.0.77.1:1000".parse().expect("an address");
    pair.ways[0].down = false;
    pair.client_conn().ping(PathId(0)).expect("path 0");
    pair.run_for(ms(2_200));
    pair.ways[0].down = true;
    pair.run_for(ms(600));
    let stats = pair.server_conn().path_stats(PathId(0)).expect("path 0");
    assert_eq!(stats.tuple.remote, pair.ways[0].server.remote);
    assert!(stats.validated, "{stats:?}");
}

#[test]
fn an_application_that_pings_does_not_keep_lost_data_from_being_repeated() {
    let mut pair = connected(two_ways()[..1].to_vec());
    pair.ways[0].set_open(false);
    let flow = pair.start(true, 1000);
    pair.run_for(Duration::from_secs(5));
    // Nothing comes back, so no acknowledgement tells that the data was lost.
    pair.ways[0].up = true;
    let received = |pair: &Pair| pair.flows[flow].received;
    assert_eq!(received(&pair), 0);
    for _ in 0..15 {
        pair.client_conn().ping(PathId(0)).expect("path 0");
        pair.run_for(Duration::from_secs(1));
    }
    assert_eq!(received(&pair), 1000, "{}", pair.report());
}

#[test]
fn a_spoofed_source_does_not_move_a_path_for_long() {
    for to_server in [true, false] {
        let mut pair = connected(two_ways());
        let flow = pair.start(to_server, 8_000_000);
        pair.run_for(ms(400));
        // Somebody on the way forwards one packet after another from an address that is not there.
        let honest = pair.ways[0].server.remote;
        pair.ways[0].server.remote = "10.9.9.9:999".parse().expect("an address");
        pair.run_for(ms(2));
        pair.ways[0].server.remote = honest;
        pair.finish(flow, Duration::from_secs(8));
        pair.run_for(Duration::from_secs(3));
        let stats = pair.server_conn().path_stats(PathId(0)).expect("path 0");
        assert_eq!(stats.tuple.remote, honest, "{}", pair.report());
        pair.transfer(to_server, 500_000, Duration::from_secs(3));
    }
}

#[test]
fn a_path_falls_back_when_the_new_address_never_answers() {
    let mut pair = connected(two_ways());
    // The new address sends but cannot be reached: a one-way forwarder.
    let honest = pair.ways[0].server.remote;
    let mut forwarder = pair.ways[0].clone();
    forwarder.server.remote = "10.9.9.9:999".parse().expect("an address");
    pair.ways.insert(0, forwarder);
    pair.ways[0].down = false;
    let flow = pair.start(true, 3_000_000);
    pair.run_for(ms(300));
    pair.ways.remove(0);
    pair.finish(flow, Duration::from_secs(8));
    pair.run_for(Duration::from_secs(5));
    let stats = pair.server_conn().path_stats(PathId(0)).expect("path 0");
    assert_eq!(stats.tuple.remote, honest, "{}", pair.report());
    pair.transfer(false, 500_000, Duration::from_secs(3));
}

#[test]
fn keys_may_change_while_packets_of_two_paths_overtake_each_other() {
    for to_server in [true, false] {
        let mut ways = two_ways();
        ways[1].delay = ms(60);
        for way in &mut ways {
            (way.late, way.jitter) = (200, ms(15));
        }
        let mut pair = connected(ways);
        let flow = pair.start(to_server, 8_000_000);
        let mut updates = 0;
        while !pair.flows[flow].is_done() {
            pair.run_for(ms(150));
            let now = pair.now;
            let side = updates % 2 == 0;
            if let Some(connection) = pair.side(side) {
                updates += u64::from(connection.update_keys(now).is_ok());
            }
            assert!(
                now.since(pair.flows[flow].started) < LIMIT,
                "{}",
                pair.report()
            );
        }
        assert!(updates >= 3, "{updates} updates");
        pair.run_for(Duration::from_secs(2));
        let counted = [false, true].map(|side| pair.side(side).map(|c| c.stats().keys_updated));
        // The last one may have come to one side only: nothing was left to send.
        assert!(
            counted.iter().all(|count| *count >= Some(updates - 1)),
            "{updates}: {counted:?}"
        );
        let dropped =
            pair.client_conn().stats().packets_dropped + pair.server_conn().stats().packets_dropped;
        assert!(dropped < 10, "{dropped} packets could not be read");
    }
}

/// A peer that acknowledges everything on the path with the lowest ID, as noq does.
fn with_stubborn_server() -> Pair {
    connected_to(TransportConfig {
        ack_return: AckReturn::LowestId,
        ..TransportConfig::default()
    })
}

#[test]
fn a_dead_path_is_abandoned_when_the_peer_acknowledges_nowhere_else() {
    let mut pair = with_stubborn_server();
    let flow = pair.start(true, 6_000_000);
    pair.run_for(ms(500));
    let at = pair.now;
    pair.ways[0].set_open(false);
    pair.finish(flow, LIMIT);
    let gap = pair.flows[flow].longest_gap(at);
    println!("longest gap {gap:?}");
    assert!(gap < Duration::from_secs(3), "{gap:?}");
    let abandoned = |notice: &PathNotice| match notice {
        PathNotice::Abandoned { id, .. } => *id == PathId::ZERO,
        _ => false,
    };
    assert!(pair.has_notice(abandoned));
    assert_eq!(state(&mut pair, false, 1), PathState::Active);
}

#[test]
fn no_path_is_abandoned_while_all_of_them_are_silent() {
    for mut pair in [connected(two_ways()), with_stubborn_server()] {
        let flow = pair.start(true, 6_000_000);
        pair.run_for(ms(500));
        for way in &mut pair.ways {
            way.set_open(false);
        }
        pair.run_for(Duration::from_secs(12));
        for way in &mut pair.ways {
            way.set_open(true);
        }
        let healed = pair.now;
        pair.finish(flow, LIMIT);
        let gap = pair.flows[flow].longest_gap(healed);
        assert!(gap < Duration::from_secs(3), "{gap:?}");
        assert!(!pair.has_notice(|notice| matches!(notice, PathNotice::Abandoned { .. })));
    }
}

#[test]
fn a_chosen_way_back_that_dies_does_not_stop_a_transfer() {
    for ack_return in [
        AckReturn::LowestRtt,
        AckReturn::Path(PathId(0)),
        AckReturn::Path(PathId(1)),
    ] {
        for dies in [0, 1] {
            let mut pair = connected_to(TransportConfig {
                ack_return,
                ..TransportConfig::default()
            });
            let flow = pair.start(true, 4_000_000);
            pair.run_for(ms(500));
            let at = pair.now;
            // Packets arrive, acknowledgements do not.
            pair.ways[dies].down = false;
            pair.finish(flow, LIMIT);
            let gap = pair.flows[flow].longest_gap(at);
            println!("{ack_return:?}, way {dies}: longest gap {gap:?}");
            assert!(gap < Duration::from_secs(3), "{gap:?}");
        }
    }
}

#[test]
fn a_path_slower_than_the_probe_interval_is_not_doubted_while_it_answers() {
    // As by satellite: a round trip of 700 ms.
    let ways = vec![Way::new(1).delay(10), Way::new(2).delay(350)];
    let mut pair = connected(ways);
    pair.run_for(Duration::from_secs(5));
    for _ in 0..10 {
        pair.client_conn().ping(PathId(1)).expect("an open path");
        pair.run_for(Duration::from_secs(2));
    }
    let doubted = |notice: &PathNotice| matches!(notice, PathNotice::Doubted { .. });
    assert!(!pair.has_notice(doubted), "{}", pair.report());
}
