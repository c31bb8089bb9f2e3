//! The error rules of draft-huitema-quic-ts-08.

use super::{BOTH, ZERO, assert_breach, assert_closed};
use crate::raw::{RawPeer, Setup};
use anabranch_proto::config::TransportConfig;
use anabranch_proto::wire::frame::Frame;
use anabranch_proto::wire::params::{Timestamps, TransportParameters};
use anabranch_proto::wire::{Side, TransportErrorCode as Code};

/// Changes the peer's parameters.
type Change = fn(&mut TransportParameters);

const STAMP: Frame<'static> = Frame::Timestamp { time: 1000 };

/// A victim that offers timestamps, and a peer with these parameters.
fn offered(victim: Side, params: Change) -> RawPeer {
    let setup = Setup {
        transport: TransportConfig {
            timestamps: true,
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

#[test]
fn a_timestamp_nobody_asked_for_is_a_violation() {
    for victim in BOTH {
        assert_breach(victim, &[STAMP], Code::PROTOCOL_VIOLATION);
    }
}

#[test]
fn a_timestamp_from_a_peer_that_said_it_sends_none_is_a_violation() {
    let silent: [Change; 2] = [
        |_| {},
        |params| params.enable_timestamp = Some(Timestamps::Receive),
    ];
    for victim in BOTH {
        for params in silent {
            let mut peer = offered(victim, params);
            peer.frames(ZERO, &[STAMP]);
            assert_closed(&peer, Code::PROTOCOL_VIOLATION);
        }
    }
}

#[test]
fn timestamps_that_were_agreed_on_are_taken_whatever_they_say() {
    let sends: [Change; 2] = [
        |params| params.enable_timestamp = Some(Timestamps::Send),
        |params| params.enable_timestamp = Some(Timestamps::Both),
    ];
    for victim in BOTH {
        for params in sends {
            let mut peer = offered(victim, params);
            let largest = Frame::Timestamp {
                time: (1 << 62) - 1,
            };
            peer.frames(ZERO, &[STAMP, largest, Frame::Timestamp { time: 0 }]);
            peer.frames(ZERO, &[Frame::Ping, STAMP]);
            peer.assert_alive();
        }
    }
}

#[test]
fn timestamps_are_sent_to_a_peer_that_wants_them_and_to_no_other() {
    let cases: [(Change, bool); 3] = [
        (
            |params| params.enable_timestamp = Some(Timestamps::Receive),
            true,
        ),
        (
            |params| params.enable_timestamp = Some(Timestamps::Send),
            false,
        ),
        (|_| {}, false),
    ];
    for victim in BOTH {
        for (params, expected) in cases {
            let mut peer = offered(victim, params);
            peer.inbox.clear();
            peer.frames(ZERO, &[Frame::Ping]);
            peer.frames(ZERO, &[Frame::Ping]);
            let stamped = |bytes: &[u8]| bytes.starts_with(&[0x42, 0xf5]);
            let sent = peer.inbox.iter().filter(|got| stamped(&got.payload));
            assert_eq!(sent.count() > 0, expected, "{victim:?}");
        }
    }
}

#[test]
fn a_parameter_that_is_neither_one_nor_two_nor_three_is_refused() {
    for victim in BOTH {
        for wrong in [&[1, 0][..], &[1, 4], &[0], &[2, 0x40, 0x04]] {
            let setup = Setup {
                extra_params: [&[0x80, 0, 0x71, 0x58][..], wrong].concat(),
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
}
