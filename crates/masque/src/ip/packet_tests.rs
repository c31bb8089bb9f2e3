//! Packets of all kinds, and bytes that are none.

use super::*;
use crate::testing::hex;
use proptest::prelude::*;

/// A packet from 10.0.0.2 to 198.51.100.9.
pub(crate) fn v4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = hex("4500 0000 0000 4000 4000 0000 0a000002 c6336409");
    out[2..4].copy_from_slice(&(20 + payload.len() as u16).to_be_bytes());
    out[9] = protocol;
    out.extend_from_slice(payload);
    out
}

/// A packet from `2001:db8::2` to `2001:db8:1::9`.
pub(crate) fn v6(next: u8, payload: &[u8]) -> Vec<u8> {
    let addresses = "20010db8000000000000000000000002 20010db8000100000000000000000009";
    let mut out = hex(&format!("6000 0000 0000 0040 {addresses}"));
    out[4..6].copy_from_slice(&(payload.len() as u16).to_be_bytes());
    out[6] = next;
    out.extend_from_slice(payload);
    out
}

/// An ICMP message of this type in this version of IP.
pub(crate) fn icmp(version: u8, kind: u8) -> Vec<u8> {
    let message = [&[kind][..], &[0; 40]].concat();
    match version {
        4 => v4(protocol::ICMP, &message),
        _ => v6(protocol::ICMPV6, &message),
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn an_ipv4_packet_is_read() {
    let mut bytes = v4(17, &hex("1234 0035 0008 0000"));
    bytes[1] = 0xba;
    let packet = Packet::read(&bytes).unwrap();
    assert_eq!(
        (packet.source(), packet.destination()),
        (ip("10.0.0.2"), ip("198.51.100.9"))
    );
    assert_eq!(
        (packet.protocol(), packet.ports()),
        (17, Some((0x1234, 53)))
    );
    assert_eq!((packet.dscp(), packet.ecn()), (46, 2));
    assert_eq!(packet.payload().unwrap().len(), 8);
}

#[test]
fn an_ipv6_packet_is_read() {
    let mut bytes = v6(6, &hex("0016 1234 00000000"));
    bytes[..2].copy_from_slice(&hex("6ba0"));
    let packet = Packet::read(&bytes).unwrap();
    assert_eq!(
        (packet.source(), packet.destination()),
        (ip("2001:db8::2"), ip("2001:db8:1::9"))
    );
    assert_eq!((packet.protocol(), packet.ports()), (6, Some((22, 0x1234))));
    assert_eq!((packet.dscp(), packet.ecn()), (46, 2));
}

#[test]
fn options_of_ipv4_are_passed_over() {
    let mut bytes = v4(17, &hex("01010101 1234 0035"));
    bytes[0] = 0x46;
    let packet = Packet::read(&bytes).unwrap();
    assert_eq!(packet.ports(), Some((0x1234, 53)));
}

#[test]
fn extension_headers_are_walked_to_the_protocol() {
    // Hop-by-hop of 8 bytes, destination of 16, routing of 8, authentication of 16, first fragment.
    let chain = "3c 00 000000000000  2b 01 0000000000000000000000000000  33 00 000000000000 \
                 2c 02 0000000000000000000000000000  11 00 0001 00000000  1234 0035";
    let bytes = v6(0, &hex(chain));
    let packet = Packet::read(&bytes).unwrap();
    assert_eq!(
        (packet.protocol(), packet.ports()),
        (17, Some((0x1234, 53)))
    );
}

#[test]
fn only_first_fragments_have_ports() {
    let mut later = v4(17, &hex("1234 0035"));
    later[6..8].copy_from_slice(&[0x20, 0x01]);
    let packet = Packet::read(&later).unwrap();
    assert_eq!(
        (packet.protocol(), packet.payload(), packet.ports()),
        (17, None, None)
    );
    let later = v6(44, &hex("11 00 0008 00000000 1234 0035"));
    let packet = Packet::read(&later).unwrap();
    assert_eq!(
        (packet.protocol(), packet.payload(), packet.ports()),
        (17, None, None)
    );
    let first = v6(44, &hex("11 00 0001 00000000 1234 0035"));
    assert_eq!(Packet::read(&first).unwrap().ports(), Some((0x1234, 53)));
}

#[test]
fn a_packet_may_end_with_its_headers() {
    let bytes = v6(59, &[]);
    let packet = Packet::read(&bytes).unwrap();
    assert_eq!((packet.protocol(), packet.payload()), (59, Some(&[][..])));
    assert_eq!(Packet::read(&v4(17, &[])).unwrap().ports(), None);
}

#[test]
fn bytes_that_are_no_packet_are_refused() {
    let wrong = |bytes: &[u8]| Packet::read(bytes).unwrap_err();
    assert_eq!(wrong(&[]), InvalidPacket::Truncated);
    assert_eq!(wrong(&[0x50; 40]), InvalidPacket::Version);
    for length in 1..20 {
        assert_eq!(wrong(&v4(17, &[])[..length]), InvalidPacket::Truncated);
    }
    for length in 1..40 {
        assert_eq!(wrong(&v6(17, &[])[..length]), InvalidPacket::Truncated);
    }
    let mut longer = v4(17, &[0; 8]);
    longer.push(0);
    assert_eq!(wrong(&longer), InvalidPacket::Length);
    assert_eq!(wrong(&v4(17, &[0; 8])[..27]), InvalidPacket::Length);
    assert_eq!(wrong(&v6(17, &[0; 8])[..47]), InvalidPacket::Length);
    let mut header = v4(17, &[0; 8]);
    header[0] = 0x44;
    assert_eq!(
        wrong(&header),
        InvalidPacket::Length,
        "shorter than a header"
    );
    header[0] = 0x4f;
    assert_eq!(
        wrong(&header),
        InvalidPacket::Length,
        "longer than the packet"
    );
    assert_eq!(
        wrong(&v6(0, &hex("11 01 000000000000"))),
        InvalidPacket::Truncated
    );
    assert_eq!(wrong(&v6(44, &hex("11 00 0001"))), InvalidPacket::Truncated);
}

#[test]
fn extension_headers_without_end_are_given_up() {
    let chain = |count| {
        let mut payload = hex("3c 00 000000000000").repeat(count);
        let last = payload.len() - 8;
        payload[last] = 17;
        v6(60, &payload)
    };
    assert_eq!(Packet::read(&chain(MAX_EXTENSIONS)).unwrap().protocol(), 17);
    let too_many = chain(MAX_EXTENSIONS + 1);
    assert_eq!(Packet::read(&too_many), Err(InvalidPacket::Extensions));
}

#[test]
fn errors_of_icmp_are_told_from_its_other_messages() {
    let is_error = |bytes: &[u8]| Packet::read(bytes).unwrap().is_icmp_error();
    for kind in [3, 4, 5, 11, 12] {
        assert!(is_error(&icmp(4, kind)) && is_error(&icmp(6, kind)));
    }
    for kind in [0, 8, 13] {
        assert!(!is_error(&icmp(4, kind)) && !is_error(&icmp(6, kind + 128)));
    }
    assert!(
        is_error(&v4(1, &[])) && is_error(&v6(58, &[])),
        "too short to tell"
    );
    assert!(
        !is_error(&v4(58, &[1])) && !is_error(&v6(1, &[3])),
        "of the other family"
    );
}

#[test]
fn an_error_of_icmp_quotes_a_packet_that_went_the_other_way() {
    let quoted = &v4(6, &hex("0016 1234 00000000"))[..28];
    let message = [&[11, 0, 0, 0, 0, 0, 0, 0][..], quoted].concat();
    let bytes = v4(1, &message);
    let read = Packet::read(&bytes).unwrap().quoted().unwrap();
    assert_eq!(
        (read.destination(), read.ports()),
        (ip("198.51.100.9"), Some((22, 0x1234)))
    );
    let other = [&[1, 0, 0, 0, 0, 0, 0, 0][..], quoted].concat();
    assert_eq!(
        Packet::read(&v6(58, &other)).unwrap().quoted(),
        None,
        "another family"
    );
    assert_eq!(
        Packet::read(&icmp(4, 8)).unwrap().quoted(),
        None,
        "no error"
    );
    assert_eq!(
        Packet::read(&v4(1, &message[..12])).unwrap().quoted(),
        None,
        "too short"
    );
}

proptest! {
    #[test]
    fn any_bytes_are_a_packet_or_refused(
        first in prop::sample::select(vec![0x45u8, 0x4f, 0x60, 0x00]),
        rest in prop::collection::vec(any::<u8>(), 0..120),
    ) {
        let bytes = [&[first][..], &rest].concat();
        if let Ok(packet) = Packet::read(&bytes) {
            let payload = packet.payload().map_or(0, <[u8]>::len);
            prop_assert!(payload <= bytes.len() - 20);
            let _ = (packet.ports(), packet.quoted());
        }
    }

    #[test]
    fn any_chain_of_extension_headers_ends(
        next in prop::sample::select(vec![0u8, 43, 44, 51, 60, 135, 139, 140]),
        payload in prop::collection::vec(
            prop::sample::select(vec![0u8, 0, 1, 17, 43, 44, 51, 60]),
            0..200,
        ),
    ) {
        let bytes = v6(next, &payload);
        if let Ok(packet) = Packet::read(&bytes) {
            prop_assert!(packet.payload().is_none_or(|rest| rest.len() < bytes.len()));
        }
    }
}
