//! Control frames that wait: what no other part queues itself.

use super::Connection;
use crate::handshake::Level;
use crate::packet::{Frames, Packet};
use crate::path::manager::Slot;
use crate::placement::room_on;
use crate::recovery::sent::SentFrame;
use crate::wire::PathId;
use crate::wire::frame::{Form, Frame, NewConnectionId};

/// Room for any control frame but tokens: `PATH_NEW_CONNECTION_ID` is the longest.
const CONTROL_ROOM: usize = 64;

/// Frames the connection itself owes the peer.
#[derive(Debug, Default)]
pub(super) struct Control {
    /// `HANDSHAKE_DONE` must be sent (server).
    pub(super) handshake_done: bool,
    /// Tokens for later connections, one each, must be sent (server). They leave in one packet.
    pub(super) new_token: Option<Vec<Vec<u8>>>,
    /// They were sent and not acknowledged: kept to be sent again.
    pub(super) new_token_sent: Option<Vec<Vec<u8>>>,
    /// The application was told that it can open a path, and has not been turned away since.
    pub(super) capacity_told: bool,
    /// The path by which all acknowledgements return, with
    /// [`AckReturn::LowestRtt`](crate::config::AckReturn).
    pub(super) ack_home: Option<PathId>,
    /// The path that stream data came by last.
    pub(super) data_came_by: Option<PathId>,
}

impl Connection {
    /// Whether any control frame waits that can go on any path.
    pub(crate) fn has_control(&self) -> bool {
        self.control.handshake_done
            || self.control.new_token.is_some()
            || self.paths.owes_frames()
            || self.streams.has_control()
            || self.ack_requests.is_pending()
            || self.handshake.has_crypto(Level::OneRtt)
    }

    /// Forgets control frames that have become pointless; returns whether any is left to send.
    pub(super) fn settle_control(&mut self, level: Level) -> bool {
        self.streams.settle_control()
            || self.control.handshake_done
            || self.control.new_token.is_some()
            || self.paths.owes_frames() && level == Level::OneRtt
            || self.ack_requests.is_pending()
            || self.handshake.has_crypto(Level::OneRtt)
    }

    /// Whether a packet on the path has room for any control frame.
    pub(super) fn has_control_room(&self, path: PathId, level: Level) -> bool {
        let tokens = self.control.new_token.iter().flatten();
        let tokens: usize = tokens.map(|token| CONTROL_ROOM + token.len()).sum();
        let path = self.paths.open_path(path);
        path.is_some_and(|path| room_on(path, level) >= CONTROL_ROOM.max(tokens))
    }

    /// Writes what fits of the control frames that can go on any path.
    pub(super) fn write_control(&mut self, packet: &mut Packet<'_>) {
        let level = packet.level();
        let frames = packet.frames();
        if self.control.handshake_done {
            let (frame, noted) = (Frame::HandshakeDone, SentFrame::HandshakeDone);
            self.control.handshake_done = !frames.put_noted(&frame, Form::Plain, noted);
        }
        self.handshake.write_crypto(Level::OneRtt, frames);
        if self.paths.owes_frames() && level == Level::OneRtt {
            self.write_path_control(frames);
        }
        if self.streams.has_control() {
            self.streams.write_control(frames);
        }
        if self.ack_requests.is_pending() {
            self.write_ack_request(frames);
        }
        self.write_new_tokens(frames);
    }

    /// Writes all tokens or none: what is acknowledged or lost are all of them.
    fn write_new_tokens(&mut self, frames: &mut Frames<'_>) {
        let Some(tokens) = self.control.new_token.take() else {
            return;
        };
        let before = frames.mark();
        let mut tokens_left = tokens.iter();
        if tokens_left.all(|token| frames.put(&Frame::NewToken { token })) {
            frames.note(SentFrame::NewToken);
            self.control.new_token_sent = Some(tokens);
        } else {
            frames.go_back(before);
            self.control.new_token = Some(tokens);
        }
    }

    /// Announces on a path that is being opened, beside the challenge, the connection ID that the
    /// answer needs. The announcement on another path may be slower, or lost. Returns whether
    /// the path is being opened.
    pub(super) fn write_answer_cid(&mut self, packet: &mut Packet<'_>) -> bool {
        let id = packet.path();
        if !self.multipath_active() {
            return false;
        }
        let Some(mut slot) = self.paths.slot_mut(id) else {
            return false;
        };
        let is_new = slot.open().is_some_and(|path| !path.route().validated);
        if !is_new {
            return false;
        }
        let cid = slot.local_cids.first_unconfirmed();
        if let Some(frame) = cid.map(|cid| cid.frame(id)) {
            put_cid(&mut slot, frame, packet.frames(), Form::Multipath);
        }
        true
    }

    /// Writes what fits of the frames about paths.
    fn write_path_control(&mut self, frames: &mut Frames<'_>) {
        let multipath = self.multipath_active();
        let form = if multipath {
            Form::Multipath
        } else {
            Form::Plain
        };
        if let Some(path_limit) = self.paths.limit_to_send() {
            let noted = SentFrame::MaxPathId { limit: path_limit };
            if !frames.put_noted(&Frame::MaxPathId { limit: path_limit }, Form::Plain, noted) {
                return;
            }
            self.paths.on_limit_sent();
        }
        if let Some(blocked) = self.paths.blocked_to_send() {
            let noted = SentFrame::PathsBlocked { limit: blocked };
            if !frames.put_noted(&Frame::PathsBlocked { limit: blocked }, Form::Plain, noted) {
                return;
            }
            self.paths.on_blocked_sent();
        }
        self.paths.change_each(|slot| {
            // Without the extension only path 0 exists for the peer.
            slot.id != PathId::ZERO && !multipath || write_slot_control(slot, frames, form)
        });
    }
}

/// Writes what one slot owes the peer; returns whether all fitted.
fn write_slot_control(slot: &mut Slot, frames: &mut Frames<'_>, form: Form) -> bool {
    let path = slot.id;
    if let Some(closing) = &mut slot.closing {
        if closing.abandon_pending {
            let code = closing.code;
            let (frame, noted) = (
                Frame::PathAbandon { path, code },
                SentFrame::PathAbandon { path },
            );
            closing.abandon_pending = !frames.put_noted(&frame, Form::Plain, noted);
        }
        return !closing.abandon_pending;
    }
    if let Some((status, sequence)) = slot.own_status
        && slot.status_pending
    {
        let frame = Frame::PathStatus {
            path,
            sequence,
            status,
        };
        let noted = SentFrame::PathStatus { path, sequence };
        if !frames.put_noted(&frame, Form::Plain, noted) {
            return false;
        }
        slot.status_pending = false;
    }
    if !write_slot_cids(slot, frames, form) {
        return false;
    }
    if slot.cids_blocked_pending {
        let next_sequence = slot.remote_cids.next_expected();
        let frame = Frame::PathCidsBlocked {
            path,
            next_sequence,
        };
        let noted = SentFrame::PathCidsBlocked { path };
        slot.cids_blocked_pending = !frames.put_noted(&frame, Form::Plain, noted);
    }
    !slot.cids_blocked_pending
}

/// Writes the connection IDs a slot issues and gives back; returns whether all fitted.
fn write_slot_cids(slot: &mut Slot, frames: &mut Frames<'_>, form: Form) -> bool {
    let path = slot.id;
    while let Some(frame) = slot.local_cids.next_to_send().map(|cid| cid.frame(path)) {
        if !put_cid(slot, frame, frames, form) {
            return false;
        }
    }
    while let Some(sequence) = slot.remote_cids.next_retirement() {
        let frame = Frame::RetireConnectionId { path, sequence };
        let noted = SentFrame::RetireConnectionId { path, sequence };
        if !frames.put_noted(&frame, form, noted) {
            return false;
        }
        slot.remote_cids.on_retirement_sent(sequence);
    }
    true
}

/// Writes a connection ID that a slot issues; returns whether it fitted.
fn put_cid(slot: &mut Slot, cid: NewConnectionId, frames: &mut Frames<'_>, form: Form) -> bool {
    let (path, sequence) = (slot.id, cid.sequence);
    let noted = SentFrame::NewConnectionId { path, sequence };
    let fits = frames.put_noted(&Frame::NewConnectionId(cid), form, noted);
    if fits {
        slot.local_cids.on_sent(sequence);
    }
    fits
}
