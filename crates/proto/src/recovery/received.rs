//! What the peer sent in one packet number space: duplicates, acknowledgements and when they are
//! due.
//!
//! One timer: the delay of an acknowledgement, in [`ReceivedPackets::deadline`].

use super::ack_policy::AckPolicy;
use super::sent::SentFrame;
use crate::datagram::Ecn;
use crate::packet::Frames;
use crate::time::{Duration, Instant};
use anabranch_wire::PathId;
use anabranch_wire::frame::{EcnCounts, Form, put_ack};
use std::collections::VecDeque;

/// How many ranges of packet numbers are remembered. The oldest are forgotten, and packets from
/// there on count as duplicates (RFC 9000, section 13.2.3).
pub const MAX_RANGES: usize = 128;

/// How many ranges one frame reports; older ones were reported by many frames before.
pub const MAX_REPORTED_RANGES: usize = 64;

/// How many gaps may come up before an acknowledgement is due, whatever the peer asked for: far
/// fewer than one frame reports, so that each range is reported more than once.
const MAX_UNREPORTED_GAPS: usize = MAX_REPORTED_RANGES / 4;

/// An acknowledgement is due after this many ack-eliciting packets (RFC 9000, section 13.2.2).
pub const ACK_ELICITING_THRESHOLD: u32 = 2;

/// The delay of acknowledgements unless another one is set (RFC 9000, section 18.2).
pub const MAX_ACK_DELAY: Duration = Duration::from_millis(25);

/// Binary exponent of our unit of acknowledgement delays and timestamps, in microseconds: the
/// default of the transport parameter, which is not sent.
pub(crate) const ACK_DELAY_EXPONENT: u64 = 3;

/// The packets received in one space.
#[derive(Debug)]
pub struct ReceivedPackets {
    /// Inclusive, ascending, with gaps between them.
    ranges: VecDeque<(u64, u64)>,
    /// Everything below counts as received.
    forgotten_below: u64,
    /// Everything below was reported by an acknowledgement that arrived.
    report_from: u64,
    /// Packets that came late and may be missing from acknowledgements already under way.
    late: [Option<Late>; 2],
    largest_time: Instant,
    largest_ack_eliciting: Option<u64>,
    counts: EcnCounts,
    ack_at: Option<Instant>,
    unreported: u32,
    /// Ranges that began since the last acknowledgement.
    unreported_gaps: usize,
    /// The largest number that an acknowledgement named.
    largest_reported: Option<u64>,
    /// Whether the last packet had a congestion mark.
    last_was_marked: bool,
    policy: AckPolicy,
}

/// Packets that arrived after ones with larger numbers.
#[derive(Debug, Clone, Copy)]
struct Late {
    /// The smallest of them.
    lowest: u64,
    /// The largest number received by then: a larger one in an acknowledgement proves that it was
    /// sent later and reports these packets.
    largest: u64,
}

impl Default for ReceivedPackets {
    fn default() -> Self {
        Self::new()
    }
}

impl ReceivedPackets {
    /// A state in which nothing was received.
    pub fn new() -> Self {
        Self {
            ranges: VecDeque::new(),
            forgotten_below: 0,
            report_from: 0,
            late: [None; 2],
            largest_time: Instant::ZERO,
            largest_ack_eliciting: None,
            counts: EcnCounts::default(),
            ack_at: None,
            unreported: 0,
            unreported_gaps: 0,
            largest_reported: None,
            last_was_marked: false,
            policy: AckPolicy::habit(ACK_ELICITING_THRESHOLD, MAX_ACK_DELAY),
        }
    }

    /// Delays acknowledgements by at most this; zero for the Initial and Handshake spaces.
    pub fn set_max_ack_delay(&mut self, delay: Duration) {
        self.policy.delay = delay;
    }

    /// Acknowledges after this many ack-eliciting packets; 0 counts as 1.
    pub fn set_ack_eliciting_threshold(&mut self, packets: u32) {
        self.policy.packets = packets.max(1);
    }

    /// Acknowledges as this says from now on, what is waiting included.
    pub fn set_policy(&mut self, now: Instant, policy: AckPolicy) {
        self.policy = policy;
        if let Some(at) = &mut self.ack_at {
            let enough = self.unreported >= policy.packets;
            *at = (*at).min(if enough { now } else { now + policy.delay });
        }
    }

    /// Whether the packet was received before, or is so old that this is no longer known.
    pub fn is_duplicate(&self, pn: u64) -> bool {
        match self.ranges.back() {
            _ if pn < self.forgotten_below => true,
            None => false,
            Some((_, largest)) if pn > *largest => false,
            Some((smallest, _)) if pn >= *smallest => true,
            Some(_) => {
                let at = self.ranges.partition_point(|(_, end)| *end < pn);
                self.ranges[at].0 <= pn
            }
        }
    }

    /// The largest number received.
    pub fn largest(&self) -> Option<u64> {
        self.ranges.back().map(|(_, end)| *end)
    }

    /// The number that is next if nothing is lost: what a shortened number is expanded around.
    pub fn expected(&self) -> u64 {
        self.largest().map_or(0, |largest| largest + 1)
    }

    /// Records a packet that was authenticated and is [no duplicate](Self::is_duplicate).
    ///
    /// An ack-eliciting packet makes an acknowledgement due: at once if it came out of order in
    /// this space, left a gap or was marked, as far as the policy says (RFC 9000, section 13.2.1;
    /// draft-ietf-quic-ack-frequency, section 6), or if there were enough of them; after the delay
    /// otherwise.
    pub fn on_received(&mut self, now: Instant, pn: u64, ack_eliciting: bool, ecn: Option<Ecn>) {
        match ecn {
            Some(Ecn::Ect0) => self.counts.ect0 += 1,
            Some(Ecn::Ect1) => self.counts.ect1 += 1,
            Some(Ecn::Ce) => self.counts.ce += 1,
            None => {}
        }
        let marked = ecn == Some(Ecn::Ce);
        let follows_mark = std::mem::replace(&mut self.last_was_marked, marked);
        match self.largest() {
            Some(largest) if pn < largest => self.note_late(pn, largest),
            _ => self.largest_time = now,
        }
        let start = self.insert(pn);
        if !ack_eliciting {
            return;
        }
        self.unreported = self.unreported.saturating_add(1);
        let in_order = self.largest_ack_eliciting.is_none_or(|previous| {
            // No gap: the range the packet joined reaches back to the previous one.
            pn > previous && start <= previous + 1
        });
        self.largest_ack_eliciting = self.largest_ack_eliciting.max(Some(pn));
        let policy = &self.policy;
        let displaced = match policy.reordering {
            0 => false,
            1 => !in_order,
            window => self.is_displaced(pn, window),
        };
        let at_once = displaced
            || marked && (policy.every_mark || !follows_mark)
            || self.unreported >= policy.packets
            || self.unreported_gaps >= MAX_UNREPORTED_GAPS;
        let due = if at_once { now } else { now + policy.delay };
        self.ack_at = Some(self.ack_at.map_or(due, |at| at.min(due)));
    }

    /// Whether the sender can tell a loss, or a loss that was none, by an acknowledgement sent now:
    /// a packet is missing by `window` numbers that no acknowledgement has shown to be, or `pn` is
    /// late by so many (draft-ietf-quic-ack-frequency, section 6.2).
    fn is_displaced(&self, pn: u64, window: u64) -> bool {
        let reported = self.largest_reported.and_then(|it| it.checked_sub(window));
        if reported.is_some_and(|reported| pn <= reported) {
            return true;
        }
        let unseen_from = reported.map_or(0, |reported| reported + 1);
        // The first range that ends a gap which reaches into what was not reported.
        let ranges = &self.ranges;
        let at = ranges.partition_point(|(start, _)| *start <= unseen_from);
        let at = at.max(1);
        if at >= ranges.len() {
            return false;
        }
        let missing = unseen_from.max(ranges[at - 1].1 + 1);
        let largest = self.largest_ack_eliciting.unwrap_or(pn);
        largest.saturating_sub(missing) >= window
    }

    /// Adds a number and returns where the range it belongs to starts.
    fn insert(&mut self, pn: u64) -> u64 {
        let start = match self.ranges.back_mut() {
            Some((start, end)) if *end + 1 == pn => {
                *end = pn;
                return *start;
            }
            Some((_, end)) if pn <= *end => self.insert_late(pn),
            _ => {
                self.ranges.push_back((pn, pn));
                self.unreported_gaps += 1;
                pn
            }
        };
        if self.ranges.len() > MAX_RANGES
            && let Some((_, end)) = self.ranges.pop_front()
        {
            self.forgotten_below = end + 1;
        }
        start
    }

    fn insert_late(&mut self, pn: u64) -> u64 {
        // The first range that ends at or after `pn`; there is one, as `pn` is not the largest.
        let at = self.ranges.partition_point(|(_, end)| *end < pn);
        let after = self.ranges[at].0;
        if after <= pn {
            return after;
        }
        let touches_before = at > 0 && self.ranges[at - 1].1 + 1 == pn;
        match (touches_before, pn + 1 == after) {
            (true, true) => {
                self.ranges[at - 1].1 = self.ranges[at].1;
                self.ranges.remove(at);
                self.ranges[at - 1].0
            }
            (true, false) => {
                self.ranges[at - 1].1 = pn;
                self.ranges[at - 1].0
            }
            (false, true) => {
                self.ranges[at].0 = pn;
                pn
            }
            (false, false) => {
                self.ranges.insert(at, (pn, pn));
                self.unreported_gaps += 1;
                pn
            }
        }
    }

    fn note_late(&mut self, pn: u64, largest: u64) {
        self.report_from = self.report_from.min(pn);
        // The first entry stays as it is until it is settled, or steady reordering would move it
        // out of reach of every acknowledgement.
        let entry = if self.late[0].is_none() {
            &mut self.late[0]
        } else {
            &mut self.late[1]
        };
        let lowest = entry.map_or(pn, |late| late.lowest.min(pn));
        *entry = Some(Late { lowest, largest });
    }

    /// Whether an acknowledgement must be sent now.
    pub fn ack_due(&self, now: Instant) -> bool {
        self.deadline().is_some_and(|at| at <= now)
    }

    /// When an acknowledgement must be sent; not later than now if at once.
    pub fn deadline(&self) -> Option<Instant> {
        if self.ranges.is_empty() {
            None
        } else {
            self.ack_at
        }
    }

    /// Whether ack-eliciting packets arrived since the last acknowledgement was written. One that
    /// rides along in a packet sent anyway is cheaper than one of its own later.
    pub fn has_unreported(&self) -> bool {
        self.unreported > 0
    }

    /// Makes an acknowledgement due at once.
    pub fn request_immediate(&mut self) {
        self.ack_at = Some(Instant::ZERO);
    }

    /// Appends an acknowledgement, or nothing if nothing was received or it would not fit.
    /// Afterwards everything counts as reported.
    pub fn write_ack(
        &mut self,
        now: Instant,
        frames: &mut Frames<'_>,
        form: Form,
        path: PathId,
    ) -> bool {
        let Some(largest) = self.largest() else {
            return false;
        };
        let from = self.report_from.min(largest);
        let newest_first = self.ranges.iter().rev().take_while(|(_, end)| *end >= from);
        let ranges = newest_first.map(|(start, end)| (*start).max(from)..=*end);
        let micros = u64::try_from(now.since(self.largest_time).as_micros()).unwrap_or(u64::MAX);
        let delay = micros >> ACK_DELAY_EXPONENT;
        let ecn = (self.counts != EcnCounts::default()).then_some(self.counts);
        let (out, limit) = frames.raw();
        let written = put_ack(
            out,
            form,
            path,
            ranges,
            MAX_REPORTED_RANGES,
            delay,
            ecn,
            limit,
        );
        if written.is_none() {
            return false;
        }
        frames.note(SentFrame::Ack { path, largest });
        self.unreported = 0;
        self.unreported_gaps = 0;
        self.largest_reported = Some(largest);
        self.ack_at = None;
        true
    }

    /// An acknowledgement we sent, up to number `largest`, arrived: what it reported need not be
    /// reported again (RFC 9000, section 13.2.4). Duplicates are still recognised.
    pub fn on_ack_acked(&mut self, largest: u64) {
        while self.late[0].is_some_and(|late| late.largest < largest) {
            self.late = [self.late[1], None];
        }
        let lowest = self.late.iter().flatten().map(|late| late.lowest).min();
        let settled = (largest + 1).min(lowest.unwrap_or(u64::MAX));
        self.report_from = self.report_from.max(settled);
    }
}

#[cfg(test)]
mod tests;
