//! The limit on bytes sent to an address that has not proved itself (RFC 9000, section 8).
//!
//! One per route: bytes are counted for one 4-tuple, so that a peer cannot earn credit with one
//! address and spend it on another.

use crate::packet::MIN_USEFUL_ROOM;

/// How many bytes may be sent for each byte received, before validation (RFC 9000, section 8.1).
const FACTOR: u64 = 3;

/// Counts what an unvalidated address may still be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Amplification {
    /// Bytes that may still be sent; `None` once the address is validated.
    credit: Option<u64>,
}

impl Amplification {
    /// An address that has proved nothing and sent nothing.
    pub(crate) const fn new() -> Self {
        Self { credit: Some(0) }
    }

    /// A datagram of this many bytes arrived from the address and belongs to the connection.
    pub(crate) fn on_received(&mut self, bytes: u64) {
        if let Some(credit) = &mut self.credit {
            *credit = credit.saturating_add(bytes.saturating_mul(FACTOR));
        }
    }

    /// This many bytes of UDP payload were sent to the address.
    pub(crate) fn on_sent(&mut self, bytes: u64) {
        if let Some(credit) = &mut self.credit {
            *credit = credit.saturating_sub(bytes);
        }
    }

    /// Bytes of UDP payload that may be sent now; `u64::MAX` if there is no limit.
    pub(crate) fn budget(&self) -> u64 {
        self.credit.unwrap_or(u64::MAX)
    }

    /// Whether a packet may be sent that says anything. A lone PING from a new address has to earn
    /// enough for a challenge.
    pub(crate) fn leaves_room(&self) -> bool {
        self.budget() >= MIN_USEFUL_ROOM as u64
    }

    /// The address proved that it receives what is sent to it.
    pub(crate) fn set_validated(&mut self) {
        self.credit = None;
    }
}

impl Default for Amplification {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_sent_to_an_address_that_sent_nothing() {
        assert_eq!(Amplification::new().budget(), 0);
    }

    #[test]
    fn three_times_the_received_bytes_may_be_sent_and_no_more() {
        let mut limit = Amplification::new();
        limit.on_received(1200);
        assert_eq!(limit.budget(), 3600);
        limit.on_sent(3000);
        assert_eq!(limit.budget(), 600);
        limit.on_received(10);
        assert_eq!(limit.budget(), 630);
        limit.on_sent(630);
        assert_eq!(limit.budget(), 0);
    }

    #[test]
    fn a_proof_lifts_the_limit_for_good() {
        let mut limit = Amplification::new();
        limit.set_validated();
        limit.on_sent(u64::MAX);
        limit.on_received(1);
        assert_eq!(limit.budget(), u64::MAX);
    }

    #[test]
    fn counters_saturate_instead_of_wrapping() {
        let mut limit = Amplification::new();
        limit.on_received(u64::MAX);
        limit.on_received(u64::MAX);
        limit.on_sent(u64::MAX);
        limit.on_sent(1);
        assert_eq!(limit.budget(), 0);
    }
}
