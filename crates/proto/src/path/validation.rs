//! Proof that a peer receives what is sent to an address (RFC 9000, section 8.2).
//!
//! [`Validation`] decides when to send `PATH_CHALLENGE`, which answers count and when to give up.
//! [`Responses`] remembers which challenges of the peer are still to be answered. Neither decides
//! what happens to the path: that is its manager's part.
//!
//! ```text
//! start -> waiting --answered--> proven
//!             |  ^
//!             |  +-- repeated after 1, 2, 4.. PTO, at least twice a second unless a PTO is
//!             |      longer, with fresh bytes each time
//!             +-- 3 x max(PTO, initial PTO) --> failed
//! ```
//!
//! Timers: the next repetition, and the moment of failure.

#[cfg(test)]
mod tests;

use super::amplification::Amplification;
use crate::datagram::Tuple;
use crate::rng::Rng;
use crate::time::{Duration, Instant};
use smallvec::SmallVec;
use std::collections::VecDeque;

/// The PTO of a path whose RTT is unknown: the initial RTT of 333 ms plus four times half of it
/// (RFC 9002, section 6.2.2).
pub(crate) const INITIAL_PTO: Duration = Duration::from_millis(999);

/// How many PTOs an answer may take (RFC 9000, section 8.2.4).
const PTOS_TO_FAIL: u32 = 3;

/// Challenges are never repeated faster than this, however small the PTO: a path nobody answers on
/// may be a victim's.
const MIN_INTERVAL: Duration = Duration::from_millis(20);

/// Intervals stop doubling here, or at one PTO if that is longer: a path that comes to life before
/// its time is over must be asked once more.
const MAX_INTERVAL: Duration = Duration::from_millis(500);

/// Challenges one validation sends at most: as many as intervals from [`MIN_INTERVAL`] on leave
/// room for. The limit only bounds memory.
const MAX_CHALLENGES: usize = 10;

#[derive(Debug, Clone, Copy)]
struct Challenge {
    data: [u8; 8],
    sent: Instant,
    full_size: bool,
}

/// The validation of one route.
#[derive(Debug)]
pub(crate) struct Validation {
    rng: Rng,
    /// All challenges sent: an answer to any of them is proof (RFC 9000, section 8.2.3).
    sent: SmallVec<[Challenge; 4]>,
    next_at: Instant,
    interval: Duration,
    longest_interval: Duration,
    fails_at: Instant,
    proof: Option<Proof>,
}

#[derive(Debug, Clone, Copy)]
struct Proof {
    full_size: bool,
}

impl Validation {
    /// Starts to validate a route. `pto` is the route's current PTO, or anything up to
    /// [`INITIAL_PTO`] if nothing is known of it. The first challenge is due at once.
    pub(crate) fn start(now: Instant, rng: &mut Rng, pto: Duration) -> Self {
        let interval = pto.max(MIN_INTERVAL);
        Self {
            rng: rng.fork(),
            sent: SmallVec::new(),
            next_at: now,
            interval,
            longest_interval: interval.max(MAX_INTERVAL),
            fails_at: now + pto.max(INITIAL_PTO).saturating_mul(PTOS_TO_FAIL),
            proof: None,
        }
    }

    /// Whether a challenge should be sent now. Ask before [`poll_challenge`](Self::poll_challenge)
    /// if there may be no room for one.
    pub(crate) fn wants_challenge(&self, now: Instant) -> bool {
        self.proof.is_none()
            && self.sent.len() < MAX_CHALLENGES
            && now >= self.next_at
            && now < self.fails_at
    }

    /// The bytes of the challenge to send now, if one is due. They are new each time, so that an
    /// answer tells which challenge arrived.
    ///
    /// The datagram has to be expanded to 1200 bytes; if the amplification limit forbids it, call
    /// [`sent_small`](Self::sent_small).
    pub(crate) fn poll_challenge(&mut self, now: Instant) -> Option<[u8; 8]> {
        if !self.wants_challenge(now) {
            return None;
        }
        let data = self.rng.array();
        self.sent.push(Challenge {
            data,
            sent: now,
            full_size: true,
        });
        self.next_at = now + self.interval;
        self.interval = self.interval.saturating_mul(2).min(self.longest_interval);
        Some(data)
    }

    /// The last challenge went out in a datagram below 1200 bytes: an answer proves the address but
    /// not that the path carries full packets (RFC 9000, section 8.2.1).
    pub(crate) fn sent_small(&mut self) {
        if let Some(challenge) = self.sent.last_mut() {
            challenge.full_size = false;
        }
    }

    /// A `PATH_RESPONSE` arrived. Returns the round-trip time if it is the first to answer a
    /// challenge of this validation. The time is that of one exchange and no ordinary RTT sample:
    /// it may seed an estimate (RFC 9002, section 6.2.2).
    pub(crate) fn on_response(&mut self, data: [u8; 8], now: Instant) -> Option<Duration> {
        if self.proof.is_some() {
            return None;
        }
        let challenge = self.sent.iter().find(|challenge| challenge.data == data)?;
        self.proof = Some(Proof {
            full_size: challenge.full_size,
        });
        Some(now.since(challenge.sent))
    }

    /// Whether the address is proven.
    #[cfg(test)]
    pub(crate) fn is_validated(&self) -> bool {
        self.proof.is_some()
    }

    /// Whether the address is proven, but not that the path carries 1200 bytes: another validation
    /// with full datagrams has to follow (RFC 9000, section 8.2.1).
    pub(crate) fn needs_size_check(&self) -> bool {
        self.proof.is_some_and(|proof| !proof.full_size)
    }

    /// Whether no answer came in time. Late answers are still accepted by
    /// [`on_response`](Self::on_response), should the caller keep the validation.
    pub(crate) fn failed(&self, now: Instant) -> bool {
        self.proof.is_none() && now >= self.fails_at
    }

    /// When to look again: for the next repetition or the failure.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self.proof {
            Some(_) => None,
            None if self.sent.len() < MAX_CHALLENGES => Some(self.next_at.min(self.fails_at)),
            None => Some(self.fails_at),
        }
    }
}

/// Challenges of the peer that wait for an answer: the newest few.
///
/// A peer that floods us with challenges gets answers to its latest ones; older ones are forgotten,
/// as if they had been lost.
#[derive(Debug, Clone)]
pub(crate) struct Responses<T = [u8; 8]> {
    queue: VecDeque<T>,
}

impl<T: PartialEq> Responses<T> {
    /// The most answers that wait at a time.
    pub(crate) const CAPACITY: usize = 4;

    /// An empty queue.
    pub(crate) const fn new() -> Self {
        Self {
            queue: VecDeque::new(),
        }
    }

    /// Queues an answer, dropping the oldest one if there are too many. One that waits already is
    /// not queued twice.
    pub(crate) fn push(&mut self, item: T) {
        if self.queue.contains(&item) {
            return;
        }
        if self.queue.len() == Self::CAPACITY {
            self.queue.pop_front();
        }
        self.queue.push_back(item);
    }

    /// Takes the oldest answer that waits.
    pub(crate) fn pop(&mut self) -> Option<T> {
        self.queue.pop_front()
    }

    /// The oldest answer that waits.
    pub(crate) fn peek(&self) -> Option<&T> {
        self.queue.front()
    }

    /// Whether none waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

impl<T: PartialEq> Default for Responses<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// Challenges that came to a path from addresses it is not at: the newest few, each with what may
/// be sent back for it (RFC 9000, section 8).
#[derive(Debug, Clone, Default)]
pub(crate) struct Elsewhere {
    queue: Responses<Asked>,
}

#[derive(Debug, Clone, PartialEq)]
struct Asked {
    tuple: Tuple,
    data: [u8; 8],
    /// The packet that held the challenge.
    pn: u64,
    /// Bytes that may be sent back. A packet earns them once, whatever is in it.
    budget: u64,
}

/// What one address is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ElsewhereAnswers {
    /// Where to.
    pub(crate) tuple: Tuple,
    /// The challenges to echo, at most [`Responses::CAPACITY`].
    pub(crate) data: SmallVec<[[u8; 8]; 2]>,
    /// UDP payload bytes that may be sent.
    pub(crate) budget: u64,
}

impl Elsewhere {
    /// Packet `pn`, of `size` bytes, brought a challenge from `tuple`.
    pub(crate) fn push(&mut self, tuple: Tuple, data: [u8; 8], pn: u64, size: usize) {
        let mut account = Amplification::new();
        account.on_received(size as u64);
        let mut budget = account.budget();
        for other in &mut self.queue.queue {
            if other.pn == pn {
                // The newest of a packet's challenges holds its budget, as it is forgotten last.
                budget = std::mem::take(&mut other.budget);
            }
        }
        self.queue.push(Asked {
            tuple,
            data,
            pn,
            budget,
        });
    }

    /// Takes all that waits for the address that waits longest.
    pub(crate) fn pop(&mut self) -> Option<ElsewhereAnswers> {
        let tuple = self.queue.peek()?.tuple;
        let mut answers = ElsewhereAnswers {
            tuple,
            data: SmallVec::new(),
            budget: 0,
        };
        self.queue.queue.retain(|asked| {
            let taken = asked.tuple == tuple;
            if taken {
                answers.data.push(asked.data);
                answers.budget = answers.budget.saturating_add(asked.budget);
            }
            !taken
        });
        Some(answers)
    }

    /// Whether none waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}
