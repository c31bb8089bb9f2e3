//! Reading and writing packet headers.

use super::*;
use crate::testing::{cid, hex, number};
use proptest::prelude::*;

fn id(text: &str) -> ConnectionId {
    ConnectionId::new(&hex(text)).unwrap()
}

#[test]
fn the_client_initial_of_rfc_9001_is_written_and_read() {
    let dcid = id("8394c8f03e515708");
    let mut out = Vec::new();
    let none = ConnectionId::default();
    let header = put_long(&mut out, LongType::Initial, &dcid, &none, &[], 2, 4);
    assert_eq!(
        header,
        LongHeader {
            start: 0,
            length_at: 16,
            pn_offset: 18
        }
    );
    header.set_length(&mut out, 1200);
    assert_eq!(out, hex("c300000001088394c8f03e5157080000449e00000002"));
    out.resize(1200, 0);
    let expected = Header::Initial {
        version: VERSION_1,
        dcid,
        scid: none,
        token: &[],
        pn_offset: 18,
        packet_len: 1200,
    };
    assert_eq!(parse(&out, 8), Ok(expected));
}

#[test]
fn the_server_initial_of_rfc_9001_is_written_and_read() {
    let scid = id("f067a5502a4262b5");
    let mut out = Vec::new();
    let none = ConnectionId::default();
    let header = put_long(&mut out, LongType::Initial, &none, &scid, &[], 1, 2);
    header.set_length(&mut out, header.pn_offset + 0x75);
    assert_eq!(out, hex("c1000000010008f067a5502a4262b50040750001"));
    out.resize(header.pn_offset + 0x75, 0);
    let packet_len = out.len();
    out.extend([0x40; 30]);
    assert_eq!(
        parse(&out, 0),
        Ok(Header::Initial {
            version: VERSION_1,
            dcid: none,
            scid,
            token: &[],
            pn_offset: 18,
            packet_len
        })
    );
}

#[test]
fn the_retry_of_rfc_9001_is_written_and_read() {
    let packet = hex("ff000000010008f067a5502a4262b5746f6b656e04a265ba2eff4d829058fb3f0f2496ba");
    let scid = id("f067a5502a4262b5");
    let mut out = Vec::new();
    put_retry(&mut out, &ConnectionId::default(), &scid, b"token");
    assert_eq!(out, packet[..packet.len() - RETRY_TAG_LEN]);
    let integrity_tag = *packet.last_chunk().unwrap();
    assert_eq!(
        parse(&packet, 8),
        Ok(Header::Retry {
            version: VERSION_1,
            dcid: ConnectionId::default(),
            scid,
            token: b"token",
            integrity_tag
        })
    );
}

#[test]
fn the_short_header_of_rfc_9001_is_written_and_read() {
    let mut out = Vec::new();
    let none = ConnectionId::default();
    assert_eq!(put_short(&mut out, &none, false, false, 654_360_564, 3), 1);
    assert_eq!(out, hex("4200bff4"));
    assert_eq!(pn_len_from_first_byte(out[0]), 3);
    assert_eq!(
        parse(&out, 0),
        Ok(Header::Short {
            dcid: none,
            pn_offset: 1,
            packet_len: 4
        })
    );
}

#[test]
fn spin_bit_and_key_phase_show_in_the_first_byte() {
    let first = |spin, key_phase| {
        let mut out = Vec::new();
        put_short(&mut out, &ConnectionId::default(), spin, key_phase, 0, 1);
        out[0]
    };
    assert_eq!(first(true, false), FIXED_BIT | SPIN_BIT);
    assert_eq!(first(false, true), FIXED_BIT | KEY_PHASE_BIT);
}

#[test]
fn coalesced_packets_come_apart_in_order() {
    let (dcid, scid) = (id("0102"), id("030405"));
    let mut datagram = Vec::new();
    for kind in [LongType::Initial, LongType::Handshake] {
        let header = put_long(&mut datagram, kind, &dcid, &scid, &[], 7, 1);
        datagram.extend([0xaa; 40]);
        let end = datagram.len();
        header.set_length(&mut datagram, end);
    }
    put_short(&mut datagram, &dcid, false, false, 9, 2);
    datagram.extend([0xbb; 20]);

    let Ok(Header::Initial {
        packet_len: first, ..
    }) = parse(&datagram, 2)
    else {
        panic!()
    };
    let Ok(Header::Long {
        kind,
        packet_len: second,
        ..
    }) = parse(&datagram[first..], 2)
    else {
        panic!()
    };
    assert_eq!(kind, LongType::Handshake);
    let rest = &datagram[first + second..];
    assert_eq!(
        parse(rest, 2),
        Ok(Header::Short {
            dcid,
            pn_offset: 3,
            packet_len: rest.len()
        })
    );
}

#[test]
fn a_length_beyond_the_datagram_is_refused() {
    let mut packet = hex("c1000000010008f067a5502a4262b50040750001");
    packet.resize(18 + 0x75 - 1, 0);
    assert_eq!(parse(&packet, 0), Err(HeaderError::UnexpectedEnd));
    packet.push(0);
    assert!(parse(&packet, 0).is_ok());
    // An eight-byte length that exceeds any memory.
    let packet = hex("e0 00000001 00 00 ffffffffffffffff 00");
    assert_eq!(parse(&packet, 0), Err(HeaderError::UnexpectedEnd));
}

#[test]
fn the_fixed_bit_is_required_of_version_1_only() {
    assert_eq!(parse(&hex("00 0102"), 2), Err(HeaderError::FixedBitClear));
    assert_eq!(
        parse(&hex("80 00000001 00 00 00 01 00"), 2),
        Err(HeaderError::FixedBitClear)
    );
    assert!(matches!(
        parse(&hex("80 00000000 00 00 00000001"), 2),
        Ok(Header::VersionNegotiation { .. })
    ));
    assert!(matches!(
        parse(&hex("80 6b3343cf 00 00"), 2),
        Ok(Header::Unsupported { .. })
    ));
}

#[test]
fn connection_ids_above_20_bytes_are_for_other_versions() {
    let packet = |version: u32| {
        let mut out = vec![0xc0];
        put_invariants(&mut out, version, &[1; 255], &[2; 21]);
        out
    };
    assert_eq!(parse(&packet(VERSION_1), 0), Err(HeaderError::CidTooLong));
    assert_eq!(
        parse(&packet(0x0a0a_0a0a), 0),
        Ok(Header::Unsupported {
            version: 0x0a0a_0a0a,
            dcid: &[1; 255],
            scid: &[2; 21]
        })
    );
}

#[test]
fn a_retry_without_token_or_tag_is_refused() {
    assert_eq!(
        parse(
            &hex("f0 00000001 00 00 000102030405060708090a0b0c0d0e0f"),
            0
        ),
        Err(HeaderError::EmptyRetryToken)
    );
    assert_eq!(
        parse(&hex("f0 00000001 00 00 000102030405060708090a0b0c0d0e"), 0),
        Err(HeaderError::UnexpectedEnd)
    );
}

#[test]
fn a_version_list_has_whole_versions() {
    for list in ["", "000000", "0000000100"] {
        let packet = hex(&format!("80 00000000 00 00 {list}"));
        assert_eq!(parse(&packet, 0), Err(HeaderError::VersionList));
    }
}

#[test]
fn the_empty_datagram_is_no_packet() {
    assert_eq!(parse(&[], 0), Err(HeaderError::UnexpectedEnd));
}

#[test]
fn the_longest_long_header_has_the_stated_length() {
    let cid = ConnectionId::new(&[1; MAX_CID_LEN]).unwrap();
    let mut out = Vec::new();
    put_long(&mut out, LongType::Handshake, &cid, &cid, &[], 0, 4);
    assert_eq!(out.len(), MAX_LONG_HEADER_LEN);
}

#[test]
#[should_panic(expected = "shorter than 16 KiB")]
fn a_packet_too_long_for_its_length_field_is_a_mistake_of_the_caller() {
    let mut out = Vec::new();
    let none = ConnectionId::default();
    let header = put_long(&mut out, LongType::Handshake, &none, &none, &[], 0, 1);
    header.set_length(&mut out, header.pn_offset + LongHeader::MAX_LENGTH + 1);
}

proptest! {
    #[test]
    fn long_headers_come_back_as_written(
        kind in prop_oneof![
            Just(LongType::Initial), Just(LongType::ZeroRtt), Just(LongType::Handshake)
        ],
        (dcid, scid) in (cid(), cid()),
        token in prop::collection::vec(any::<u8>(), 0..300),
        (pn, pn_len, payload) in (number(), 1_usize..=4, 0_usize..2000),
        (before, after) in (0_usize..50, 0_usize..50),
    ) {
        let mut out = vec![0x55; before];
        let at = put_long(&mut out, kind, &dcid, &scid, &token, pn, pn_len);
        out.resize(out.len() + payload, 0xaa);
        let end = out.len();
        at.set_length(&mut out, end);
        out.resize(end + after, 0x55);
        let packet = &out[before..];
        let (pn_offset, packet_len) = (at.pn_offset - before, end - before);
        let version = VERSION_1;
        let expected = if kind == LongType::Initial {
            Header::Initial { version, dcid, scid, token: &token, pn_offset, packet_len }
        } else {
            Header::Long { kind, version, dcid, scid, pn_offset, packet_len }
        };
        prop_assert_eq!(parse(packet, 8), Ok(expected));
        prop_assert_eq!(pn_len_from_first_byte(packet[0]), pn_len);
        prop_assert_eq!(packet[0] & LONG_RESERVED_BITS, 0);
        prop_assert_eq!(&packet[pn_offset..][..pn_len], &pn.to_be_bytes()[8 - pn_len..]);
        for cut in 0..packet_len {
            prop_assert!(parse(&packet[..cut], 8).is_err());
        }
    }

    #[test]
    fn short_headers_come_back_as_written(
        (dcid, spin, key_phase) in (cid(), any::<bool>(), any::<bool>()),
        (pn, pn_len, payload) in (number(), 1_usize..=4, 0_usize..100),
    ) {
        let mut out = Vec::new();
        let pn_offset = put_short(&mut out, &dcid, spin, key_phase, pn, pn_len);
        out.resize(out.len() + payload, 0xaa);
        let packet_len = out.len();
        let expected = Header::Short { dcid, pn_offset, packet_len };
        prop_assert_eq!(parse(&out, dcid.len()), Ok(expected));
        prop_assert_eq!(pn_len_from_first_byte(out[0]), pn_len);
        prop_assert_eq!(out[0] & SHORT_RESERVED_BITS, 0);
        prop_assert_eq!((out[0] & SPIN_BIT != 0, out[0] & KEY_PHASE_BIT != 0), (spin, key_phase));
        for cut in 0..=dcid.len() {
            prop_assert!(parse(&out[..cut], dcid.len()).is_err());
        }
    }

    #[test]
    fn version_negotiation_comes_back_as_written(
        dcid in prop::collection::vec(any::<u8>(), 0..=255),
        scid in prop::collection::vec(any::<u8>(), 0..=255),
        offered in prop::collection::vec(any::<u32>(), 1..8),
        random in any::<u8>(),
    ) {
        let mut out = Vec::new();
        put_version_negotiation(&mut out, &dcid, &scid, &offered, random);
        let parsed = parse(&out, 8);
        let Ok(Header::VersionNegotiation { dcid: d, scid: s, versions: list }) = parsed else {
            return Err(TestCaseError::fail(format!("{parsed:?}")));
        };
        prop_assert_eq!((d, s), (&dcid[..], &scid[..]));
        prop_assert_eq!(versions(list).collect::<Vec<_>>(), offered);
    }

    #[test]
    fn arbitrary_bytes_never_panic_and_stay_within_the_datagram(
        bytes in prop::collection::vec(any::<u8>(), 0..100), cid_len in 0_usize..=20,
    ) {
        if let Ok(
            Header::Initial { pn_offset, packet_len, .. }
            | Header::Long { pn_offset, packet_len, .. }
            | Header::Short { pn_offset, packet_len, .. }
        ) = parse(&bytes, cid_len) {
            prop_assert!(pn_offset <= packet_len && packet_len <= bytes.len());
        }
    }
}
