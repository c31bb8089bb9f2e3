//! Packet headers (RFC 9000, section 17; RFC 8999): everything that can be read without keys.
//!
//! Reserved bits, packet numbers and the key phase are under header protection and belong to the
//! engine; this module only says where they are.

use crate::VERSION_1;
use crate::cid::{ConnectionId, MAX_CID_LEN};
use crate::cursor::{Reader, UnexpectedEnd};
use crate::{packet_number, varint};
use std::fmt;

/// Set in the first byte of every long header (RFC 8999, section 5).
pub const LONG_HEADER_BIT: u8 = 0x80;
/// Set in the first byte of every QUIC v1 packet except version negotiation.
pub const FIXED_BIT: u8 = 0x40;
/// The latency spin bit of a short header.
pub const SPIN_BIT: u8 = 0x20;
/// The key phase of a short header; under header protection.
pub const KEY_PHASE_BIT: u8 = 0x04;
/// The reserved bits of a long header; under header protection. Anything but 0 is an error of the
/// peer.
pub const LONG_RESERVED_BITS: u8 = 0x0c;
/// The reserved bits of a short header; under header protection. Anything but 0 is an error of the
/// peer.
pub const SHORT_RESERVED_BITS: u8 = 0x18;
/// The packet number length minus one; under header protection.
pub const PN_LEN_MASK: u8 = 0x03;
/// The length of a Retry packet's integrity tag (RFC 9001, section 5.8).
pub const RETRY_TAG_LEN: usize = 16;

/// The four types of long header packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LongType {
    /// The first packets of either side; those of clients may carry a token.
    Initial,
    /// Early data.
    ZeroRtt,
    /// The rest of the handshake.
    Handshake,
    /// A server's request that the client first prove its address.
    Retry,
}

impl LongType {
    /// The type in the first byte of a v1 long header.
    pub const fn from_first_byte(first: u8) -> Self {
        match first >> 4 & 0x03 {
            0 => Self::Initial,
            1 => Self::ZeroRtt,
            2 => Self::Handshake,
            _ => Self::Retry,
        }
    }
}

/// A packet split off the front of a datagram: the fields that are not protected.
///
/// Offsets count from the start of the packet. `packet_len` is at most the length of the datagram;
/// it is not checked that the packet has room for a packet number or an authentication tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(
    missing_docs,
    reason = "the fields carry the names of RFC 9000, section 17"
)]
pub enum Header<'a> {
    /// An Initial packet.
    Initial {
        version: u32,
        dcid: ConnectionId,
        scid: ConnectionId,
        token: &'a [u8],
        pn_offset: usize,
        packet_len: usize,
    },
    /// A 0-RTT or Handshake packet.
    Long {
        kind: LongType,
        version: u32,
        dcid: ConnectionId,
        scid: ConnectionId,
        pn_offset: usize,
        packet_len: usize,
    },
    /// A Retry packet; extends to the end of the datagram.
    Retry {
        version: u32,
        dcid: ConnectionId,
        scid: ConnectionId,
        token: &'a [u8],
        integrity_tag: [u8; RETRY_TAG_LEN],
    },
    /// A version negotiation packet; extends to the end of the datagram. [`versions`] decodes the
    /// list.
    VersionNegotiation {
        dcid: &'a [u8],
        scid: &'a [u8],
        versions: &'a [u8],
    },
    /// A 1-RTT packet; extends to the end of the datagram.
    Short {
        dcid: ConnectionId,
        pn_offset: usize,
        packet_len: usize,
    },
    /// A packet of another version: only what RFC 8999 guarantees, with connection IDs of up to 255
    /// bytes; extends to the end of the datagram.
    Unsupported {
        version: u32,
        dcid: &'a [u8],
        scid: &'a [u8],
    },
}

/// Why bytes are not a packet; the rest of such a datagram is dropped without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderError {
    /// The header, or the packet it announces, is longer than the datagram.
    UnexpectedEnd,
    /// The fixed bit of a v1 packet is 0.
    FixedBitClear,
    /// A connection ID exceeds 20 bytes in a v1 packet.
    CidTooLong,
    /// A Retry packet has no token (RFC 9000, section 17.2.5.2).
    EmptyRetryToken,
    /// A version list is empty, or its length is not a multiple of four bytes.
    VersionList,
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnexpectedEnd => "the datagram ends within a packet",
            Self::FixedBitClear => "the fixed bit is 0",
            Self::CidTooLong => "a connection ID exceeds 20 bytes",
            Self::EmptyRetryToken => "a Retry packet without a token",
            Self::VersionList => "a malformed list of versions",
        })
    }
}

impl std::error::Error for HeaderError {}

impl From<UnexpectedEnd> for HeaderError {
    fn from(_: UnexpectedEnd) -> Self {
        Self::UnexpectedEnd
    }
}

/// Splits the first packet off `datagram`. Connection IDs in short headers have `local_cid_len`
/// bytes.
///
/// An error does not affect earlier packets of the datagram, but no later one can be found.
#[inline]
pub fn parse(datagram: &[u8], local_cid_len: usize) -> Result<Header<'_>, HeaderError> {
    let mut reader = Reader::new(datagram);
    let first = reader.u8()?;
    if first & LONG_HEADER_BIT != 0 {
        return parse_long(datagram, reader);
    }
    if first & FIXED_BIT == 0 {
        return Err(HeaderError::FixedBitClear);
    }
    let dcid = cid(reader.bytes(local_cid_len)?)?;
    let pn_offset = 1 + local_cid_len;
    Ok(Header::Short {
        dcid,
        pn_offset,
        packet_len: datagram.len(),
    })
}

/// Parses the rest of a long header, after the first byte.
fn parse_long<'a>(datagram: &'a [u8], mut reader: Reader<'a>) -> Result<Header<'a>, HeaderError> {
    let version = reader.u32()?;
    let dcid = cid_bytes(&mut reader)?;
    let scid = cid_bytes(&mut reader)?;
    match version {
        0 => {
            let versions = reader.rest();
            if versions.is_empty() || !versions.len().is_multiple_of(4) {
                return Err(HeaderError::VersionList);
            }
            Ok(Header::VersionNegotiation {
                dcid,
                scid,
                versions,
            })
        }
        VERSION_1 => parse_v1(datagram, reader, cid(dcid)?, cid(scid)?),
        _ => Ok(Header::Unsupported {
            version,
            dcid,
            scid,
        }),
    }
}

/// Parses the rest of a v1 long header, after the connection IDs.
fn parse_v1<'a>(
    datagram: &'a [u8],
    mut reader: Reader<'a>,
    dcid: ConnectionId,
    scid: ConnectionId,
) -> Result<Header<'a>, HeaderError> {
    let version = VERSION_1;
    if datagram[0] & FIXED_BIT == 0 {
        return Err(HeaderError::FixedBitClear);
    }
    let kind = LongType::from_first_byte(datagram[0]);
    if kind == LongType::Retry {
        let rest = reader.rest();
        let (token, tag) = rest.split_last_chunk().ok_or(HeaderError::UnexpectedEnd)?;
        if token.is_empty() {
            return Err(HeaderError::EmptyRetryToken);
        }
        return Ok(Header::Retry {
            version,
            dcid,
            scid,
            token,
            integrity_tag: *tag,
        });
    }
    let token = if kind == LongType::Initial {
        reader.length_prefixed()?
    } else {
        &[]
    };
    let length = reader.varint()?;
    let pn_offset = datagram.len() - reader.remaining();
    if length > reader.remaining() as u64 {
        return Err(HeaderError::UnexpectedEnd);
    }
    let packet_len = pn_offset + length as usize;
    Ok(match kind {
        LongType::Initial => Header::Initial {
            version,
            dcid,
            scid,
            token,
            pn_offset,
            packet_len,
        },
        _ => Header::Long {
            kind,
            version,
            dcid,
            scid,
            pn_offset,
            packet_len,
        },
    })
}

fn cid_bytes<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], UnexpectedEnd> {
    let length = reader.u8()?;
    reader.bytes(usize::from(length))
}

fn cid(bytes: &[u8]) -> Result<ConnectionId, HeaderError> {
    ConnectionId::new(bytes).ok_or(HeaderError::CidTooLong)
}

/// The versions listed in [`Header::VersionNegotiation`].
pub fn versions(list: &[u8]) -> impl Iterator<Item = u32> {
    list.as_chunks()
        .0
        .iter()
        .map(|version| u32::from_be_bytes(*version))
}

/// The packet number length, from a first byte without header protection.
pub const fn pn_len_from_first_byte(first: u8) -> usize {
    (first & PN_LEN_MASK) as usize + 1
}

/// A long header being written: the positions of its parts, from the start of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LongHeader {
    /// Where the packet starts.
    pub start: usize,
    /// Where the Length field is: two bytes.
    pub length_at: usize,
    /// Where the packet number starts.
    pub pn_offset: usize,
}

impl LongHeader {
    /// The largest value of the Length field: what its two bytes hold.
    pub const MAX_LENGTH: usize = 0x3fff;

    /// Fills in the Length field of a packet that will end at `packet_end`, including its tag.
    ///
    /// # Panics
    /// If packet number, payload and tag exceed [`Self::MAX_LENGTH`], or end before they start.
    pub fn set_length(&self, out: &mut [u8], packet_end: usize) {
        let length = packet_end - self.pn_offset;
        assert!(
            length <= Self::MAX_LENGTH,
            "a long header packet is shorter than 16 KiB"
        );
        out[self.length_at..][..2].copy_from_slice(&(length as u16 | 0x4000).to_be_bytes());
    }
}

/// Appends a v1 long header with its packet number; the Length field is filled in later.
///
/// Only Initial packets carry `token`.
///
/// # Panics
/// If `kind` is Retry, which has no packet number, or `pn_len` is not 1 to 4.
pub fn put_long(
    out: &mut Vec<u8>,
    kind: LongType,
    dcid: &ConnectionId,
    scid: &ConnectionId,
    token: &[u8],
    pn: u64,
    pn_len: usize,
) -> LongHeader {
    let type_bits = match kind {
        LongType::Initial => 0x00,
        LongType::ZeroRtt => 0x10,
        LongType::Handshake => 0x20,
        LongType::Retry => panic!("Retry packets are written by put_retry"),
    };
    let start = out.len();
    out.push(LONG_HEADER_BIT | FIXED_BIT | type_bits | pn_len_bits(pn_len));
    put_invariants(out, VERSION_1, dcid.as_slice(), scid.as_slice());
    if kind == LongType::Initial {
        varint::put(out, token.len() as u64);
        out.extend_from_slice(token);
    }
    let length_at = out.len();
    out.extend_from_slice(&0x4000_u16.to_be_bytes());
    let pn_offset = out.len();
    packet_number::put(out, pn, pn_len);
    LongHeader {
        start,
        length_at,
        pn_offset,
    }
}

/// Appends a short header; returns the position of the packet number in `out`.
///
/// # Panics
/// If `pn_len` is not 1 to 4.
#[inline]
pub fn put_short(
    out: &mut Vec<u8>,
    dcid: &ConnectionId,
    spin: bool,
    key_phase: bool,
    pn: u64,
    pn_len: usize,
) -> usize {
    let spin_bit = if spin { SPIN_BIT } else { 0 };
    let key_phase_bit = if key_phase { KEY_PHASE_BIT } else { 0 };
    out.push(FIXED_BIT | spin_bit | key_phase_bit | pn_len_bits(pn_len));
    out.extend_from_slice(dcid.as_slice());
    let pn_offset = out.len();
    packet_number::put(out, pn, pn_len);
    pn_offset
}

/// Appends a v1 Retry packet without its integrity tag, which covers what is written here.
pub fn put_retry(out: &mut Vec<u8>, dcid: &ConnectionId, scid: &ConnectionId, token: &[u8]) {
    // The low four bits are unused; the RFC's example sets them all.
    out.push(0xff);
    put_invariants(out, VERSION_1, dcid.as_slice(), scid.as_slice());
    out.extend_from_slice(token);
}

/// Appends a version negotiation packet: the answer to a packet with connection IDs `dcid` and
/// `scid`, swapped.
///
/// The sender can choose seven bits of the first byte, from `random_first_byte`. One of them is set
/// nevertheless, so that the packet can be distinguished from other protocols (RFC 9000, section
/// 17.2.1).
///
/// # Panics
/// If a connection ID exceeds 255 bytes, which no received one does.
pub fn put_version_negotiation(
    out: &mut Vec<u8>,
    dcid: &[u8],
    scid: &[u8],
    versions: &[u32],
    random_first_byte: u8,
) {
    out.push(LONG_HEADER_BIT | FIXED_BIT | random_first_byte);
    put_invariants(out, 0, dcid, scid);
    for version in versions {
        out.extend_from_slice(&version.to_be_bytes());
    }
}

/// Appends what follows the first byte in all versions (RFC 8999, section 5.1).
fn put_invariants(out: &mut Vec<u8>, version: u32, dcid: &[u8], scid: &[u8]) {
    out.extend_from_slice(&version.to_be_bytes());
    for cid in [dcid, scid] {
        out.push(u8::try_from(cid.len()).expect("a connection ID is at most 255 bytes"));
        out.extend_from_slice(cid);
    }
}

fn pn_len_bits(pn_len: usize) -> u8 {
    assert!(
        (1..=packet_number::MAX_LEN).contains(&pn_len),
        "a packet number takes 1 to 4 bytes"
    );
    pn_len as u8 - 1
}

/// The length of the longest v1 long header without its token: first byte, version, two connection
/// IDs, the Length field and a packet number.
pub const MAX_LONG_HEADER_LEN: usize = 1 + 4 + 2 * (1 + MAX_CID_LEN) + 2 + packet_number::MAX_LEN;

#[cfg(test)]
mod tests;
