//! Error messages of ICMP (RFC 792, RFC 1812) and ICMPv6 (RFC 4443) about packets that were not
//! forwarded (RFC 9484, section 7.2.1).
//!
//! How many are sent in a second is up to the caller, who has a clock.

use super::packet::Packet;
use super::protocol;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why a packet was not forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Undeliverable {
    /// The packet is longer than the next link carries.
    TooBig {
        /// The longest packet that is carried.
        mtu: u16,
    },
    /// No route leads to the packet's destination.
    NoRoute,
    /// The packet's destination or protocol is not allowed.
    Prohibited,
    /// The packet's source is not an assigned address.
    WrongSource,
    /// The packet's destination does not answer.
    HostUnreachable,
    /// Nobody listens on the destination port.
    PortUnreachable,
}

/// The longest message over IPv4 (RFC 1812, section 4.3.2.3).
const MAX_V4: usize = 576;
/// The longest message over IPv6: its least MTU (RFC 4443, section 2.4).
const MAX_V6: usize = 1280;
const V4_HEADER: usize = 20;
const V6_HEADER: usize = 40;
const ICMP_HEADER: usize = 8;
const HOP_LIMIT: u8 = 64;

/// The message that tells a packet's source, sent from `from`. `None` where there must be none:
/// about error messages, redirects, later fragments and packets to or from many, and if `from` is
/// of another family.
pub fn error_message(packet: &Packet<'_>, from: IpAddr, why: Undeliverable) -> Option<Vec<u8>> {
    if packet.payload().is_none() || packet.is_icmp_error() || is_redirect_v6(packet) {
        return None;
    }
    match (packet.source(), packet.destination(), from) {
        (IpAddr::V4(source), IpAddr::V4(destination), IpAddr::V4(from)) => {
            let is_for_one = !destination.is_multicast() && !destination.is_broadcast();
            (is_for_one && is_one_v4(source)).then(|| message_v4(packet.bytes(), from, source, why))
        }
        (IpAddr::V6(source), IpAddr::V6(destination), IpAddr::V6(from)) => {
            // Whoever sends to many has to learn how long packets may be (RFC 4443, section 2.4).
            let is_too_big = matches!(why, Undeliverable::TooBig { .. });
            let is_for_one = !destination.is_multicast() || is_too_big;
            let is_one =
                !source.is_multicast() && !source.is_unspecified() && !source.is_loopback();
            (is_for_one && is_one).then(|| message_v6(packet.bytes(), from, source, why))
        }
        _ => None,
    }
}

/// Whether it is a Redirect of ICMPv6: no error message, but no cause of one either (RFC 4443,
/// section 2.4 (e)). That of IPv4 is among the error messages.
fn is_redirect_v6(packet: &Packet<'_>) -> bool {
    const REDIRECT: u8 = 137;
    let is_icmp_v6 = packet.source().is_ipv6() && packet.protocol() == protocol::ICMPV6;
    let kind = packet.payload().and_then(|payload| payload.first());
    is_icmp_v6 && kind == Some(&REDIRECT)
}

/// Whether a message to this source reaches a single other host (RFC 1812, section 4.3.2.7).
fn is_one_v4(source: Ipv4Addr) -> bool {
    !(matches!(source.octets()[0], 0 | 240..) || source.is_loopback() || source.is_multicast())
}

fn message_v4(packet: &[u8], from: Ipv4Addr, to: Ipv4Addr, why: Undeliverable) -> Vec<u8> {
    const UNREACHABLE: u8 = 3;
    let (code, mtu) = match why {
        Undeliverable::NoRoute => (0, 0),
        Undeliverable::HostUnreachable => (1, 0),
        Undeliverable::PortUnreachable => (3, 0),
        // Hosts learn from it for packets that may be cut up, too.
        Undeliverable::TooBig { mtu } => (4, mtu),
        Undeliverable::Prohibited | Undeliverable::WrongSource => (13, 0),
    };
    let quote = &packet[..packet.len().min(MAX_V4 - V4_HEADER - ICMP_HEADER)];
    let length = V4_HEADER + ICMP_HEADER + quote.len();
    let mut out = Vec::with_capacity(length);
    // Precedence 6, as control traffic has (RFC 1812, section 4.3.2.5).
    out.extend_from_slice(&[0x45, 0xc0]);
    out.extend_from_slice(&(length as u16).to_be_bytes());
    out.extend_from_slice(&[0, 0, 0, 0, HOP_LIMIT, protocol::ICMP, 0, 0]);
    out.extend_from_slice(&from.octets());
    out.extend_from_slice(&to.octets());
    let sum = checksum(&[&out]);
    out[10..12].copy_from_slice(&sum);
    out.extend_from_slice(&[UNREACHABLE, code, 0, 0, 0, 0]);
    out.extend_from_slice(&mtu.to_be_bytes());
    out.extend_from_slice(quote);
    let sum = checksum(&[&out[V4_HEADER..]]);
    out[V4_HEADER + 2..V4_HEADER + 4].copy_from_slice(&sum);
    out
}

fn message_v6(packet: &[u8], from: Ipv6Addr, to: Ipv6Addr, why: Undeliverable) -> Vec<u8> {
    const UNREACHABLE: u8 = 1;
    const TOO_BIG: u8 = 2;
    let (kind, code, mtu) = match why {
        Undeliverable::NoRoute => (UNREACHABLE, 0, 0),
        Undeliverable::Prohibited => (UNREACHABLE, 1, 0),
        Undeliverable::HostUnreachable => (UNREACHABLE, 3, 0),
        Undeliverable::PortUnreachable => (UNREACHABLE, 4, 0),
        Undeliverable::WrongSource => (UNREACHABLE, 5, 0),
        Undeliverable::TooBig { mtu } => (TOO_BIG, 0, u32::from(mtu)),
    };
    let quote = &packet[..packet.len().min(MAX_V6 - V6_HEADER - ICMP_HEADER)];
    let length = (ICMP_HEADER + quote.len()) as u16;
    let mut out = Vec::with_capacity(V6_HEADER + usize::from(length));
    out.extend_from_slice(&[0x60, 0, 0, 0]);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&[protocol::ICMPV6, HOP_LIMIT]);
    out.extend_from_slice(&from.octets());
    out.extend_from_slice(&to.octets());
    out.extend_from_slice(&[kind, code, 0, 0]);
    out.extend_from_slice(&mtu.to_be_bytes());
    out.extend_from_slice(quote);
    // The pseudo-header of RFC 8200, section 8.1.
    let pseudo = [
        &u32::from(length).to_be_bytes()[..],
        &[0, 0, 0, protocol::ICMPV6],
    ]
    .concat();
    let sum = checksum(&[&out[8..V6_HEADER], &pseudo, &out[V6_HEADER..]]);
    out[V6_HEADER + 2..V6_HEADER + 4].copy_from_slice(&sum);
    out
}

/// The Internet checksum (RFC 1071). All parts but the last have an even length.
fn checksum(parts: &[&[u8]]) -> [u8; 2] {
    let pairs = parts.iter().flat_map(|part| part.chunks(2));
    let words = pairs.map(|pair| {
        let low = pair.get(1).copied().unwrap_or(0);
        u32::from(u16::from_be_bytes([pair[0], low]))
    });
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ip::packet::tests::{icmp, v4, v6};
    use proptest::prelude::*;

    const FROM_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    const FROM_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));
    const TOO_BIG: Undeliverable = Undeliverable::TooBig { mtu: 1400 };

    fn about(packet: &[u8], from: IpAddr, why: Undeliverable) -> Option<Vec<u8>> {
        error_message(&Packet::read(packet).unwrap(), from, why)
    }

    /// Type, code and the last two bytes of the ICMP header, with all lengths and sums checked.
    fn header(message: &[u8]) -> (u8, u8, u16) {
        let read = Packet::read(message).unwrap();
        assert!(read.is_icmp_error() && message.len() <= 1280);
        let icmp = read.payload().unwrap();
        if message[0] >> 4 == 4 {
            assert_eq!(checksum(&[&message[..20]]), [0, 0]);
            assert_eq!(checksum(&[icmp]), [0, 0]);
        } else {
            let pseudo = [&(icmp.len() as u32).to_be_bytes()[..], &[0, 0, 0, 58]].concat();
            assert_eq!(checksum(&[&message[8..40], &pseudo, icmp]), [0, 0]);
        }
        (icmp[0], icmp[1], u16::from_be_bytes([icmp[6], icmp[7]]))
    }

    #[test]
    fn the_checksum_is_that_of_rfc_1071() {
        let words = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(checksum(&[&words]), (!0xddf2_u16).to_be_bytes());
        assert_eq!(checksum(&[&words[..4], &words[4..]]), checksum(&[&words]));
        assert_eq!(checksum(&[&[0xff]]), [0x00, 0xff]);
    }

    #[test]
    fn every_reason_has_its_message_in_both_families() {
        let (packet_v4, packet_v6) = (v4(17, &[0; 40]), v6(17, &[0; 40]));
        for (why, in_v4, in_v6) in [
            (TOO_BIG, (3, 4, 1400), (2, 0, 1400)),
            (Undeliverable::NoRoute, (3, 0, 0), (1, 0, 0)),
            (Undeliverable::Prohibited, (3, 13, 0), (1, 1, 0)),
            (Undeliverable::WrongSource, (3, 13, 0), (1, 5, 0)),
            (Undeliverable::HostUnreachable, (3, 1, 0), (1, 3, 0)),
            (Undeliverable::PortUnreachable, (3, 3, 0), (1, 4, 0)),
        ] {
            assert_eq!(header(&about(&packet_v4, FROM_V4, why).unwrap()), in_v4);
            assert_eq!(header(&about(&packet_v6, FROM_V6, why).unwrap()), in_v6);
        }
    }

    #[test]
    fn a_message_goes_back_to_the_source_and_quotes_the_packet() {
        for (packet, from) in [(v4(6, &[7; 2000]), FROM_V4), (v6(6, &[7; 2000]), FROM_V6)] {
            let message = about(&packet, from, TOO_BIG).unwrap();
            let read = Packet::read(&message).unwrap();
            let sent = Packet::read(&packet).unwrap();
            assert_eq!((read.source(), read.destination()), (from, sent.source()));
            assert_eq!(message.len(), if from.is_ipv4() { 576 } else { 1280 });
            let quoted = read.quoted().unwrap();
            assert_eq!(
                (quoted.source(), quoted.destination()),
                (sent.source(), sent.destination())
            );
            assert_eq!((quoted.protocol(), quoted.ports()), (6, sent.ports()));
        }
    }

    #[test]
    fn nothing_is_said_about_errors_later_fragments_and_packets_from_or_to_many() {
        let no_v4 = |packet: &[u8]| about(packet, FROM_V4, TOO_BIG).is_none();
        let no_v6 = |packet: &[u8]| about(packet, FROM_V6, TOO_BIG).is_none();
        assert!(no_v4(&icmp(4, 3)) && no_v6(&icmp(6, 1)), "errors");
        assert!(
            !no_v4(&icmp(4, 8)) && !no_v6(&icmp(6, 128)),
            "echo requests are none"
        );
        assert!(
            no_v6(&v4(17, &[0; 8])) && no_v4(&v6(17, &[0; 8])),
            "another family"
        );
        let mut fragment = v4(17, &[0; 8]);
        fragment[7] = 1;
        assert!(no_v4(&fragment));
        let with = |at: usize, bytes: &[u8]| {
            let mut packet = v4(17, &[0; 8]);
            packet[at..at + bytes.len()].copy_from_slice(bytes);
            packet
        };
        for source in [
            [0, 0, 0, 0],
            [127, 0, 0, 1],
            [224, 0, 0, 1],
            [255, 255, 255, 255],
        ] {
            assert!(no_v4(&with(12, &source)), "from {source:?}");
        }
        for destination in [[224, 0, 0, 1], [255, 255, 255, 255]] {
            assert!(no_v4(&with(16, &destination)), "to {destination:?}");
        }
        for source in ["::", "::1", "ff02::1"] {
            let mut packet = v6(17, &[0; 8]);
            packet[8..24].copy_from_slice(&source.parse::<Ipv6Addr>().unwrap().octets());
            assert!(no_v6(&packet), "from {source}");
        }
        let mut to_many = v6(17, &[0; 8]);
        to_many[24] = 0xff;
        assert!(about(&to_many, FROM_V6, Undeliverable::NoRoute).is_none());
        assert!(!no_v6(&to_many), "but how long packets may be");
    }

    #[test]
    fn a_redirect_is_not_answered_in_either_family() {
        for why in [TOO_BIG, Undeliverable::NoRoute] {
            assert_eq!(about(&icmp(6, 137), FROM_V6, why), None, "{why:?}");
            assert_eq!(about(&icmp(4, 5), FROM_V4, why), None, "{why:?}");
            let advertisement = icmp(6, 136);
            assert!(about(&advertisement, FROM_V6, why).is_some(), "{why:?}");
            let another_protocol = v6(protocol::UDP, &[137; 8]);
            assert!(about(&another_protocol, FROM_V6, why).is_some(), "{why:?}");
        }
    }

    proptest! {
        #[test]
        fn messages_about_any_packet_are_packets(
            payload in prop::collection::vec(any::<u8>(), 20..100),
            is_v6: bool,
            protocol in prop::sample::select(vec![1u8, 6, 17, 58, 0, 44, 60]),
        ) {
            let bytes = if is_v6 { v6(protocol, &payload) } else { v4(protocol, &payload) };
            let from = if is_v6 { FROM_V6 } else { FROM_V4 };
            if let Ok(packet) = Packet::read(&bytes)
                && let Some(message) = error_message(&packet, from, TOO_BIG)
            {
                header(&message);
            }
        }
    }
}
