//! Settings of the buffers, what stops sending, and the hole that others wait behind
//! (docs/mechanisms.md, buffers).

use super::{ABOVE, Limits, Streams};
use crate::path::PathSet;
use crate::recovery::sent::SentFrame;
use crate::sched::ClassSet;
use anabranch_wire::StreamId;
use std::ops::Range;

/// How often the peer is told of new credit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CreditUpdate {
    /// Once an eighth of the window is free; of a window of up to 128 KiB that cannot grow, once
    /// two packets are.
    #[default]
    Eighth,
    /// Whenever the application read anything. The peer's credit is then, at any time, the free
    /// part of the receive buffer less what is under way: `PeerRwnd` of CMT-SCTP.
    EveryRead,
}

/// When the send buffer gives up bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Release {
    /// When they are acknowledged: QUIC acknowledgements are final (RFC 9002, section 4.4), like
    /// NR-SACK of SCTP.
    #[default]
    Acknowledged,
    /// When they and all bytes before them in their stream are acknowledged, as if the receiver
    /// might take back what it acknowledged: SACK of TCP and SCTP.
    InOrder,
}

/// What keeps the connection from sending although data is there or waits to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Blockade {
    /// The peer's flow control, of the connection or of the stream that would send.
    ReceiveWindow,
    /// Unacknowledged data fills the send buffer.
    SendBuffer,
}

/// The oldest stream bytes that were sent and not acknowledged: what the receiver waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hole {
    /// The stream.
    pub id: StreamId,
    /// The offset of the first byte.
    pub start: u64,
    /// Bytes carried by the same paths; the end of the stream counts as one.
    pub length: u64,
    /// Paths that ever carried them; empty for bytes sent only once, whose packet names the path.
    pub ever: PathSet,
    /// Paths carrying them now; empty for bytes sent only once.
    pub live: PathSet,
}

impl Limits {
    /// A receive buffer of this many bytes that all streams share, whose window never grows and
    /// whose credit is told after every read: the receive buffer of CMT-SCTP and of old TCP.
    #[must_use]
    pub fn with_shared_receive_buffer(mut self, bytes: u64) -> Self {
        self.receive_window = bytes;
        self.max_receive_window = bytes;
        self.receive_reserve = 0;
        self.stream_receive_window = bytes;
        self.max_stream_receive_window = bytes;
        self.credit_update = CreditUpdate::EveryRead;
        self
    }
}

impl Streams {
    /// What stops new data, if nothing may be sent and more is there or waits to be written.
    pub fn blockade(&self) -> Option<Blockade> {
        let totals = self.ready.totals();
        if totals.again > 0 || totals.free > 0 || self.has_datagrams() {
            return None;
        }
        if self.ready.first(ABOVE, ClassSet::ALL).is_some() {
            let blocked = self.outbound.credit() == 0;
            return blocked.then_some(Blockade::ReceiveWindow);
        }
        if !self.waiting.is_empty() {
            return Some(Blockade::SendBuffer);
        }
        let is_starved = |id: &StreamId| {
            let stream = self.live.get(id).and_then(|stream| stream.send.as_ref());
            stream.is_some_and(|send| send.wants_write && send.is_open() && send.credit() == 0)
        };
        let starves = self.starved.iter().any(is_starved);
        starves.then_some(Blockade::ReceiveWindow)
    }

    /// The bytes that everything else waits for, if they were sent and none is queued again.
    pub fn hole(&self) -> Option<Hole> {
        let (_, id) = self.ready.oldest()?;
        let buf = self.buf_of(id)?;
        let (range, paths) = buf.hole()?;
        let paths = paths.unwrap_or_default();
        Some(Hole {
            id,
            start: range.start,
            length: range.end - range.start,
            ever: paths.ever,
            live: paths.live,
        })
    }

    /// The frame that would carry up to `length` bytes of a hole.
    pub fn frame_of(&self, hole: &Hole, length: u64) -> Option<SentFrame> {
        let buf = self.buf_of(hole.id)?;
        let end = hole.start + hole.length.min(length);
        let data = hole.start..end.min(buf.end());
        Some(SentFrame::Stream {
            id: hole.id,
            start: hole.start,
            length: data.end.saturating_sub(data.start) as u32,
            fin: end > buf.end(),
        })
    }

    /// How much of a hole, from its first byte on, a frame carried.
    pub fn carried(frame: &SentFrame, hole: &Hole) -> u64 {
        let SentFrame::Stream {
            id,
            start,
            length,
            fin,
        } = *frame
        else {
            return 0;
        };
        let range: Range<u64> = super::outgoing::range_of(start, length, fin);
        if id == hole.id && range.contains(&hole.start) {
            range.end - hole.start
        } else {
            0
        }
    }
}
