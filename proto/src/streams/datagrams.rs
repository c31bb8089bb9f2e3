//! DATAGRAM frames (RFC 9221): unreliable, bounded in both directions, never sent again.

use super::SendDatagramError;
use crate::error::TransportError;
use anabranch_wire::frame::{datagram_header_len, put_datagram_header};
use anabranch_wire::{MIN_DATAGRAM_SIZE, varint};
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;

/// What a queued datagram costs besides its bytes, so that empty ones are bounded too.
const OVERHEAD: usize = 32;

/// Received datagrams are copied into shared blocks of this size.
const ARENA: usize = 64 * 1024;

/// Room for frames that any path has: the smallest datagram less a short header of the largest size
/// (1 + 20 + 4 bytes) and the tag of the cipher (16 bytes).
const SURE_ROOM: usize = MIN_DATAGRAM_SIZE - 41;

#[derive(Debug)]
pub(super) struct Datagrams {
    outgoing: Queue,
    incoming: Queue,
    /// The peer's limit on the frame; 0 if it takes none.
    peer_max_frame: u64,
    own_max_frame: u64,
    /// Room for frames in the largest packet that every path carries.
    room: usize,
    arena: BytesMut,
    wants_send: bool,
    wants_recv: bool,
    /// Received datagrams given up because the application did not read them.
    pub(super) overflowed: u64,
    /// Datagrams given up because the room in packets shrank.
    pub(super) outgrown: u64,
}

#[derive(Debug)]
struct Queue {
    items: VecDeque<Bytes>,
    bytes: usize,
    cost: usize,
    limit: usize,
}

impl Queue {
    fn new(limit: usize) -> Self {
        Self {
            items: VecDeque::new(),
            bytes: 0,
            cost: 0,
            limit,
        }
    }

    /// Whether an item of `length` bytes stays within the limit. One item always does.
    fn has_space(&self, length: usize) -> bool {
        self.items.is_empty() || self.cost + length + OVERHEAD <= self.limit
    }

    fn push(&mut self, item: Bytes) {
        self.bytes += item.len();
        self.cost += item.len() + OVERHEAD;
        self.items.push_back(item);
    }

    fn pop(&mut self) -> Option<Bytes> {
        let item = self.items.pop_front()?;
        self.bytes -= item.len();
        self.cost -= item.len() + OVERHEAD;
        Some(item)
    }
}

impl Datagrams {
    pub(super) fn new(send_limit: usize, receive_limit: usize, own_max_frame: u64) -> Self {
        Self {
            outgoing: Queue::new(send_limit),
            incoming: Queue::new(receive_limit),
            peer_max_frame: 0,
            own_max_frame,
            room: SURE_ROOM,
            arena: BytesMut::new(),
            wants_send: false,
            wants_recv: true,
            overflowed: 0,
            outgrown: 0,
        }
    }

    pub(super) fn set_peer_max_frame(&mut self, bytes: u64) {
        self.peer_max_frame = bytes;
    }

    /// Sets the room for frames in a packet that every path in use can carry. Datagrams that fit no
    /// more are dropped: they would block those behind them for ever.
    pub(super) fn set_room(&mut self, bytes: usize) {
        let shrunk = bytes < self.room;
        self.room = bytes;
        let Some(max) = self.max_payload().filter(|_| shrunk) else {
            return;
        };
        let items = std::mem::take(&mut self.outgoing.items);
        self.outgoing = Queue::new(self.outgoing.limit);
        for item in items {
            if item.len() <= max {
                self.outgoing.push(item);
            } else {
                self.outgrown += 1;
            }
        }
    }

    /// The largest payload that can be sent; `None` if the peer takes no datagrams.
    pub(super) fn max_payload(&self) -> Option<usize> {
        if self.peer_max_frame == 0 {
            return None;
        }
        let frame = usize::try_from(self.peer_max_frame)
            .unwrap_or(usize::MAX)
            .min(self.room);
        let after = |length_field: usize| {
            let payload = frame.saturating_sub(1 + length_field);
            (varint::size(payload as u64) <= length_field).then_some(payload)
        };
        [1, 2, 4, 8].into_iter().find_map(after)
    }

    /// Queues a datagram.
    pub(super) fn send(&mut self, data: Bytes) -> Result<(), SendDatagramError> {
        let max = self.max_payload().ok_or(SendDatagramError::Unsupported)?;
        if data.len() > max {
            return Err(SendDatagramError::TooLarge { max });
        }
        if !self.outgoing.has_space(data.len()) {
            self.wants_send = true;
            return Err(SendDatagramError::Full);
        }
        self.outgoing.push(data);
        Ok(())
    }

    /// Bytes waiting to be sent; an empty datagram counts as one.
    pub(super) fn waiting(&self) -> u64 {
        (self.outgoing.bytes + usize::from(self.outgoing.bytes == 0 && self.has_waiting())) as u64
    }

    pub(super) fn has_waiting(&self) -> bool {
        !self.outgoing.items.is_empty()
    }

    /// Appends one frame; returns the bytes of its payload, or `None` if nothing fits.
    pub(super) fn write(&mut self, out: &mut Vec<u8>, limit: usize) -> Option<usize> {
        let length = self.outgoing.items.front()?.len();
        let room = limit.checked_sub(out.len() + length)?;
        if room >= datagram_header_len(length, true) {
            put_datagram_header(out, Some(length));
        } else {
            // The frame extends to the end of the packet; padding closes a gap of a byte or more
            // that is too short for a length.
            let padding = room.checked_sub(datagram_header_len(length, false))?;
            out.resize(out.len() + padding, 0);
            put_datagram_header(out, None);
        }
        let data = self.outgoing.pop().expect("the front was just looked at");
        out.extend_from_slice(&data);
        Some(length)
    }

    /// Whether the application, turned away before, can send again.
    pub(super) fn take_unblocked(&mut self) -> bool {
        let unblocked = self.wants_send && self.outgoing.cost <= self.outgoing.limit / 2;
        self.wants_send &= !unblocked;
        unblocked
    }

    /// Takes a received payload; returns whether the application waits for it. If the application
    /// does not keep up, the oldest datagrams go: newer ones are worth more to what uses them.
    pub(super) fn on_received(&mut self, data: &[u8]) -> Result<bool, TransportError> {
        if self.own_max_frame == 0 {
            return Err(TransportError::violation(
                "a DATAGRAM frame that was not negotiated",
            ));
        }
        if data.len() as u64 + 1 > self.own_max_frame {
            return Err(TransportError::violation(
                "a DATAGRAM frame above the limit",
            ));
        }
        while !self.incoming.has_space(data.len()) {
            self.incoming.pop();
            self.overflowed += 1;
        }
        if self.arena.capacity() < data.len() {
            self.arena.reserve(ARENA.max(data.len()));
        }
        self.arena.extend_from_slice(data);
        self.incoming.push(self.arena.split().freeze());
        Ok(std::mem::take(&mut self.wants_recv))
    }

    /// The oldest received datagram.
    pub(super) fn recv(&mut self) -> Option<Bytes> {
        let data = self.incoming.pop();
        self.wants_recv |= data.is_none();
        data
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_wire::cursor::Reader;
    use anabranch_wire::frame::{Frame, decode};

    fn ready(limit: usize) -> Datagrams {
        let mut datagrams = Datagrams::new(limit, limit, 65_535);
        datagrams.set_peer_max_frame(65_535);
        datagrams
    }

    fn payload(length: usize) -> Bytes {
        Bytes::from(vec![7; length])
    }

    #[test]
    fn nothing_is_sent_to_a_peer_that_takes_no_datagrams() {
        let mut datagrams = Datagrams::new(1000, 1000, 0);
        assert_eq!(datagrams.max_payload(), None);
        assert_eq!(
            datagrams.send(payload(1)),
            Err(SendDatagramError::Unsupported)
        );
        assert!(datagrams.on_received(b"x").is_err());
    }

    #[test]
    fn the_largest_payload_fills_the_frame() {
        let mut datagrams = ready(100_000);
        for frame in [2, 64, 65, 66, 67, 68, 1000, 16_386, 16_387, 16_390, 60_000] {
            datagrams.set_room(100_000);
            datagrams.set_peer_max_frame(frame);
            let max = datagrams.max_payload().unwrap();
            assert!(
                (datagram_header_len(max, true) + max) as u64 <= frame,
                "{frame}"
            );
            assert!(
                (datagram_header_len(max + 2, true) + max + 2) as u64 > frame,
                "{frame}"
            );
        }
    }

    #[test]
    fn a_datagram_is_whole_wherever_the_packet_ends() {
        for room in 100..110 {
            let mut datagrams = ready(1000);
            datagrams.send(payload(100)).unwrap();
            let mut out = Vec::new();
            let Some(100) = datagrams.write(&mut out, room) else {
                assert_eq!((room, out.len()), (100, 0));
                continue;
            };
            assert!(out.len() <= room);
            let mut reader = Reader::new(&out);
            let mut found = None;
            while !reader.is_empty() {
                if let (_, Frame::Datagram { data }) = decode(&mut reader).unwrap() {
                    found = Some(data.to_vec());
                }
            }
            assert_eq!(found, Some(vec![7; 100]));
        }
    }

    #[test]
    fn a_full_queue_turns_away_and_tells_when_half_is_free() {
        let mut datagrams = ready(4 * (100 + OVERHEAD));
        for _ in 0..4 {
            datagrams.send(payload(100)).unwrap();
        }
        assert_eq!(datagrams.send(payload(100)), Err(SendDatagramError::Full));
        datagrams.write(&mut Vec::new(), 1000);
        assert!(!datagrams.take_unblocked());
        datagrams.write(&mut Vec::new(), 1000);
        assert!(datagrams.take_unblocked());
        assert!(!datagrams.take_unblocked());
    }

    #[test]
    fn a_slow_reader_loses_the_oldest() {
        let mut datagrams = ready(2 * (1 + OVERHEAD));
        for byte in 0..5 {
            datagrams.on_received(&[byte]).unwrap();
        }
        assert_eq!(datagrams.overflowed, 3);
        assert_eq!(datagrams.recv().as_deref(), Some(&[3][..]));
        assert_eq!(datagrams.recv().as_deref(), Some(&[4][..]));
        assert_eq!(datagrams.recv(), None);
    }

    #[test]
    fn datagrams_that_fit_no_more_do_not_block_those_that_do() {
        let mut datagrams = ready(10_000);
        datagrams.send(payload(1100)).unwrap();
        datagrams.send(payload(10)).unwrap();
        datagrams.set_room(600);
        assert_eq!(datagrams.write(&mut Vec::new(), 600), Some(10));
        assert_eq!(datagrams.outgrown, 1);
    }
}
