//! Control frames that wait: what no other part queues itself.

use super::Connection;
use super::builder::Packet;
use crate::handshake::Level;
use crate::path::manager::Slot;
use crate::placement::room_on;
use crate::recovery::sent::SentFrame;
use crate::wire::PathId;
use crate::wire::frame::{Form, Frame};

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
    pub(super) fn write_control(&mut self, packet: &mut Packet, buf: &mut Vec<u8>) {
        let limit = packet.end;
        if self.control.handshake_done && put(&Frame::HandshakeDone, buf, limit) {
            self.control.handshake_done = false;
            packet.sent(SentFrame::HandshakeDone);
        }
        self.handshake
            .write_crypto(Level::OneRtt, buf, limit, &mut packet.frames);
        if self.paths.owes_frames() && packet.level == Level::OneRtt {
            self.write_path_control(packet, buf);
        }
        if self.streams.has_control() {
            self.streams.write_control(buf, limit, &mut packet.frames);
        }
        if self.ack_requests.is_pending() {
            self.write_ack_request(packet, buf);
        }
        self.write_new_tokens(packet, buf);
        packet.note_eliciting();
    }

    /// Writes all tokens or none: what is acknowledged or lost are all of them.
    fn write_new_tokens(&mut self, packet: &mut Packet, buf: &mut Vec<u8>) {
        let Some(tokens) = self.control.new_token.take() else {
            return;
        };
        let before = buf.len();
        let put_one = |token: &Vec<u8>| put(&Frame::NewToken { token }, buf, packet.end);
        if tokens.iter().all(put_one) {
            packet.sent(SentFrame::NewToken);
            self.control.new_token_sent = Some(tokens);
        } else {
            buf.truncate(before);
            self.control.new_token = Some(tokens);
        }
    }

    /// Announces on a path that is being opened, beside the challenge, the connection ID that the
    /// answer needs. The announcement on another path may be slower, or lost. Returns whether
    /// the path is being opened.
    pub(super) fn write_answer_cid(&mut self, packet: &mut Packet, buf: &mut Vec<u8>) -> bool {
        let (limit, id) = (packet.end, packet.path);
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
        if let Some(frame) = cid.map(|cid| cid.frame(id))
            && put_form(&Frame::NewConnectionId(frame), buf, limit, Form::Multipath)
        {
            let (path, sequence) = (id, frame.sequence);
            slot.local_cids.on_sent(sequence);
            packet.sent(SentFrame::NewConnectionId { path, sequence });
        }
        true
    }

    /// Writes what fits of the frames about paths.
    fn write_path_control(&mut self, packet: &mut Packet, buf: &mut Vec<u8>) {
        let limit = packet.end;
        let multipath = self.multipath_active();
        let form = if multipath {
            Form::Multipath
        } else {
            Form::Plain
        };
        if let Some(path_limit) = self.paths.limit_to_send() {
            if !put(&Frame::MaxPathId { limit: path_limit }, buf, limit) {
                return;
            }
            self.paths.on_limit_sent();
            packet.sent(SentFrame::MaxPathId { limit: path_limit });
        }
        if let Some(blocked) = self.paths.blocked_to_send() {
            if !put(&Frame::PathsBlocked { limit: blocked }, buf, limit) {
                return;
            }
            self.paths.on_blocked_sent();
            packet.sent(SentFrame::PathsBlocked { limit: blocked });
        }
        self.paths.change_each(|slot| {
            // Without the extension only path 0 exists for the peer.
            slot.id != PathId::ZERO && !multipath || write_slot_control(slot, packet, buf, form)
        });
    }
}

/// Writes what one slot owes the peer; returns whether all fitted.
fn write_slot_control(slot: &mut Slot, packet: &mut Packet, buf: &mut Vec<u8>, form: Form) -> bool {
    let (limit, path) = (packet.end, slot.id);
    if let Some(closing) = &mut slot.closing
        && closing.abandon_pending
    {
        if !put(
            &Frame::PathAbandon {
                path,
                code: closing.code,
            },
            buf,
            limit,
        ) {
            return false;
        }
        closing.abandon_pending = false;
        packet.sent(SentFrame::PathAbandon { path });
    }
    if slot.closing.is_some() {
        return true;
    }
    if let Some((status, sequence)) = slot.own_status
        && slot.status_pending
    {
        if !put(
            &Frame::PathStatus {
                path,
                sequence,
                status,
            },
            buf,
            limit,
        ) {
            return false;
        }
        slot.status_pending = false;
        packet.sent(SentFrame::PathStatus { path, sequence });
    }
    if !write_slot_cids(slot, packet, buf, form) {
        return false;
    }
    if slot.cids_blocked_pending {
        let next_sequence = slot.remote_cids.next_expected();
        if !put(
            &Frame::PathCidsBlocked {
                path,
                next_sequence,
            },
            buf,
            limit,
        ) {
            return false;
        }
        slot.cids_blocked_pending = false;
        packet.sent(SentFrame::PathCidsBlocked { path });
    }
    true
}

/// Writes the connection IDs a slot issues and gives back; returns whether all fitted.
fn write_slot_cids(slot: &mut Slot, packet: &mut Packet, buf: &mut Vec<u8>, form: Form) -> bool {
    let (limit, path) = (packet.end, slot.id);
    while let Some(frame) = slot.local_cids.next_to_send().map(|cid| cid.frame(path)) {
        if !put_form(&Frame::NewConnectionId(frame), buf, limit, form) {
            return false;
        }
        slot.local_cids.on_sent(frame.sequence);
        packet.sent(SentFrame::NewConnectionId {
            path,
            sequence: frame.sequence,
        });
    }
    while let Some(sequence) = slot.remote_cids.next_retirement() {
        if !put_form(
            &Frame::RetireConnectionId { path, sequence },
            buf,
            limit,
            form,
        ) {
            return false;
        }
        slot.remote_cids.on_retirement_sent(sequence);
        packet.sent(SentFrame::RetireConnectionId { path, sequence });
    }
    true
}

/// Appends the frame if it ends within `limit`.
pub(super) fn put(frame: &Frame<'_>, buf: &mut Vec<u8>, limit: usize) -> bool {
    put_form(frame, buf, limit, Form::Plain)
}

fn put_form(frame: &Frame<'_>, buf: &mut Vec<u8>, limit: usize, form: Form) -> bool {
    let before = buf.len();
    frame.encode(buf, form);
    if buf.len() > limit {
        buf.truncate(before);
        return false;
    }
    true
}
