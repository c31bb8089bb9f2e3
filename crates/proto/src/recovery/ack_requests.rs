//! What we asked of the peer's acknowledgements (draft-ietf-quic-ack-frequency), and what the peer
//! may be doing about it.
//!
//! One request serves all paths of a connection, so it must suit the path that needs
//! acknowledgements most: a quarter of the smallest window among the paths in use, within a quarter
//! of the smallest RTT, so that each of them hears four times in a round trip. It is repeated until
//! it is acknowledged or a newer one is sent; until then the longest delay that may be in force
//! counts.

use crate::time::{Duration, Instant};
use anabranch_wire::frame::AckFrequency;
use smallvec::SmallVec;

/// Requests sent and not acknowledged: no further one is made beyond these.
const MAX_UNSETTLED: usize = 4;

/// Acknowledgements wanted in a round trip.
const PER_ROUND_TRIP: u32 = 4;

/// Packets per acknowledgement of a peer that was asked for nothing (RFC 9000, section 13.2.2).
pub const USUAL_PACKETS: u32 = 2;

/// A wish: one acknowledgement for so many packets, after so long at the latest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wish {
    /// Ack-eliciting packets that make an acknowledgement due; at least 1.
    pub packets: u32,
    /// The longest delay.
    pub delay: Duration,
}

impl Wish {
    /// Whether another wish is far enough from this one to be worth a frame: a window that
    /// breathes is no news.
    fn is_far_from(&self, other: &Self) -> bool {
        let apart = |one: u128, two: u128, num: u128, den: u128| {
            one != two && (one * den >= two * num || two * den >= one * num)
        };
        apart(self.packets.into(), other.packets.into(), 2, 1)
            || apart(self.delay.as_micros(), other.delay.as_micros(), 3, 2)
    }
}

/// A path in use.
#[derive(Debug, Clone, Copy)]
pub struct Need {
    /// The path's window, in packets.
    pub packets: u64,
    /// The path's smoothed RTT.
    pub rtt: Duration,
}

/// What can be asked for.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Packets per acknowledgement at the most.
    pub packets: u32,
    /// The delay that the peer announced: the longest.
    pub announced: Duration,
    /// The shortest delay that it takes.
    pub shortest: Duration,
}

/// The requests of one connection.
#[derive(Debug, Default)]
pub struct AckRequests {
    pending: Option<Wish>,
    /// The newest request was lost and waits to be sent again.
    repeat: bool,
    newest: Option<(u64, Wish)>,
    next_sequence: u64,
    asked_at: Option<Instant>,
    /// The newest delay that the peer is known to have heard of.
    heard: Option<Duration>,
    /// Requests that the peer may have heard of since, oldest first.
    unsettled: SmallVec<[(u64, Duration); MAX_UNSETTLED]>,
}

impl AckRequests {
    /// Considers whether the peer acknowledges as often as is good for the paths in use.
    pub fn review(&mut self, now: Instant, bounds: Bounds, in_use: &[Need]) {
        let Some(packets) = in_use.iter().map(|need| need.packets).min() else {
            return;
        };
        let usual = Wish {
            packets: USUAL_PACKETS,
            delay: bounds.announced,
        };
        let rtts = || in_use.iter().map(|need| need.rtt);
        let part = u32::try_from(packets / u64::from(PER_ROUND_TRIP)).unwrap_or(u32::MAX);
        let wish = match part.min(bounds.packets) {
            0..=USUAL_PACKETS => usual,
            packets => Wish {
                packets,
                delay: (rtts().min().unwrap_or(bounds.announced) / PER_ROUND_TRIP)
                    .min(bounds.announced)
                    .max(bounds.shortest),
            },
        };
        self.ask(now, rtts().max().unwrap_or_default(), usual, wish);
    }

    /// Asks for something if that is news. Not more often than once in `interval`.
    fn ask(&mut self, now: Instant, interval: Duration, usual: Wish, wish: Wish) {
        let recent = self.asked_at.is_some_and(|at| now < at + interval);
        if recent || self.unsettled.len() == MAX_UNSETTLED {
            return;
        }
        let current = self.newest.map_or(usual, |(_, wish)| wish);
        let is_news = match self.newest {
            // Who was asked for nothing acknowledges often enough, whatever its delay.
            None => wish.packets != usual.packets && wish.is_far_from(&current),
            Some(_) => wish.is_far_from(&current),
        };
        self.pending = is_news.then_some(wish);
    }

    /// Whether a frame waits to be sent.
    pub fn is_pending(&self) -> bool {
        self.pending.is_some() || self.repeat
    }

    /// Whether the peer may be acknowledging more rarely than it would by itself.
    pub fn is_reduced(&self) -> bool {
        self.newest
            .is_some_and(|(_, wish)| wish.packets > USUAL_PACKETS)
    }

    /// The frame that waits.
    pub fn next_frame(&self, reordering_threshold: u64) -> Option<AckFrequency> {
        let (sequence, wish) = match (self.pending, self.newest) {
            (Some(wish), _) => (self.next_sequence, wish),
            (None, Some(newest)) if self.repeat => newest,
            _ => return None,
        };
        Some(AckFrequency {
            sequence,
            ack_eliciting_threshold: u64::from(wish.packets) - 1,
            max_ack_delay_us: wish.delay.as_micros() as u64,
            reordering_threshold,
        })
    }

    /// The frame that waited was written; returns its sequence number.
    pub fn on_sent(&mut self, now: Instant) -> u64 {
        self.repeat = false;
        if let Some(wish) = self.pending.take() {
            self.newest = Some((self.next_sequence, wish));
            self.unsettled.push((self.next_sequence, wish.delay));
            self.next_sequence += 1;
            self.asked_at = Some(now);
        }
        self.newest.map_or(0, |(sequence, _)| sequence)
    }

    /// The peer has this request: older ones mean nothing to it any more.
    pub fn on_acked(&mut self, sequence: u64) {
        let acked = self.unsettled.iter().find(|(known, _)| *known == sequence);
        if let Some((_, delay)) = acked {
            self.heard = Some(*delay);
            self.unsettled.retain(|(known, _)| *known > sequence);
            self.repeat &= !self.unsettled.is_empty();
        }
    }

    /// A packet with this request was lost. It may yet have arrived.
    pub fn on_lost(&mut self, sequence: u64) {
        let unsettled = self.unsettled.iter().any(|(known, _)| *known == sequence);
        let newest = self.newest.is_some_and(|(newest, _)| newest == sequence);
        self.repeat |= unsettled && newest;
    }

    /// The longest that the peer may hold an acknowledgement back, if it `announced` this at first.
    pub fn longest_delay(&self, announced: Duration) -> Duration {
        let current = self.heard.unwrap_or(announced);
        let delays = self.unsettled.iter().map(|(_, delay)| *delay);
        delays.fold(current, Duration::max)
    }
}

#[cfg(test)]
mod tests;
