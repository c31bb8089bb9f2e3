//! Headers of IP packets: who sent it, to whom, what it is.
//!
//! Nothing is changed here, and checksums of IPv4 headers are left to whoever routes the packet.

use super::protocol;
use anabranch_wire::cursor::{Reader, UnexpectedEnd};
use std::net::IpAddr;

/// Extension headers of one packet; RFC 8200 expects some six of them.
const MAX_EXTENSIONS: usize = 16;

/// Extension headers of IPv6 (RFC 8200, section 4, and the registry of protocol numbers).
mod extension {
    pub(super) const HOP_BY_HOP: u8 = 0;
    pub(super) const ROUTING: u8 = 43;
    pub(super) const FRAGMENT: u8 = 44;
    pub(super) const AUTHENTICATION: u8 = 51;
    pub(super) const DESTINATION: u8 = 60;
    pub(super) const MOBILITY: u8 = 135;
    pub(super) const HOST_IDENTITY: u8 = 139;
    pub(super) const SHIM6: u8 = 140;
}

/// Why bytes are no packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPacket {
    /// Neither version 4 nor 6.
    #[error("neither IPv4 nor IPv6")]
    Version,
    /// The packet ends within its headers.
    #[error("the packet ends within its headers")]
    Truncated,
    /// The packet is longer or shorter than it says, or its header is longer than the packet.
    #[error("the packet's length is not what its header says")]
    Length,
    /// More extension headers than any honest packet has.
    #[error("the packet has too many extension headers")]
    Extensions,
}

impl From<UnexpectedEnd> for InvalidPacket {
    fn from(_: UnexpectedEnd) -> Self {
        Self::Truncated
    }
}

/// A packet whose headers were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    bytes: &'a [u8],
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    traffic_class: u8,
    /// Where the payload begins, which only the first fragment has.
    payload: Option<usize>,
}

impl<'a> Packet<'a> {
    /// Reads the headers of a packet that is there as a whole, with nothing after it.
    ///
    /// # Errors
    /// [`InvalidPacket`], if it is none.
    pub fn read(bytes: &'a [u8]) -> Result<Self, InvalidPacket> {
        let (packet, length) = Self::headers(bytes)?;
        if length == bytes.len() {
            Ok(packet)
        } else {
            Err(InvalidPacket::Length)
        }
    }

    /// The packet, and how long it says it is.
    fn headers(bytes: &'a [u8]) -> Result<(Self, usize), InvalidPacket> {
        match bytes.first().ok_or(InvalidPacket::Truncated)? >> 4 {
            4 => Self::v4(bytes),
            6 => Self::v6(bytes),
            _ => Err(InvalidPacket::Version),
        }
    }

    fn v4(bytes: &'a [u8]) -> Result<(Self, usize), InvalidPacket> {
        let mut reader = Reader::new(bytes);
        let header = usize::from(reader.u8()? & 0x0f) * 4;
        let traffic_class = reader.u8()?;
        let length = usize::from(reader.u16()?);
        let _identification = reader.u16()?;
        let fragment_offset = reader.u16()? << 3;
        let _time_to_live = reader.u8()?;
        let protocol = reader.u8()?;
        let _checksum = reader.u16()?;
        let source = reader.array::<4>()?.into();
        let destination = reader.array::<4>()?.into();
        if header < 20 || length < header {
            return Err(InvalidPacket::Length);
        }
        let packet = Self {
            bytes,
            source,
            destination,
            protocol,
            traffic_class,
            payload: (fragment_offset == 0).then_some(header),
        };
        Ok((packet, length))
    }

    fn v6(bytes: &'a [u8]) -> Result<(Self, usize), InvalidPacket> {
        let mut reader = Reader::new(bytes);
        let traffic_class = (reader.u32()? >> 20) as u8;
        let length = 40 + usize::from(reader.u16()?);
        let first = reader.u8()?;
        let _hop_limit = reader.u8()?;
        let source = reader.array::<16>()?.into();
        let destination = reader.array::<16>()?.into();
        let (protocol, is_first) = walk(&mut reader, first)?;
        let packet = Self {
            bytes,
            source,
            destination,
            protocol,
            traffic_class,
            payload: is_first.then_some(bytes.len() - reader.remaining()),
        };
        Ok((packet, length))
    }

    /// The bytes.
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The packet's source address.
    pub const fn source(&self) -> IpAddr {
        self.source
    }

    /// Whom it is for.
    pub const fn destination(&self) -> IpAddr {
        self.destination
    }

    /// The protocol behind all extension headers, to which scopes and routes refer. In later
    /// fragments it is what the fragment header says.
    pub const fn protocol(&self) -> u8 {
        self.protocol
    }

    /// The differentiated services code point.
    pub const fn dscp(&self) -> u8 {
        self.traffic_class >> 2
    }

    /// The two bits of explicit congestion notification.
    pub const fn ecn(&self) -> u8 {
        self.traffic_class & 3
    }

    /// What is behind the headers; `None` in all fragments but the first.
    pub fn payload(&self) -> Option<&'a [u8]> {
        self.bytes.get(self.payload?..)
    }

    /// The ports of the source and the destination, if it is TCP or UDP and has them.
    pub fn ports(&self) -> Option<(u16, u16)> {
        let has_ports = matches!(self.protocol, protocol::TCP | protocol::UDP);
        let mut reader = Reader::new(self.payload().filter(|_| has_ports)?);
        Some((reader.u16().ok()?, reader.u16().ok()?))
    }

    /// Whether it is an error message of ICMP. One too short to tell counts as one, too.
    pub fn is_icmp_error(&self) -> bool {
        let is_error: fn(u8) -> bool = match (self.source, self.protocol) {
            (IpAddr::V4(_), protocol::ICMP) => |kind| matches!(kind, 3 | 4 | 5 | 11 | 12),
            (IpAddr::V6(_), protocol::ICMPV6) => |kind| kind < 128,
            _ => return false,
        };
        let kind = self.payload().and_then(|payload| payload.first());
        kind.is_none_or(|kind| is_error(*kind))
    }

    /// The packet that an error message of ICMP is about, as far as the message has it. It went the
    /// other way: a message may come from anybody who forwarded it.
    pub fn quoted(&self) -> Option<Self> {
        const ICMP_HEADER: usize = 8;
        let quoted = self.payload().filter(|_| self.is_icmp_error())?;
        let (packet, _) = Self::headers(quoted.get(ICMP_HEADER..)?).ok()?;
        let is_same = packet.source.is_ipv4() == self.source.is_ipv4();
        is_same.then_some(packet)
    }
}

/// Reads extension headers up to the first header of another kind; says which that is, and whether
/// its beginning follows. The protocol of a later fragment cannot be looked at further.
fn walk(reader: &mut Reader<'_>, first: u8) -> Result<(u8, bool), InvalidPacket> {
    let mut kind = first;
    for _ in 0..=MAX_EXTENSIONS {
        let this = kind;
        match this {
            extension::FRAGMENT => {
                kind = reader.u8()?;
                let _reserved = reader.u8()?;
                let is_first = reader.u16()? >> 3 == 0;
                let _identification = reader.u32()?;
                if !is_first {
                    return Ok((kind, false));
                }
            }
            extension::HOP_BY_HOP
            | extension::ROUTING
            | extension::AUTHENTICATION
            | extension::DESTINATION
            | extension::MOBILITY
            | extension::HOST_IDENTITY
            | extension::SHIM6 => {
                kind = reader.u8()?;
                let length = usize::from(reader.u8()?);
                // RFC 4302 counts words of four bytes without two, RFC 8200 of eight without one.
                let rest = match this {
                    extension::AUTHENTICATION => length * 4 + 6,
                    _ => length * 8 + 6,
                };
                reader.bytes(rest)?;
            }
            _ => return Ok((this, true)),
        }
    }
    Err(InvalidPacket::Extensions)
}

#[cfg(test)]
#[path = "packet_tests.rs"]
pub(super) mod tests;
