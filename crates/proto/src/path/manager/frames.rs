//! Frames about paths and their connection IDs: what the peer says, and what it is owed.

use super::{Manager, Slot};
use crate::error::TransportError;
use crate::packet::Frames;
use crate::recovery::sent::SentFrame;
use anabranch_wire::PathId;
use anabranch_wire::frame::{Form, Frame, NewConnectionId, PathStatus};

impl Manager {
    /// The peer raises its limit; returns whether it does.
    pub(crate) fn on_max_path_id(&mut self, limit: PathId) -> Result<bool, TransportError> {
        if self.remote_initial.is_some_and(|initial| limit < initial) {
            return Err(TransportError::violation(
                "MAX_PATH_ID below the initial limit",
            ));
        }
        let raised = self.remote_limit.is_some_and(|current| limit > current);
        if raised {
            self.remote_limit = Some(limit);
            self.fill_slots();
        }
        Ok(raised)
    }

    /// The peer would open more paths.
    pub(crate) fn on_paths_blocked(&self, limit: PathId) -> Result<(), TransportError> {
        if self.largest_of_peer().is_none_or(|largest| limit > largest) {
            return Err(TransportError::violation(
                "PATHS_BLOCKED above the announced limit",
            ));
        }
        Ok(())
    }

    /// The peer lacks connection IDs of a path; returns whether that exists.
    pub(crate) fn on_cids_blocked(
        &self,
        path: PathId,
        next_sequence: u64,
    ) -> Result<bool, TransportError> {
        let Some(slot) = self.slot(path) else {
            return Ok(false);
        };
        if next_sequence > slot.local_cids.next_sequence() {
            return Err(TransportError::violation(
                "PATH_CIDS_BLOCKED beyond what was issued",
            ));
        }
        Ok(true)
    }

    /// The peer says what to send on a path; returns what data is scheduled by from now on if that
    /// is something else than before.
    pub(crate) fn on_peer_status(
        &mut self,
        id: PathId,
        status: PathStatus,
        sequence: u64,
    ) -> Option<PathStatus> {
        let mut slot = self.slot_mut(id).filter(|slot| !slot.is_closing())?;
        let is_newest = slot.peer_status.is_none_or(|(_, newest)| sequence > newest);
        if !is_newest {
            return None;
        }
        let before = slot.status();
        slot.peer_status = Some((status, sequence));
        Some(slot.status()).filter(|after| *after != before)
    }

    /// Writes what fits of the frames about paths. Without the extension, only path 0 exists for
    /// the peer.
    pub(crate) fn write_control(&mut self, frames: &mut Frames<'_>, multipath: bool) {
        let form = if multipath {
            Form::Multipath
        } else {
            Form::Plain
        };
        if let Some(limit) = self.local_limit.filter(|_| self.limit_pending) {
            let noted = SentFrame::MaxPathId { limit };
            if !frames.put_noted(&Frame::MaxPathId { limit }, Form::Plain, noted) {
                return;
            }
            self.limit_pending = false;
        }
        if let Some(limit) = self.blocked_pending {
            let noted = SentFrame::PathsBlocked { limit };
            if !frames.put_noted(&Frame::PathsBlocked { limit }, Form::Plain, noted) {
                return;
            }
            self.blocked_pending = None;
        }
        self.change_each(|slot| {
            slot.id != PathId::ZERO && !multipath || slot.write_control(frames, form)
        });
    }

    /// Announces on a path that is being opened, beside the challenge, the connection ID that the
    /// answer needs. The announcement on another path may be slower, or lost. Returns whether
    /// the path is being opened.
    pub(crate) fn write_answer_cid(&mut self, id: PathId, frames: &mut Frames<'_>) -> bool {
        let slot = self.slot_mut(id);
        let is_new = |slot: &Slot| slot.open().is_some_and(|path| !path.route().is_validated());
        let Some(mut slot) = slot.filter(|slot| is_new(slot)) else {
            return false;
        };
        let cid = slot.local_cids.first_unconfirmed();
        if let Some(frame) = cid.map(|cid| cid.frame(id)) {
            slot.put_cid(frame, frames, Form::Multipath);
        }
        true
    }

    /// The peer has a frame about paths.
    pub(crate) fn on_frame_acked(&mut self, frame: &SentFrame) {
        if let SentFrame::MaxPathId { limit } = *frame {
            self.limit_pending &= self.local_limit != Some(limit);
        } else if let Some(mut slot) = named(frame).and_then(|path| self.slot_mut(path)) {
            slot.on_frame_acked(frame);
        }
    }

    /// A frame about paths is lost.
    pub(crate) fn on_frame_lost(&mut self, frame: &SentFrame) {
        match *frame {
            SentFrame::MaxPathId { limit } => {
                self.limit_pending |= self.local_limit == Some(limit);
            }
            // The peer still allows no more.
            SentFrame::PathsBlocked { limit } if self.remote_limit == Some(limit) => {
                self.blocked_pending = Some(limit);
            }
            _ => {
                if let Some(mut slot) = named(frame).and_then(|path| self.slot_mut(path)) {
                    slot.on_frame_lost(frame);
                }
            }
        }
    }
}

/// The path that a frame is about, if it is about one.
fn named(frame: &SentFrame) -> Option<PathId> {
    match *frame {
        SentFrame::NewConnectionId { path, .. }
        | SentFrame::RetireConnectionId { path, .. }
        | SentFrame::PathAbandon { path }
        | SentFrame::PathStatus { path, .. }
        | SentFrame::PathCidsBlocked { path } => Some(path),
        _ => None,
    }
}

impl Slot {
    fn on_frame_acked(&mut self, frame: &SentFrame) {
        match *frame {
            SentFrame::NewConnectionId { sequence, .. } => self.local_cids.on_acked(sequence),
            SentFrame::RetireConnectionId { sequence, .. } => {
                self.remote_cids.on_retirement_acked(sequence);
            }
            SentFrame::PathAbandon { .. } => {
                if let Some(closing) = &mut self.closing {
                    closing.abandon_acked = true;
                    closing.abandon_pending = false;
                }
            }
            SentFrame::PathStatus { sequence, .. } => {
                self.status_pending &= self.status_sequence != Some(sequence);
            }
            _ => {}
        }
    }

    fn on_frame_lost(&mut self, frame: &SentFrame) {
        match *frame {
            SentFrame::NewConnectionId { sequence, .. } => self.local_cids.on_lost(sequence),
            SentFrame::RetireConnectionId { sequence, .. } => {
                self.remote_cids.on_retirement_lost(sequence);
            }
            SentFrame::PathAbandon { .. } => {
                if let Some(closing) = &mut self.closing {
                    closing.abandon_pending = true;
                }
            }
            SentFrame::PathStatus { sequence, .. } => {
                self.status_pending |= self.status_sequence == Some(sequence);
            }
            SentFrame::PathCidsBlocked { .. } => {
                self.cids_blocked_pending |= !self.remote_cids.has_active();
            }
            _ => {}
        }
    }

    /// Writes what is owed to the peer; returns whether all fitted.
    fn write_control(&mut self, frames: &mut Frames<'_>, form: Form) -> bool {
        let path = self.id;
        if let Some(closing) = &mut self.closing {
            if closing.abandon_pending {
                let code = closing.code;
                let frame = Frame::PathAbandon { path, code };
                let noted = SentFrame::PathAbandon { path };
                closing.abandon_pending = !frames.put_noted(&frame, Form::Plain, noted);
            }
            return !closing.abandon_pending;
        }
        if let Some(sequence) = self.status_sequence
            && self.status_pending
        {
            let frame = Frame::PathStatus {
                path,
                sequence,
                status: self.own_status,
            };
            let noted = SentFrame::PathStatus { path, sequence };
            if !frames.put_noted(&frame, Form::Plain, noted) {
                return false;
            }
            self.status_pending = false;
        }
        if !self.write_cids(frames, form) {
            return false;
        }
        if self.cids_blocked_pending {
            let next_sequence = self.remote_cids.next_expected();
            let frame = Frame::PathCidsBlocked {
                path,
                next_sequence,
            };
            let noted = SentFrame::PathCidsBlocked { path };
            self.cids_blocked_pending = !frames.put_noted(&frame, Form::Plain, noted);
        }
        !self.cids_blocked_pending
    }

    /// Writes the connection IDs that are issued and given back; returns whether all fitted.
    fn write_cids(&mut self, frames: &mut Frames<'_>, form: Form) -> bool {
        let path = self.id;
        while let Some(frame) = self.local_cids.next_to_send().map(|cid| cid.frame(path)) {
            if !self.put_cid(frame, frames, form) {
                return false;
            }
        }
        while let Some(sequence) = self.remote_cids.next_retirement() {
            let frame = Frame::RetireConnectionId { path, sequence };
            let noted = SentFrame::RetireConnectionId { path, sequence };
            if !frames.put_noted(&frame, form, noted) {
                return false;
            }
            self.remote_cids.on_retirement_sent(sequence);
        }
        true
    }

    /// Writes a connection ID that is issued; returns whether it fitted.
    fn put_cid(&mut self, cid: NewConnectionId, frames: &mut Frames<'_>, form: Form) -> bool {
        let (path, sequence) = (self.id, cid.sequence);
        let noted = SentFrame::NewConnectionId { path, sequence };
        let fits = frames.put_noted(&Frame::NewConnectionId(cid), form, noted);
        if fits {
            self.local_cids.on_sent(sequence);
        }
        fits
    }
}
