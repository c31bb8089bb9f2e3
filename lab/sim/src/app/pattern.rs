//! What streams carry: bytes that depend only on their offset, so that any of them can be checked.

use bytes::Bytes;

/// Length after which the pattern repeats: a prime, so that no packet or block size divides it.
const PERIOD: usize = 65_521;

/// The longest piece handed out at once.
const PIECE: usize = 64 * 1024;

/// Two periods of the pattern, so that any piece of it is one slice.
#[derive(Debug, Clone)]
pub(crate) struct Pattern(Bytes);

impl Pattern {
    pub(crate) fn new() -> Self {
        let byte = |at: usize| {
            let at = (at % PERIOD) as u32;
            (at.wrapping_mul(0x9e37_79b1) >> 19) as u8
        };
        Self((0..PERIOD + PIECE).map(byte).collect())
    }

    /// At most `length` bytes from this offset on.
    pub(crate) fn piece(&self, offset: u64, length: u64) -> Bytes {
        let start = (offset % PERIOD as u64) as usize;
        let length = length.min(PIECE as u64) as usize;
        self.0.slice(start..start + length)
    }

    /// Whether these are the bytes at this offset.
    pub(crate) fn is_at(&self, offset: u64, bytes: &[u8]) -> bool {
        let mut offset = offset;
        bytes.chunks(PIECE).all(|chunk| {
            let right = self.piece(offset, chunk.len() as u64);
            offset += chunk.len() as u64;
            right == chunk
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_at_the_wrong_offset_is_noticed() {
        let pattern = Pattern::new();
        let piece = pattern.piece(200_000, 5000);
        assert!(pattern.is_at(200_000, &piece));
        assert!(!pattern.is_at(200_001, &piece));
        assert!(!pattern.is_at(201_200, &piece));
        let next = pattern.piece(200_000 + PERIOD as u64, 5000);
        assert_eq!(piece, next);
    }
}
