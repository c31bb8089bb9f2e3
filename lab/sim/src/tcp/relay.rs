//! A connection whose content comes from elsewhere and goes there: what a proxy ends.
//!
//! Where the other ends of this stack make up what they send from its offset, here it is kept until
//! the peer has acknowledged it. What arrives waits in the receiver until it is read.

use bytes::{Buf, Bytes, BytesMut};

/// What was written and not acknowledged.
#[derive(Debug, Default)]
pub(super) struct Relay {
    /// The offset of the first byte of `kept`.
    start: u64,
    kept: BytesMut,
}

impl Relay {
    /// Keeps bytes to be sent.
    pub(super) fn keep(&mut self, bytes: &[u8]) {
        self.kept.extend_from_slice(bytes);
    }

    /// Forgets what lies before this offset: it was acknowledged.
    pub(super) fn release(&mut self, acknowledged: u64) {
        let known = acknowledged.saturating_sub(self.start);
        self.kept.advance(known as usize);
        self.start += known;
    }

    /// A piece of what is kept.
    pub(super) fn content(&self, start: u64, length: u64) -> Bytes {
        let at = (start - self.start) as usize;
        Bytes::copy_from_slice(&self.kept[at..at + length as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_acknowledged_is_forgotten_and_the_rest_can_be_sent_again() {
        let mut relay = Relay::default();
        relay.keep(b"to be ");
        relay.keep(b"continued");
        assert_eq!(&relay.content(3, 7)[..], b"be cont");
        relay.release(6);
        relay.release(6);
        assert_eq!(&relay.content(6, 9)[..], b"continued");
        relay.release(15);
        relay.keep(b".");
        assert_eq!(&relay.content(15, 1)[..], b".");
    }
}
