//! The sending half: what may be sent when, and what counts as lost (RFC 5681, 6582, 6675, 6298).
//!
//! ```text
//! open      --3 duplicate ACKs, or SACK says so--> fast      window reduced once
//! any       --time-out--------------------------> timed out  everything counts as lost
//! fast, timed out  --all sent before is acknowledged--> open
//! ```
//! The congestion window is that of a controller of the engine. Bytes in flight are those that are
//! neither acknowledged, nor reported by SACK, nor lost and waiting to be sent again. Without SACK,
//! each duplicate acknowledgement stands for one segment that arrived.

use super::rtt::Rtt;
use anabranch_proto::congestion::{
    AckEvent, CongestionEvent, Controller, Member, RttView, SentEvent,
};
use anabranch_proto::time::Instant;
use anabranch_proto::wire::PathId;
use std::collections::VecDeque;
use std::time::Duration;

/// Duplicate acknowledgements after which a segment counts as lost (RFC 5681, section 3.2).
const DUPLICATES: u64 = 3;

/// The connection is given up after this many consecutive time-outs, as Linux does.
const MAX_TIMEOUTS: u32 = 15;

/// What a sender has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SendStats {
    /// Segments with content, including retransmissions.
    pub segments: u64,
    /// Retransmissions.
    pub retransmitted: u64,
    /// Recoveries triggered by duplicate acknowledgements or SACK.
    pub fast_retransmits: u64,
    /// Time-outs.
    pub timeouts: u64,
    /// Bytes of the stream that were acknowledged.
    pub acknowledged_bytes: u64,
}

#[derive(Debug, Clone, Copy)]
struct Sent {
    start: u64,
    /// Bytes of content; the end of the stream counts as one byte.
    length: u64,
    at: Instant,
    /// Whether it was sent more than once.
    repeated: bool,
    sacked: bool,
    /// Lost, and waiting to be sent again.
    lost: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    /// Fast recovery, until this offset is acknowledged.
    Fast(u64),
    TimedOut(u64),
}

/// A piece of the stream to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) start: u64,
    pub(super) length: u64,
    pub(super) fin: bool,
}

/// The content of an acknowledgement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Acked<'a> {
    /// The first offset the peer is missing.
    pub(super) next: u64,
    /// The first offset the peer has no room for.
    pub(super) limit: u64,
    pub(super) sack: &'a [(u64, u64)],
    /// Whether the segment carries nothing else.
    pub(super) is_bare: bool,
}

#[derive(Debug)]
pub(super) struct Sender {
    mss: u64,
    sack: bool,
    buffer: u64,
    controller: Box<dyn Controller>,
    pub(super) rtt: Rtt,
    /// The first unacknowledged offset.
    una: u64,
    /// The first offset never sent.
    next: u64,
    /// The end of what the application has provided so far.
    end: u64,
    /// Whether the application has closed; the end of the stream then takes one number.
    closed: bool,
    limit: u64,
    segments: VecDeque<Sent>,
    sacked: u64,
    lost: u64,
    resend: VecDeque<u64>,
    highest_sacked: u64,
    /// Everything below this that can be declared lost has been.
    judged: u64,
    duplicates: u64,
    phase: Phase,
    /// Where the last recovery ends: no other one starts before that offset is passed (RFC 6582).
    recovered: u64,
    /// Whether the next retransmission may exceed the window, as the first one of a recovery does.
    urgent: bool,
    /// Offsets below this were sent while the window was the limit.
    limited: u64,
    last_sent: Instant,
    /// The highest offset of which the controller has an RTT.
    sampled: Option<u64>,
    timer: Option<Instant>,
    pub(super) stats: SendStats,
}

/// The parameters of a new sender.
#[derive(Debug)]
pub(super) struct SenderInit {
    pub(super) mss: u64,
    pub(super) sack: bool,
    pub(super) buffer: u64,
    pub(super) limit: u64,
    pub(super) controller: Box<dyn Controller>,
    pub(super) rtt: Rtt,
}

impl Sender {
    pub(super) fn new(init: SenderInit) -> Self {
        Self {
            mss: init.mss,
            sack: init.sack,
            buffer: init.buffer,
            controller: init.controller,
            rtt: init.rtt,
            una: 0,
            next: 0,
            end: 0,
            closed: false,
            limit: init.limit,
            segments: VecDeque::new(),
            sacked: 0,
            lost: 0,
            resend: VecDeque::new(),
            highest_sacked: 0,
            judged: 0,
            duplicates: 0,
            phase: Phase::Open,
            recovered: 0,
            urgent: false,
            limited: 0,
            last_sent: Instant::ZERO,
            sampled: None,
            timer: None,
            stats: SendStats::default(),
        }
    }

    /// The application provides more bytes.
    pub(super) fn extend(&mut self, bytes: u64) {
        self.end = self.end.saturating_add(bytes);
    }

    /// Bytes that the application may still provide before the buffer is full.
    pub(super) fn room(&self) -> u64 {
        let waiting = self.end - self.acknowledged();
        self.buffer.saturating_sub(waiting)
    }

    /// The application closes; unsent data is discarded.
    pub(super) fn cut(&mut self) {
        if !self.closed {
            self.end = self.end.min(self.next);
            self.closed = true;
        }
    }

    /// The application closes.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether all data and the end of the stream are acknowledged.
    pub(super) fn is_finished(&self) -> bool {
        self.closed && self.una > self.end
    }

    /// Acknowledged bytes of the stream.
    pub(super) fn acknowledged(&self) -> u64 {
        self.una.min(self.end)
    }

    /// The first offset never sent, which is the sequence number of a bare acknowledgement.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    pub(super) fn una(&self) -> u64 {
        self.una
    }

    pub(super) fn window(&self) -> u64 {
        self.controller.window()
    }

    pub(super) fn in_flight(&self) -> u64 {
        let there = (self.next - self.una) - self.sacked - self.lost;
        if self.sack {
            return there;
        }
        there.saturating_sub(self.duplicates * self.mss)
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.timer
    }

    /// Handles an acknowledgement.
    pub(super) fn handle_ack(&mut self, now: Instant, acked: &Acked<'_>) {
        if acked.next > self.next || acked.next < self.una {
            return;
        }
        let prior = self.in_flight();
        let is_update = acked.limit > self.limit;
        self.limit = self.limit.max(acked.limit);
        let mut newly = Newly::default();
        let advanced = acked.next > self.una;
        let was_limited = self.una < self.limited;
        if advanced {
            self.advance(now, acked.next, &mut newly);
        }
        if self.sack {
            for block in acked.sack {
                self.mark_sacked(*block, now, &mut newly);
            }
        }
        if let Some(sample) = newly.rtt_sample() {
            self.rtt.sample(sample);
        }
        if advanced {
            self.rtt.forget_timeouts();
            self.on_advance(newly.segments);
        } else if acked.is_bare && !is_update && self.una < self.next {
            let counts = !matches!(self.phase, Phase::TimedOut(_));
            self.duplicates += u64::from(counts);
        }
        self.look_for_losses(now);
        self.grow(now, &newly, prior, !was_limited);
        if advanced {
            let outstanding = self.una < self.next;
            self.timer = outstanding.then(|| now + self.rtt.timeout());
        }
    }

    fn advance(&mut self, now: Instant, to: u64, newly: &mut Newly) {
        let old = self.acknowledged();
        while let Some(front) = self.segments.front_mut() {
            if front.start >= to {
                break;
            }
            let end = front.start + front.length;
            let taken = end.min(to) - front.start;
            if front.sacked {
                self.sacked -= taken;
            } else {
                newly.count(now, front, taken);
            }
            if front.lost {
                self.lost -= taken;
            }
            if end > to {
                (front.start, front.length) = (to, end - to);
                if front.lost {
                    self.resend.push_front(to);
                }
                break;
            }
            self.segments.pop_front();
            newly.segments += 1;
        }
        self.una = to;
        self.stats.acknowledged_bytes += self.acknowledged() - old;
    }

    fn mark_sacked(&mut self, (start, end): (u64, u64), now: Instant, newly: &mut Newly) {
        if start >= end || end > self.next {
            return;
        }
        let first = self.segments.partition_point(|sent| sent.start < start);
        for sent in self.segments.range_mut(first..) {
            if sent.start + sent.length > end {
                break;
            }
            if sent.sacked {
                continue;
            }
            sent.sacked = true;
            self.sacked += sent.length;
            if std::mem::take(&mut sent.lost) {
                self.lost -= sent.length;
            }
            newly.count(now, sent, sent.length);
            self.highest_sacked = self.highest_sacked.max(sent.start);
        }
    }

    /// New data was acknowledged: duplicates are counted anew, and recoveries continue or end.
    fn on_advance(&mut self, segments: u64) {
        let until = match self.phase {
            Phase::Open => {
                self.duplicates = 0;
                return;
            }
            Phase::Fast(until) | Phase::TimedOut(until) => until,
        };
        if self.una >= until {
            self.phase = Phase::Open;
            self.duplicates = 0;
        } else if !self.sack {
            // One of these segments is the one that was missing; the others had already arrived.
            self.duplicates = self.duplicates.saturating_sub(segments.saturating_sub(1));
            if self.phase == Phase::Fast(until) {
                self.lose_first();
            }
        }
    }

    fn look_for_losses(&mut self, now: Instant) {
        if self.sack {
            if self.judge_by_sack() && self.phase == Phase::Open {
                self.start_recovery(now);
            }
        } else if self.phase == Phase::Open
            && self.duplicates >= DUPLICATES
            && (self.una > self.recovered || self.recovered == 0)
        {
            self.lose_first();
            self.start_recovery(now);
        }
    }

    /// Declares lost what lies below three segments that arrived (RFC 6675, `IsLost`).
    /// Retransmissions are left to the time-out. Returns whether anything was declared lost.
    fn judge_by_sack(&mut self) -> bool {
        if self.sacked == 0 {
            return false;
        }
        let highest = self.highest_sacked;
        let top = self.segments.partition_point(|sent| sent.start <= highest);
        let mut above = 0;
        let mut edge = 0;
        for sent in self.segments.range(..top).rev() {
            above += u64::from(sent.sacked);
            if above == DUPLICATES {
                edge = sent.start;
                break;
            }
        }
        // What was sent during this recovery is judged once it is over, since it may start another
        // one.
        if let Phase::Fast(until) = self.phase {
            edge = edge.min(until);
        }
        let from = self.judged.max(self.una);
        if edge <= from {
            return false;
        }
        let first = self.segments.partition_point(|sent| sent.start < from);
        let mut found = false;
        for sent in self.segments.range_mut(first..) {
            if sent.start >= edge {
                break;
            }
            if !sent.sacked && !sent.lost && !sent.repeated {
                sent.lost = true;
                self.lost += sent.length;
                self.resend.push_back(sent.start);
                found = true;
            }
        }
        self.judged = edge;
        found
    }

    fn lose_first(&mut self) {
        if let Some(front) = self.segments.front_mut()
            && !front.lost
        {
            front.lost = true;
            self.lost += front.length;
            self.resend.push_front(front.start);
            self.urgent = true;
        }
    }

    fn start_recovery(&mut self, now: Instant) {
        self.phase = Phase::Fast(self.next);
        self.recovered = self.next;
        self.urgent = true;
        self.stats.fast_retransmits += 1;
        self.reduce(now, false);
    }

    fn reduce(&mut self, now: Instant, persistent: bool) {
        let event = CongestionEvent {
            now,
            // A new recovery reduces the window even if nothing was sent since the last one ended.
            last_sent: now,
            bytes_lost: self.lost,
            bytes_in_flight: self.in_flight(),
            persistent,
            ecn: false,
            sent_in_flight: self.next - self.una,
        };
        let member = self.member();
        self.controller.on_congestion(&event, &[member]);
    }

    /// Tells the controller what arrived. During fast recovery the window stays the same; after a
    /// time-out an acknowledgement counts as one segment at most (RFC 3465, section 2.3).
    fn grow(&mut self, now: Instant, newly: &Newly, prior: u64, app_limited: bool) {
        let bytes = match self.phase {
            Phase::Fast(_) => return,
            Phase::Open => newly.bytes,
            Phase::TimedOut(_) => newly.bytes.min(self.mss),
        };
        let Some(largest_sent) = newly.latest else {
            return;
        };
        // An older one, acknowledged late, says nothing of the path as it is.
        let rtt_sample = newly.rtt_sample().filter(|_| newly.highest > self.sampled);
        if rtt_sample.is_some() {
            self.sampled = newly.highest;
        }
        let event = AckEvent {
            now,
            bytes,
            largest_sent,
            bytes_in_flight: self.in_flight(),
            prior_in_flight: prior,
            rtt_sample,
            rtt: RttView {
                latest: self.rtt.latest,
                min: self.rtt.min,
                smoothed: self.rtt.smoothed(),
            },
            rate: None,
            app_limited,
        };
        let member = self.member();
        self.controller.on_ack(&event, &[member]);
    }

    fn member(&self) -> Member {
        Member {
            path: PathId(0),
            is_self: true,
            window: self.controller.window(),
            ssthresh: self.controller.ssthresh(),
            smoothed_rtt: self.rtt.smoothed(),
            bytes_between_losses: self.controller.bytes_between_losses(),
            active: true,
            shares_bottleneck: true,
            probing_rtt: self.controller.is_probing_rtt(),
        }
    }

    /// Handles the timer; returns `false` if the peer is given up.
    pub(super) fn handle_timeout(&mut self, now: Instant) -> bool {
        if self.timer.is_none_or(|timer| timer > now) {
            return true;
        }
        self.timer = None;
        if self.una == self.next {
            return true;
        }
        if self.rtt.timeouts() >= MAX_TIMEOUTS {
            return false;
        }
        if self.rtt.timeouts() == 0 {
            self.reduce(now, true);
        }
        self.rtt.back_off();
        self.stats.timeouts += 1;
        self.resend.clear();
        self.lost = 0;
        for sent in self.segments.iter_mut().filter(|sent| !sent.sacked) {
            sent.lost = true;
            self.lost += sent.length;
            self.resend.push_back(sent.start);
        }
        self.duplicates = 0;
        self.judged = self.next;
        self.phase = Phase::TimedOut(self.next);
        self.recovered = self.next;
        self.urgent = true;
        self.timer = Some(now + self.rtt.timeout());
        true
    }

    /// The next piece to send.
    pub(super) fn poll(&mut self, now: Instant) -> Option<Piece> {
        let piece = self.poll_again(now).or_else(|| self.poll_new(now))?;
        self.last_sent = now;
        self.stats.segments += 1;
        if self.timer.is_none() {
            self.timer = Some(now + self.rtt.timeout());
        }
        let event = SentEvent {
            now,
            bytes: piece.length,
            bytes_in_flight: self.in_flight(),
            app_limited: false,
        };
        self.controller.on_sent(&event);
        Some(piece)
    }

    fn poll_again(&mut self, now: Instant) -> Option<Piece> {
        while let Some(start) = self.resend.front().copied() {
            let index = self.segments.partition_point(|sent| sent.start < start);
            let room = self.window().saturating_sub(self.in_flight());
            let sent = self.segments.get_mut(index);
            let Some(sent) = sent.filter(|sent| sent.start == start && sent.lost) else {
                self.resend.pop_front();
                continue;
            };
            if room < sent.length && !self.urgent {
                return None;
            }
            self.urgent = false;
            self.resend.pop_front();
            (sent.lost, sent.repeated, sent.at) = (false, true, now);
            self.lost -= sent.length;
            self.stats.retransmitted += 1;
            let (start, length) = (sent.start, sent.length);
            if start == self.una {
                // The segment that everything waits for gets a full time-out of its own (RFC 6675,
                // section 6).
                self.timer = Some(now + self.rtt.timeout());
            }
            return Some(self.piece(start, length));
        }
        None
    }

    fn poll_new(&mut self, now: Instant) -> Option<Piece> {
        if !self.resend.is_empty() {
            return None;
        }
        let there = self.end + u64::from(self.closed);
        let limit = self.limit.min(self.una.saturating_add(self.buffer));
        // The end of the stream alone needs no room.
        let limit = if self.next == self.end { there } else { limit };
        let length = there.min(limit).saturating_sub(self.next).min(self.mss);
        if length == 0 {
            return None;
        }
        if self.segments.is_empty() && now.since(self.last_sent) > self.rtt.timeout() {
            self.restart_after_idle(now);
        }
        // A small opening of the peer's window is not filled with a small segment (RFC 1122,
        // 4.2.3.4).
        if length < self.mss && self.next + length < there && !self.segments.is_empty() {
            return None;
        }
        if self.in_flight() + length > self.controller.window() {
            self.limited = self.next;
            return None;
        }
        let start = self.next;
        self.next += length;
        self.segments.push_back(Sent {
            start,
            length,
            at: now,
            repeated: false,
            sacked: false,
            lost: false,
        });
        Some(self.piece(start, length))
    }

    /// After an idle period the window says nothing about the current network, so no more than the
    /// initial window is sent at once (RFC 5681, section 4.1).
    fn restart_after_idle(&mut self, now: Instant) {
        if self.stats.acknowledged_bytes > 0 {
            self.controller.on_idle(now);
        }
    }

    fn piece(&self, start: u64, length: u64) -> Piece {
        let fin = self.closed && start + length > self.end;
        Piece {
            start,
            length: length - u64::from(fin),
            fin,
        }
    }
}

/// What one acknowledgement newly covers.
#[derive(Debug, Default)]
struct Newly {
    bytes: u64,
    segments: u64,
    /// Where the last of the segments begins.
    highest: Option<u64>,
    /// When the latest of the segments was sent.
    latest: Option<Instant>,
    /// Time since the latest was sent.
    shortest: Option<Duration>,
    /// Whether one of them was sent more than once: it may have filled a gap that the others waited
    /// for, so there is no RTT sample (Karn's rule).
    ambiguous: bool,
}

impl Newly {
    fn rtt_sample(&self) -> Option<Duration> {
        self.shortest.filter(|_| !self.ambiguous)
    }

    fn count(&mut self, now: Instant, sent: &Sent, bytes: u64) {
        self.bytes += bytes;
        self.highest = self.highest.max(Some(sent.start));
        self.latest = self.latest.max(Some(sent.at));
        let sample = now.since(sent.at);
        self.shortest = self.shortest.min(Some(sample)).or(Some(sample));
        self.ambiguous |= sent.repeated;
    }
}
