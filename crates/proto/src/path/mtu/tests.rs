//! Tests: what `mtu` promises, one behaviour each.

use super::*;
use proptest::prelude::*;

fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

fn up_to(max: u16) -> MtuDiscovery {
    MtuDiscovery::new(
        1200,
        MtuConfig {
            max,
            ..MtuConfig::default()
        },
    )
}

/// The next probe, after a packet of full size arrived.
fn poll(mtu: &mut MtuDiscovery, now: Instant) -> Option<u16> {
    mtu.resume(now, mtu.current());
    mtu.probe_due()
}

/// Probes until the search settles, on a route that carries `carries` bytes; returns the probes.
fn settle(mtu: &mut MtuDiscovery, carries: u16, now: Instant) -> Vec<u16> {
    let mut probes = Vec::new();
    while let Some(size) = poll(mtu, now) {
        let pn = probes.len() as u64;
        mtu.on_probe_sent(now, size, pn);
        assert_eq!(poll(mtu, now), None, "one probe at a time");
        if size <= carries {
            assert_eq!(mtu.on_probe_acked(size), Some(size));
        } else {
            mtu.on_probe_lost(pn);
        }
        probes.push(size);
        assert!(probes.len() < 100, "the search does not end");
    }
    probes
}

#[test]
fn a_route_that_carries_the_maximum_takes_one_probe() {
    for max in [1452, 65_000] {
        let mut mtu = up_to(max);
        assert_eq!(mtu.current(), 1200);
        assert_eq!(settle(&mut mtu, max, at(0)), [max]);
        assert_eq!(mtu.current(), max);
    }
}

#[test]
fn a_search_that_is_held_begins_with_the_answer_to_what_was_sent_since() {
    let mut mtu = up_to(1452);
    mtu.hold_until_acked(7);
    mtu.on_acked(1200, 6);
    assert_eq!(mtu.probe_due(), None);
    mtu.on_acked(100, 8);
    assert_eq!(mtu.probe_due(), Some(1452));
}

#[test]
fn a_single_lost_probe_does_not_rule_its_size_out() {
    let mut mtu = up_to(1452);
    for pn in 0..2 {
        mtu.on_probe_sent(at(0), poll(&mut mtu.clone(), at(0)).unwrap(), pn);
        mtu.on_probe_lost(pn);
    }
    assert_eq!(poll(&mut mtu, at(0)), Some(1452));
    mtu.on_probe_sent(at(0), 1452, 2);
    assert_eq!(mtu.on_probe_acked(1452), Some(1452));
}

#[test]
fn losing_all_probes_leaves_the_size_that_worked() {
    let mut mtu = up_to(1452);
    let probes = settle(&mut mtu, 1200, at(0));
    assert_eq!(mtu.current(), 1200);
    assert!(probes.len() <= 15, "{probes:?}");
}

#[test]
fn a_settled_search_starts_over_after_ten_minutes() {
    let mut mtu = up_to(1452);
    settle(&mut mtu, 1300, at(5));
    assert_eq!(poll(&mut mtu, at(600_004)), None);
    assert_eq!(poll(&mut mtu, at(600_005)), Some(1452));
}

#[test]
fn nothing_is_sent_beyond_what_the_peer_receives() {
    let mut mtu = up_to(1452);
    settle(&mut mtu, 1452, at(0));
    mtu.set_peer_limit(1350);
    assert_eq!(mtu.current(), 1350);
    assert_eq!(poll(&mut mtu, at(0)), None);
    mtu.set_peer_limit(7);
    assert_eq!(mtu.current(), 1200);
    let mut early = up_to(65_000);
    early.set_peer_limit(u64::MAX);
    assert_eq!(poll(&mut early, at(0)), Some(65_000));
}

#[test]
fn impossible_settings_are_read_as_the_nearest_possible_ones() {
    let config = MtuConfig {
        min: 100,
        max: 500,
        ..MtuConfig::default()
    };
    let mut mtu = MtuDiscovery::new(9000, config);
    assert_eq!((mtu.current(), mtu.safe_size()), (1200, 1200));
    assert_eq!(poll(&mut mtu, at(0)), None);
}

#[test]
fn full_packets_vanishing_in_three_rounds_are_a_black_hole() {
    let mut mtu = up_to(1452);
    settle(&mut mtu, 1452, at(0));
    assert_eq!(mtu.on_lost(at(100), 1452, 10, at(50)), None);
    assert_eq!(mtu.on_lost(at(100), 1452, 11, at(51)), None);
    mtu.on_acked(1100, 12);
    assert_eq!(mtu.on_lost(at(200), 1452, 13, at(150)), None);
    mtu.on_acked(1200, 14);
    assert_eq!(mtu.on_lost(at(300), 1452, 15, at(250)), Some(1200));
    assert_eq!(mtu.current(), 1200);
}

#[test]
fn a_search_below_the_vanished_size_follows_a_black_hole() {
    let mut mtu = up_to(1452);
    settle(&mut mtu, 1452, at(0));
    for round in 1..=3 {
        mtu.on_lost(at(round * 100), 1452, round, at(round * 100 - 10));
    }
    settle(&mut mtu, 1400, at(400));
    assert!((1385..=1400).contains(&mtu.current()), "{}", mtu.current());
    assert_eq!(poll(&mut mtu, at(600_000)), None);
    assert_eq!(poll(&mut mtu, at(600_400)), Some(1452));
}

#[test]
fn a_silent_path_that_comes_back_is_no_black_hole() {
    let mut mtu = up_to(1452);
    settle(&mut mtu, 1452, at(0));
    for pn in 0..500 {
        assert_eq!(mtu.on_lost(at(3000 + pn), 1452, pn, at(pn)), None);
    }
    assert_eq!(mtu.current(), 1452);
}

#[test]
fn heavy_loss_among_successes_is_no_black_hole() {
    let mut mtu = up_to(1452);
    settle(&mut mtu, 1452, at(0));
    for round in 0..100 {
        let now = at(round * 100 + 99);
        assert_eq!(
            mtu.on_lost(now, 1452, round * 10 + 1, at(round * 100)),
            None
        );
        mtu.on_acked(1452, round * 10 + 2);
    }
}

#[test]
fn success_of_smaller_or_earlier_packets_does_not_hide_a_black_hole() {
    let mut mtu = up_to(1452);
    settle(&mut mtu, 1452, at(0));
    let mut lowered = None;
    for round in 1..=3 {
        lowered = mtu.on_lost(at(round * 100), 1452, round * 10, at(round * 100 - 50));
        mtu.on_acked(1400, round * 10 + 1);
        mtu.on_acked(1452, round * 10 - 1);
    }
    assert_eq!(lowered, Some(1200));
}

#[test]
fn small_packets_that_are_lost_mean_nothing() {
    let mut mtu = up_to(1452);
    settle(&mut mtu, 1452, at(0));
    for round in 1..100 {
        assert_eq!(
            mtu.on_lost(at(round * 100), 1200, round, at(round * 100 - 50)),
            None
        );
    }
}

#[test]
fn a_probe_answered_after_a_black_hole_changes_nothing() {
    let mut mtu = up_to(9000);
    mtu.on_probe_sent(at(0), 9000, 0);
    mtu.on_probe_acked(9000);
    for round in 1..=3 {
        mtu.on_lost(at(round * 100), 9000, round, at(round * 100 - 50));
    }
    assert_eq!(mtu.on_probe_acked(9000), None);
    assert_eq!(mtu.current(), 1200);
}

proptest! {
    #[test]
    fn a_search_comes_within_its_granularity_of_what_the_route_carries(
        carries in 1200u16..=65_000,
        max in 1200u16..=65_000,
    ) {
        let mut mtu = up_to(max);
        settle(&mut mtu, carries, at(0));
        let best = carries.min(max);
        prop_assert!(mtu.current() <= best);
        prop_assert!(best - mtu.current() <= GRANULARITY, "{} of {best}", mtu.current());
    }
}

#[test]
fn a_packet_of_ethernet_holds_more_over_the_shorter_header_of_ipv4() {
    let towards = |remote: &str| MtuConfig::ETHERNET.towards(remote.parse().unwrap()).max;
    assert_eq!(towards("192.0.2.1"), 1472);
    assert_eq!(towards("::ffff:192.0.2.1"), 1472);
    assert_eq!(towards("2001:db8::1"), 1452);
    let wide = MtuConfig {
        max: 8952,
        ..MtuConfig::ETHERNET
    };
    assert_eq!(wide.towards("192.0.2.1".parse().unwrap()).max, 8952);
}
