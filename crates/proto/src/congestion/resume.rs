//! Careful resume (RFC 9959): a path begins where an earlier connection left it, if it proves to be
//! the same path still.
//!
//! ```text
//! Reconnaissance ──(initial window acknowledged, RTT as remembered)──> Unvalidated
//! Unvalidated ──(first packet of it acknowledged, window full, or a round trip over)──> Validating
//! Validating ──(last unvalidated packet acknowledged)──> Normal
//! Unvalidated, Validating ──(loss or mark)──> Safe retreat ──(as Validating)──> Normal
//! Reconnaissance ──(loss or mark, another RTT, too late, no gain)──> Normal
//! Unvalidated ──(hardly anything was sent)──> Normal
//! ```
//!
//! It decides what the window may be and whether it grows; the controller it belongs to does all
//! else. What was sent is told apart by time: a packet sent at the moment of the jump counts as
//! sent after it. No timers: the next packet or acknowledgement after a round trip ends it.

use super::{AckEvent, CongestionEvent, RttView, SentEvent};
use crate::time::{Duration, Instant};

/// How long what was seen of a path is used: RFC 9959, section 2.4, leaves it open between minutes
/// and hours.
pub(crate) const MEMORY_LIFETIME: Duration = Duration::from_secs(60 * 60);

/// RFC 9959, section 3.3: the jump is to this part of what was remembered: other flows may have
/// come.
const JUMP_DIVISOR: u64 = 2;
/// RFC 9959, section 3.3, asks for a limit: 1.3 Gbit/s over 100 ms. A peer that acknowledges
/// what it did not get can have more remembered.
const MAX_JUMP: u64 = 16 << 20;
/// RFC 9959, section 3.5: what is kept of the pipe size after congestion is this part of it.
const RETREAT_DIVISOR: u64 = 2;
/// RFC 9959, section 3.2: an RTT that is not above this part of the remembered one is of another
/// path.
const SHORTER_RTT: u32 = 2;
/// RFC 9959, section 4.2.1: so is an RTT more than so many times the remembered one.
const LONGER_RTT: u32 = 10;
/// RFC 9959, section 3.1: less than so many initial windows are not worth remembering.
const LEAST_WINDOWS: u64 = 4;

/// What a connection saw of a path: bytes that it carried in a round trip, and its lowest RTT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathMemory {
    /// Bytes over 1024.
    kib: u32,
    rtt_us: u32,
}

impl PathMemory {
    /// Bytes of an encoded memory.
    pub(crate) const LEN: usize = 8;

    /// What is kept of a path that carried `bytes` in a round trip of `rtt`; nothing if either is
    /// too small to tell.
    pub fn new(bytes: u64, rtt: Duration) -> Option<Self> {
        let kib = u32::try_from(bytes / 1024).unwrap_or(u32::MAX);
        let rtt_us = u32::try_from(rtt.as_micros()).unwrap_or(u32::MAX);
        (kib > 0 && rtt_us > 0).then_some(Self { kib, rtt_us })
    }

    /// Bytes that the path carried in a round trip, to the nearest KiB below.
    pub fn bytes(self) -> u64 {
        u64::from(self.kib) * 1024
    }

    /// The lowest RTT, to the nearest microsecond below.
    pub fn rtt(self) -> Duration {
        Duration::from_micros(u64::from(self.rtt_us))
    }

    pub(crate) fn encode(self) -> [u8; Self::LEN] {
        (u64::from(self.kib) << 32 | u64::from(self.rtt_us)).to_be_bytes()
    }

    /// Reads what [`encode`](Self::encode) wrote; none if it is something else.
    pub(crate) fn decode(bytes: [u8; Self::LEN]) -> Option<Self> {
        let both = u64::from_be_bytes(bytes);
        let (kib, rtt_us) = ((both >> 32) as u32, both as u32);
        (kib > 0 && rtt_us > 0).then_some(Self { kib, rtt_us })
    }

    /// Whether a path of these round trips can be the same one.
    fn is_of_path(self, rtt: &RttView) -> bool {
        let remembered = self.rtt();
        rtt.min > remembered / SHORTER_RTT && rtt.smoothed <= remembered * LONGER_RTT
    }
}

/// Whether a path that carried `bytes` in a round trip is worth remembering.
pub(super) fn is_memorable(bytes: u64, initial_window: u64) -> bool {
    bytes >= LEAST_WINDOWS * initial_window
}

/// What an acknowledgement means for the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// It grows as the controller has it.
    Grow,
    /// It stays as it is.
    Hold,
    /// It is this from now on.
    Set(u64),
    /// It grows, and slow start ends at this.
    LimitSlowStart(u64),
}

/// How far a path has come with what an earlier connection saw of it.
#[derive(Debug, Clone, Default)]
pub(super) struct CarefulResume {
    phase: Phase,
    /// The window that the path began with, in bytes.
    initial: u64,
}

#[derive(Debug, Clone, Copy, Default)]
enum Phase {
    /// There is nothing to resume, or no more.
    #[default]
    Normal,
    /// As if nothing were known, until the path is confirmed.
    Reconnaissance {
        memory: PathMemory,
        until: Instant,
        acked: u64,
    },
    /// More is in flight than the path is known to carry.
    Unvalidated(Jump),
    /// What was sent so is being acknowledged.
    Validating(Pipe),
    /// It was too much.
    SafeRetreat(Pipe),
}

#[derive(Debug, Clone, Copy)]
struct Jump {
    at: Instant,
    window: u64,
    /// Over which it is paced.
    rtt: Duration,
    /// When the first packet after it was sent.
    first: Option<Instant>,
    pipe: Pipe,
}

/// What the path is known to carry.
#[derive(Debug, Clone, Copy)]
struct Pipe {
    bytes: u64,
    /// When the last unvalidated packet was sent.
    last: Instant,
}

impl Pipe {
    fn on_ack(&mut self, ack: &AckEvent) {
        self.bytes = self.bytes.saturating_add(ack.bytes);
    }

    /// Whether nothing unvalidated is waited for any more.
    fn is_validated(&self, ack: &AckEvent) -> bool {
        ack.largest_sent >= self.last
    }
}

impl CarefulResume {
    /// An earlier connection saw this of the path, which begins with a window of `initial` bytes.
    pub(super) fn begin(&mut self, memory: PathMemory, until: Instant, initial: u64) {
        self.phase = Phase::Reconnaissance {
            memory,
            until,
            acked: 0,
        };
        self.initial = initial;
    }

    /// The path is another one, or starts over: what was remembered is of no use.
    pub(super) fn end(&mut self) {
        self.phase = Phase::Normal;
    }

    /// Whether the path has carried what its window holds, as far as this is concerned.
    pub(super) fn is_settled(&self) -> bool {
        matches!(self.phase, Phase::Normal | Phase::Reconnaissance { .. })
    }

    /// The phase for people and traces, where the window is not the controller's alone.
    pub(super) fn name(&self) -> Option<&'static str> {
        match self.phase {
            Phase::Normal | Phase::Reconnaissance { .. } => None,
            Phase::Unvalidated(_) => Some("unvalidated"),
            Phase::Validating(_) => Some("validating"),
            Phase::SafeRetreat(_) => Some("safe_retreat"),
        }
    }

    /// The rate in bytes per second that spreads the jump over a round trip.
    pub(super) fn pacing_rate(&self) -> Option<u64> {
        let Phase::Unvalidated(jump) = &self.phase else {
            return None;
        };
        let nanos = jump.rtt.as_nanos().max(1);
        let rate = u128::from(jump.window) * 1_000_000_000 / nanos;
        Some(u64::try_from(rate).unwrap_or(u64::MAX))
    }

    /// A packet was sent; returns what the window is if it changes. `room` is what a packet needs.
    pub(super) fn on_sent(&mut self, sent: &SentEvent, room: u64) -> Option<u64> {
        let Phase::Unvalidated(jump) = &mut self.phase else {
            return None;
        };
        jump.first.get_or_insert(sent.now);
        jump.pipe.last = sent.now;
        let is_full = sent.bytes_in_flight.saturating_add(room) > jump.window;
        let is_over = sent.now.since(jump.at) > jump.rtt;
        let jump = *jump;
        (is_full || is_over).then(|| self.validate(&jump, sent.bytes_in_flight))
    }

    /// An acknowledgement arrived while the window is `window`.
    pub(super) fn on_ack(&mut self, ack: &AckEvent, window: u64) -> Step {
        match &mut self.phase {
            Phase::Normal => Step::Grow,
            Phase::Reconnaissance {
                memory,
                until,
                acked,
            } => {
                *acked = acked.saturating_add(ack.bytes);
                // Without data for it a jump would only leave a window that nobody tried.
                if *acked < self.initial || ack.app_limited {
                    return Step::Grow;
                }
                let memory = Some(*memory).filter(|_| ack.now <= *until);
                self.jump(memory, ack, window)
            }
            Phase::Unvalidated(jump) => {
                jump.pipe.on_ack(ack);
                let is_acked = jump.first.is_some_and(|first| ack.largest_sent >= first);
                if !is_acked && ack.now.since(jump.at) <= jump.rtt {
                    return Step::Hold;
                }
                let jump = *jump;
                Step::Set(self.validate(&jump, ack.prior_in_flight))
            }
            Phase::Validating(pipe) => {
                pipe.on_ack(ack);
                if pipe.is_validated(ack) {
                    self.phase = Phase::Normal;
                }
                Step::Grow
            }
            Phase::SafeRetreat(pipe) => {
                pipe.on_ack(ack);
                if !pipe.is_validated(ack) {
                    return Step::Hold;
                }
                let limit = after_retreat(pipe.bytes);
                self.phase = Phase::Normal;
                Step::LimitSlowStart(limit)
            }
        }
    }

    /// The initial window is acknowledged and there is more to send.
    fn jump(&mut self, memory: Option<PathMemory>, ack: &AckEvent, window: u64) -> Step {
        let memory = memory.filter(|memory| memory.is_of_path(&ack.rtt));
        let target = memory.map_or(0, |memory| (memory.bytes() / JUMP_DIVISOR).min(MAX_JUMP));
        if target <= window {
            self.phase = Phase::Normal;
            return Step::Grow;
        }
        self.phase = Phase::Unvalidated(Jump {
            at: ack.now,
            window: target,
            rtt: ack.rtt.smoothed,
            first: None,
            pipe: Pipe {
                bytes: ack.prior_in_flight,
                last: ack.now,
            },
        });
        Step::Set(target)
    }

    /// Nothing more is sent on trust; returns the window, which is what is in flight at most.
    fn validate(&mut self, jump: &Jump, in_flight: u64) -> u64 {
        let (pipe, initial) = (jump.pipe, self.initial);
        if in_flight < initial || in_flight <= pipe.bytes {
            self.phase = Phase::Normal;
            return pipe.bytes.clamp(initial, jump.window.max(initial));
        }
        self.phase = Phase::Validating(pipe);
        in_flight.min(jump.window)
    }

    /// Packets were lost or marked; returns the pipe size if that is because of the jump.
    pub(super) fn on_congestion(&mut self, event: &CongestionEvent) -> Option<u64> {
        let pipe = match self.phase {
            Phase::Unvalidated(Jump { pipe, .. }) | Phase::Validating(pipe) => Some(pipe),
            Phase::SafeRetreat(pipe) if event.last_sent <= pipe.last && !event.persistent => {
                return None;
            }
            _ => None,
        };
        self.phase = match pipe {
            Some(pipe) if !event.persistent => Phase::SafeRetreat(pipe),
            _ => Phase::Normal,
        };
        pipe.map(|pipe| pipe.bytes)
    }
}

/// What is left of a pipe of this size after congestion, in bytes.
pub(super) fn after_retreat(pipe: u64) -> u64 {
    pipe / RETREAT_DIVISOR
}

#[cfg(test)]
mod tests;
