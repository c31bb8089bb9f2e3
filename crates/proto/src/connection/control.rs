//! Control frames that wait: what no other part queues itself.

use super::Connection;
use crate::handshake::Level;
use crate::packet::{Frames, Packet};
use crate::path::state::Path;
use crate::placement::room_on;
use crate::recovery::sent::SentFrame;
use crate::wire::PathId;
use crate::wire::frame::{Form, Frame};

/// Room for any control frame but tokens: `PATH_NEW_CONNECTION_ID` is the longest.
const CONTROL_ROOM: usize = 64;

/// Frames the connection itself owes the peer.
#[derive(Debug, Default)]
pub(super) struct OwedFrames {
    /// `HANDSHAKE_DONE` must be sent (server).
    pub(super) handshake_done: bool,
    /// Tokens for later connections, one each, must be sent (server). They leave in one packet.
    pub(super) new_token: Option<Vec<Vec<u8>>>,
    /// They were sent and not acknowledged: kept to be sent again.
    pub(super) new_token_sent: Option<Vec<Vec<u8>>>,
}

impl Connection {
    /// Whether any control frame waits that can go on any path. Some may be pointless by now.
    pub(crate) fn has_control(&self) -> bool {
        self.streams.has_control() || self.owes_at(Level::OneRtt)
    }

    /// Whether the peer gets no more credit because others hold the memory for it.
    pub(crate) fn is_short_of_room(&self) -> bool {
        !self.life.is_over() && self.streams.is_short_of_room()
    }

    /// Looks whether there is memory for more credit now, which is announced then.
    pub(crate) fn look_for_room(&mut self) -> bool {
        let is_found = !self.life.is_over() && self.streams.look_for_room();
        if is_found {
            self.expect_command();
        }
        is_found
    }

    /// Forgets control frames that have become pointless; returns whether any is left to send.
    pub(super) fn settle_control(&mut self, level: Level) -> bool {
        self.streams.settle_control() || self.owes_at(level)
    }

    /// Whether control frames wait that no stream asks for.
    fn owes_at(&self, level: Level) -> bool {
        self.owed.handshake_done
            || self.owed.new_token.is_some()
            || self.owes_path_frames() && level == Level::OneRtt
            || self.ack_requests.is_pending()
            || self.handshake.has_crypto(Level::OneRtt)
    }

    /// Whether frames about paths wait that are worth a packet of their own: to an address that may
    /// be somebody else's nothing leaves for their sake, as the handshake needs what may be sent.
    fn owes_path_frames(&self) -> bool {
        let is_proven = |path: &Path| path.route().is_validated();
        let first = self.paths.path(PathId::ZERO);
        self.paths.owes_frames() && (self.handshake.is_complete() || first.is_some_and(is_proven))
    }

    /// Whether a packet on the path has room for any control frame.
    pub(super) fn has_control_room(&self, path: PathId, level: Level) -> bool {
        let tokens = self.owed.new_token.iter().flatten();
        let tokens: usize = tokens.map(|token| CONTROL_ROOM + token.len()).sum();
        let path = self.paths.open_path(path);
        path.is_some_and(|path| room_on(path, level) >= CONTROL_ROOM.max(tokens))
    }

    /// Writes what fits of the control frames that can go on any path.
    pub(super) fn write_control(&mut self, packet: &mut Packet<'_>) {
        let (level, multipath) = (packet.level(), self.multipath_active());
        let frames = packet.frames();
        if self.owed.handshake_done {
            let (frame, noted) = (Frame::HandshakeDone, SentFrame::HandshakeDone);
            self.owed.handshake_done = !frames.put_noted(&frame, Form::Plain, noted);
        }
        self.handshake.write_crypto(Level::OneRtt, frames);
        if self.paths.owes_frames() && level == Level::OneRtt {
            self.paths.write_control(frames, multipath);
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
        let Some(tokens) = self.owed.new_token.take() else {
            return;
        };
        let before = frames.mark();
        let mut tokens_left = tokens.iter();
        if tokens_left.all(|token| frames.put(&Frame::NewToken { token })) {
            frames.note(SentFrame::NewToken);
            self.owed.new_token_sent = Some(tokens);
        } else {
            frames.go_back(before);
            self.owed.new_token = Some(tokens);
        }
    }
}
