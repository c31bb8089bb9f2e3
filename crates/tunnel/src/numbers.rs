//! Sequence numbers of datagrams (after draft-ihlar-masque-datagram-numbers).
//!
//! ```text
//! context ID (variable-length integer) | number (1, 2, 4 or 8 bytes) | payload
//! ```
//! Both sides agree beforehand on which contexts have numbered datagrams, and on the size of the
//! numbers. The first datagram of a context has number 0, and each further one has the next number;
//! only the lowest bits are sent.

use anabranch_wire::cursor::Reader;
use anabranch_wire::varint;

/// The size of a number on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum NumberSize {
    /// One byte: enough if fewer than 128 datagrams are in flight.
    One,
    /// Two bytes.
    Two,
    /// Four bytes: no datagram is ever late enough to be mistaken.
    #[default]
    Four,
    /// Eight bytes: the whole number.
    Eight,
}

impl NumberSize {
    /// Bytes on the wire.
    pub const fn bytes(self) -> usize {
        match self {
            Self::One => 1,
            Self::Two => 2,
            Self::Four => 4,
            Self::Eight => 8,
        }
    }

    /// The number closest to `expected` whose lowest bits are `truncated`.
    pub const fn expand(self, truncated: u64, expected: u64) -> u64 {
        let bits = 8 * self.bytes();
        if bits == 64 {
            return truncated;
        }
        let span = 1u64 << bits;
        let candidate = expected & !(span - 1) | truncated & (span - 1);
        if candidate.saturating_add(span / 2) <= expected && candidate <= u64::MAX - span {
            candidate + span
        } else if candidate > expected.saturating_add(span / 2) && candidate >= span {
            candidate - span
        } else {
            candidate
        }
    }
}

/// A datagram that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NumbersError {
    /// The datagram ends before its number does.
    #[error("the datagram ends before its sequence number")]
    Truncated,
}

/// A numbered datagram, as on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbered<'a> {
    /// The context the datagram belongs to.
    pub context: u64,
    /// The lowest bits of its number, of the given [`NumberSize`].
    pub truncated: u64,
    /// What the datagram carries.
    pub payload: &'a [u8],
}

impl<'a> Numbered<'a> {
    /// Decodes a datagram of a context with numbers of this size.
    ///
    /// # Errors
    /// [`NumbersError::Truncated`] if it is too short.
    pub fn decode(bytes: &'a [u8], size: NumberSize) -> Result<Self, NumbersError> {
        let mut reader = Reader::new(bytes);
        let context = reader.varint().map_err(|_| NumbersError::Truncated)?;
        let number = reader.bytes(size.bytes());
        let number = number.map_err(|_| NumbersError::Truncated)?;
        let truncated = number.iter().fold(0, |n, byte| n << 8 | u64::from(*byte));
        Ok(Self {
            context,
            truncated,
            payload: reader.rest(),
        })
    }

    /// The context of a datagram, which determines the size of its number.
    ///
    /// # Errors
    /// [`NumbersError::Truncated`] if it is too short.
    pub fn context_of(bytes: &[u8]) -> Result<u64, NumbersError> {
        let context = Reader::new(bytes).varint();
        context.map_err(|_| NumbersError::Truncated)
    }
}

/// Assigns numbers to the datagrams of one context.
#[derive(Debug, Clone)]
pub struct Numbering {
    context: u64,
    size: NumberSize,
    next: u64,
}

impl Numbering {
    /// Starts at 0. The context ID is at most 2^62 - 1.
    pub const fn new(context: u64, size: NumberSize) -> Self {
        Self {
            context,
            size,
            next: 0,
        }
    }

    /// Bytes in front of a payload.
    pub fn overhead(&self) -> usize {
        varint::size(self.context) + self.size.bytes()
    }

    /// The number of the next datagram.
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// Appends the header of the next datagram; returns its number.
    pub fn put_header(&mut self, out: &mut Vec<u8>) -> u64 {
        let number = self.next;
        self.next += 1;
        varint::put(out, self.context);
        out.extend_from_slice(&number.to_be_bytes()[8 - self.size.bytes()..]);
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SIZES: [NumberSize; 4] = [
        NumberSize::One,
        NumberSize::Two,
        NumberSize::Four,
        NumberSize::Eight,
    ];

    #[test]
    fn a_header_is_the_context_and_the_lowest_bytes_of_the_number() {
        let mut numbering = Numbering::new(64, NumberSize::Two);
        numbering.next = 0x1_2345;
        let mut out = Vec::new();
        assert_eq!(numbering.put_header(&mut out), 0x1_2345);
        out.extend_from_slice(b"payload");
        assert_eq!(out[..4], [0x40, 64, 0x23, 0x45]);
        assert_eq!(numbering.overhead(), 4);
        let read = Numbered::decode(&out, NumberSize::Two).unwrap();
        assert_eq!((read.context, read.truncated), (64, 0x2345));
        assert_eq!(read.payload, b"payload");
        assert_eq!(NumberSize::Two.expand(read.truncated, 0x1_2300), 0x1_2345);
    }

    #[test]
    fn a_short_datagram_is_refused() {
        for length in 0..5 {
            let bytes = [0x40, 64, 1, 2, 3];
            let read = Numbered::decode(&bytes[..length], NumberSize::Four);
            assert_eq!(read, Err(NumbersError::Truncated), "{length}");
        }
        assert!(Numbered::context_of(&[0x40]).is_err());
    }

    #[test]
    fn numbers_around_zero_and_the_end_expand_without_wrapping() {
        assert_eq!(NumberSize::One.expand(255, 0), 255);
        assert_eq!(NumberSize::One.expand(255, 256), 255);
        assert_eq!(NumberSize::One.expand(0, 255), 256);
        assert_eq!(NumberSize::One.expand(0, u64::MAX), u64::MAX - 255);
        assert_eq!(NumberSize::Eight.expand(7, u64::MAX), 7);
    }

    proptest! {
        #[test]
        fn a_number_within_half_the_range_of_the_expected_one_is_recovered(
            expected in 0..1u64 << 60,
            offset in -127i64..=127,
            size in prop::sample::select(SIZES.to_vec()),
        ) {
            let number = expected.saturating_add_signed(offset);
            let mut numbering = Numbering::new(0, size);
            numbering.next = number;
            let mut out = Vec::new();
            numbering.put_header(&mut out);
            let read = Numbered::decode(&out, size).unwrap();
            prop_assert_eq!(size.expand(read.truncated, expected), number);
        }

        #[test]
        fn any_bytes_decode_or_fail(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            for size in SIZES {
                if let Ok(read) = Numbered::decode(&bytes, size) {
                    prop_assert!(read.payload.len() < bytes.len());
                }
            }
        }
    }
}
