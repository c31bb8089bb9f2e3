//! Connection IDs and stateless reset tokens (RFC 9000, sections 5.1 and 10.3).

use std::cmp::Ordering;
use std::fmt;

/// The longest connection ID in QUIC v1, in bytes.
pub const MAX_CID_LEN: usize = 20;

/// A connection ID of 0 to 20 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ConnectionId {
    length: u8,
    bytes: [u8; MAX_CID_LEN],
}

impl ConnectionId {
    /// A connection ID of these bytes, or `None` if there are more than 20.
    #[inline]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > MAX_CID_LEN {
            return None;
        }
        let mut cid = Self {
            length: bytes.len() as u8,
            bytes: [0; MAX_CID_LEN],
        };
        cid.bytes[..bytes.len()].copy_from_slice(bytes);
        Some(cid)
    }

    /// The bytes on the wire.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        usize::from(self.length)
    }

    /// The whole value as numbers, for comparison.
    #[inline]
    fn key(&self) -> ([u64; 2], u32, u8) {
        let (words, rest) = self.bytes.split_at(16);
        let word = |at: usize| words[at..].first_chunk().copied().map(u64::from_ne_bytes);
        let rest = rest.first_chunk().copied().map(u32::from_ne_bytes);
        let words = [word(0).unwrap_or_default(), word(8).unwrap_or_default()];
        (words, rest.unwrap_or_default(), self.length)
    }

    /// Whether this is the zero-length connection ID.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

/// Any order will do for a search tree. This one compares numbers rather than bytes, since it is
/// used at least once for every packet that arrives.
impl Ord for ConnectionId {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for ConnectionId {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Debug for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice()
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A stateless reset token: proof that its sender once knew the connection.
///
/// Compared in constant time, so that someone who guesses learns nothing from how long a mismatch
/// takes (RFC 9000, section 10.3.1).
#[derive(Debug, Clone, Copy)]
pub struct ResetToken(pub [u8; 16]);

impl PartialEq for ResetToken {
    fn eq(&self, other: &Self) -> bool {
        self.0
            .iter()
            .zip(other.0)
            .fold(0, |differs, (a, b)| differs | (a ^ b))
            == 0
    }
}

impl Eq for ResetToken {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_ids_have_at_most_20_bytes() {
        assert!(ConnectionId::new(&[7; 21]).is_none());
        let cid = ConnectionId::new(&[7; 20]).unwrap();
        assert_eq!((cid.len(), cid.as_slice()), (20, [7; 20].as_slice()));
        assert!(ConnectionId::default().is_empty());
    }

    #[test]
    fn a_connection_id_prints_as_hex() {
        assert_eq!(
            ConnectionId::new(&[0x0a, 0xff]).unwrap().to_string(),
            "0aff"
        );
    }

    #[test]
    fn tokens_differ_if_any_byte_does() {
        let token = ResetToken([1; 16]);
        for at in 0..16 {
            let mut other = token;
            other.0[at] ^= 0x80;
            assert_ne!(token, other);
        }
        assert_eq!(token, ResetToken([1; 16]));
    }
}
