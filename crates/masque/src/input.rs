//! Received bytes that were not read yet, in the chunks they came in.

use anabranch_wire::cursor::Reader;
use bytes::{Buf as _, Bytes};
use std::collections::VecDeque;

/// A queue of chunks. Whoever pushes reads all that can be read before pushing more, so that it
/// holds one chunk and the beginning of an integer.
#[derive(Debug, Default)]
pub(crate) struct Input {
    /// None of them is empty.
    chunks: VecDeque<Bytes>,
    is_finished: bool,
}

impl Input {
    /// Appends received bytes. What comes after the end is ignored.
    pub(crate) fn push(&mut self, bytes: Bytes) {
        if !bytes.is_empty() && !self.is_finished {
            self.chunks.push_back(bytes);
        }
    }

    /// Nothing follows what was pushed.
    pub(crate) fn finish(&mut self) {
        self.is_finished = true;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Whether nothing follows what was pushed.
    pub(crate) fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// A variable-length integer; nothing is consumed until it is there as a whole.
    pub(crate) fn varint(&mut self) -> Option<u64> {
        let first = *self.chunks.front()?.first()?;
        let size = 1 << (first >> 6);
        let mut bytes = [0; 8];
        let mut available = self.chunks.iter().flatten();
        for byte in &mut bytes[..size] {
            *byte = *available.next()?;
        }
        self.skip(size as u64);
        Reader::new(&bytes[..size]).varint().ok()
    }

    /// Up to `max` bytes, without copying them: what the first chunk has of them.
    pub(crate) fn take(&mut self, max: u64) -> Option<Bytes> {
        let chunk = self.chunks.front_mut().filter(|_| max > 0)?;
        if chunk.len() as u64 <= max {
            return self.chunks.pop_front();
        }
        Some(chunk.split_to(max as usize))
    }

    /// Drops up to `count` bytes; returns how many there were.
    pub(crate) fn skip(&mut self, count: u64) -> u64 {
        let mut left = count;
        while let Some(chunk) = self.chunks.front_mut().filter(|_| left > 0) {
            if chunk.len() as u64 > left {
                chunk.advance(left as usize);
                return count;
            }
            left -= chunk.len() as u64;
            self.chunks.pop_front();
        }
        count - left
    }
}

/// A part of known length that is needed as a whole.
#[derive(Debug)]
pub(crate) struct Gather {
    left: usize,
    bytes: Vec<u8>,
}

impl Gather {
    /// Of `length` bytes, which the caller has compared with a limit.
    pub(crate) fn new(length: usize) -> Self {
        Self {
            left: length,
            bytes: Vec::new(),
        }
    }

    /// The bytes once all are there, as they came if they came in one chunk.
    pub(crate) fn read(&mut self, input: &mut Input) -> Option<Bytes> {
        while self.left > 0 {
            let chunk = input.take(self.left as u64)?;
            self.left -= chunk.len();
            if self.left == 0 && self.bytes.is_empty() {
                return Some(chunk);
            }
            self.bytes.extend_from_slice(&chunk);
        }
        Some(std::mem::take(&mut self.bytes).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(chunks: &[&'static [u8]]) -> Input {
        let mut input = Input::default();
        for chunk in chunks {
            input.push(Bytes::from_static(chunk));
        }
        input
    }

    #[test]
    fn an_integer_in_pieces_is_read_when_it_is_complete() {
        let mut input = input(&[&[0x9d], &[0x7f, 0x3e]]);
        assert_eq!(input.varint(), None);
        input.push(Bytes::from_static(&[0x7d, 7]));
        assert_eq!(input.varint(), Some(494_878_333));
        assert_eq!(input.varint(), Some(7));
        assert!(input.is_empty());
    }

    #[test]
    fn chunks_are_handed_on_as_they_came() {
        let mut input = input(&[b"abc", b"def"]);
        assert_eq!(input.take(2).as_deref(), Some(&b"ab"[..]));
        assert_eq!(input.take(2).as_deref(), Some(&b"c"[..]));
        assert_eq!(input.take(0), None);
        assert_eq!((input.skip(2), input.skip(9), input.skip(9)), (2, 1, 0));
    }

    #[test]
    fn what_comes_in_one_chunk_is_gathered_without_copying() {
        let whole = Bytes::from_static(b"abcdef");
        let mut input = Input::default();
        input.push(whole.clone());
        let gathered = Gather::new(3).read(&mut input).unwrap();
        assert_eq!(gathered.as_ptr(), whole.as_ptr());
        let mut rest = Gather::new(5);
        assert_eq!(rest.read(&mut input), None);
        input.push(Bytes::from_static(b"gh!"));
        assert_eq!(rest.read(&mut input).as_deref(), Some(&b"defgh"[..]));
        assert_eq!(Gather::new(0).read(&mut input).as_deref(), Some(&b""[..]));
    }
}
