//! Frames out.

use super::datagrams::put_datagram;
use super::prospects::fresh_part;
use super::recv::Recv;
use super::send_buf::SendBuf;
use super::{ABOVE, AGAIN, FREE, StreamEvent, Streams};
use crate::packet::Frames;
use crate::recovery::sent::SentFrame;
use crate::sched::ClassSet;
use anabranch_wire::frame::{Form, Frame, put_stream_header, stream_header_len};
use anabranch_wire::{Dir, PathId, StreamId, varint};
use bytes::Bytes;
use std::ops::Range;

/// The least part of a longer range that is worth a frame of its own: a frame header takes up to 25
/// bytes.
const MIN_PIECE: u64 = 32;

/// Streams looked at to find the place behind skipped bytes. Behind more than that nothing is sent:
/// the walk would cost more than the skipping gains.
const MAX_SKIPPED_STREAMS: usize = 64;

const DIRS: [Dir; 2] = [Dir::Bi, Dir::Uni];

/// The packet being filled.
struct Packet<'a, 'b> {
    frames: &'a mut Frames<'b>,
    /// Stream bytes it may still take.
    budget: u64,
    /// Stream bytes it took.
    data: u64,
}

impl<'a, 'b> Packet<'a, 'b> {
    /// One that takes `budget` stream bytes at the most.
    fn new(frames: &'a mut Frames<'b>, budget: u64) -> Self {
        Self {
            frames,
            budget,
            data: 0,
        }
    }

    /// Whether nothing more fits, so that nothing more need be looked for.
    fn is_full(&self) -> bool {
        self.budget == 0 || self.frames.room() == 0
    }

    /// Appends one frame with as much of `range` as fits; returns what that was.
    fn put_stream(
        &mut self,
        id: StreamId,
        buf: &mut SendBuf,
        range: Range<u64>,
    ) -> Option<Range<u64>> {
        let room = self.frames.room();
        let Fit { count, fin, bare } = Fit::of(id, buf, &range, self.budget, room)?;
        let (out, _) = self.frames.raw();
        let (start, end) = (range.start, range.start + count);
        let length = if bare - count < varint::size(count) as u64 {
            // The frame extends to the end of the packet; padding before it closes a gap that is
            // too short for a length.
            out.resize(out.len() + (bare - count) as usize, 0);
            None
        } else {
            Some(count as usize)
        };
        put_stream_header(out, id, start, length, fin);
        buf.copy_to(start..end, out);
        self.frames.note(SentFrame::Stream {
            id,
            start,
            length: count as u32,
            fin,
        });
        self.budget -= count;
        self.data += count;
        Some(start..end + u64::from(fin))
    }

    fn put_control(&mut self, frame: &Frame<'_>, sent: SentFrame) -> bool {
        self.frames.put_noted(frame, Form::Plain, sent)
    }
}

/// What of a range one frame holds.
pub(super) struct Fit {
    /// Bytes of data.
    count: u64,
    /// Whether the end of the stream comes with them.
    fin: bool,
    /// Room for data if the frame has no length.
    bare: u64,
}

impl Fit {
    /// Nothing if `room` bytes hold too little of `range`.
    pub(super) fn of(
        id: StreamId,
        buf: &SendBuf,
        range: &Range<u64>,
        budget: u64,
        room: usize,
    ) -> Option<Self> {
        let (start, data_end) = (range.start, range.end.min(buf.end()).max(range.start));
        let wanted = (data_end - start).min(budget);
        let bare = room.checked_sub(stream_header_len(id, start, 0, false))? as u64;
        let count = wanted.min(bare);
        if count < wanted.min(MIN_PIECE) {
            return None;
        }
        let fin = range.end > buf.end() && start + count == data_end;
        (count > 0 || fin).then_some(Self { count, fin, bare })
    }
}

/// The bytes of a stream frame, its end counted as one.
pub(super) fn range_of(start: u64, length: u32, fin: bool) -> Range<u64> {
    start..start + u64::from(length) + u64::from(fin)
}

impl Streams {
    /// Forgets control frames that have become pointless; returns whether any is left, which
    /// [`has_control`](Self::has_control) alone cannot tell.
    pub fn settle_control(&mut self) -> bool {
        self.control.data_blocked &= self.outbound.blocked_limit().is_some();
        for dir in DIRS.map(|dir| dir as usize) {
            self.control.streams_blocked[dir] &= self.local[dir].blocked_limit().is_some();
        }
        while let Some(id) = self.control.streams.front()
            && !self
                .live
                .get_mut(id)
                .is_some_and(|stream| stream.settle_control())
        {
            self.control.streams.pop_front();
        }
        self.has_control()
    }

    /// Whether limits, resets or the like wait to be sent. Some may be pointless by now.
    pub fn has_control(&self) -> bool {
        let control = &self.control;
        control.max_data
            || control.data_blocked
            || control.max_streams.contains(&true)
            || control.streams_blocked.contains(&true)
            || !control.streams.is_empty()
    }

    /// Appends control frames, as many as fit.
    pub fn write_control(&mut self, frames: &mut Frames<'_>) {
        let mut packet = Packet::new(frames, 0);
        if self.control.max_data {
            let frame = Frame::MaxData {
                limit: self.inbound.announce(),
            };
            self.control.max_data = !packet.put_control(&frame, SentFrame::MaxData);
        }
        if self.control.data_blocked {
            self.control.data_blocked = self.outbound.blocked_limit().is_some_and(|limit| {
                !packet.put_control(&Frame::DataBlocked { limit }, SentFrame::DataBlocked)
            });
        }
        for dir in DIRS {
            let at = dir as usize;
            if self.control.max_streams[at] {
                let frame = Frame::MaxStreams {
                    dir,
                    limit: self.remote[at].announce(),
                };
                let fits = packet.put_control(&frame, SentFrame::MaxStreams { dir });
                self.control.max_streams[at] = !fits;
            }
            if self.control.streams_blocked[at] {
                let limit = self.local[at].blocked_limit();
                self.control.streams_blocked[at] = limit.is_some_and(|limit| {
                    let frame = Frame::StreamsBlocked { dir, limit };
                    !packet.put_control(&frame, SentFrame::StreamsBlocked { dir })
                });
            }
        }
        while let Some(id) = self.control.streams.front().copied() {
            if !self.write_stream_control(id, &mut packet) {
                return;
            }
            self.control.streams.pop_front();
        }
    }

    /// Appends the control frames of one stream; returns whether all fit.
    fn write_stream_control(&mut self, id: StreamId, packet: &mut Packet<'_, '_>) -> bool {
        let Some(stream) = self.live.get_mut(&id) else {
            return true;
        };
        let due = &mut stream.control;
        let (send, recv) = (&stream.send, &mut stream.recv);
        due.reset = due.reset
            && send
                .as_ref()
                .and_then(|send| send.reset)
                .is_some_and(|reset| {
                    let (code, final_size) = (reset.code, reset.final_size);
                    let frame = Frame::ResetStream {
                        id,
                        code,
                        final_size,
                    };
                    !packet.put_control(&frame, SentFrame::ResetStream { id })
                });
        due.stop = due.stop
            && recv.as_ref().and_then(Recv::stop_code).is_some_and(|code| {
                let frame = Frame::StopSending { id, code };
                !packet.put_control(&frame, SentFrame::StopSending { id })
            });
        due.max_data = due.max_data
            && recv
                .as_mut()
                .filter(|recv| recv.wants_credit())
                .is_some_and(|recv| {
                    let frame = Frame::MaxStreamData {
                        id,
                        limit: recv.grant.announce(),
                    };
                    !packet.put_control(&frame, SentFrame::MaxStreamData { id })
                });
        due.blocked = due.blocked
            && send
                .as_ref()
                .filter(|send| send.credit() == 0)
                .is_some_and(|send| {
                    let frame = Frame::StreamDataBlocked {
                        id,
                        limit: send.max_data,
                    };
                    !packet.put_control(&frame, SentFrame::StreamDataBlocked { id })
                });
        due.queued = due.reset || due.stop || due.max_data || due.blocked;
        !due.queued
    }

    /// Appends `STREAM` frames for `path`: first what is to be sent again, then fresh data but for
    /// the next `skip` bytes of it. Returns the stream bytes written, at most `max_bytes`; an end
    /// of stream without data counts as one.
    ///
    /// The last frame may extend to where the frames must end, so nobody may write behind it if no
    /// room is left afterwards.
    pub fn write_data(
        &mut self,
        frames: &mut Frames<'_>,
        path: PathId,
        skip: u64,
        max_bytes: u64,
    ) -> u64 {
        let all = ClassSet::ALL;
        let again = self.write_lost_data(frames, all, path, max_bytes);
        let left = max_bytes.saturating_sub(again);
        again + self.write_fresh_data(frames, all, skip, left)
    }

    /// Like [`write_data`](Self::write_data), but only data of these classes that is to be sent
    /// again.
    pub fn write_lost_data(
        &mut self,
        frames: &mut Frames<'_>,
        of: ClassSet,
        path: PathId,
        max_bytes: u64,
    ) -> u64 {
        let mut packet = Packet::new(frames, max_bytes);
        let written = self.write_again(&mut packet, of, path);
        self.stats.bytes_retransmitted += packet.data;
        written
    }

    /// Appends what was lost. What `path` carried before is left to others behind what it did not.
    fn write_again(&mut self, packet: &mut Packet<'_, '_>, of: ClassSet, path: PathId) -> u64 {
        let mut written = 0;
        let mut only_new = false;
        while !packet.is_full()
            && let Some(id) = self.ready.first(AGAIN, of)
            && let Ok(send) = self.send_half(id)
            && let Some((range, carried)) = send.buf.again_front()
        {
            if only_new && carried.contains(path) {
                break;
            }
            only_new |= !carried.contains(path);
            let Some(done) = packet.put_stream(id, &mut send.buf, range) else {
                break;
            };
            written += done.end - done.start;
            send.buf.on_sent_again(done, path);
            self.refresh(id);
        }
        written
    }

    /// Like [`write_data`](Self::write_data), but only fresh data of these classes.
    pub fn write_fresh_data(
        &mut self,
        frames: &mut Frames<'_>,
        of: ClassSet,
        skip: u64,
        max_bytes: u64,
    ) -> u64 {
        let mut packet = Packet::new(frames, max_bytes);
        let written = self.write_fresh(&mut packet, of, skip);
        self.stats.bytes_sent += packet.data;
        written
    }

    /// Like [`write_data`](Self::write_data), but only fresh data of this stream.
    pub fn write_stream(&mut self, frames: &mut Frames<'_>, id: StreamId, max_bytes: u64) -> u64 {
        let mut packet = Packet::new(frames, max_bytes);
        let mut written = 0;
        while !packet.is_full()
            && let Some(done) = self.put_fresh(&mut packet, id, 0)
        {
            written += done;
        }
        self.after_fresh((written > 0).then_some(id));
        self.stats.bytes_sent += packet.data;
        written
    }

    fn write_fresh(&mut self, packet: &mut Packet<'_, '_>, of: ClassSet, skip: u64) -> u64 {
        let mut written = 0;
        let mut last = None;
        while !packet.is_full()
            && let Some((id, within)) = self.locate_fresh(of, skip)
            && let Some(done) = self.put_fresh(packet, id, within)
        {
            written += done;
            last = Some(id);
        }
        self.after_fresh(last);
        written
    }

    /// Appends one frame of fresh data of a stream, behind `skip` unsent bytes of it; returns how
    /// much that was.
    fn put_fresh(&mut self, packet: &mut Packet<'_, '_>, id: StreamId, skip: u64) -> Option<u64> {
        let (credit, now) = (self.outbound.credit(), self.clock);
        let send = self.send_half(id).ok()?;
        let range = fresh_part(send, skip, credit)?;
        let done = packet.put_stream(id, &mut send.buf, range)?;
        let written = done.end - done.start;
        let taken = send.buf.on_first_sent(done, now);
        self.outbound.use_up(taken);
        self.refresh(id);
        Some(written)
    }

    /// Lets the streams behind `last`, which sent, have their turn.
    fn after_fresh(&mut self, last: Option<StreamId>) {
        let Some(id) = last else { return };
        if let Some(send) = self
            .live
            .get_mut(&id)
            .and_then(|stream| stream.send.as_mut())
        {
            self.ready.rotate(id, send);
        }
        self.note_blocked();
    }

    /// The stream of these classes that fresh data comes from next, after leaving out `skip` bytes,
    /// and how many of them are its own.
    pub(super) fn locate_fresh(&self, of: ClassSet, skip: u64) -> Option<(StreamId, u64)> {
        let above = if self.outbound.credit() > 0 {
            self.ready.first(ABOVE, of)
        } else {
            None
        };
        if skip == 0 {
            return self.ready.first(FREE, of).or(above).map(|id| (id, 0));
        }
        let mut left = skip;
        let free = self.ready.iter(FREE, of).map(|id| (id, FREE));
        let above = above
            .into_iter()
            .flat_map(|_| self.ready.iter(ABOVE, of))
            .map(|id| (id, ABOVE));
        for (id, queue) in free.chain(above).take(MAX_SKIPPED_STREAMS) {
            let load = self.live.get(&id)?.send.as_ref()?.load_now();
            let (before, amount) = if queue == FREE {
                (0, load.free)
            } else {
                (load.free, load.above)
            };
            if left < amount {
                return Some((id, before + left));
            }
            left -= amount;
        }
        None
    }

    /// Appends again on `path` what `carried`, sent in one packet on `from`, names: as far as it
    /// is not acknowledged and not under way on `path`. Returns the stream bytes written.
    pub fn write_copy(
        &mut self,
        frames: &mut Frames<'_>,
        from: PathId,
        path: PathId,
        carried: &[SentFrame],
    ) -> u64 {
        let mut packet = Packet::new(frames, u64::MAX);
        let max_copies = self.limits.max_copies;
        let mut written = 0;
        for frame in carried {
            let SentFrame::Stream {
                id,
                start,
                length,
                fin,
            } = *frame
            else {
                continue;
            };
            let Ok(send) = self.send_half(id) else {
                continue;
            };
            let whole = range_of(start, length, fin);
            while let Some(part) = send.buf.copyable(whole.clone(), path, max_copies) {
                let Some(done) = packet.put_stream(id, &mut send.buf, part) else {
                    break;
                };
                written += done.end - done.start;
                send.buf.on_copied(done, from, path);
            }
            self.refresh(id);
        }
        self.stats.bytes_copied += packet.data;
        written
    }

    /// Whether DATAGRAM frames wait.
    pub fn has_datagrams(&self) -> bool {
        self.datagrams.has_waiting()
    }

    /// Appends DATAGRAM frames of these classes, as many as fit and as one decision covers: of the
    /// same class and flow, all critical or none, and no further one after `max_bytes`. Returns the
    /// bytes of their payloads, of an empty one counted as one. The last frame may extend to where
    /// frames must end. What was sent and is critical is appended to `kept`, if copies are wanted.
    pub fn write_datagrams(
        &mut self,
        frames: &mut Frames<'_>,
        of: ClassSet,
        max_bytes: u64,
        mut kept: Option<&mut Vec<Bytes>>,
    ) -> u64 {
        let mut written = 0;
        let mut previous = None;
        while written < max_bytes
            && let Some((length, options)) = self.datagrams.write(
                self.clock,
                frames,
                of,
                previous.as_ref(),
                kept.as_deref_mut(),
            )
        {
            self.stats.datagrams_sent += 1;
            written += length.max(1) as u64;
            previous = Some(options);
        }
        if self.datagrams.take_unblocked() {
            self.events.push_back(StreamEvent::DatagramsUnblocked);
        }
        written
    }

    /// Appends copies of datagrams sent before, as many as fit; returns how many that were. They
    /// fit any packet that has nothing else in it.
    pub fn write_datagram_copies(&mut self, frames: &mut Frames<'_>, datagrams: &[Bytes]) -> usize {
        let mut written = 0;
        for data in datagrams {
            if !put_datagram(frames, data) {
                break;
            }
            frames.note(SentFrame::Datagram {
                length: data.len() as u16,
                repair: None,
            });
            written += 1;
        }
        self.stats.datagrams_copied += written as u64;
        written
    }
}
