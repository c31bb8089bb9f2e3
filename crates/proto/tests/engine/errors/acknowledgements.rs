//! The rules of draft-ietf-quic-ack-frequency: what ends a connection, what is obeyed, what is
//! asked for.

use super::{BOTH, ZERO, assert_closed};
use crate::raw::{Packet, RawPeer, Received, Setup, encode};
use anabranch_proto::config::{AckFrequency as Settings, TransportConfig};
use anabranch_proto::wire::frame::{AckFrequency, Frame};
use anabranch_proto::wire::params::TransportParameters;
use anabranch_proto::wire::{PathId, Side, TransportErrorCode as Code};
use std::time::Duration;

/// Changes the peer's parameters.
type Change = fn(&mut TransportParameters);

/// Asks to be acknowledged, but is no lone PING, which would be answered at once.
const ELICITING: Frame<'static> = Frame::MaxData { limit: 0 };

fn wish(sequence: u64, threshold: u64, micros: u64) -> Frame<'static> {
    Frame::AckFrequency(AckFrequency {
        sequence,
        ack_eliciting_threshold: threshold,
        max_ack_delay_us: micros,
        reordering_threshold: 3,
    })
}

/// A victim with these settings, and a peer with these parameters.
fn with(victim: Side, settings: Settings, params: Change) -> RawPeer {
    let setup = Setup {
        transport: TransportConfig {
            ack_frequency: settings,
            ..TransportConfig::default()
        },
        params,
        ..Setup::default()
    };
    if victim.is_server() {
        RawPeer::client(setup).establish()
    } else {
        RawPeer::server(setup).establish()
    }
}

fn takes_requests(params: &mut TransportParameters) {
    params.min_ack_delay_us = Some(1000);
}

/// Acknowledgements of a path among what was received since the last look.
fn acks(peer: &mut RawPeer, of: PathId) -> usize {
    let count = peer.count(|frame| matches!(frame, Frame::Ack(ack) if ack.path == of));
    peer.inbox.clear();
    count
}

fn is_immediate(frame: &Frame<'_>) -> bool {
    matches!(frame, Frame::ImmediateAck)
}

#[test]
fn frames_about_acknowledgements_that_were_not_invited_are_encoding_errors() {
    let settings = Settings {
        accept: false,
        ..Settings::default()
    };
    for victim in BOTH {
        for frame in [wish(0, 1, 25_000), Frame::ImmediateAck] {
            let mut peer = with(victim, settings, |_| {});
            peer.frames(ZERO, &[frame]);
            assert_closed(&peer, Code::FRAME_ENCODING_ERROR);
        }
    }
}

#[test]
fn a_delay_that_is_too_short_or_too_long_to_ask_for_is_a_violation() {
    for victim in BOTH {
        for micros in [0, 999, 16_384_000, (1 << 62) - 1] {
            let mut peer = RawPeer::against(victim);
            peer.frames(ZERO, &[wish(0, 1, micros)]);
            assert_closed(&peer, Code::PROTOCOL_VIOLATION);
        }
        for micros in [1000, 16_383_999] {
            let mut peer = RawPeer::against(victim);
            peer.frames(ZERO, &[wish(0, 1, micros)]);
            peer.assert_alive();
        }
    }
}

#[test]
fn a_shortest_delay_above_the_longest_is_a_parameter_error() {
    for victim in BOTH {
        let setup = Setup {
            params: |params| params.min_ack_delay_us = Some(25_001),
            ..Setup::default()
        };
        let mut peer = if victim.is_server() {
            RawPeer::client(setup)
        } else {
            RawPeer::server(setup)
        };
        peer.shake();
        assert_closed(&peer, Code::TRANSPORT_PARAMETER_ERROR);
    }
}

#[test]
fn the_newest_request_is_obeyed_and_older_ones_are_not() {
    for victim in BOTH {
        let mut peer = RawPeer::against(victim);
        peer.frames(ZERO, &[wish(5, 0, 25_000)]);
        assert!(acks(&mut peer, ZERO) > 0, "the request itself is counted");
        for stale in [5, 4, 0] {
            peer.frames(ZERO, &[wish(stale, 100, 25_000)]);
            assert_eq!(acks(&mut peer, ZERO), 1, "{victim:?}: request {stale}");
        }
        peer.frames(ZERO, &[wish(6, 2, 25_000)]);
        let due: Vec<usize> = (0..6)
            .map(|_| {
                peer.frames(ZERO, &[ELICITING]);
                acks(&mut peer, ZERO)
            })
            .collect();
        assert_eq!(due, [0, 1, 0, 0, 1, 0], "{victim:?}: every third packet");
    }
}

#[test]
fn a_request_for_hardly_any_acknowledgements_is_granted_within_bounds() {
    for victim in BOTH {
        let mut peer = RawPeer::against(victim);
        let greedy = Frame::AckFrequency(AckFrequency {
            sequence: (1 << 62) - 1,
            ack_eliciting_threshold: (1 << 62) - 1,
            max_ack_delay_us: 16_383_999,
            reordering_threshold: (1 << 62) - 1,
        });
        peer.frames(ZERO, &[greedy]);
        peer.wait(Duration::from_millis(900));
        assert_eq!(acks(&mut peer, ZERO), 0);
        peer.wait(Duration::from_millis(200));
        assert_eq!(acks(&mut peer, ZERO), 1, "after a second at the latest");
    }
}

#[test]
fn a_request_holds_on_every_path_and_on_those_that_are_opened_later() {
    let mut peer = RawPeer::connected_client();
    let one = peer.open_path(PathId(1), 1);
    peer.frames(ZERO, &[wish(0, 3, 400_000)]);
    let two = peer.open_path(PathId(2), 2);
    for (path, tuple) in [(1, one), (2, two)] {
        peer.wait(Duration::from_millis(500));
        peer.inbox.clear();
        let due: Vec<usize> = (0..4)
            .map(|_| {
                let mut packet = Packet::one_rtt(PathId(path), encode(&[ELICITING]));
                packet.tuple = Some(tuple);
                peer.send(packet);
                acks(&mut peer, PathId(path))
            })
            .collect();
        assert_eq!(due, [0, 0, 0, 1], "path {path}");
    }
}

#[test]
fn immediate_ack_is_answered_at_once() {
    for victim in BOTH {
        let mut peer = RawPeer::against(victim);
        peer.wait(Duration::from_millis(50));
        peer.inbox.clear();
        peer.frames(ZERO, &[ELICITING]);
        assert_eq!(acks(&mut peer, ZERO), 0, "a packet alone may wait");
        peer.wait(Duration::from_millis(50));
        peer.inbox.clear();
        peer.frames(ZERO, &[ELICITING, Frame::ImmediateAck, Frame::ImmediateAck]);
        assert_eq!(acks(&mut peer, ZERO), 1);
    }
}

#[test]
fn probes_ask_for_an_answer_at_once_where_the_peer_understands_it() {
    let silent = Settings {
        immediate: false,
        ..Settings::default()
    };
    let cases: [(Settings, Change, bool); 3] = [
        (Settings::default(), takes_requests, true),
        (Settings::default(), |_| {}, false),
        (silent, takes_requests, false),
    ];
    for victim in BOTH {
        for (settings, params, expected) in cases {
            let mut peer = with(victim, settings, params);
            peer.provoke(100);
            assert_eq!(peer.count(is_immediate), 0, "data alone does not ask");
            peer.wait(Duration::from_secs(2));
            assert_eq!(peer.count(is_immediate) > 0, expected, "{victim:?}");
            peer.ack_all();
            peer.assert_alive();
        }
    }
}

#[test]
fn the_challenge_of_a_new_path_asks_for_an_answer_at_once() {
    let mut peer = with(Side::Server, Settings::default(), takes_requests);
    peer.open_path(PathId(1), 1);
    let challenges = peer.inbox.iter().filter(|got| {
        got.path == PathId(1) && got.has(|frame| matches!(frame, Frame::PathChallenge { .. }))
    });
    let asking = challenges.filter(|got| got.has(is_immediate));
    assert!(asking.count() > 0);
}

/// Also gives the victim all the credit it can use.
fn generous(params: &mut TransportParameters) {
    takes_requests(params);
    params.initial_max_data = 1 << 30;
    params.initial_max_streams_uni = 100;
}

/// Lets the victim send until its window is wide, acknowledging everything.
fn grow(peer: &mut RawPeer) -> Vec<AckFrequency> {
    let mut wishes = Vec::new();
    for _ in 0..12 {
        peer.provoke(60_000);
        for _ in 0..6 {
            peer.wait(Duration::from_millis(20));
            peer.ack_all();
        }
        for received in std::mem::take(&mut peer.inbox) {
            for frame in received.frames() {
                if let Frame::AckFrequency(wish) = frame {
                    wishes.push(wish);
                }
            }
        }
    }
    wishes
}

#[test]
fn a_wide_window_asks_for_fewer_acknowledgements_of_a_peer_that_takes_requests() {
    let settings = Settings {
        most_packets: Some(16),
        ..Settings::default()
    };
    for victim in BOTH {
        let wishes = grow(&mut with(victim, settings, generous));
        let first = wishes.first().expect("a request");
        assert_eq!(first.sequence, 0);
        assert_eq!(first.reordering_threshold, 3);
        assert!(
            (1000..=25_000).contains(&first.max_ack_delay_us),
            "{first:?}"
        );
        assert!(
            (2..16).contains(&first.ack_eliciting_threshold),
            "{first:?}"
        );
        assert!(wishes.len() <= 6, "not for every breath: {wishes:?}");
        let mute = |params: &mut TransportParameters| {
            generous(params);
            params.min_ack_delay_us = None;
        };
        assert_eq!(grow(&mut with(victim, settings, mute)), []);
        assert_eq!(grow(&mut with(victim, Settings::default(), generous)), []);
    }
}

/// RFC 9000, section 13.2.5.
#[test]
fn what_a_packet_waited_for_its_keys_is_told_as_delay() {
    let mut peer = RawPeer::client(Setup::default()).half_way();
    peer.receive();
    assert!(peer.handshake.is_complete(), "the client has all of it");
    // It comes before the end of the handshake, which the server waits for.
    peer.bytes(ZERO, &encode(&[ELICITING]));
    peer.wait(Duration::from_millis(200));
    peer.inbox.clear();
    peer.shake();
    let delays = peer.inbox.iter().flat_map(Received::frames);
    let delays = delays.filter_map(|frame| match frame {
        Frame::Ack(ack) if ack.path == ZERO => Some(ack.delay * 8),
        _ => None,
    });
    let longest = delays.max().expect("an acknowledgement");
    assert!((200_000..250_000).contains(&longest), "{longest} us");
}
