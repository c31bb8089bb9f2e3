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
    /// Tokens that must be sent (server).
    new_tokens: Option<NewTokens>,
    /// They were sent and not acknowledged: kept to be sent again.
    new_tokens_sent: Option<NewTokens>,
    /// How many times tokens were given.
    given: u64,
}

/// Tokens for later connections, one each. They leave in one packet.
#[derive(Debug)]
struct NewTokens {
    /// Which these are: others may have been given when an old acknowledgement comes.
    number: u64,
    tokens: Vec<Vec<u8>>,
}

impl OwedFrames {
    /// Whether tokens wait or are under way: they leave and arrive as one, then others may.
    pub(super) fn has_new_tokens(&self) -> bool {
        self.new_tokens.is_some() || self.new_tokens_sent.is_some()
    }

    /// Tokens for the peer.
    pub(super) fn give_new_tokens(&mut self, tokens: Vec<Vec<u8>>) {
        let number = self.given;
        self.given += 1;
        self.new_tokens = Some(NewTokens { number, tokens });
    }

    /// What was queued again for a loss that was none need not leave any more.
    pub(super) fn on_new_tokens_acked(&mut self, number: u64) {
        for tokens in [&mut self.new_tokens, &mut self.new_tokens_sent] {
            tokens.take_if(|tokens| tokens.number == number);
        }
    }

    pub(super) fn on_new_tokens_lost(&mut self, number: u64) {
        let sent = self.new_tokens_sent.take_if(|sent| sent.number == number);
        if sent.is_some() {
            self.new_tokens = sent;
        }
    }
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
            || self.owed.new_tokens.is_some()
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

    /// Whether a packet may leave on the path with any control frame.
    pub(super) fn has_control_room(&self, path: PathId, level: Level) -> bool {
        let waiting = self.owed.new_tokens.iter();
        let tokens = waiting.flat_map(|waiting| &waiting.tokens);
        let tokens: usize = tokens.map(|token| CONTROL_ROOM + token.len()).sum();
        let path = self.paths.open_path(path);
        path.is_some_and(|path| {
            path.route().takes_control() && room_on(path, level) >= CONTROL_ROOM.max(tokens)
        })
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
        let Some(waiting) = self.owed.new_tokens.take() else {
            return;
        };
        let before = frames.mark();
        let mut tokens_left = waiting.tokens.iter();
        if tokens_left.all(|token| frames.put(&Frame::NewToken { token })) {
            let number = waiting.number;
            frames.note(SentFrame::NewTokens { number });
            self.owed.new_tokens_sent = Some(waiting);
        } else {
            frames.go_back(before);
            self.owed.new_tokens = Some(waiting);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_acknowledgement_does_not_take_newer_tokens_away() {
        let mut owed = OwedFrames::default();
        let sent = |owed: &mut OwedFrames| owed.new_tokens_sent = owed.new_tokens.take();
        owed.give_new_tokens(vec![vec![1]]);
        sent(&mut owed);
        owed.on_new_tokens_lost(0);
        assert!(owed.new_tokens.is_some(), "they leave again");
        sent(&mut owed);
        owed.on_new_tokens_acked(0);
        assert!(!owed.has_new_tokens());
        owed.give_new_tokens(vec![vec![2]]);
        // The first packet was only late.
        owed.on_new_tokens_acked(0);
        assert!(owed.new_tokens.is_some());
        sent(&mut owed);
        owed.on_new_tokens_lost(0);
        owed.on_new_tokens_acked(0);
        assert!(owed.new_tokens_sent.is_some());
        owed.on_new_tokens_acked(1);
        assert!(!owed.has_new_tokens());
    }
}
