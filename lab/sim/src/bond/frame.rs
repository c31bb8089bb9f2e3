//! What the links of a bond carry: whole packets or fragments of packets, each with a number.
//!
//! ```text
//! 1 byte   kind: a piece of a packet, a probe, a report; of a piece: first, last
//! 3 bytes  number (RFC 1990, section 3: the long format)
//! rest     the piece; or what a probe or report says
//! ```

use crate::tcp::{fill_ip_header, ip_addresses, u16_at};
use crate::{Packet, Payload};
use anabranch_proto::datagram::Ecn;
use anabranch_proto::time::Instant;
use bytes::Bytes;
use std::net::{SocketAddr, SocketAddrV4};
use std::time::Duration;

/// Bytes in front of the piece.
pub(super) const HEADER: usize = 4;

const FIRST: u8 = 0x80;
const LAST: u8 = 0x40;
const PROBE: u8 = 1;
const REPORT: u8 = 2;

const NUMBERS: u64 = 1 << 24;

const IP_HEADER: usize = 20;
const UDP_HEADER: usize = 8;
const TCP: u8 = 6;
const UDP: u8 = 17;
/// For experiments (RFC 3692): marks datagrams whose content does not matter.
const FILLER: u8 = 253;

/// A piece of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fragment {
    pub(super) first: bool,
    pub(super) last: bool,
    pub(super) bytes: Bytes,
}

/// What was received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Frame {
    Piece {
        /// The lower 24 bits of the number.
        number: u32,
        fragment: Fragment,
    },
    /// One probe of a pair sent back to back.
    Probe { sent: Instant, second: bool },
    /// What a pair of probes measured.
    Report {
        delay: Duration,
        /// The time between their arrivals.
        gap: Duration,
    },
}

/// Bytes of a probe: large enough that its transmission time is measurable.
pub(super) const PROBE_BYTES: usize = 1000;

impl Fragment {
    pub(super) fn encode(&self, number: u64) -> Bytes {
        let mut frame = Vec::with_capacity(HEADER + self.bytes.len());
        let kind = if self.first { FIRST } else { 0 } | if self.last { LAST } else { 0 };
        frame.extend(((number % NUMBERS) as u32).to_be_bytes());
        frame[0] = kind;
        frame.extend(&self.bytes);
        frame.into()
    }
}

/// Encodes one probe of a pair.
pub(super) fn probe(now: Instant, second: bool) -> Bytes {
    let mut frame = vec![0; PROBE_BYTES];
    (frame[0], frame[1]) = (PROBE, u8::from(second));
    frame[HEADER..HEADER + 8].copy_from_slice(&now.as_nanos().to_be_bytes());
    frame.into()
}

/// Encodes what a pair of probes measured.
pub(super) fn report(delay: Duration, gap: Duration) -> Bytes {
    let mut frame = vec![REPORT, 0, 0, 0];
    for time in [delay, gap] {
        frame.extend((time.as_nanos() as u64).to_be_bytes());
    }
    frame.into()
}

impl Frame {
    pub(super) fn decode(frame: &Bytes) -> Option<Self> {
        let header = u32::from_be_bytes(frame.get(..HEADER)?.try_into().ok()?);
        let nanos = |at: usize| -> Option<u64> {
            Some(u64::from_be_bytes(frame.get(at..at + 8)?.try_into().ok()?))
        };
        match frame[0] {
            PROBE => Some(Self::Probe {
                sent: Instant::from_nanos(nanos(HEADER)?),
                second: frame[1] == 1,
            }),
            REPORT => Some(Self::Report {
                delay: Duration::from_nanos(nanos(HEADER)?),
                gap: Duration::from_nanos(nanos(HEADER + 8)?),
            }),
            kind if kind & !(FIRST | LAST) == 0 => Some(Self::Piece {
                number: header & (NUMBERS - 1) as u32,
                fragment: Fragment {
                    first: kind & FIRST != 0,
                    last: kind & LAST != 0,
                    bytes: frame.slice(HEADER..),
                },
            }),
            _ => None,
        }
    }
}

/// The full number closest to `about` that has these lower bits.
pub(super) fn full_number(lower: u32, about: u64) -> u64 {
    let half = NUMBERS / 2;
    let base = about.saturating_sub(half);
    let ahead = u64::from(lower).wrapping_sub(base) % NUMBERS;
    base + ahead
}

/// Encodes a packet as an IP packet. `None` if an address is not IPv4.
pub(super) fn to_bytes(packet: &Packet) -> Option<Bytes> {
    let (protocol, content, length) = match &packet.payload {
        Payload::Ip(bytes) => return Some(bytes.clone()),
        Payload::Udp(bytes) => (UDP, bytes.as_slice(), bytes.len()),
        Payload::Filler(length) => (FILLER, [].as_slice(), *length as usize),
    };
    let (SocketAddr::V4(from), SocketAddr::V4(to)) = (packet.from, packet.to) else {
        return None;
    };
    let mut bytes = vec![0; IP_HEADER + UDP_HEADER + length];
    bytes[IP_HEADER..IP_HEADER + 2].copy_from_slice(&from.port().to_be_bytes());
    bytes[IP_HEADER + 2..IP_HEADER + 4].copy_from_slice(&to.port().to_be_bytes());
    let udp_length = u16::try_from(UDP_HEADER + length).ok()?;
    bytes[IP_HEADER + 4..IP_HEADER + 6].copy_from_slice(&udp_length.to_be_bytes());
    bytes[IP_HEADER + UDP_HEADER..][..content.len()].copy_from_slice(content);
    // RFC 3168, section 5.
    let ecn = match packet.ecn {
        None => 0,
        Some(Ecn::Ect1) => 1,
        Some(Ecn::Ect0) => 2,
        Some(Ecn::Ce) => 3,
    };
    fill_ip_header(&mut bytes, protocol, ecn, *from.ip(), *to.ip());
    Some(bytes.into())
}

/// Decodes an IP packet; `None` if the bytes are not one.
pub(super) fn from_bytes(bytes: &Bytes) -> Option<Packet> {
    let (from, to) = ip_addresses(bytes)?;
    if usize::from(u16_at(bytes, 2)?) != bytes.len() {
        return None;
    }
    let content = || bytes.slice(IP_HEADER + UDP_HEADER..);
    let ports = (u16_at(bytes, IP_HEADER)?, u16_at(bytes, IP_HEADER + 2)?);
    let payload = match bytes[9] {
        TCP => Payload::Ip(bytes.clone()),
        UDP if bytes.len() >= IP_HEADER + UDP_HEADER => Payload::Udp(content().into()),
        FILLER if bytes.len() >= IP_HEADER + UDP_HEADER => Payload::Filler(content().len() as u32),
        _ => return None,
    };
    Some(Packet {
        from: SocketAddrV4::new(from, ports.0).into(),
        to: SocketAddrV4::new(to, ports.1).into(),
        ecn: match bytes[1] & 3 {
            1 => Some(Ecn::Ect1),
            2 => Some(Ecn::Ect0),
            3 => Some(Ecn::Ce),
            _ => None,
        },
        payload,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn packets_survive_as_bytes_at_their_size() {
        for payload in [Payload::Udp(b"call".to_vec()), Payload::Filler(1000)] {
            let packet = Packet {
                from: "10.0.0.1:7".parse().unwrap(),
                to: "10.0.1.2:9".parse().unwrap(),
                ecn: Some(Ecn::Ect0),
                payload,
            };
            let bytes = to_bytes(&packet).unwrap();
            assert_eq!(bytes.len(), packet.size() as usize);
            assert_eq!(from_bytes(&bytes), Some(packet));
        }
    }

    proptest! {
        #[test]
        fn numbers_are_restored_within_half_their_range(
            about in 0u64..1 << 40,
            off in -8_000_000i64..8_000_000
        ) {
            if let Some(number) = about.checked_add_signed(off) {
                prop_assert_eq!(full_number((number % NUMBERS) as u32, about), number);
            }
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let bytes = Bytes::from(bytes);
            let _ = Frame::decode(&bytes);
            let _ = from_bytes(&bytes);
        }
    }
}
