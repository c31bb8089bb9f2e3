//! The receiving half: order, duplicates, and when and what to acknowledge.

use super::segment::MAX_SACK;
use anabranch_proto::time::Instant;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Bytes of new room that an idle sender is told of at once: two segments.
const WORTH_TELLING: u64 = 2 * 1460;

/// What a receiver has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReceiveStats {
    /// Segments with content.
    pub segments: u64,
    /// Segments that arrived before one that precedes them in the stream.
    pub out_of_order: u64,
    /// Bytes that had already arrived, which the sender sent again needlessly.
    pub duplicate_bytes: u64,
    /// The most bytes held while earlier ones were missing.
    pub peak_held_bytes: u64,
}

/// Restores the stream from bytes and their offsets.
#[derive(Debug)]
pub(super) struct Receiver {
    /// The first missing offset.
    next: u64,
    capacity: u64,
    /// Data that arrived early, without overlaps.
    early: BTreeMap<u64, Bytes>,
    held: u64,
    /// `early` merged into runs: the start and end of each.
    runs: BTreeMap<u64, u64>,
    /// The starts of recently extended runs, the latest first.
    recent: VecDeque<u64>,
    /// Data in order, for the application.
    ready: VecDeque<Bytes>,
    /// Bytes in `ready`.
    unread: u64,
    /// The end of the window that was announced last.
    announced: u64,
    fin: Option<u64>,
    delay: Option<Duration>,
    unacknowledged: u32,
    ack_now: bool,
    ack_at: Option<Instant>,
    pub(super) stats: ReceiveStats,
}

impl Receiver {
    /// A receiver with a buffer of this many bytes. With a `delay` it acknowledges every second
    /// segment (RFC 5681, section 4.2), without one every segment.
    pub(super) fn new(capacity: u64, delay: Option<Duration>) -> Self {
        Self {
            next: 0,
            capacity,
            early: BTreeMap::new(),
            held: 0,
            runs: BTreeMap::new(),
            recent: VecDeque::new(),
            ready: VecDeque::new(),
            unread: 0,
            announced: capacity,
            fin: None,
            delay,
            unacknowledged: 0,
            ack_now: false,
            ack_at: None,
            stats: ReceiveStats::default(),
        }
    }

    /// The next offset expected, which is one past the end of the stream once everything has
    /// arrived.
    pub(super) fn next(&self) -> u64 {
        self.next + u64::from(self.is_finished())
    }

    /// Whether everything up to the end has arrived.
    pub(super) fn is_finished(&self) -> bool {
        self.fin == Some(self.next)
    }

    /// Whether something is there to be read.
    pub(super) fn has_unread(&self) -> bool {
        self.unread > 0
    }

    /// The window to advertise: what nobody has read takes its room.
    pub(super) fn window(&self) -> u64 {
        self.capacity - self.unread
    }

    /// The next piece of the stream.
    pub(super) fn read(&mut self) -> Option<Bytes> {
        let bytes = self.ready.pop_front()?;
        self.unread -= bytes.len() as u64;
        Some(bytes)
    }

    /// Has the peer told of the room that reading made, once it is worth a segment (RFC 9293,
    /// section 3.8.6.2.2).
    pub(super) fn tell_of_room(&mut self) {
        let gained = (self.next + self.window()).saturating_sub(self.announced);
        self.ack_now |= gained >= WORTH_TELLING.min(self.capacity / 2);
    }

    /// Handles a segment with content or with the end of the stream.
    pub(super) fn handle(&mut self, now: Instant, start: u64, payload: Bytes, fin: bool) {
        let end = start + payload.len() as u64;
        self.stats.segments += u64::from(!payload.is_empty());
        if end > self.next + self.window() {
            self.ack_now = true;
            return;
        }
        if fin {
            self.fin = Some(end);
        }
        let before = self.next;
        let gap = !self.early.is_empty();
        if start > self.next {
            self.stats.out_of_order += 1;
            self.keep_early(start, payload);
        } else {
            self.keep_in_order(start, payload);
        }
        let in_order = self.next > before && !gap;
        self.unacknowledged += 1;
        match self.delay {
            Some(delay) if in_order && !fin && self.unacknowledged < 2 => {
                self.ack_at = Some(now + delay);
            }
            _ => self.ack_now = true,
        }
    }

    fn keep_in_order(&mut self, start: u64, mut payload: Bytes) {
        let known = (self.next - start).min(payload.len() as u64);
        self.stats.duplicate_bytes += known;
        let _ = payload.split_to(known as usize);
        if !payload.is_empty() {
            self.provide(payload);
        }
        while let Some(entry) = self.early.first_entry() {
            if *entry.key() > self.next {
                break;
            }
            let (start, mut piece) = entry.remove_entry();
            self.held -= piece.len() as u64;
            let known = (self.next - start).min(piece.len() as u64);
            self.stats.duplicate_bytes += known;
            let _ = piece.split_to(known as usize);
            if !piece.is_empty() {
                self.provide(piece);
            }
        }
        while let Some(entry) = self.runs.first_entry() {
            if *entry.key() > self.next {
                break;
            }
            entry.remove();
        }
    }

    fn provide(&mut self, piece: Bytes) {
        self.next += piece.len() as u64;
        self.unread += piece.len() as u64;
        self.ready.push_back(piece);
    }

    fn keep_early(&mut self, start: u64, mut payload: Bytes) {
        let mut at = start;
        // The part covered by the piece before is already held.
        if let Some((before, piece)) = self.early.range(..=at).next_back() {
            let covered = (before + piece.len() as u64).saturating_sub(at);
            let covered = covered.min(payload.len() as u64);
            self.stats.duplicate_bytes += covered;
            let _ = payload.split_to(covered as usize);
            at += covered;
        }
        while !payload.is_empty() {
            let following = self.early.range(at..).next();
            let following = following.map(|(start, piece)| (*start, piece.len() as u64));
            let free = following.map_or(payload.len() as u64, |(start, _)| {
                (start - at).min(payload.len() as u64)
            });
            if free > 0 {
                let piece = payload.split_to(free as usize);
                self.held += free;
                self.early.insert(at, piece);
                at += free;
                continue;
            }
            let Some((_, length)) = following else { break };
            let covered = length.min(payload.len() as u64);
            self.stats.duplicate_bytes += covered;
            let _ = payload.split_to(covered as usize);
            at += covered;
        }
        self.stats.peak_held_bytes = self.stats.peak_held_bytes.max(self.held);
        self.join(start, at);
    }

    /// Adds a run, and remembers it as the first one to report.
    fn join(&mut self, mut start: u64, mut end: u64) {
        if let Some((before, last)) = self.runs.range(..=start).next_back()
            && *last >= start
        {
            (start, end) = (*before, end.max(*last));
        }
        while let Some((&other, &last)) = self.runs.range(start..=end).next() {
            self.runs.remove(&other);
            end = end.max(last);
        }
        self.runs.insert(start, end);
        self.recent.push_front(start);
        let runs = &self.runs;
        let mut kept = 0;
        let mut seen = [u64::MAX; MAX_SACK];
        self.recent.retain(|one| {
            let keep = kept < MAX_SACK && runs.contains_key(one) && !seen.contains(one);
            if keep {
                seen[kept] = *one;
                kept += 1;
            }
            keep
        });
    }

    /// Blocks to report: the latest first (RFC 2018, section 4).
    pub(super) fn sack(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let run = |start: &u64| self.runs.get(start).map(|end| (*start, *end));
        self.recent.iter().filter_map(run)
    }

    /// Whether an acknowledgement is due.
    pub(super) fn wants_to_acknowledge(&self, now: Instant) -> bool {
        self.ack_now || self.ack_at.is_some_and(|at| at <= now)
    }

    /// When an acknowledgement will be due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.ack_at
    }

    /// Asks for an acknowledgement at once.
    pub(super) fn acknowledge_now(&mut self) {
        self.ack_now = true;
    }

    /// An acknowledgement is being sent.
    pub(super) fn on_acknowledged(&mut self) {
        self.announced = self.next + self.window();
        self.ack_now = false;
        self.ack_at = None;
        self.unacknowledged = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn piece(start: u64, length: u64) -> Bytes {
        (start..start + length).map(|at| at as u8).collect()
    }

    fn receive(receiver: &mut Receiver, start: u64, length: u64) {
        receiver.handle(Instant::ZERO, start, piece(start, length), false);
    }

    #[test]
    fn every_second_segment_in_order_and_every_other_at_once_is_acknowledged() {
        let mut receiver = Receiver::new(1000, Some(Duration::from_millis(40)));
        receive(&mut receiver, 0, 10);
        assert!(!receiver.wants_to_acknowledge(Instant::ZERO));
        assert_eq!(receiver.deadline(), Some(Instant::from_nanos(40_000_000)));
        receive(&mut receiver, 10, 10);
        assert!(receiver.wants_to_acknowledge(Instant::ZERO));
        receiver.on_acknowledged();
        receive(&mut receiver, 30, 10);
        assert!(receiver.wants_to_acknowledge(Instant::ZERO), "a gap");
        receiver.on_acknowledged();
        receive(&mut receiver, 20, 10);
        assert!(receiver.wants_to_acknowledge(Instant::ZERO), "filled");
        assert_eq!(receiver.next(), 40);
    }

    #[test]
    fn what_is_not_read_closes_the_window_and_reading_opens_it() {
        let mut receiver = Receiver::new(100, None);
        receive(&mut receiver, 0, 60);
        receive(&mut receiver, 60, 40);
        receiver.on_acknowledged();
        assert_eq!(receiver.window(), 0);
        receive(&mut receiver, 100, 10);
        assert_eq!(receiver.next(), 100, "there was no room");
        receiver.on_acknowledged();
        assert_eq!(receiver.read().map(|bytes| bytes.len()), Some(60));
        receiver.tell_of_room();
        assert!(receiver.wants_to_acknowledge(Instant::ZERO));
        assert_eq!(receiver.window(), 60);
    }

    #[test]
    fn a_little_room_is_not_worth_a_segment() {
        let mut receiver = Receiver::new(100, None);
        receive(&mut receiver, 0, 49);
        receiver.on_acknowledged();
        receiver.read();
        receiver.tell_of_room();
        assert!(!receiver.wants_to_acknowledge(Instant::ZERO));
    }

    #[test]
    fn the_latest_run_is_reported_first() {
        let mut receiver = Receiver::new(1000, None);
        for start in [20, 40, 60, 80, 50] {
            receive(&mut receiver, start, 10);
        }
        let sack: Vec<_> = receiver.sack().collect();
        assert_eq!(
            sack,
            [(40, 70), (80, 90), (20, 30)].map(|run| run)[..2].to_vec()
        );
        receive(&mut receiver, 0, 40);
        assert_eq!(receiver.next(), 70);
        assert_eq!(receiver.sack().collect::<Vec<_>>(), [(80, 90)]);
    }

    proptest! {
        #[test]
        fn whatever_the_order_the_stream_is_read_once_and_in_order(
            mut pieces in prop::collection::vec((0u64..200, 1u64..40), 1..60)
        ) {
            pieces.push((0, 120));
            pieces.push((120, 120));
            let mut receiver = Receiver::new(1000, None);
            let mut known = [false; 240];
            let mut duplicates = 0;
            let mut read = Vec::new();
            for (start, length) in pieces {
                receive(&mut receiver, start, length);
                for at in start..start + length {
                    duplicates += u64::from(std::mem::replace(&mut known[at as usize], true));
                }
                let missing = known.iter().position(|known| !known).unwrap_or(240);
                prop_assert_eq!(receiver.next(), missing as u64);
                while let Some(bytes) = receiver.read() {
                    read.extend(bytes);
                }
                for (start, end) in receiver.sack() {
                    prop_assert!(known[start as usize..end as usize].iter().all(|known| *known));
                    prop_assert!(start > receiver.next());
                    prop_assert!(!known.get(end as usize).copied().unwrap_or(false));
                }
            }
            prop_assert_eq!(receiver.stats.duplicate_bytes, duplicates);
            prop_assert_eq!(receiver.held, 0);
            prop_assert_eq!(read, piece(0, 240).to_vec());
        }
    }
}
