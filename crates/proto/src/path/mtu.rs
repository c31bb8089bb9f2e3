//! How large a datagram a route carries (RFC 8899; RFC 9000, section 14.3).
//!
//! ```text
//!            +--- probe acknowledged: larger ---+
//!            v                                  |
//! new --> searching -- too narrow to go on --> settled -- 10 minutes later --> searching
//!            ^                                  |
//!            +------ black hole: minimum <------+  (from either state)
//! ```
//!
//! One probe is in flight at a time. A lost probe says that the size was too large, or nothing: it
//! is never a sign of congestion (RFC 9000, section 14.4), and only [`MAX_TRIES`] of one size rule
//! the size out. Losses of other packets are watched for a black hole: full-sized packets vanish
//! while small ones arrive. To tell that from a dead path, packets sent on a probe time-out must
//! not exceed [`MtuDiscovery::safe_size`].
//!
//! There is no timer: a search resumes with the traffic that wants a larger packet, so that an idle
//! connection stays idle. The first search may have to wait until the peer answered
//! ([`MtuDiscovery::hold_until_acked`]): only in a small window is a probe in the way of data.

#[cfg(test)]
mod tests;

use crate::time::{Duration, Instant};
use std::net::IpAddr;

/// Losses of a probe that rule out its size (RFC 8899, section 5.1.2).
pub(crate) const MAX_TRIES: u32 = 3;

/// A search ends when it cannot win more bytes than this.
const GRANULARITY: u16 = 16;

/// Losses of full-sized packets, each sent after the one before was noticed and with no success
/// between them, that reveal a black hole. A dead path that comes back shows one.
const BLACK_HOLE_BURSTS: u32 = 3;

/// What to search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MtuConfig {
    /// UDP payload that is taken for granted; at least 1200 bytes (RFC 9000, section 14).
    pub min: u16,
    /// The largest UDP payload to try.
    pub max: u16,
    /// The largest to try over IPv4, whose header is shorter than that of IPv6; [`Self::max`] if it
    /// is not more.
    pub max_ipv4: u16,
    /// How long a result stands (RFC 8899, section 5.1.1: `PMTU_RAISE_TIMER`).
    pub interval: Duration,
}

impl MtuConfig {
    /// From 1200 bytes to all that a packet of 1500 bytes holds, as Ethernet carries it: 1452 over
    /// IPv6, 1472 over IPv4; and again after 10 minutes.
    pub const ETHERNET: Self = Self {
        min: 1200,
        max: 1452,
        max_ipv4: 1472,
        interval: Duration::from_secs(600),
    };

    /// What to search on a route to this address.
    #[must_use]
    pub fn towards(self, remote: IpAddr) -> Self {
        let max = if remote.to_canonical().is_ipv4() {
            self.max.max(self.max_ipv4)
        } else {
            self.max
        };
        Self { max, ..self }
    }
}

impl Default for MtuConfig {
    /// From 1200 to 1452 bytes, which Ethernet carries whatever the version of IP, so that results
    /// do not depend on it; and again after 10 minutes.
    fn default() -> Self {
        Self {
            max_ipv4: 1452,
            ..Self::ETHERNET
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Probe {
    size: u16,
    pn: u64,
}

/// The search between a size that works and one that is ruled out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Search {
    /// The largest size not ruled out.
    high: u16,
    /// The size to try next.
    next: u16,
    /// How often it was lost.
    tries: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Searching(Search),
    Settled { again_at: Instant },
}

/// Losses that may become a black hole.
#[derive(Debug, Clone, Copy)]
struct Suspicion {
    bursts: u32,
    /// Packets sent later than this start a new burst when they are lost.
    noticed_at: Instant,
    /// The smallest size lost: successes below say nothing about it.
    size: u16,
    /// The latest packet lost: successes of earlier ones say nothing either.
    pn: u64,
}

/// The datagram size of one route.
#[derive(Debug, Clone)]
pub(crate) struct MtuDiscovery {
    config: MtuConfig,
    current: u16,
    /// What the peer receives: its `max_udp_payload_size`.
    peer_limit: u16,
    stage: Stage,
    /// Whether a search has come to its end. A black hole or a later search changes nothing: what
    /// the route carries for sure is known then.
    known: bool,
    /// No probe leaves before this packet, or a later one, is acknowledged.
    held_until: Option<u64>,
    probe: Option<Probe>,
    suspicion: Option<Suspicion>,
    probed_at: Instant,
}

impl MtuDiscovery {
    /// Starts at `initial` bytes of UDP payload, or the minimum if that is more, and searches up to
    /// the configured maximum.
    pub(crate) fn new(initial: u16, config: MtuConfig) -> Self {
        let min = config.min.max(anabranch_wire::MIN_DATAGRAM_SIZE as u16);
        let config = MtuConfig {
            min,
            max: config.max.max(min),
            ..config
        };
        let current = initial.clamp(config.min, config.max);
        let mut discovery = Self {
            config,
            current,
            peer_limit: u16::MAX,
            stage: Stage::Settled {
                again_at: Instant::ZERO,
            },
            known: false,
            held_until: None,
            probe: None,
            suspicion: None,
            probed_at: Instant::ZERO,
        };
        discovery.search_all();
        discovery
    }

    /// The peer's `max_udp_payload_size` became known. Values below 1200 are illegal and ignored.
    pub(crate) fn set_peer_limit(&mut self, bytes: u64) {
        self.peer_limit = u16::try_from(bytes)
            .unwrap_or(u16::MAX)
            .max(self.config.min);
        self.current = self.current.min(self.peer_limit);
        self.search_all();
    }

    /// UDP payload of the largest packet to send, in bytes.
    pub(crate) fn current(&self) -> u16 {
        self.current
    }

    /// Whether what the route carries was found once. Until then it may carry more by far than what
    /// packets are.
    pub(crate) fn is_known(&self) -> bool {
        self.known
    }

    /// UDP payload that every path carries: the most to put into a packet sent on a probe time-out,
    /// lest a black hole look like a dead path.
    pub(crate) fn safe_size(&self) -> u16 {
        self.config.min
    }

    /// A packet of `size` bytes arrived that was no probe. If it was as large as packets are, there
    /// is traffic that wants larger ones: a result that has stood long enough is doubted.
    pub(crate) fn resume(&mut self, now: Instant, size: u16) {
        if size >= self.current
            && self.probe.is_none()
            && matches!(self.stage, Stage::Settled { again_at } if now >= again_at)
        {
            self.search_all();
        }
    }

    /// The size of the probe to send now, if a search is under way and none is in flight. Report it
    /// to [`on_probe_sent`](Self::on_probe_sent).
    pub(crate) fn probe_due(&self) -> Option<u16> {
        match self.stage {
            Stage::Searching(search) if self.probe.is_none() && self.held_until.is_none() => {
                Some(search.next)
            }
            _ => None,
        }
    }

    /// Probes wait until packet `pn`, the next one to leave, or a later one is acknowledged: what
    /// is to be sent now needs the window.
    pub(crate) fn hold_until_acked(&mut self, pn: u64) {
        self.held_until = Some(pn);
    }

    /// A probe of `size` bytes went out as packet `pn`.
    pub(crate) fn on_probe_sent(&mut self, now: Instant, size: u16, pn: u64) {
        self.probe = Some(Probe { size, pn });
        self.probed_at = now;
    }

    /// A probe of this size was acknowledged. Returns the new datagram size if it grew.
    pub(crate) fn on_probe_acked(&mut self, size: u16) -> Option<u16> {
        if self.probe.is_some_and(|probe| probe.size == size) {
            self.probe = None;
        }
        // An answer that comes after a black hole or a new limit belongs to the past.
        let Stage::Searching(search) = self.stage else {
            return None;
        };
        if size <= self.current || size > search.high {
            return None;
        }
        self.current = size;
        self.clear_suspicion(size, u64::MAX);
        self.search(search.high);
        Some(size)
    }

    /// The probe in packet `pn` was declared lost, or given up with its path.
    pub(crate) fn on_probe_lost(&mut self, pn: u64) {
        let Some(probe) = self.probe.filter(|probe| probe.pn == pn) else {
            return;
        };
        self.probe = None;
        let Stage::Searching(search) = &mut self.stage else {
            return;
        };
        if search.next != probe.size {
            return;
        }
        search.tries += 1;
        if search.tries >= MAX_TRIES {
            let high = probe.size - 1;
            self.search(high);
        }
    }

    /// A packet of `size` bytes that was no probe was acknowledged.
    pub(crate) fn on_acked(&mut self, size: u16, pn: u64) {
        self.held_until = self.held_until.filter(|until| pn < *until);
        if self.suspicion.is_some() {
            self.clear_suspicion(size, pn);
        }
    }

    fn clear_suspicion(&mut self, size: u16, pn: u64) {
        if self
            .suspicion
            .is_some_and(|suspicion| size >= suspicion.size && pn > suspicion.pn)
        {
            self.suspicion = None;
        }
    }

    /// A packet of `size` bytes that was no probe was declared lost; it was sent at `time_sent`.
    /// Returns the lowered datagram size if that reveals a black hole; the congestion controller
    /// should learn of it. A search below the size that vanished follows.
    pub(crate) fn on_lost(
        &mut self,
        now: Instant,
        size: u16,
        pn: u64,
        time_sent: Instant,
    ) -> Option<u16> {
        if size <= self.config.min || self.current == self.config.min {
            return None;
        }
        let fresh = Suspicion {
            bursts: 0,
            noticed_at: Instant::ZERO,
            size,
            pn,
        };
        let suspicion = self.suspicion.get_or_insert(fresh);
        suspicion.size = suspicion.size.min(size);
        suspicion.pn = suspicion.pn.max(pn);
        if suspicion.bursts == 0 || time_sent > suspicion.noticed_at {
            suspicion.bursts += 1;
            suspicion.noticed_at = now;
        }
        if suspicion.bursts < BLACK_HOLE_BURSTS {
            return None;
        }
        let vanished = suspicion.size;
        self.suspicion = None;
        self.current = self.config.min;
        self.probed_at = now;
        self.search(vanished - 1);
        Some(self.current)
    }

    /// Searches everything above the current size, from the top: most routes carry it.
    fn search_all(&mut self) {
        let high = self.config.max.min(self.peer_limit);
        if high > self.current {
            self.stage = Stage::Searching(Search {
                high,
                next: high,
                tries: 0,
            });
        } else {
            self.settle();
        }
    }

    /// Goes on between the current size and `high`, by halves.
    fn search(&mut self, high: u16) {
        let room = high.saturating_sub(self.current);
        if room < GRANULARITY {
            self.settle();
        } else {
            self.stage = Stage::Searching(Search {
                high,
                next: self.current + room.div_ceil(2),
                tries: 0,
            });
        }
    }

    fn settle(&mut self) {
        self.known = true;
        self.stage = Stage::Settled {
            again_at: self.probed_at + self.config.interval,
        };
    }
}
