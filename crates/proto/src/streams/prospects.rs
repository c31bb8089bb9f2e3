//! What a packet would hold, asked before it is begun. `room` is what is left for frames in a
//! packet that holds nothing yet.

use super::outgoing::Fit;
use super::send::{AGAIN, Send};
use super::{Streams, recovered};
use crate::recovery::sent::SentFrame;
use crate::sched::ClassSet;
use anabranch_wire::frame::datagram_header_len;
use anabranch_wire::{PathId, StreamId};
use std::ops::Range;

/// What may be sent of the fresh data of a stream behind `skip` bytes of it, with this credit of
/// the connection. Only limits that fell, with a refusal of early data, leave less than was
/// written.
pub(super) fn fresh_part(send: &Send, skip: u64, credit: u64) -> Option<Range<u64>> {
    let credit = credit.min(send.max_data.saturating_sub(send.buf.sent_end()));
    send.buf.fresh_after(skip, credit)
}

impl Streams {
    /// Whether it would hold what is to be sent again of these classes.
    pub fn would_write_again(&self, of: ClassSet, room: usize) -> bool {
        let Some(id) = self.ready.first(AGAIN, of) else {
            return false;
        };
        let buf = self.buf_of(id);
        let front = buf.and_then(|buf| Some((buf, buf.again_front()?.0)));
        front.is_some_and(|(buf, range)| Fit::of(id, buf, &range, u64::MAX, room).is_some())
    }

    /// Whether it would hold fresh stream data of these classes from behind `skip` bytes on.
    pub fn would_write_fresh(&self, of: ClassSet, room: usize, skip: u64) -> bool {
        let next = self.locate_fresh(of, skip);
        next.is_some_and(|(id, within)| self.would_write_of(id, within, room))
    }

    /// Whether it would hold fresh data of this stream.
    pub fn would_write_stream(&self, room: usize, id: StreamId) -> bool {
        self.would_write_of(id, 0, room)
    }

    fn would_write_of(&self, id: StreamId, skip: u64, room: usize) -> bool {
        let send = self.live.get(&id).and_then(|stream| stream.send.as_ref());
        send.is_some_and(|send| {
            let part = fresh_part(send, skip, self.outbound.credit());
            part.is_some_and(|part| Fit::of(id, &send.buf, &part, u64::MAX, room).is_some())
        })
    }

    /// Whether it would hold the datagram of these classes that is sent next.
    pub fn would_write_datagram(&self, of: ClassSet, room: usize) -> bool {
        let next = self.datagrams.front_len(of);
        next.is_some_and(|length| Self::datagram_fits(length, room))
    }

    /// Whether a frame with a datagram of this length fits.
    pub fn datagram_fits(length: usize, room: usize) -> bool {
        datagram_header_len(length, false) + length <= room
    }

    /// Whether a packet on `path` would hold a byte of this frame as a copy.
    pub fn would_copy(&self, frame: &SentFrame, path: PathId, room: usize) -> bool {
        let Some((id, whole)) = recovered::stream_range(frame) else {
            return false;
        };
        let send = self.live.get(&id).and_then(|stream| stream.send.as_ref());
        let Some(send) = send.filter(|send| send.reset.is_none()) else {
            return false;
        };
        let part = send.buf.copyable(whole, path, self.limits.max_copies);
        part.is_some_and(|part| Fit::of(id, &send.buf, &part, u64::MAX, room).is_some())
    }
}
