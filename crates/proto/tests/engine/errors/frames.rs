//! Packets and frames of RFC 9000 where they must not be.

use super::{BOTH, ZERO, assert_breach, assert_bytes, assert_closed, assert_harmless};
use crate::raw::{Packet, RawPeer, Setup, cid, encode, encode_plain, new_cid, token};
use anabranch_proto::event::Level;
use anabranch_proto::wire::frame::{
    AckFrequency, ConnectionClose, Frame, NewConnectionId, PathStatus, Stream,
};
use anabranch_proto::wire::{Dir, PathId, Side, StreamId, TransportErrorCode as Code};

/// One frame of each type that may not appear before the handshake ends.
fn late_frames() -> Vec<Vec<u8>> {
    let path = ZERO;
    let frames = stream_frames().into_iter().chain(other_late_frames());
    let mut all: Vec<_> = frames.map(|frame| encode(&[frame])).collect();
    let both_forms = [
        new_cid(path, 1, 0),
        Frame::RetireConnectionId { path, sequence: 0 },
    ];
    for frame in both_forms {
        all.push(encode(std::slice::from_ref(&frame)));
        all.push(encode_plain(&[frame]));
    }
    // PATH_ACK, without and with ECN counts.
    all.push(vec![0x3e, 0, 0, 0, 0, 0]);
    all.push(vec![0x3f, 0, 0, 0, 0, 0, 0, 0, 0]);
    all
}

fn stream_frames() -> Vec<Frame<'static>> {
    let id = StreamId(0);
    let limit = 1;
    let mut frames = vec![
        Frame::ResetStream {
            id,
            code: 0,
            final_size: 0,
        },
        Frame::StopSending { id, code: 0 },
        Frame::Stream(Stream {
            id,
            offset: 0,
            fin: false,
            data: b"data",
        }),
        Frame::MaxData { limit },
        Frame::MaxStreamData { id, limit },
        Frame::DataBlocked { limit },
        Frame::StreamDataBlocked { id, limit },
        Frame::Datagram { data: b"data" },
    ];
    for dir in [Dir::Bi, Dir::Uni] {
        frames.push(Frame::MaxStreams { dir, limit });
        frames.push(Frame::StreamsBlocked { dir, limit });
    }
    frames
}

fn other_late_frames() -> Vec<Frame<'static>> {
    let path = ZERO;
    let mut frames = vec![
        Frame::NewToken { token: b"token" },
        Frame::PathChallenge { data: [1; 8] },
        Frame::PathResponse { data: [1; 8] },
        Frame::ConnectionClose(ConnectionClose {
            application: true,
            code: 1,
            frame_type: 0,
            reason: b"",
        }),
        Frame::HandshakeDone,
        Frame::Timestamp { time: 1 },
        Frame::ImmediateAck,
        Frame::AckFrequency(AckFrequency {
            sequence: 0,
            ack_eliciting_threshold: 1,
            max_ack_delay_us: 25_000,
            reordering_threshold: 1,
        }),
        Frame::PathAbandon { path, code: 0 },
        Frame::MaxPathId { limit: PathId(9) },
        Frame::PathsBlocked { limit: path },
        Frame::PathCidsBlocked {
            path,
            next_sequence: 0,
        },
    ];
    for status in [PathStatus::Backup, PathStatus::Available] {
        frames.push(Frame::PathStatus {
            path,
            sequence: 0,
            status,
        });
    }
    frames
}

fn half_way(victim: Side) -> RawPeer {
    if victim.is_server() {
        RawPeer::client(Setup::default()).half_way()
    } else {
        RawPeer::server(Setup::default()).half_way()
    }
}

#[test]
fn frames_of_the_1_rtt_level_are_refused_in_earlier_packets() {
    for victim in BOTH {
        for payload in late_frames() {
            // A client drops the Initial keys once it has the next ones.
            let mut peer = if victim.is_server() {
                half_way(victim)
            } else {
                let mut peer = RawPeer::server(Setup::default());
                peer.receive();
                peer
            };
            peer.send(Packet::new(Level::Initial, payload.clone()));
            assert_closed(&peer, Code::PROTOCOL_VIOLATION);

            let mut peer = half_way(victim);
            peer.send(Packet::new(Level::Handshake, payload));
            assert_closed(&peer, Code::PROTOCOL_VIOLATION);
        }
    }
}

#[test]
fn an_unknown_frame_type_is_an_encoding_error() {
    for victim in BOTH {
        for unknown in [
            &[0x21][..],
            &[0x32],
            &[0x7e, 0x7d],
            &[0xbf, 0xff, 0xff, 0xff],
        ] {
            assert_bytes(victim, unknown, Code::FRAME_ENCODING_ERROR);
        }
        let mut peer = half_way(victim);
        peer.send(Packet::new(Level::Handshake, vec![0x21, 0, 0, 0]));
        assert!(peer.ended().is_some());
    }
}

#[test]
fn a_frame_type_in_more_bytes_than_needed_is_a_violation() {
    for victim in BOTH {
        assert_bytes(victim, &[0x40, 0x01], Code::PROTOCOL_VIOLATION);
    }
}

#[test]
fn a_frame_cut_off_is_an_encoding_error() {
    for victim in BOTH {
        for payload in late_frames() {
            if payload.len() < 3 || payload[0] == 0x0a || payload[0] == 0x30 {
                continue;
            }
            let cut = &payload[..payload.len() - 1];
            // A close without the end of its reason is still cut off.
            assert_bytes(victim, cut, Code::FRAME_ENCODING_ERROR);
        }
    }
}

#[test]
fn a_packet_without_frames_is_a_violation() {
    for victim in BOTH {
        let mut peer = RawPeer::against(victim);
        peer.send(Packet::one_rtt(ZERO, Vec::new()));
        assert_closed(&peer, Code::PROTOCOL_VIOLATION);
        let mut peer = half_way(victim);
        peer.send(Packet::new(Level::Handshake, Vec::new()));
        assert_closed(&peer, Code::PROTOCOL_VIOLATION);
    }
}

#[test]
fn reserved_bits_of_a_genuine_packet_must_be_zero() {
    for victim in BOTH {
        for flip in [0x08, 0x10, 0x18] {
            let mut peer = RawPeer::against(victim);
            let mut packet = Packet::one_rtt(ZERO, encode(&[Frame::Ping]));
            packet.flip = flip;
            peer.send(packet);
            assert_closed(&peer, Code::PROTOCOL_VIOLATION);
        }
        for flip in [0x04, 0x08, 0x0c] {
            let mut peer = half_way(victim);
            let mut packet = Packet::new(Level::Handshake, encode(&[Frame::Ping]));
            packet.flip = flip;
            peer.send(packet);
            assert_closed(&peer, Code::PROTOCOL_VIOLATION);
        }
    }
}

#[test]
fn reserved_bits_of_a_forged_packet_mean_nothing() {
    for victim in BOTH {
        let mut peer = RawPeer::against(victim);
        let mut packet = Packet::one_rtt(ZERO, encode(&[Frame::Ping]));
        packet.flip = 0x18;
        let mut bytes = peer.seal(&packet);
        *bytes.last_mut().expect("a tag") ^= 1;
        let tuple = peer.tuple;
        peer.deliver(tuple, &bytes);
        peer.assert_alive();
    }
}

#[test]
fn only_a_server_says_handshake_done() {
    let code = Code::PROTOCOL_VIOLATION;
    assert_breach(Side::Server, &[Frame::HandshakeDone], code);
    assert_harmless(Side::Client, &[Frame::HandshakeDone]);
}

#[test]
fn only_a_server_gives_tokens_and_they_are_not_empty() {
    let token = Frame::NewToken { token: b"token" };
    assert_breach(
        Side::Server,
        std::slice::from_ref(&token),
        Code::PROTOCOL_VIOLATION,
    );
    assert_harmless(Side::Client, &[token]);
    assert_bytes(Side::Client, &[0x07, 0x00], Code::FRAME_ENCODING_ERROR);
}

#[test]
fn an_acknowledgement_of_a_packet_never_sent_is_a_violation() {
    // ACK of packets 0 to 2^20.
    let ack = [0x02, 0x80, 0x10, 0, 0, 0, 0, 0x80, 0x10, 0, 0];
    for victim in BOTH {
        assert_bytes(victim, &ack, Code::PROTOCOL_VIOLATION);
        for level in [Level::Initial, Level::Handshake] {
            let mut peer = if victim.is_client() && level == Level::Initial {
                let mut peer = RawPeer::server(Setup::default());
                peer.receive();
                peer
            } else {
                half_way(victim)
            };
            peer.send(Packet::new(level, ack.to_vec()));
            assert_closed(&peer, Code::PROTOCOL_VIOLATION);
        }
    }
}

#[test]
fn an_acknowledgement_of_negative_packet_numbers_is_an_encoding_error() {
    for victim in BOTH {
        // Largest 0, first range 1.
        assert_bytes(victim, &[0x02, 0, 0, 0, 1], Code::FRAME_ENCODING_ERROR);
    }
}

#[test]
fn crypto_data_far_ahead_exceeds_the_buffer() {
    let far = Frame::Crypto {
        offset: 1 << 20,
        data: b"ahead",
    };
    for victim in BOTH {
        assert_breach(
            victim,
            std::slice::from_ref(&far),
            Code::CRYPTO_BUFFER_EXCEEDED,
        );
        let mut peer = half_way(victim);
        peer.send(Packet::new(
            Level::Handshake,
            encode(std::slice::from_ref(&far)),
        ));
        assert_closed(&peer, Code::CRYPTO_BUFFER_EXCEEDED);
    }
}

#[test]
fn crypto_data_beyond_the_largest_offset_is_an_encoding_error() {
    let payload = [
        0x06, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0xaa,
    ];
    for victim in BOTH {
        assert_bytes(victim, &payload, Code::FRAME_ENCODING_ERROR);
    }
}

#[test]
fn a_tls_message_that_makes_no_sense_ends_with_its_alert() {
    let nonsense = Frame::Crypto {
        offset: 0,
        data: &[0xff, 0, 0, 1, 0],
    };
    let mut peer = RawPeer::client(Setup::default());
    peer.send(Packet::new(
        Level::Initial,
        encode(std::slice::from_ref(&nonsense)),
    ));
    let (code, _) = peer.close().expect("CONNECTION_CLOSE");
    assert!((0x100..0x200).contains(&code), "code {code:#x}");
    let mut peer = RawPeer::server(Setup::default());
    peer.receive();
    peer.send(Packet::new(Level::Initial, encode(&[nonsense])));
    let (code, _) = peer.close().expect("CONNECTION_CLOSE");
    assert!((0x100..0x200).contains(&code), "code {code:#x}");
}

fn issued(sequence: u64, retire_prior_to: u64, name: u64) -> Frame<'static> {
    Frame::NewConnectionId(NewConnectionId {
        path: ZERO,
        sequence,
        retire_prior_to,
        cid: cid(ZERO, name),
        reset_token: token(ZERO, name),
    })
}

#[test]
fn a_connection_id_must_not_retire_its_successors() {
    for victim in BOTH {
        assert_breach(victim, &[issued(1, 2, 1)], Code::FRAME_ENCODING_ERROR);
    }
}

#[test]
fn a_connection_id_has_1_to_20_bytes() {
    for victim in BOTH {
        for length in [0_u8, 21] {
            let mut plain = vec![0x18, 1, 0, length];
            plain.extend(vec![0xab; usize::from(length) + 16]);
            assert_bytes(victim, &plain, Code::FRAME_ENCODING_ERROR);
        }
    }
}

#[test]
fn a_sequence_number_names_one_connection_id_and_back() {
    for victim in BOTH {
        let code = Code::PROTOCOL_VIOLATION;
        assert_breach(victim, &[issued(1, 0, 1), issued(1, 0, 2)], code);
        assert_breach(victim, &[issued(1, 0, 1), issued(2, 0, 1)], code);
        assert_harmless(victim, &[issued(1, 0, 1), issued(1, 0, 1)]);
    }
}

#[test]
fn more_connection_ids_than_announced_are_refused() {
    for victim in BOTH {
        // The limit announced is 4, and number 0 is live.
        let four: Vec<_> = (1..=4).map(|n| issued(n, 0, n)).collect();
        assert_harmless(victim, &four[..3]);
        assert_breach(victim, &four, Code::CONNECTION_ID_LIMIT_ERROR);
    }
}

#[test]
fn a_connection_id_never_issued_cannot_be_retired() {
    for victim in BOTH {
        let retire = Frame::RetireConnectionId {
            path: ZERO,
            sequence: 99,
        };
        assert_breach(
            victim,
            std::slice::from_ref(&retire),
            Code::PROTOCOL_VIOLATION,
        );
        assert_bytes(victim, &encode_plain(&[retire]), Code::PROTOCOL_VIOLATION);
    }
}

#[test]
fn a_path_response_nobody_asked_for_is_ignored() {
    for victim in BOTH {
        assert_harmless(victim, &[Frame::PathResponse { data: [9; 8] }]);
    }
}

#[test]
fn the_close_names_the_frame_that_caused_it() {
    let mut peer = RawPeer::connected_client();
    peer.frames(ZERO, &[Frame::HandshakeDone]);
    assert_eq!(peer.close(), Some((Code::PROTOCOL_VIOLATION.0, 0x1e)));
}
