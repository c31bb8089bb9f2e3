//! The CRYPTO bytes of one encryption level (RFC 9000, section 19.6): a stream of each direction.

use crate::error::TransportError;
use crate::packet::Frames;
use crate::ranges::RangeSet;
use crate::recovery::sent::SentFrame;
use anabranch_wire::{TransportErrorCode, varint};
use std::collections::VecDeque;
use std::ops::Range;

/// The type of CRYPTO frames.
pub(super) const FRAME_TYPE: u64 = 0x06;
/// Bytes kept ahead of the first missing one. RFC 9000, section 7.5, asks for 4096 at least; a
/// server's certificates may take several times that.
const MAX_AHEAD: u64 = 64 * 1024;
/// Runs of bytes kept ahead of the first missing one: bounds the work that one-byte frames make.
const MAX_RUNS: usize = 256;

/// Bytes to send: kept until they are acknowledged.
#[derive(Debug, Default)]
pub(super) struct Sender {
    /// The offset of `data`'s first byte; all before it is acknowledged.
    base: u64,
    data: Vec<u8>,
    /// The offset of the first byte never sent.
    next: u64,
    lost: RangeSet,
    acked: RangeSet,
}

impl Sender {
    pub(super) fn append(&mut self, bytes: &[u8]) {
        self.data.extend_from_slice(bytes);
    }

    fn end(&self) -> u64 {
        self.base + self.data.len() as u64
    }

    /// What to send next: lost bytes before new ones.
    fn pending(&self) -> Option<Range<u64>> {
        let fresh = Some(self.next..self.end()).filter(|range| !range.is_empty());
        self.lost.first().or(fresh)
    }

    pub(super) fn is_pending(&self) -> bool {
        self.pending().is_some()
    }

    /// Appends frames while they fit; returns whether it appended any.
    pub(super) fn write(&mut self, frames: &mut Frames<'_>) -> bool {
        let before = frames.mark();
        while let Some(range) = self.pending() {
            let start = range.start;
            let header = varint::size(FRAME_TYPE) + varint::size(start);
            let room = frames.room().saturating_sub(header) as u64;
            // The length's own size is taken for the longest frame, hence never too small.
            let longest = (range.end - start).min(room);
            let longest = longest.min(room.saturating_sub(varint::size(longest) as u64));
            if longest == 0 {
                break;
            }
            let end = start + longest;
            let (out, _) = frames.raw();
            varint::put(out, FRAME_TYPE);
            varint::put(out, start);
            varint::put(out, longest);
            let at = (start - self.base) as usize;
            out.extend_from_slice(&self.data[at..at + longest as usize]);
            frames.note(SentFrame::Crypto {
                start,
                length: longest as u32,
            });
            self.lost.remove(start..end);
            self.next = self.next.max(end);
        }
        !frames.is_at(before)
    }

    /// The part of a sent frame that still matters.
    fn live(&self, start: u64, length: u32) -> Range<u64> {
        start.max(self.base)..(start + u64::from(length)).min(self.next)
    }

    pub(super) fn on_acked(&mut self, start: u64, length: u32) {
        let range = self.live(start, length);
        if range.is_empty() {
            return;
        }
        self.lost.remove(range.clone());
        self.acked.insert(range);
        let first = self.acked.first();
        if let Some(first) = first.filter(|first| first.start == self.base) {
            self.data.drain(..(first.end - self.base) as usize);
            self.base = first.end;
            self.acked.pop_first();
        }
    }

    pub(super) fn on_lost(&mut self, start: u64, length: u32) {
        let range = self.live(start, length);
        if range.is_empty() {
            return;
        }
        self.lost.insert(range);
        self.lost.subtract(&self.acked);
    }

    /// Forgets that anything was sent.
    pub(super) fn restart(&mut self) {
        self.next = self.base;
        self.lost = RangeSet::new();
    }
}

/// Received bytes: put in order for TLS.
#[derive(Debug, Default)]
pub(super) struct Receiver {
    /// The offset of the first byte not handed to TLS.
    delivered: u64,
    /// Bytes from `delivered` on; those outside `runs` are holes. What is taken off the front
    /// leaves the rest where it is: a peer may send a far byte first and then all others one by
    /// one.
    window: VecDeque<u8>,
    runs: RangeSet,
}

impl Receiver {
    /// Takes the bytes of one frame.
    pub(super) fn push(&mut self, offset: u64, data: &[u8]) -> Result<(), TransportError> {
        let end = offset.saturating_add(data.len() as u64);
        if end <= self.delivered {
            return Ok(());
        }
        let start = offset.max(self.delivered);
        if end - self.delivered > MAX_AHEAD {
            return Err(exceeded());
        }
        let (from, to) = (
            (start - self.delivered) as usize,
            (end - self.delivered) as usize,
        );
        if self.window.len() < to {
            self.window.resize(to, 0);
        }
        let places = self.window.range_mut(from..to);
        let bytes = &data[(start - offset) as usize..];
        places.zip(bytes).for_each(|(place, byte)| *place = *byte);
        self.runs.insert(start..end);
        if self.runs.len() > MAX_RUNS {
            Err(exceeded())
        } else {
            Ok(())
        }
    }

    /// The bytes that are next in order.
    pub(super) fn pop(&mut self) -> Option<Vec<u8>> {
        let first = self.runs.first();
        let end = first.filter(|run| run.start == self.delivered)?.end;
        self.runs.pop_first();
        let length = (end - self.delivered) as usize;
        self.delivered = end;
        Some(self.window.drain(..length).collect())
    }

    /// Whether bytes wait for a gap to be filled.
    pub(super) fn has_gap(&self) -> bool {
        self.runs.first().is_some()
    }

    /// Whether these bytes were all handed to TLS already.
    pub(super) fn is_repetition(&self, offset: u64, length: usize) -> bool {
        offset.saturating_add(length as u64) <= self.delivered
    }
}

fn exceeded() -> TransportError {
    let code = TransportErrorCode::CRYPTO_BUFFER_EXCEEDED;
    TransportError::new(code, "too much CRYPTO data out of order").in_frame(FRAME_TYPE)
}

#[cfg(test)]
mod tests;
