//! Frames in.
//!
//! Errors carry no frame type: the caller knows the type on the wire.

use super::{ReceiveBudget, StreamEvent, Streams};
use crate::error::TransportError;
use anabranch_wire::frame::Stream as StreamFrame;
use anabranch_wire::{Dir, PathId, StreamId, TransportErrorCode};

impl Streams {
    /// What the peer is allowed to send beyond the first window counts on this budget.
    pub(crate) fn charge_windows_to(&mut self, budget: ReceiveBudget) {
        self.inbound.charge_to(budget);
    }

    /// Whether the peer is about to stop for lack of room in the budget.
    pub(crate) fn is_short_of_room(&self) -> bool {
        self.inbound.is_short_of_room()
    }

    /// Looks whether the budget has room now for credit that is worth announcing, and announces it.
    pub(crate) fn look_for_room(&mut self) -> bool {
        let is_due = self.inbound.is_due();
        self.control.max_data |= is_due;
        is_due
    }

    /// The connection is over: nothing more will arrive.
    pub(crate) fn expect_no_more(&mut self) {
        self.inbound.end();
    }

    /// `STREAM`; returns whether it brought bytes that were not there before.
    pub fn on_stream(&mut self, frame: &StreamFrame<'_>) -> Result<bool, TransportError> {
        let id = frame.id;
        if !self.admit_receiving(id)? {
            return Ok(false);
        }
        let Some(recv) = self
            .live
            .get_mut(&id)
            .and_then(|stream| stream.recv.as_mut())
        else {
            return Ok(false);
        };
        let waiting = recv.out_of_order();
        let arrival = recv.on_data(frame.offset, frame.data, frame.fin, &mut self.inbound)?;
        let stats = &mut self.stats;
        stats.bytes_received += arrival.inserted.fresh;
        stats.duplicate_bytes += arrival.inserted.duplicate;
        stats.buffered_out_of_order += recv.out_of_order();
        stats.buffered_out_of_order -= waiting;
        stats.reassembly_peak = stats.reassembly_peak.max(stats.buffered_out_of_order);
        if recv.wants_read && recv.is_readable() {
            recv.wants_read = false;
            self.events.push_back(StreamEvent::Readable { id });
        }
        let (is_done, is_held_up) = (recv.is_done(), recv.is_held_up());
        self.release(arrival.discarded);
        if is_done {
            self.close_recv(id);
        } else if is_held_up {
            self.widen_behind_gaps(id);
        }
        Ok(arrival.inserted.fresh > 0)
    }

    /// A gap holds up the reader of a stream: its window and the connection's grow with what waits
    /// behind gaps, unless others need the memory.
    pub(super) fn widen_behind_gaps(&mut self, id: StreamId) {
        if !self.limits.widen_behind_gaps {
            return;
        }
        let held = self.stats.buffered_out_of_order;
        let Some(stream) = self.live.get_mut(&id) else {
            return;
        };
        let Some(recv) = &mut stream.recv else {
            return;
        };
        let is_short = recv.wants_credit() && recv.grant.is_filled_by(recv.out_of_order());
        if !(is_short || self.inbound.is_filled_by(held)) || self.inbound.is_tight() {
            return;
        }
        if is_short {
            let most = self.inbound.most_of_stream();
            recv.grant.on_held(recv.out_of_order(), 0, most);
            if recv.grant.is_due() {
                stream.control.max_data = true;
                self.control.enqueue(id, &mut stream.control);
            }
        }
        self.inbound.on_held(held, recv.grant.window());
        self.control.max_data |= self.inbound.is_due();
    }

    /// `RESET_STREAM`.
    pub fn on_reset_stream(
        &mut self,
        id: StreamId,
        code: u64,
        final_size: u64,
    ) -> Result<(), TransportError> {
        if !self.admit_receiving(id)? {
            return Ok(());
        }
        let Some(recv) = self
            .live
            .get_mut(&id)
            .and_then(|stream| stream.recv.as_mut())
        else {
            return Ok(());
        };
        let waiting = recv.out_of_order();
        let discarded = recv.on_reset(code, final_size, &mut self.inbound)?;
        self.stats.buffered_out_of_order += recv.out_of_order();
        self.stats.buffered_out_of_order -= waiting;
        if recv.wants_read && recv.is_readable() {
            recv.wants_read = false;
            self.events.push_back(StreamEvent::Readable { id });
        }
        let is_done = recv.is_done();
        self.release(discarded);
        if is_done {
            self.close_recv(id);
        }
        Ok(())
    }

    /// `STOP_SENDING`: the stream is reset with the peer's code (RFC 9000, section 3.5).
    pub fn on_stop_sending(&mut self, id: StreamId, code: u64) -> Result<(), TransportError> {
        if !self.admit_sending(id)? {
            return Ok(());
        }
        let Ok(send) = self.send_half(id) else {
            return Ok(());
        };
        if send.stopped.is_none() && send.reset.is_none() {
            send.stopped = Some(code);
            self.events.push_back(StreamEvent::Stopped { id, code });
            self.reset_with(id, code).expect("the half was just found");
        }
        Ok(())
    }

    /// `MAX_DATA`.
    pub fn on_max_data(&mut self, limit: u64) {
        self.outbound.raise(limit);
        self.note_blocked();
    }

    /// `MAX_STREAM_DATA`.
    pub fn on_max_stream_data(&mut self, id: StreamId, limit: u64) -> Result<(), TransportError> {
        if !self.admit_sending(id)? {
            return Ok(());
        }
        let Ok(send) = self.send_half(id) else {
            return Ok(());
        };
        if limit > send.max_data {
            send.max_data = limit;
            // A writer that waits for space in the send buffer is told once there is some.
            if send.wants_write && !send.waits_for_space && send.is_open() {
                send.wants_write = false;
                self.events.push_back(StreamEvent::Writable { id });
            }
            self.starved.remove(&id);
            self.refresh(id);
        }
        Ok(())
    }

    /// Streams that were opened under the limits of an earlier connection get those of this one.
    pub(super) fn raise_limits_of_own_streams(&mut self) {
        let own = self.live.keys().filter(|id| id.initiator() == self.side);
        for id in own.copied().collect::<Vec<_>>() {
            let limit = match id.dir() {
                Dir::Bi => self.peer.bidi_remote,
                Dir::Uni => self.peer.uni,
            };
            self.on_max_stream_data(id, limit)
                .expect("we send on streams of our own");
            let is_overdrawn = self.send_half(id).is_ok_and(|send| send.is_overdrawn());
            if is_overdrawn {
                self.mark_control(id, |control| control.blocked = true);
            }
        }
    }

    /// `MAX_STREAMS`.
    pub fn on_max_streams(&mut self, dir: Dir, limit: u64) {
        if self.local[dir as usize].raise(limit) {
            self.events.push_back(StreamEvent::Available { dir });
        }
    }

    /// `DATA_BLOCKED`. Nothing is due: limits move as the application reads.
    pub fn on_data_blocked(&mut self, _limit: u64) {
        self.stats.peer_blocked += 1;
    }

    /// `STREAM_DATA_BLOCKED`. Nothing is due but to open the stream.
    pub fn on_stream_data_blocked(
        &mut self,
        id: StreamId,
        _limit: u64,
    ) -> Result<(), TransportError> {
        self.stats.peer_blocked += 1;
        self.admit_receiving(id).map(|_| ())
    }

    /// `STREAMS_BLOCKED`. Nothing is due: limits move as streams close.
    pub fn on_streams_blocked(&mut self, _dir: Dir, _limit: u64) {
        self.stats.peer_blocked += 1;
    }

    /// `DATAGRAM`, in a packet that came by `path`.
    pub fn on_datagram(&mut self, path: PathId, data: &[u8]) -> Result<(), TransportError> {
        self.stats.datagrams_received += 1;
        if self.datagrams.on_received(path, data)? {
            self.events.push_back(StreamEvent::DatagramReceived);
        }
        Ok(())
    }

    /// Opens the stream of a frame that only its sender sends; returns whether it still exists.
    fn admit_receiving(&mut self, id: StreamId) -> Result<bool, TransportError> {
        if id.dir() == Dir::Uni && id.initiator() == self.side {
            return Err(state_error(
                "a frame of the sender for a stream that only we send on",
            ));
        }
        self.admit(id)
    }

    /// Opens the stream of a frame that only its receiver sends; returns whether it still exists.
    fn admit_sending(&mut self, id: StreamId) -> Result<bool, TransportError> {
        if id.dir() == Dir::Uni && id.initiator() != self.side {
            return Err(state_error(
                "a frame of the receiver for a stream that only the peer sends on",
            ));
        }
        self.admit(id)
    }

    fn admit(&mut self, id: StreamId) -> Result<bool, TransportError> {
        if self.live.contains_key(&id) {
            return Ok(true);
        }
        let (dir, index) = (id.dir(), id.index());
        if id.initiator() == self.side {
            if self.local[dir as usize].has_opened(index) {
                return Ok(false);
            }
            return Err(state_error("a frame for a stream that we never opened"));
        }
        let remote = &mut self.remote[dir as usize];
        if remote.has_opened(index) {
            return Ok(false);
        }
        let Some(new) = remote.open_to(index) else {
            return Err(TransportError::new(
                TransportErrorCode::STREAM_LIMIT_ERROR,
                "more streams than the limit",
            ));
        };
        if !std::mem::replace(&mut remote.announced, true) {
            self.events.push_back(StreamEvent::Opened { dir });
        }
        for index in new {
            self.insert(StreamId::new(self.side.peer(), dir, index));
        }
        Ok(true)
    }
}

fn state_error(reason: &'static str) -> TransportError {
    TransportError::new(TransportErrorCode::STREAM_STATE_ERROR, reason)
}
