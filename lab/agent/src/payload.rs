//! What is sent: a head that describes a unit, then meaningless bytes.

use bytes::{BufMut, Bytes, BytesMut};
use std::sync::LazyLock;

/// Bytes of a head.
pub(crate) const HEAD: usize = 28;

/// Bytes of a piece.
pub(crate) const PIECE: usize = 64 << 10;

/// The length of a unit that ends by time.
pub(crate) const ENDLESS: u64 = u64::MAX;

/// A piece of payload, in which neighbouring bytes always differ.
static PATTERN: LazyLock<Bytes> = LazyLock::new(|| (0..PIECE).map(|at| (at % 251) as u8).collect());

/// A piece of at most this many bytes.
pub(crate) fn piece(most: u64) -> Bytes {
    PATTERN.slice(..most.min(PIECE as u64) as usize)
}

/// Precedes each unit on a stream or connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    /// The flow, counted from 0.
    pub(crate) flow: u32,
    /// The unit's number in the flow.
    pub(crate) unit: u64,
    /// When it began, on the sender's clock.
    pub(crate) stamp_ns: u64,
    /// The number of bytes that follow.
    pub(crate) length: u64,
}

impl Head {
    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(HEAD);
        bytes.put_u32(self.flow);
        bytes.put_u64(self.unit);
        bytes.put_u64(self.stamp_ns);
        bytes.put_u64(self.length);
        bytes.freeze()
    }

    pub(crate) fn decode(bytes: &[u8; HEAD]) -> Self {
        let number = |at: usize| {
            let eight = bytes[at..at + 8].try_into().expect("eight bytes");
            u64::from_be_bytes(eight)
        };
        Self {
            flow: u32::from_be_bytes(bytes[..4].try_into().expect("four bytes")),
            unit: number(4),
            stamp_ns: number(12),
            length: number(20),
        }
    }
}

/// How many bits of a datagram's first word hold its number; the others hold the flow.
const NUMBER_BITS: u32 = 48;

/// A datagram of this many bytes, at least as many as its header needs.
pub(crate) fn datagram(flow: u32, number: u64, stamp_ns: u64, size: usize) -> Bytes {
    let mut bytes = BytesMut::with_capacity(size);
    bytes.put_u64(u64::from(flow) << NUMBER_BITS | number);
    bytes.put_u64(stamp_ns);
    bytes.resize(size.max(bytes.len()), 0);
    bytes.freeze()
}

/// The flow, the number and the creation time of a datagram; `None` if it is too short for them.
pub(crate) fn open_datagram(bytes: &[u8]) -> Option<(u32, u64, u64)> {
    let (first, rest) = bytes.split_first_chunk::<8>()?;
    let (second, _) = rest.split_first_chunk::<8>()?;
    let first = u64::from_be_bytes(*first);
    let number = first & ((1 << NUMBER_BITS) - 1);
    Some((
        (first >> NUMBER_BITS) as u32,
        number,
        u64::from_be_bytes(*second),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_and_datagrams_come_back_as_they_were() {
        let head = Head {
            flow: 3,
            unit: 1 << 40,
            stamp_ns: u64::MAX - 1,
            length: ENDLESS,
        };
        let bytes: [u8; HEAD] = head.encode()[..].try_into().unwrap();
        assert_eq!(Head::decode(&bytes), head);
        let datagram = datagram(999, 123_456, 77, 500);
        assert_eq!(datagram.len(), 500);
        assert_eq!(open_datagram(&datagram), Some((999, 123_456, 77)));
        assert_eq!(open_datagram(&datagram[..15]), None);
    }
}
