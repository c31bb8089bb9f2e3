//! A checked reader over received bytes.

use crate::varint;

/// The bytes ended before the value was complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnexpectedEnd;

/// Reads integers and slices off the front of a byte slice; a failed read consumes nothing.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads `bytes` from their start.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// The number of bytes not read yet.
    #[inline]
    pub fn remaining(&self) -> usize {
        self.bytes.len()
    }

    /// Whether all bytes have been read.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The next byte, without consuming it.
    #[inline]
    pub fn peek(&self) -> Option<u8> {
        self.bytes.first().copied()
    }

    /// The next `count` bytes.
    #[inline]
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], UnexpectedEnd> {
        let (head, tail) = self.bytes.split_at_checked(count).ok_or(UnexpectedEnd)?;
        self.bytes = tail;
        Ok(head)
    }

    /// The next `N` bytes as an array.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], UnexpectedEnd> {
        let (head, tail) = self.bytes.split_first_chunk().ok_or(UnexpectedEnd)?;
        self.bytes = tail;
        Ok(*head)
    }

    /// All remaining bytes.
    #[inline]
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.bytes)
    }

    /// One byte.
    #[inline]
    pub fn u8(&mut self) -> Result<u8, UnexpectedEnd> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// Two bytes, big-endian.
    #[inline]
    pub fn u16(&mut self) -> Result<u16, UnexpectedEnd> {
        self.array().map(u16::from_be_bytes)
    }

    /// Four bytes, big-endian.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, UnexpectedEnd> {
        self.array().map(u32::from_be_bytes)
    }

    /// A variable-length integer in any of its encodings.
    #[inline]
    pub fn varint(&mut self) -> Result<u64, UnexpectedEnd> {
        match self.peek().ok_or(UnexpectedEnd)? >> 6 {
            0 => self.u8().map(u64::from),
            1 => self.u16().map(|value| u64::from(value & 0x3fff)),
            2 => self.u32().map(|value| u64::from(value & 0x3fff_ffff)),
            _ => self
                .array()
                .map(|bytes| u64::from_be_bytes(bytes) & varint::MAX),
        }
    }

    /// Consumes zero bytes up to the first other byte or the end; returns how many.
    pub fn skip_zeros(&mut self) -> usize {
        let count = self
            .bytes
            .iter()
            .position(|byte| *byte != 0)
            .unwrap_or(self.bytes.len());
        self.bytes = &self.bytes[count..];
        count
    }

    /// Bytes that follow their own length, a variable-length integer.
    #[inline]
    pub fn length_prefixed(&mut self) -> Result<&'a [u8], UnexpectedEnd> {
        let mut ahead = self.clone();
        let length = usize::try_from(ahead.varint()?).map_err(|_| UnexpectedEnd)?;
        let bytes = ahead.bytes(length)?;
        *self = ahead;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_read_consumes_nothing() {
        let mut reader = Reader::new(&[0x05, 1, 2]);
        assert_eq!(reader.length_prefixed(), Err(UnexpectedEnd));
        assert_eq!(reader.u32(), Err(UnexpectedEnd));
        assert_eq!(reader.bytes(4), Err(UnexpectedEnd));
        assert_eq!(reader.rest(), [0x05, 1, 2]);
        assert_eq!(reader.varint(), Err(UnexpectedEnd));
    }

    #[test]
    fn a_length_beyond_memory_is_an_unexpected_end() {
        let mut reader = Reader::new(&[0xff; 16]);
        assert_eq!(reader.length_prefixed(), Err(UnexpectedEnd));
    }

    #[test]
    fn zeros_are_skipped_up_to_the_first_other_byte() {
        let mut reader = Reader::new(&[0, 0, 7, 0]);
        assert_eq!((reader.skip_zeros(), reader.u8()), (2, Ok(7)));
        assert_eq!((reader.skip_zeros(), reader.skip_zeros()), (1, 0));
    }
}
