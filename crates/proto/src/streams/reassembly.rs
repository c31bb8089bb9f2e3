//! Stream bytes by offset: what arrives in any order is read in order.
//!
//! Memory depends on the span of offsets in use, which flow control bounds, and not on the number
//! of gaps: bytes live in blocks of fixed size, and each block that holds bytes behind a gap marks
//! them in a bitmap of an eighth of its size. A peer that sends every other byte costs no more than
//! one that sends all of them, and no arrangement of gaps costs more than time linear in its bytes.

use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;

/// Bytes of a block. Large enough that a reader gets long runs, small enough that a block behind
/// which the reader waits does not matter.
const BLOCK: u64 = 32 * 1024;
const WORDS: usize = BLOCK as usize / 64;

/// The received and unread part of a stream.
#[derive(Debug, Default)]
pub(super) struct Reassembly {
    /// Blocks from the one that holds `start` on.
    blocks: VecDeque<Option<Block>>,
    /// Offset of the first unread byte.
    start: u64,
    /// Offset of the first byte that has not arrived.
    ready: u64,
    /// Bytes that arrived beyond `ready`.
    out_of_order: u64,
    /// The bitmap of a block that was read, for the next one: all clear.
    spare: Option<Box<Bitmap>>,
}

/// A bit for each byte of a block.
type Bitmap = [u64; WORDS];

/// What [`Reassembly::insert`] made of its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Inserted {
    pub(super) fresh: u64,
    pub(super) duplicate: u64,
}

impl Reassembly {
    /// Takes bytes that lie within the window. Bytes that are there already are left as they are.
    pub(super) fn insert(&mut self, offset: u64, data: &[u8]) -> Inserted {
        let length = data.len() as u64;
        let end = offset + length;
        let known = self.ready.saturating_sub(offset).min(length);
        let data = &data[known as usize..];
        if data.is_empty() {
            return Inserted {
                fresh: 0,
                duplicate: length,
            };
        }
        let fresh = if offset <= self.ready && self.out_of_order == 0 {
            self.store(self.ready, data, false);
            self.ready = end;
            data.len() as u64
        } else {
            let fresh = self.store(offset + known, data, true);
            self.out_of_order += fresh;
            self.advance();
            fresh
        };
        Inserted {
            fresh,
            duplicate: length - fresh,
        }
    }

    /// Copies into blocks; with `mark`, sets the bits of the bytes and returns how many were clear.
    fn store(&mut self, mut offset: u64, mut data: &[u8], mark: bool) -> u64 {
        let first = self.start / BLOCK;
        let mut fresh = 0;
        while !data.is_empty() {
            let index = (offset / BLOCK - first) as usize;
            if index >= self.blocks.len() {
                self.blocks.resize_with(index + 1, || None);
            }
            let (head, tail) = data.split_at(data.len().min((BLOCK - offset % BLOCK) as usize));
            let base = (offset - offset % BLOCK).max(self.start);
            // A stream's first block grows with it: most streams are short, and few are bulk.
            let expected = if offset < BLOCK {
                head.len()
            } else {
                (BLOCK - base % BLOCK) as usize
            };
            let block = self.blocks[index].get_or_insert_with(|| Block::new(base, expected));
            block.write(offset, head);
            if mark {
                if block.early.is_none() {
                    let bitmap = self.spare.take();
                    block.early = bitmap.or_else(|| Some(Box::new([0; WORDS])));
                }
                fresh += block.mark(offset % BLOCK, head.len() as u64);
            }
            offset += head.len() as u64;
            data = tail;
        }
        fresh
    }

    /// Moves `ready` over bytes that arrived early.
    fn advance(&mut self) {
        let first = self.start / BLOCK;
        while self.out_of_order > 0 {
            let index = (self.ready / BLOCK - first) as usize;
            let Some(block) = self.blocks.get_mut(index).and_then(Option::as_mut) else {
                return;
            };
            let run = block.take_run(self.ready % BLOCK);
            self.ready += run;
            self.out_of_order -= run;
            if !self.ready.is_multiple_of(BLOCK) || run == 0 {
                return;
            }
        }
    }

    /// The next bytes in order, at most `max`; `None` if the next one has not arrived.
    pub(super) fn read(&mut self, max: usize) -> Option<Bytes> {
        let edge = (self.start / BLOCK + 1) * BLOCK;
        let count = (self.ready.min(edge) - self.start).min(max as u64);
        if count == 0 {
            return None;
        }
        let slot = self
            .blocks
            .front_mut()
            .expect("bytes that are ready lie in the first block");
        let block = slot.as_mut().expect("bytes that are ready lie in a block");
        self.start += count;
        if self.start == edge {
            let block = self
                .blocks
                .pop_front()
                .flatten()
                .expect("it was just found");
            self.spare = block.early.or(self.spare.take());
            return Some(block.data.freeze());
        }
        block.base = self.start;
        Some(block.data.split_to(count as usize).freeze())
    }

    /// Whether a read would yield bytes.
    pub(super) fn is_readable(&self) -> bool {
        self.ready > self.start
    }

    /// Offset of the first byte that has not arrived.
    pub(super) fn ready(&self) -> u64 {
        self.ready
    }

    /// Offset of the first unread byte.
    pub(super) fn start(&self) -> u64 {
        self.start
    }

    /// Bytes that wait behind a gap.
    pub(super) fn out_of_order(&self) -> u64 {
        self.out_of_order
    }

    /// Frees all bytes.
    pub(super) fn clear(&mut self) {
        self.blocks = VecDeque::new();
        self.spare = None;
        self.start = self.ready;
        self.out_of_order = 0;
    }
}

/// Bytes between two multiples of [`BLOCK`], from the first unread one on.
#[derive(Debug)]
struct Block {
    /// Offset of `data[0]` in the stream.
    base: u64,
    /// Bytes up to the last one that arrived; gaps hold zeros.
    data: BytesMut,
    /// The bytes that arrived early and are not ready yet, by their offsets modulo [`BLOCK`].
    early: Option<Box<Bitmap>>,
}

impl Block {
    fn new(base: u64, expected: usize) -> Self {
        Self {
            base,
            data: BytesMut::with_capacity(expected),
            early: None,
        }
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        let at = (offset - self.base) as usize;
        if at > self.data.len() {
            self.data.resize(at, 0);
        }
        let overlap = (self.data.len() - at).min(bytes.len());
        self.data[at..at + overlap].copy_from_slice(&bytes[..overlap]);
        self.data.extend_from_slice(&bytes[overlap..]);
    }

    /// Sets `count` bits from `from` on, where there is a bitmap; returns how many were clear.
    fn mark(&mut self, from: u64, count: u64) -> u64 {
        let Some(last) = (from + count).checked_sub(1).filter(|_| count > 0) else {
            return 0;
        };
        let Some(words) = &mut self.early else {
            return 0;
        };
        let (head, tail) = (u64::MAX << (from % 64), u64::MAX >> (63 - last % 64));
        let (first, last) = ((from / 64) as usize, (last / 64) as usize);
        if first == last {
            return set(&mut words[first], head & tail);
        }
        let mut fresh = set(&mut words[first], head) + set(&mut words[last], tail);
        let whole = &mut words[first + 1..last];
        fresh += if whole.iter().fold(0, |all, word| all | word) == 0 {
            // Nearly always, and without counting.
            whole.len() as u64 * 64
        } else {
            whole.iter().map(|word| u64::from(word.count_zeros())).sum()
        };
        whole.fill(u64::MAX);
        fresh
    }

    /// Clears the bits that are set without a gap from `from` on; returns their number.
    fn take_run(&mut self, from: u64) -> u64 {
        let Some(words) = &mut self.early else {
            return 0;
        };
        let (at, bit) = ((from / 64) as usize, from % 64);
        let head = take_ones(&mut words[at], bit);
        if head < 64 - bit {
            return head;
        }
        let behind = &mut words[at + 1..];
        let whole = behind.iter().take_while(|word| **word == u64::MAX).count();
        behind[..whole].fill(0);
        let tail = behind.get_mut(whole).map_or(0, |word| take_ones(word, 0));
        head + whole as u64 * 64 + tail
    }
}

/// Clears the bits that are set without a gap from `bit` on; returns their number.
fn take_ones(word: &mut u64, bit: u64) -> u64 {
    let ones = u64::from((*word >> bit).trailing_ones());
    let mask = u64::MAX.checked_shr(64 - ones as u32).unwrap_or(0);
    *word &= !(mask << bit);
    ones
}

/// Sets the bits of `mask`; returns how many were clear.
fn set(word: &mut u64, mask: u64) -> u64 {
    let fresh = (mask & !*word).count_ones();
    *word |= mask;
    u64::from(fresh)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pattern(range: std::ops::Range<u64>) -> Vec<u8> {
        range.map(|at| (at % 251) as u8).collect()
    }

    fn drain(buffer: &mut Reassembly, max: usize) -> Vec<u8> {
        std::iter::from_fn(|| buffer.read(max)).flatten().collect()
    }

    #[test]
    fn bytes_in_order_are_read_as_they_come() {
        let mut buffer = Reassembly::default();
        for start in (0..100_000).step_by(1000) {
            let inserted = buffer.insert(start, &pattern(start..start + 1000));
            assert_eq!(
                inserted,
                Inserted {
                    fresh: 1000,
                    duplicate: 0
                }
            );
            assert_eq!(drain(&mut buffer, usize::MAX), pattern(start..start + 1000));
        }
    }

    #[test]
    fn a_gap_holds_back_what_follows_it() {
        let mut buffer = Reassembly::default();
        buffer.insert(10, &pattern(10..20));
        assert!(!buffer.is_readable());
        assert_eq!(buffer.out_of_order(), 10);
        buffer.insert(0, &pattern(0..10));
        assert_eq!(buffer.out_of_order(), 0);
        assert_eq!(drain(&mut buffer, 7), pattern(0..20));
    }

    #[test]
    fn a_million_gaps_cost_an_eighth_more_than_none() {
        let mut buffer = Reassembly::default();
        let span = 2_000_000;
        for at in (1..span).step_by(2) {
            assert_eq!(buffer.insert(at, &pattern(at..at + 1)).fresh, 1);
        }
        let memory: usize = buffer
            .blocks
            .iter()
            .flatten()
            .map(|block| block.data.capacity() + block.early.as_ref().map_or(0, |_| WORDS * 8))
            .sum();
        assert!(memory < span as usize * 5 / 4, "{memory} bytes for {span}");
        for at in (0..span).step_by(2) {
            assert_eq!(buffer.insert(at, &pattern(at..at + 1)).fresh, 1);
        }
        assert_eq!(drain(&mut buffer, usize::MAX), pattern(0..span));
    }

    #[test]
    fn a_byte_far_ahead_allocates_no_blocks_before_it() {
        let mut buffer = Reassembly::default();
        buffer.insert(64 * BLOCK, &[1]);
        assert_eq!(buffer.blocks.iter().flatten().count(), 1);
    }

    #[test]
    fn a_byte_that_is_there_is_a_duplicate_wherever_it_lies() {
        let mut buffer = Reassembly::default();
        buffer.insert(0, &pattern(0..10));
        buffer.insert(20, &pattern(20..30));
        assert_eq!(
            buffer.insert(5, &pattern(5..25)),
            Inserted {
                fresh: 10,
                duplicate: 10
            }
        );
        assert_eq!(
            buffer.insert(0, &pattern(0..30)),
            Inserted {
                fresh: 0,
                duplicate: 30
            }
        );
    }

    proptest! {
        #[test]
        fn any_order_of_pieces_reads_back_as_the_stream(
            pieces in prop::collection::vec((0..90_000u64, 1..9_000u64, 1..50_000usize), 1..80),
        ) {
            let mut buffer = Reassembly::default();
            let mut arrived = vec![false; 100_000];
            let mut read = Vec::new();
            for (start, length, max) in pieces {
                let inserted = buffer.insert(start, &pattern(start..start + length));
                let span = &mut arrived[start as usize..(start + length) as usize];
                let fresh = span.iter().filter(|seen| !**seen).count() as u64;
                span.fill(true);
                prop_assert_eq!(inserted, Inserted { fresh, duplicate: length - fresh });
                read.extend(buffer.read(max).unwrap_or_default());
                let ready = arrived.iter().take_while(|seen| **seen).count();
                let total = arrived.iter().filter(|seen| **seen).count();
                prop_assert_eq!(buffer.ready(), ready as u64);
                prop_assert_eq!(buffer.out_of_order(), (total - ready) as u64);
                prop_assert_eq!(buffer.start(), read.len() as u64);
            }
            read.extend(drain(&mut buffer, usize::MAX));
            prop_assert_eq!(read.len() as u64, buffer.ready());
            prop_assert_eq!(&read, &pattern(0..buffer.ready()));
        }
    }
}
