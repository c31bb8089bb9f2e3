//! Transport parameters, empty connection IDs and amplification while the handshake lasts, and what
//! confirms it.

use super::{BOTH, ZERO, assert_closed};
use crate::raw::{Packet, RawPeer, Setup, encode, route};
use anabranch_proto::event::Level;
use anabranch_proto::path::PathOptions;
use anabranch_proto::wire::frame::Frame;
use anabranch_proto::wire::params::TransportParameters;
use anabranch_proto::wire::{ConnectionId, PathId, Side, TransportErrorCode as Code};
use std::time::Duration;

fn shaken(victim: Side, setup: Setup) -> RawPeer {
    let mut peer = if victim.is_server() {
        RawPeer::client(setup)
    } else {
        RawPeer::server(setup)
    };
    peer.receive();
    peer.shake();
    peer
}

#[track_caller]
fn assert_refused(victim: Side, params: fn(&mut TransportParameters), extra: &[u8]) {
    let setup = Setup {
        params,
        extra_params: extra.to_vec(),
        ..Setup::default()
    };
    assert_closed(&shaken(victim, setup), Code::TRANSPORT_PARAMETER_ERROR);
}

#[test]
fn a_parameter_given_twice_is_an_error() {
    for victim in BOTH {
        // initial_max_path_id, initial_max_data and one nobody knows.
        assert_refused(victim, |_| {}, &[0x3e, 1, 3]);
        assert_refused(victim, |_| {}, &[0x04, 1, 3]);
        assert_refused(victim, |_| {}, &[0x1f, 0, 0x1f, 0]);
    }
}

#[test]
fn a_path_limit_of_more_than_32_bits_is_an_error() {
    let large = [0x3e, 8, 0xc0, 0, 0, 1, 0, 0, 0, 0];
    for victim in BOTH {
        assert_refused(victim, |params| params.initial_max_path_id = None, &large);
    }
}

#[test]
fn parameters_outside_their_range_are_errors() {
    for victim in BOTH {
        let illegal: [&[u8]; 5] = [
            &[0x03, 2, 0x44, 0xaf],
            &[0x0a, 1, 21],
            &[0x0b, 4, 0x80, 0, 0x40, 0],
            &[0x3e, 2, 0x01, 0x02],
            &[0x3e, 1],
        ];
        for extra in illegal {
            assert_refused(victim, |params| params.initial_max_path_id = None, extra);
        }
        let fewest = |params: &mut TransportParameters| params.active_connection_id_limit = 2;
        assert_refused(victim, fewest, &[0x0e, 1, 1]);
    }
}

#[test]
fn a_client_must_not_send_parameters_of_servers() {
    let reset_token = [&[0x02, 16][..], &[9; 16]].concat();
    let retry_source = [0x10, 1, 0xaa];
    let original = [0x00, 1, 0xaa];
    let by_any_path = [0xa1, 0x6e, 0x61, 0x62, 0];
    for extra in [&reset_token[..], &retry_source, &original, &by_any_path] {
        assert_refused(Side::Server, |_| {}, extra);
    }
    let with_value = [0xa1, 0x6e, 0x61, 0x62, 1, 1];
    assert_refused(Side::Client, |_| {}, &with_value);
}

#[test]
fn connection_ids_in_the_parameters_are_those_of_the_packets() {
    for victim in BOTH {
        assert_refused(victim, |params| params.initial_source_cid = None, &[]);
        let wrong = |params: &mut TransportParameters| {
            params.initial_source_cid = ConnectionId::new(&[1, 2, 3]);
        };
        assert_refused(victim, wrong, &[]);
    }
    let wrong = |params: &mut TransportParameters| {
        params.original_dcid = ConnectionId::new(&[1, 2, 3]);
    };
    assert_refused(Side::Client, wrong, &[]);
    assert_refused(Side::Client, |params| params.original_dcid = None, &[]);
}

#[test]
fn parameters_nobody_knows_are_skipped() {
    for victim in BOTH {
        let setup = Setup {
            extra_params: vec![0x1f, 2, 7, 7],
            ..Setup::default()
        };
        let peer = shaken(victim, setup);
        assert_eq!(peer.ended(), None);
        assert!(peer.handshake.is_complete());
    }
}

#[test]
fn a_server_withholds_multipath_from_a_client_with_an_empty_connection_id() {
    let setup = Setup {
        cid: ConnectionId::new(&[]).expect("an empty connection ID"),
        ..Setup::default()
    };
    let mut peer = RawPeer::client(setup).establish();
    let params = peer.handshake.peer_params().expect("the parameters");
    let params = TransportParameters::decode(params, Side::Server).expect("legal parameters");
    assert_eq!(params.initial_max_path_id, None);
    assert_eq!(
        peer.connection().map(|victim| victim.has_multipath()),
        Some(false)
    );
    peer.assert_alive();
}

#[test]
fn multipath_from_a_peer_with_an_empty_connection_id_is_a_violation() {
    for victim in BOTH {
        let setup = Setup {
            cid: ConnectionId::new(&[]).expect("an empty connection ID"),
            params: |params| params.initial_max_path_id = Some(ZERO),
            ..Setup::default()
        };
        assert_closed(&shaken(victim, setup), Code::PROTOCOL_VIOLATION);
    }
}

#[test]
fn a_peer_with_an_empty_connection_id_issues_no_others() {
    for victim in BOTH {
        let setup = Setup {
            cid: ConnectionId::new(&[]).expect("an empty connection ID"),
            ..Setup::default()
        };
        let mut peer = if victim.is_server() {
            RawPeer::client(setup)
        } else {
            RawPeer::server(setup)
        }
        .establish();
        let issued = crate::raw::encode_plain(&[crate::raw::new_cid(ZERO, 1, 0)]);
        peer.bytes(ZERO, &issued);
        assert_closed(&peer, Code::PROTOCOL_VIOLATION);
    }
}

#[test]
fn a_server_sends_three_times_what_it_received_and_no_more() {
    let mut peer = RawPeer::client(Setup::default());
    peer.send_crypto_at(Level::Initial);
    let tuple = peer.tuple;
    let mut received = 1200;
    peer.wait(Duration::from_secs(20));
    assert!(peer.bytes_to(tuple) > 0);
    assert!(
        peer.bytes_to(tuple) <= 3 * received,
        "{} bytes for {received}",
        peer.bytes_to(tuple)
    );
    // Garbage counts as received, but earns no more than three times its size.
    let dcid = peer.remote_cid(ZERO);
    for size in [40, 100, 700, 1200] {
        let mut garbage = vec![0xe5; size];
        garbage[1..5].copy_from_slice(&1_u32.to_be_bytes());
        garbage[5] = 8;
        garbage[6..14].copy_from_slice(dcid.as_slice());
        peer.deliver(tuple, &garbage);
        received += size;
        peer.wait(Duration::from_secs(3));
        assert!(peer.bytes_to(tuple) <= 3 * received);
    }
}

#[test]
fn an_acknowledgement_that_may_not_be_sent_does_not_wake_the_server_up() {
    let mut peer = RawPeer::client(Setup::default()).half_way();
    // Its repetitions use up what the first packet earned.
    peer.wait(Duration::from_secs(25));
    let tuple = peer.tuple;
    assert!(peer.bytes_to(tuple) > 3600 - 128);
    let mut ping = Packet::new(Level::Initial, encode(&[Frame::Ping]));
    ping.tuple = Some(route(Side::Server, 9));
    peer.send(ping);
    peer.wait(Duration::from_secs(2));
    assert!(peer.bytes_to(tuple) <= 3600);
}

#[test]
fn a_server_answers_no_initial_in_a_small_datagram() {
    let mut peer = RawPeer::client(Setup::default());
    let packet = Packet::new(Level::Initial, encode(&[Frame::Ping]));
    let bytes = peer.seal(&packet);
    let tuple = peer.tuple;
    peer.deliver(tuple, &bytes);
    assert_eq!((peer.sizes.len(), peer.handle), (0, None));
}

#[test]
fn a_small_datagram_with_an_initial_is_ignored_by_a_handshake_under_way_too() {
    let mut peer = RawPeer::client(Setup::default()).half_way();
    let breach = Packet::new(Level::Initial, encode(&[Frame::HandshakeDone]));
    let bytes = peer.seal(&breach);
    let tuple = peer.tuple;
    peer.deliver(tuple, &bytes);
    assert_eq!(peer.ended(), None);
}

#[test]
fn a_new_source_connection_id_in_the_handshake_is_ignored() {
    for victim in BOTH {
        let mut peer = if victim.is_server() {
            RawPeer::client(Setup::default())
        } else {
            RawPeer::server(Setup::default())
        }
        .half_way();
        peer.setup.cid = ConnectionId::new(b"another!").expect("eight bytes");
        peer.send(Packet::new(
            Level::Handshake,
            encode(&[Frame::HandshakeDone]),
        ));
        assert_eq!(peer.ended(), None);
    }
}

#[test]
fn a_client_needs_a_connection_id_of_eight_bytes_to_be_answered() {
    let mut peer = RawPeer::client(Setup::default());
    let mut packet = Packet::new(Level::Initial, encode(&[Frame::Ping]));
    packet.dcid = ConnectionId::new(b"seven..");
    peer.send(packet);
    assert_eq!((peer.sizes.len(), peer.handle), (0, None));
}

#[test]
fn a_server_speaks_before_the_address_is_proven_within_three_times_what_it_heard() {
    let mut peer = RawPeer::client(Setup::default());
    peer.send_crypto_at(Level::Initial);
    peer.inbox.clear();
    // The flight of the handshake has left; what it left of the budget is free.
    peer.provoke(50_000);
    let early = |peer: &RawPeer| peer.count(|frame| matches!(frame, Frame::Stream(_)));
    let tuple = peer.tuple;
    assert!(early(&peer) > 0, "0.5-RTT data");
    assert!(!peer.stats(ZERO).validated);
    let (to, from) = (peer.bytes_to(tuple), peer.bytes_from(tuple));
    assert!(to > 2 * from && to <= 3 * from, "{to} bytes for {from}");
    peer.wait(Duration::from_secs(2));
    assert!(peer.bytes_to(tuple) <= 3 * from);
    // More is earned by what is heard, whatever it says.
    let mut ping = Packet::new(Level::Initial, encode(&[Frame::Ping]));
    ping.tuple = Some(tuple);
    let before = early(&peer);
    peer.send(ping);
    assert!(early(&peer) > before);
    let (to, from) = (peer.bytes_to(tuple), peer.bytes_from(tuple));
    assert!(to <= 3 * from, "{to} bytes for {from}");
    // Everything arrives once the handshake is done.
    peer.shake();
    for _ in 0..50 {
        peer.ack_all();
        peer.wait(Duration::from_millis(30));
    }
    assert_eq!(peer.ended(), None);
    assert_eq!(peer.stats(ZERO).bytes_in_flight, 0);
    assert!(peer.stats(ZERO).validated);
}

#[test]
fn a_client_that_closes_half_way_says_so_at_both_levels_in_one_full_datagram() {
    for reason in [&b""[..], &[b'x'; 3000]] {
        let mut peer = RawPeer::server(Setup::default()).half_way();
        let now = peer.now;
        peer.sizes.clear();
        let victim = peer.connection().expect("the victim");
        victim.close(now, 7, reason);
        peer.receive();
        let close = |frame: &Frame<'_>| matches!(frame, Frame::ConnectionClose(_));
        let said = peer.inbox.iter().filter(|packet| packet.has(close));
        let said: Vec<_> = said.map(|packet| (packet.level, packet.datagram)).collect();
        assert_eq!(said, [(Level::Initial, 1200), (Level::Handshake, 1200)]);
        assert_eq!(peer.sizes.len(), 1);
    }
}

#[test]
fn a_client_that_closes_at_once_fills_its_datagram() {
    let mut peer = RawPeer::server(Setup::default());
    peer.receive();
    peer.inbox.clear();
    let now = peer.now;
    let victim = peer.connection().expect("the victim");
    victim.close(now, 7, b"changed my mind");
    peer.receive();
    let said: Vec<_> = peer
        .inbox
        .iter()
        .map(|packet| (packet.level, packet.datagram))
        .collect();
    assert_eq!(said, [(Level::Initial, 1200)]);
}

/// What is acknowledged on path 0 may have been 0-RTT packets, which a server reads before it is
/// complete (RFC 9001, section 4.1.2).
#[test]
fn an_acknowledgement_on_the_first_path_does_not_confirm_a_clients_handshake() {
    let mut peer = RawPeer::server(Setup::default());
    peer.shake();
    peer.provoke(1000);
    let is_confirmed = |peer: &mut RawPeer| peer.connection().expect("the victim").is_confirmed();
    let sent = peer.stats(ZERO).bytes_in_flight;
    assert!(sent > 1000);
    peer.ack_all();
    assert!(!is_confirmed(&mut peer));
    assert!(peer.stats(ZERO).bytes_in_flight < sent - 1000);
    // No 0-RTT packet goes on another path.
    peer.issue(PathId(1), 0);
    let (now, tuple) = (peer.now, route(Side::Client, 1));
    let victim = peer.connection().expect("the victim");
    let path = victim.open_path(now, tuple, PathOptions::default());
    assert_eq!(path, Ok(PathId(1)));
    peer.receive();
    assert!(!is_confirmed(&mut peer) && !peer.seen(PathId(1)).is_empty());
    peer.answer_challenges();
    assert!(is_confirmed(&mut peer));
}
