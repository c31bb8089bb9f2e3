//! How long packets of a tunnel may be: what the smallest path carries, less what is in front of
//! them (RFC 9484, section 10.1).

use crate::payloads;
use anabranch_masque::Extensions;
use anabranch_masque::datagram::stream_size;
use anabranch_net::Connection;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(250);
/// How long a path must be small before packets have to be. One that has just begun carries little
/// until it was probed.
pub(crate) const SMALL_FOR: Duration = Duration::from_secs(2);
/// Where packets travel in capsules, which have any length.
const IN_CAPSULES: u16 = 1400;

/// The room for packets of one request.
#[derive(Debug)]
pub(crate) struct Room {
    connection: Connection,
    in_datagrams: bool,
    overhead: usize,
    counts: Damped,
}

impl Room {
    /// Where `before` is what an earlier request had, less of it counts as it does later.
    pub(crate) fn new(
        connection: &Connection,
        stream: u64,
        in_datagrams: bool,
        agreed: Extensions,
        before: u16,
    ) -> Self {
        let mut room = Self {
            connection: connection.clone(),
            in_datagrams,
            overhead: stream_size(stream) + payloads::ip_overhead(agreed),
            counts: Damped {
                now: before,
                less_since: None,
            },
        };
        room.counts.takes(room.look(), Instant::now());
        room
    }

    /// The longest packet.
    pub(crate) fn now(&self) -> u16 {
        self.counts.now
    }

    fn look(&self) -> u16 {
        if !self.in_datagrams {
            return IN_CAPSULES;
        }
        let payload = self.connection.max_datagram_payload().unwrap_or(0);
        let room = payload.saturating_sub(self.overhead);
        room.min(usize::from(u16::MAX)) as u16
    }

    /// Waits until it is another.
    pub(crate) async fn changed(&mut self) -> u16 {
        loop {
            sleep(LOOK).await;
            let seen = self.look();
            if self.counts.takes(seen, Instant::now()) {
                return self.counts.now;
            }
        }
    }
}

/// A size that grows at once and shrinks if it stays small.
#[derive(Debug)]
struct Damped {
    now: u16,
    /// Since when there has been less.
    less_since: Option<Instant>,
}

impl Damped {
    /// Takes what is seen; returns whether that changes anything.
    fn takes(&mut self, seen: u16, at: Instant) -> bool {
        if seen < self.now && at - *self.less_since.get_or_insert(at) < SMALL_FOR {
            return false;
        }
        self.less_since = None;
        std::mem::replace(&mut self.now, seen) != seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_size_grows_at_once_and_shrinks_if_it_stays_small() {
        let at = Instant::now();
        let mut size = Damped {
            now: 0,
            less_since: None,
        };
        assert!(size.takes(1400, at));
        assert!(!size.takes(1164, at) && !size.takes(1164, at + SMALL_FOR / 2));
        assert!(!size.takes(1400, at + SMALL_FOR) && size.less_since.is_none());
        let later = at + SMALL_FOR * 2;
        assert!(!size.takes(1164, later) && size.takes(1164, later + SMALL_FOR));
        assert_eq!(size.now, 1164);
    }
}
