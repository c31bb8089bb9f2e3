//! Key updates between two complete handshakes.

use super::super::tests::{Pair, opened, sealed};
use super::*;
use crate::handshake::{Level, OpenError};

const THREE_PTO: Duration = Duration::from_millis(300);
const FAST: PathId = PathId(0);
const SLOW: PathId = PathId(1);

fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

fn ready() -> Pair {
    let mut pair = Pair::complete();
    pair.client.set_key_discard_delay(THREE_PTO);
    pair.server.set_key_discard_delay(THREE_PTO);
    pair
}

/// A packet from the client to the server, and the acknowledgement back, both on `path`.
fn round_trip(pair: &mut Pair, now: Instant, path: PathId, pn: u64) {
    let packet = sealed(&mut pair.client, path, pn);
    opened(&mut pair.server, now, path, packet).unwrap();
    let answer = sealed(&mut pair.server, path, pn);
    opened(&mut pair.client, now, path, answer).unwrap();
    pair.client.on_acked(path, pn);
}

fn fatal(result: Result<(), OpenError>) -> TransportErrorCode {
    match result {
        Err(OpenError::Fatal(error)) => error.code,
        other => panic!("expected a fatal error, got {other:?}"),
    }
}

#[test]
fn an_update_by_one_side_is_followed_by_the_other() {
    let mut pair = ready();
    round_trip(&mut pair, at(0), FAST, 0);
    pair.client.update_keys(at(300), THREE_PTO).unwrap();
    assert!(pair.client.key_phase() && !pair.server.key_phase());
    round_trip(&mut pair, at(301), FAST, 1);
    assert!(pair.server.key_phase());
    assert_eq!(
        (pair.client.keys_updated(), pair.server.keys_updated()),
        (1, 1)
    );
    round_trip(&mut pair, at(302), SLOW, 0);
}

#[test]
fn an_update_needs_an_acknowledgement_of_the_current_phase_on_any_path_and_three_ptos() {
    let mut pair = ready();
    let refused = Err(KeyUpdateRefused::Unacknowledged);
    assert_eq!(pair.client.update_keys(at(0), THREE_PTO), refused);
    round_trip(&mut pair, at(5), FAST, 0);
    assert_eq!(
        pair.client.update_keys(at(304), THREE_PTO),
        Err(KeyUpdateRefused::TooSoon)
    );
    let old = sealed(&mut pair.client, SLOW, 0);
    pair.client.update_keys(at(305), THREE_PTO).unwrap();
    // The acknowledgement of a packet from before the update confirms nothing.
    opened(&mut pair.server, at(306), SLOW, old).unwrap();
    pair.client.on_acked(SLOW, 0);
    pair.client.on_acked(FAST, 0);
    assert_eq!(pair.client.update_keys(at(9000), THREE_PTO), refused);
    round_trip(&mut pair, at(310), SLOW, 1);
    assert_eq!(
        pair.client.update_keys(at(609), THREE_PTO),
        Err(KeyUpdateRefused::TooSoon)
    );
    pair.client.update_keys(at(610), THREE_PTO).unwrap();
}

#[test]
fn late_packets_of_the_old_phase_open_on_a_slow_path_whatever_their_numbers() {
    let mut pair = ready();
    for pn in 0..3 {
        round_trip(&mut pair, at(0), FAST, pn);
    }
    // The slow path's numbers are far above the fast one's.
    let late: Vec<_> = (1000..1010)
        .map(|pn| sealed(&mut pair.client, SLOW, pn))
        .collect();
    pair.client.update_keys(at(300), THREE_PTO).unwrap();
    let new = sealed(&mut pair.client, SLOW, 1010);
    round_trip(&mut pair, at(310), FAST, 3);
    for packet in &late[..5] {
        opened(&mut pair.server, at(400), SLOW, packet.clone()).unwrap();
    }
    opened(&mut pair.server, at(401), SLOW, new).unwrap();
    for packet in &late[5..] {
        opened(&mut pair.server, at(402), SLOW, packet.clone()).unwrap();
    }
    assert_eq!(pair.server.failed_opens(), 0);
    assert_eq!(pair.server.keys_updated(), 1);
}

#[test]
fn old_receive_keys_go_three_ptos_after_the_first_packet_of_the_new_phase() {
    let mut pair = ready();
    round_trip(&mut pair, at(0), FAST, 0);
    let late = sealed(&mut pair.server, SLOW, 7);
    let too_late = sealed(&mut pair.server, SLOW, 8);
    pair.client.update_keys(at(300), THREE_PTO).unwrap();
    assert_eq!(
        pair.client.deadline(),
        None,
        "the peer has not followed yet"
    );
    round_trip(&mut pair, at(350), FAST, 1);
    assert_eq!(pair.client.deadline(), Some(at(650)));
    assert_eq!(pair.server.deadline(), Some(at(650)));
    round_trip(&mut pair, at(400), FAST, 2);
    assert_eq!(
        pair.server.deadline(),
        Some(at(650)),
        "only the first packet counts"
    );
    pair.client.handle_timeout(at(649));
    opened(&mut pair.client, at(649), SLOW, late).unwrap();
    assert_eq!(
        pair.client.deadline(),
        Some(at(650)),
        "a late packet extends nothing"
    );
    pair.client.handle_timeout(at(650));
    assert_eq!(pair.client.deadline(), None);
    let refused = opened(&mut pair.client, at(651), SLOW, too_late);
    assert_eq!(refused, Err(OpenError::Undecryptable));
}

#[test]
fn old_keys_after_new_ones_on_the_same_path_are_an_error() {
    for old_comes_last in [true, false] {
        let mut pair = ready();
        round_trip(&mut pair, at(0), FAST, 0);
        // A faulty client: the packet with the higher number is sealed with the older keys.
        let old = sealed(&mut pair.client, FAST, 9);
        pair.client.update_keys(at(300), THREE_PTO).unwrap();
        pair.client.forget_path(FAST);
        let new = sealed(&mut pair.client, FAST, 5);
        let (first, second) = if old_comes_last {
            (new, old)
        } else {
            (old, new)
        };
        opened(&mut pair.server, at(301), FAST, first).unwrap();
        let result = opened(&mut pair.server, at(302), FAST, second);
        assert_eq!(fatal(result), TransportErrorCode::KEY_UPDATE_ERROR);
    }
}

#[test]
fn a_second_update_before_anything_was_sent_in_the_first_is_an_error() {
    let mut pair = ready();
    round_trip(&mut pair, at(0), FAST, 0);
    pair.client.update_keys(at(300), THREE_PTO).unwrap();
    let first = sealed(&mut pair.client, FAST, 1);
    pair.client.one_rtt.as_mut().unwrap().force_update();
    let second = sealed(&mut pair.client, FAST, 2);
    opened(&mut pair.server, at(301), FAST, first).unwrap();
    let result = opened(&mut pair.server, at(302), FAST, second);
    assert_eq!(fatal(result), TransportErrorCode::KEY_UPDATE_ERROR);
}

#[test]
fn forged_packets_change_nothing_but_the_counter() {
    let mut pair = ready();
    round_trip(&mut pair, at(0), FAST, 0);
    for key_phase in [false, true] {
        let mut forged = vec![0x43; 60];
        let server = &mut pair.server;
        let result = server.open(at(1), Level::OneRtt, SLOW, 77, key_phase, &mut forged, 13);
        assert_eq!(result, Err(OpenError::Undecryptable));
    }
    assert_eq!(pair.server.failed_opens(), 2);
    assert_eq!(
        (pair.server.keys_updated(), pair.server.deadline()),
        (0, None)
    );
    let keys = pair.server.one_rtt.as_ref().unwrap();
    assert!(
        !keys.paths.contains_key(&SLOW),
        "no state for a path that sent nothing genuine"
    );
    round_trip(&mut pair, at(2), FAST, 1);
    round_trip(&mut pair, at(2), SLOW, 0);
}

#[test]
fn a_forged_phase_bit_right_after_an_update_changes_nothing() {
    let mut pair = ready();
    round_trip(&mut pair, at(0), FAST, 0);
    pair.client.update_keys(at(300), THREE_PTO).unwrap();
    round_trip(&mut pair, at(301), FAST, 1);
    let before = pair.server.deadline();
    for pn in [0, 1, 50] {
        for path in [FAST, SLOW] {
            let mut forged = vec![0x43; 60];
            let result = pair
                .server
                .open(at(302), Level::OneRtt, path, pn, false, &mut forged, 13);
            assert_eq!(result, Err(OpenError::Undecryptable));
        }
    }
    assert_eq!(
        (pair.server.keys_updated(), pair.server.deadline()),
        (1, before)
    );
    assert_eq!(pair.server.failed_opens(), 6);
    round_trip(&mut pair, at(303), FAST, 2);
}

#[test]
fn the_confidentiality_limit_counts_packets_of_all_paths_and_starts_anew_with_new_keys() {
    let mut pair = ready();
    round_trip(&mut pair, at(0), FAST, 0);
    let keys = pair.client.one_rtt.as_mut().unwrap();
    let limit = keys.local.confidentiality_limit();
    keys.sent = limit / 2 - 2;
    sealed(&mut pair.client, FAST, 1);
    assert!(!pair.client.needs_key_update());
    sealed(&mut pair.client, SLOW, 1);
    assert!(pair.client.needs_key_update());

    pair.client.one_rtt.as_mut().unwrap().sent = limit - 2;
    sealed(&mut pair.client, FAST, 2);
    sealed(&mut pair.client, SLOW, 2);
    let mut packet = vec![0; 40];
    let result = pair
        .client
        .seal(Level::OneRtt, FAST, 3, &mut packet, 0, 9, 4);
    assert_eq!(
        result.unwrap_err().code,
        TransportErrorCode::AEAD_LIMIT_REACHED
    );
    pair.client.update_keys(at(300), THREE_PTO).unwrap();
    assert!(!pair.client.needs_key_update());
    round_trip(&mut pair, at(301), FAST, 4);
}

#[test]
fn the_integrity_limit_counts_failures_of_all_paths_and_levels() {
    let mut pair = ready();
    let limit = pair.server.one_rtt.as_ref().unwrap().integrity_limit();
    pair.server.failed_opens = limit - 2;
    let mut forge = |level, path| {
        pair.server
            .open(at(0), level, path, 5, false, &mut [0x40; 60], 13)
            .unwrap_err()
    };
    assert_eq!(forge(Level::Handshake, FAST), OpenError::Undecryptable);
    assert_eq!(forge(Level::OneRtt, FAST), OpenError::Undecryptable);
    let OpenError::Fatal(error) = forge(Level::OneRtt, SLOW) else {
        panic!("not fatal")
    };
    assert_eq!(error.code, TransportErrorCode::AEAD_LIMIT_REACHED);
}

#[test]
fn a_packet_number_is_not_sealed_twice_on_a_path() {
    let mut pair = ready();
    sealed(&mut pair.client, FAST, 4);
    sealed(&mut pair.client, SLOW, 4);
    for pn in [4, 3] {
        let result = pair
            .client
            .seal(Level::OneRtt, FAST, pn, &mut vec![0; 40], 0, 9, 4);
        assert_eq!(result.unwrap_err().code, TransportErrorCode::INTERNAL_ERROR);
    }
}

#[test]
fn both_sides_may_update_at_once() {
    let mut pair = ready();
    round_trip(&mut pair, at(0), FAST, 0);
    pair.server.on_acked(FAST, 0);
    let late = sealed(&mut pair.client, SLOW, 0);
    pair.client.update_keys(at(400), THREE_PTO).unwrap();
    pair.server.update_keys(at(400), THREE_PTO).unwrap();
    round_trip(&mut pair, at(401), FAST, 1);
    opened(&mut pair.server, at(402), SLOW, late).unwrap();
    assert_eq!(
        (pair.client.keys_updated(), pair.server.keys_updated()),
        (1, 1)
    );
}
