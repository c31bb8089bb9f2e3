//! Stream bytes on their way out: unsent, sent, to be sent again, acknowledged.
//!
//! The end of a stream is treated as one more byte behind the last one. So the same sets tell
//! whether it was sent, lost or acknowledged, and a range that includes it is a frame with the FIN
//! bit.
//!
//! ```text
//! 0        base                     sent_end          end  end+1 (once finished)
//! | acked   | acked, sent or lost,   | fresh           | FIN |
//! |         | or fresh where a       |                 |     |
//! |         | scheduler skipped      |                 |     |
//! ```

use super::Release;
use super::ages::Ages;
use super::carriers::{Carriers, Paths};
use crate::path::PathSet;
use crate::ranges::RangeSet;
use crate::time::Instant;
use anabranch_wire::PathId;
use bytes::Bytes;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::ops::Range;

/// Parts of one frame's range; a frame seldom falls apart.
type Parts = SmallVec<[Range<u64>; 4]>;

/// Losing or delaying the first bytes of a stream delays all of it: about ten packets.
const HEAD: u64 = 12_000;

/// The last bytes of a stream have nothing behind them that would show their loss: two packets.
const TAIL: u64 = 2_400;

/// What one stream adds to the connection's backlog, in bytes. The end of a stream counts as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Load {
    /// Unsent bytes beyond all sent ones: they take connection credit.
    pub(super) above: u64,
    /// Unsent bytes that take no credit: left out by a scheduler, or a bare end of stream.
    pub(super) free: u64,
    /// Bytes to be sent again.
    pub(super) again: u64,
    /// Bytes sent and not acknowledged.
    pub(super) unacked: u64,
    /// All bytes held.
    pub(super) held: u64,
    /// Bytes between the first one that is not acknowledged and the last one sent.
    pub(super) span: u64,
}

#[derive(Debug, Default)]
pub(super) struct SendBuf {
    release: Release,
    /// Written bytes with the offset of each piece's first one. Acknowledged pieces are empty.
    chunks: VecDeque<(u64, Bytes)>,
    /// The piece that was read last: the next bytes are in it or in the one behind it.
    last_read: usize,
    /// Bytes written.
    end: u64,
    finished: bool,
    /// Everything below was acknowledged.
    base: u64,
    /// Acknowledged ranges above `base`.
    acked: RangeSet,
    /// Bytes never sent.
    fresh: RangeSet,
    /// Everything below was sent, but for what is in `fresh`.
    sent_end: u64,
    /// Bytes to be sent again; each has an entry in `carriers`.
    again: RangeSet,
    carriers: Carriers,
    ages: Ages,
}

impl SendBuf {
    pub(super) fn new(release: Release) -> Self {
        Self {
            release,
            ..Self::default()
        }
    }

    /// Appends bytes.
    pub(super) fn write(&mut self, data: Bytes) {
        let start = self.end;
        self.end += data.len() as u64;
        self.fresh.insert(start..self.end);
        self.chunks.push_back((start, data));
    }

    /// Marks the end of the stream behind the bytes written so far.
    pub(super) fn finish(&mut self) {
        self.finished = true;
        self.fresh.insert(self.end..self.end + 1);
    }

    /// Nothing that was sent arrived, and nothing was acknowledged: all of it is unsent again.
    pub(super) fn rewind(&mut self) {
        self.fresh = RangeSet::default();
        let end = self.end + u64::from(self.finished);
        if end > 0 {
            self.fresh.insert(0..end);
        }
        self.sent_end = 0;
        self.again = RangeSet::default();
        self.carriers = Carriers::default();
        self.ages = Ages::default();
    }

    /// Bytes written.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Offset behind the last byte sent: the final size of a stream that is reset now.
    pub(super) fn sent_end(&self) -> u64 {
        self.sent_end
    }

    /// Whether the end of the stream was written.
    pub(super) fn is_finished(&self) -> bool {
        self.finished
    }

    /// Whether everything, the end of the stream included, was acknowledged.
    pub(super) fn is_all_acked(&self) -> bool {
        self.finished && self.base > self.end
    }

    /// This stream's part of the backlog.
    pub(super) fn load(&self) -> Load {
        let above_base = self.end + u64::from(self.finished) - self.base;
        let unacked = above_base - self.acked.total();
        let above = self.end - self.sent_end;
        let fresh = self.fresh.total();
        // A FIN behind unsent bytes goes with them; alone it would claim their credit.
        let fin_waits = u64::from(above > 0 && self.finished);
        Load {
            above,
            free: fresh - above - fin_waits,
            again: self.again.total(),
            unacked: unacked - fresh,
            held: match self.release {
                Release::Acknowledged => unacked,
                Release::InOrder => above_base,
            },
            span: self.sent_end.saturating_sub(self.base),
        }
    }

    /// The range to send for the first time next, after leaving out `skip` unsent bytes. It ends
    /// where `credit` ends.
    pub(super) fn fresh_after(&self, mut skip: u64, credit: u64) -> Option<Range<u64>> {
        let highest = self.sent_end + credit;
        for range in self.fresh.iter() {
            let length = range.end - range.start;
            if skip >= length {
                skip -= length;
                continue;
            }
            let start = range.start + skip;
            let end = if self.end <= highest {
                range.end
            } else {
                range.end.min(highest)
            };
            return (start < end).then_some(start..end);
        }
        None
    }

    /// The range to send again next, with the paths that carried all of it.
    pub(super) fn again_front(&self) -> Option<(Range<u64>, PathSet)> {
        let range = self.again.first()?;
        let (end, paths) = self.carriers.at(range.start)?;
        Some((range.start..range.end.min(end), paths.ever))
    }

    /// When the oldest byte that is neither acknowledged nor unsent was first sent.
    pub(super) fn oldest_sent(&self) -> Option<Instant> {
        self.ages.oldest()
    }

    /// Whether the bytes to be sent for the first time next are among the first or the last ones.
    pub(super) fn is_critical(&self) -> bool {
        self.fresh.first().is_some_and(|next| {
            next.start < HEAD || self.finished && self.end.saturating_sub(next.start) <= TAIL
        })
    }

    /// `range` was sent for the first time, at `now`; returns the credit it took.
    pub(super) fn on_first_sent(&mut self, range: Range<u64>, now: Instant) -> u64 {
        let data_end = range.end.min(self.end);
        self.ages.on_sent(range.end, now);
        self.fresh.remove(range);
        let taken = data_end.saturating_sub(self.sent_end);
        self.sent_end += taken;
        taken
    }

    /// `range` was sent once more, on `path`.
    pub(super) fn on_sent_again(&mut self, range: Range<u64>, path: PathId) {
        self.again.remove(range.clone());
        self.carriers.update(range, |_, paths| paths.on_sent(path));
    }

    /// `range`, which a packet of `from` carries, was sent on `path` too.
    pub(super) fn on_copied(&mut self, range: Range<u64>, from: PathId, path: PathId) {
        self.again.remove(range.clone());
        self.carriers.update(range, |_, paths| {
            if paths.ever.is_empty() {
                paths.on_sent(from);
            }
            paths.on_sent(path);
        });
    }

    /// The oldest bytes sent and neither acknowledged nor queued again, up to where the history
    /// changes; with their paths, if they have an entry.
    pub(super) fn hole(&self) -> Option<(Range<u64>, Option<Paths>)> {
        let first = self.unacked_in(self.base..u64::MAX).next()?;
        let is_under_way = !self.fresh.contains(first.start) && !self.again.contains(first.start);
        let end = first.end.min(self.end + u64::from(self.finished));
        let not_under_way = [&self.fresh, &self.again];
        let cuts = not_under_way.map(|set| set.overlap(first.start..end).next());
        let end = cuts
            .into_iter()
            .flatten()
            .map(|cut| cut.start)
            .fold(end, u64::min);
        let (end, paths) = match self.carriers.at(first.start) {
            Some((known, paths)) => (end.min(known), Some(*paths)),
            None => (end.min(self.carriers.next_start(first.start)), None),
        };
        (is_under_way && first.start < end).then_some((first.start..end, paths))
    }

    /// The first part of `range` that is worth a copy on `path`: not acknowledged, not under way on
    /// it, and not under way on `max_copies` paths. What `path` lost it may carry again: it may
    /// still be sooner than the path that repairs it.
    pub(super) fn copyable(
        &self,
        range: Range<u64>,
        path: PathId,
        max_copies: usize,
    ) -> Option<Range<u64>> {
        self.unacked_in(range).find_map(|part| {
            let mut at = part.start;
            while at < part.end {
                match self.carriers.at(at) {
                    Some((end, paths))
                        if paths.live.contains(path) || paths.live.len() >= max_copies =>
                    {
                        at = end;
                    }
                    Some((end, _)) => return Some(at..end.min(part.end)),
                    // The parts of a range without an entry end where one begins.
                    None if max_copies <= 1 => at = self.carriers.next_start(at).min(part.end),
                    None => return Some(at..self.carriers.next_start(at).min(part.end)),
                }
            }
            None
        })
    }

    /// The copy of `range` on `path` is lost or no longer counted on. What no other path carries is
    /// to be sent again; returns how much that adds.
    pub(super) fn on_lost(&mut self, range: Range<u64>, path: PathId) -> u64 {
        let parts: Parts = self.unacked_in(range).collect();
        let mut added = 0;
        for part in parts {
            let again = &mut self.again;
            self.carriers
                .update(part, |same: Range<u64>, paths: &mut Paths| {
                    paths.on_lost(path);
                    if paths.live.is_empty() {
                        added += again.insert(same);
                    }
                });
        }
        added
    }

    /// `range` arrived: no copy of it is needed any more.
    pub(super) fn on_acked(&mut self, range: Range<u64>) {
        self.carriers.remove(range.clone());
        self.again.remove(range.clone());
        if range.start > self.base {
            self.acked.insert(range.clone());
            if self.release == Release::Acknowledged {
                self.free_acked_chunks(range);
            }
            return;
        }
        self.base = self.base.max(range.end);
        while let Some(next) = self.acked.first()
            && next.start <= self.base
        {
            self.acked.pop_first();
            self.base = self.base.max(next.end);
        }
        self.ages.on_base(self.base);
        while let Some((start, bytes)) = self.chunks.front()
            && self.chunks.get(1).map_or(self.end, |next| next.0) <= self.base
        {
            debug_assert!(bytes.is_empty() || start + bytes.len() as u64 <= self.base);
            self.chunks.pop_front();
            self.last_read = self.last_read.saturating_sub(1);
        }
    }

    /// Drops the memory of pieces above `base` that were acknowledged as a whole: acknowledgements
    /// are final (RFC 9002, section 4.4), and a hole that a slow path has to fill may stay for
    /// long.
    fn free_acked_chunks(&mut self, range: Range<u64>) {
        let mut index = self.chunk_at(range.start);
        while let Some((start, bytes)) = self.chunks.get_mut(index)
            && *start < range.end
        {
            if self.acked.covers(&(*start..*start + bytes.len() as u64)) {
                *bytes = Bytes::new();
            }
            index += 1;
        }
    }

    /// Whether a byte of `range` was not acknowledged.
    pub(super) fn is_unacked(&self, range: &Range<u64>) -> bool {
        range.end > self.base && !self.acked.covers(&(range.start.max(self.base)..range.end))
    }

    fn unacked_in(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let start = range.start.max(self.base);
        self.acked.missing(start..range.end.max(start))
    }

    /// Appends the bytes of `range` to `out`.
    pub(super) fn copy_to(&mut self, range: Range<u64>, out: &mut Vec<u8>) {
        let mut at = range.start;
        let nearby = [self.last_read, self.last_read + 1];
        let known = nearby.into_iter().find(|index| self.is_in(*index, at));
        let mut index = known.unwrap_or_else(|| self.chunk_at(at));
        while at < range.end {
            let (start, bytes) = &self.chunks[index];
            let from = (at - start) as usize;
            let count = (bytes.len() - from).min((range.end - at) as usize);
            out.extend_from_slice(&bytes[from..from + count]);
            at += count as u64;
            self.last_read = index;
            index += 1;
        }
    }

    /// Whether a piece holds `offset`.
    fn is_in(&self, index: usize, offset: u64) -> bool {
        self.chunks.get(index).is_some_and(|(start, bytes)| {
            let place = offset.checked_sub(*start);
            place.is_some_and(|place| place < bytes.len() as u64)
        })
    }

    /// Index of the piece that holds `offset`.
    fn chunk_at(&self, offset: u64) -> usize {
        self.chunks
            .partition_point(|(start, _)| *start <= offset)
            .saturating_sub(1)
    }

    /// Frees everything: the stream is reset.
    pub(super) fn clear(&mut self) {
        self.chunks = VecDeque::new();
        self.last_read = 0;
        self.end = self.sent_end;
        self.base = self.sent_end;
        self.finished = false;
        self.acked.clear();
        self.fresh.clear();
        self.again.clear();
        self.carriers.clear();
        self.ages.clear();
    }
}

#[cfg(test)]
mod tests;
