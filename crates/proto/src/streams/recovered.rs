//! What became of frames: acknowledged, lost, or in flight on a path that went silent.

use super::flow::Outbound;
use super::outgoing::range_of;
use super::{StreamEvent, Streams};
use crate::error::TransportError;
use crate::recovery::sent::SentFrame;
use anabranch_wire::params::TransportParameters;
use anabranch_wire::{PathId, StreamId, TransportErrorCode};

impl Streams {
    /// A packet with this frame was acknowledged. Copies of its bytes are not sent again.
    pub fn on_acked(&mut self, frame: &SentFrame) {
        match *frame {
            SentFrame::Stream {
                id,
                start,
                length,
                fin,
            } => {
                let Ok(send) = self.send_half(id) else { return };
                if send.reset.is_some() {
                    return;
                }
                send.buf.on_acked(range_of(start, length, fin));
                let is_done = send.buf.is_all_acked();
                self.refresh(id);
                if is_done {
                    self.events.push_back(StreamEvent::Finished { id });
                    self.close_send(id);
                }
                self.wake_writers();
            }
            SentFrame::ResetStream { id } => self.close_send(id),
            SentFrame::Datagram {
                repair: Some(number),
                ..
            } => self.datagrams.on_acked(number),
            _ => {}
        }
    }

    /// A packet with this frame, sent on `path`, was declared lost. What still matters is sent
    /// again, with present values.
    pub fn on_lost(&mut self, frame: &SentFrame, path: PathId) {
        match *frame {
            SentFrame::Stream { .. } => {
                self.requeue(frame, path);
            }
            SentFrame::ResetStream { id } => self.mark_control(id, |due| due.reset = true),
            SentFrame::StopSending { id } => self.mark_control(id, |due| due.stop = true),
            SentFrame::MaxStreamData { id } => self.mark_control(id, |due| due.max_data = true),
            SentFrame::StreamDataBlocked { id } => self.mark_control(id, |due| due.blocked = true),
            SentFrame::MaxData => self.control.max_data = true,
            SentFrame::DataBlocked => {
                self.control.data_blocked = self.outbound.blocked_limit().is_some();
            }
            SentFrame::MaxStreams { dir } => self.control.max_streams[dir as usize] = true,
            SentFrame::StreamsBlocked { dir } => {
                let is_blocked = self.local[dir as usize].blocked_limit().is_some();
                self.control.streams_blocked[dir as usize] = is_blocked;
            }
            SentFrame::Datagram { .. } => {
                self.stats.datagrams_lost += u64::from(!self.repair(frame));
            }
            _ => {}
        }
    }

    /// Queues a datagram again that was lost, if that is in time; returns whether it did.
    fn repair(&mut self, frame: &SentFrame) -> bool {
        let now = self.clock.max(self.tuning.now);
        let is_repaired = match *frame {
            SentFrame::Datagram { repair, .. } => {
                repair.is_some_and(|number| self.datagrams.repair(now, number))
            }
            _ => false,
        };
        self.stats.datagrams_repaired += u64::from(is_repaired);
        is_repaired
    }

    /// A packet with this frame is in flight on `path`, which went silent: its bytes are queued for
    /// other paths, unless one carries them already. Returns the stream bytes queued; calling it
    /// again for the same packet queues nothing.
    pub fn reinject(&mut self, frame: &SentFrame, path: PathId) -> u64 {
        if matches!(frame, SentFrame::Datagram { .. }) {
            self.repair(frame);
            return 0;
        }
        let queued = self.requeue(frame, path);
        self.stats.bytes_reinjected += queued;
        queued
    }

    fn requeue(&mut self, frame: &SentFrame, path: PathId) -> u64 {
        let Some((id, range)) = stream_range(frame) else {
            return 0;
        };
        let Ok(send) = self.send_half(id) else {
            return 0;
        };
        if send.reset.is_some() {
            return 0;
        }
        let queued = send.buf.on_lost(range, path);
        self.losses += 1;
        self.refresh(id);
        queued
    }

    /// Starts over after the peer has received nothing of what was sent and has other limits than
    /// it was sent under. All of it is unsent again; the limits are told next, by
    /// [`on_peer_params`](Self::on_peer_params).
    ///
    /// # Errors
    /// If more streams are open than the peer allows now: they cannot be closed again.
    pub fn restart(&mut self, params: &TransportParameters) -> Result<(), TransportError> {
        self.outbound = Outbound::default();
        let allowed = [
            params.initial_max_streams_bidi,
            params.initial_max_streams_uni,
        ];
        for (ids, allowed) in self.local.iter_mut().zip(allowed) {
            if !ids.restart(allowed) {
                let code = TransportErrorCode::INTERNAL_ERROR;
                let reason = "the server allows fewer streams than it did before";
                return Err(TransportError::new(code, reason));
            }
        }
        for id in self.live.keys().copied().collect::<Vec<_>>() {
            let Ok(send) = self.send_half(id) else {
                continue;
            };
            send.max_data = 0;
            match &mut send.reset {
                Some(reset) => reset.final_size = 0,
                None => send.buf.rewind(),
            }
            self.refresh(id);
        }
        Ok(())
    }

    /// Whether a byte of this `STREAM` frame was not acknowledged in any packet.
    pub fn is_unacked(&self, frame: &SentFrame) -> bool {
        let Some((id, range)) = stream_range(frame) else {
            return false;
        };
        let send = self.live.get(&id).and_then(|stream| stream.send.as_ref());
        send.is_some_and(|send| send.reset.is_none() && send.buf.is_unacked(&range))
    }

    /// How often data of a path stopped counting as under way there, or changed its class: only
    /// that makes frames of a class [copyable](Self::is_copyable) that were not.
    pub fn losses(&self) -> u64 {
        self.losses
    }

    /// Whether the frame is one of a stream of this class.
    pub fn is_of(&self, frame: &SentFrame, class: u8) -> bool {
        if !self.ready.has_classes() {
            return class == 0;
        }
        stream_range(frame).is_some_and(|(id, _)| self.class_of(id) == Some(class))
    }

    /// Whether [`Self::write_copy`] would send a byte of this frame on `path`.
    pub fn is_copyable(&self, frame: &SentFrame, path: PathId) -> bool {
        let Some((id, range)) = stream_range(frame) else {
            return false;
        };
        let send = self.live.get(&id).and_then(|stream| stream.send.as_ref());
        let Some(send) = send.filter(|send| send.reset.is_none()) else {
            return false;
        };
        send.buf
            .copyable(range, path, self.limits.max_copies)
            .is_some()
    }
}

pub(super) fn stream_range(frame: &SentFrame) -> Option<(StreamId, std::ops::Range<u64>)> {
    match *frame {
        SentFrame::Stream {
            id,
            start,
            length,
            fin,
        } => Some((id, range_of(start, length, fin))),
        _ => None,
    }
}
