//! When a connection ends because nothing happens (RFC 9000, section 10.1).

use crate::time::{Duration, Instant};

/// A handshake in which nothing moves is given up after this long.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);

/// For how long nothing has happened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Idle {
    /// When something arrived last, or was sent first after that.
    since: Instant,
    /// Whether something ack-eliciting was sent since anything arrived.
    has_sent: bool,
}

impl Idle {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            since: now,
            has_sent: false,
        }
    }

    /// An authentic packet arrived.
    pub(crate) fn on_received(&mut self, now: Instant) {
        self.since = now;
        self.has_sent = false;
    }

    /// An ack-eliciting packet leaves.
    pub(crate) fn on_sent(&mut self, now: Instant) {
        if !self.has_sent {
            self.since = now;
        }
        self.has_sent = true;
    }

    /// When the time is over.
    pub(crate) fn deadline(&self, timeout: Duration) -> Instant {
        self.since + timeout
    }
}

/// The smaller time-out of both sides; `None` for never. `peers` is what the peer announced, zero
/// for never, once the handshake is complete. One that nobody finishes must not keep its place for
/// ever.
pub(crate) fn timeout(ours: Option<Duration>, peers: Option<Duration>) -> Option<Duration> {
    let peers = match peers {
        Some(peers) => Some(peers).filter(|peers| !peers.is_zero()),
        None => Some(HANDSHAKE_TIMEOUT),
    };
    ours.into_iter().chain(peers).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_of_several_packets_without_an_answer_puts_the_end_off() {
        let at = |secs: u64| Instant::from_nanos(secs * 1_000_000_000);
        let mut idle = Idle::new(at(0));
        let wait = Duration::from_secs(30);
        idle.on_sent(at(5));
        idle.on_sent(at(6));
        assert_eq!(idle.deadline(wait), at(35));
        idle.on_received(at(7));
        idle.on_sent(at(9));
        assert_eq!(idle.deadline(wait), at(39));
    }

    #[test]
    fn either_side_may_wait_for_ever_but_no_handshake_does() {
        let secs = |secs| Some(Duration::from_secs(secs));
        assert_eq!(timeout(secs(20), secs(10)), secs(10));
        assert_eq!(timeout(None, secs(10)), secs(10));
        assert_eq!(timeout(secs(20), secs(0)), secs(20));
        assert_eq!(timeout(None, secs(0)), None);
        assert_eq!(timeout(None, None), Some(HANDSHAKE_TIMEOUT));
        assert_eq!(timeout(secs(90), None), Some(HANDSHAKE_TIMEOUT));
    }
}
