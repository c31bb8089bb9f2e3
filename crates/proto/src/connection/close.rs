//! The end of a connection: closing, draining, idle time-out, reset (RFC 9000, section 10).

use super::Connection;
use crate::datagram::Transmit;
use crate::endpoint::internal_error;
use crate::error::{ConnectionError, TransportError};
use crate::event::{Event, Observation};
use crate::handshake::Level;
use crate::packet::{Frames, SizeRule};
use crate::time::Instant;
use crate::wire::frame::{ConnectionClose, Frame};
use crate::wire::{ErrorCode, PathId, TransportErrorCode};

/// `CONNECTION_CLOSE` is answered to every 2^n-th packet that arrives while closing, up to this n
/// (RFC 9000, section 10.2.1 asks for a decreasing rate).
const MAX_CLOSE_BACKOFF: u32 = 10;

/// Room for one more packet with a `CONNECTION_CLOSE`: the longest long header, the frame with a
/// short reason, and the tag.
const CLOSE_ROOM: usize = 160;

/// Where a connection is in its life.
#[derive(Debug)]
pub(super) enum Life {
    /// TLS is not finished.
    Handshaking,
    /// TLS is finished on this side.
    Established,
    /// We sent `CONNECTION_CLOSE` and answer stragglers with it.
    Closing(Box<Closing>),
    /// The peer closed, or we time out: nothing is sent any more.
    Draining { until: Instant },
    /// Nothing is left to do.
    Drained,
}

/// What we tell the peer when we close.
#[derive(Debug)]
pub(super) struct Closing {
    application: bool,
    code: u64,
    frame_type: u64,
    reason: Vec<u8>,
    /// Paths the next `CONNECTION_CLOSE` still has to go out on.
    owed: Vec<PathId>,
    /// Packets that arrived since we closed, and how many trigger the next answer.
    arrived: u32,
    answer_at: u32,
    until: Instant,
}

impl Life {
    /// Whether the connection can still do anything for its application.
    pub(super) fn is_over(&self) -> bool {
        matches!(
            self,
            Self::Closing(_) | Self::Draining { .. } | Self::Drained
        )
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Closing(closing) => Some(closing.until),
            Self::Draining { until } => Some(*until),
            _ => None,
        }
    }
}

impl Connection {
    /// Closes the connection for the application: tells the peer `code` and `reason`.
    pub fn close(&mut self, now: Instant, code: impl Into<ErrorCode>, reason: &[u8]) {
        if self.life.is_over() {
            return;
        }
        self.begin_closing(now, true, code.into().value(), 0, reason.to_vec());
        self.report_end(now, ConnectionError::LocallyClosed);
    }

    /// Others need the memory that holds what this peer does not acknowledge.
    #[cold]
    pub(crate) fn close_for_memory(&mut self, now: Instant) {
        let reason = "the server needs the memory for data that others acknowledge";
        let error = TransportError::new(TransportErrorCode::INTERNAL_ERROR, reason);
        self.close_with_error(now, error);
    }

    /// Something in here panicked: says no more than that, and shows nothing to anybody.
    #[cold]
    pub(crate) fn on_panic(&mut self, now: Instant) {
        self.outbox.observer = None;
        if self.life.is_over() {
            self.vanish(now, ConnectionError::LocallyClosed);
        } else {
            self.close_with_error(now, internal_error());
        }
    }

    /// Tells the peer once more that the connection is closed, on every path: nobody confirms it.
    pub fn repeat_close(&mut self) {
        let paths = self.close_paths();
        if let Life::Closing(closing) = &mut self.life {
            closing.owed = paths;
        }
    }

    pub(super) fn close_with_error(&mut self, now: Instant, error: TransportError) {
        if self.life.is_over() {
            return;
        }
        let reason = error.reason.as_bytes().to_vec();
        self.begin_closing(now, false, error.code.0, error.frame_type, reason);
        self.report_end(now, ConnectionError::Transport(error));
    }

    fn begin_closing(
        &mut self,
        now: Instant,
        application: bool,
        code: u64,
        frame_type: u64,
        reason: Vec<u8>,
    ) {
        let until = now + self.three_pto();
        let owed = self.close_paths();
        self.life = Life::Closing(Box::new(Closing {
            application,
            code,
            frame_type,
            reason,
            owed,
            arrived: 0,
            answer_at: 1,
            until,
        }));
    }

    /// One copy on every validated path: the peer may hear us on one of them only.
    fn close_paths(&self) -> Vec<PathId> {
        let validated: Vec<_> = self
            .paths
            .open()
            .filter(|slot| slot.open().is_some_and(|path| path.route().validated))
            .map(|slot| slot.id)
            .collect();
        if !validated.is_empty() {
            return validated;
        }
        if let Some(open) = self.paths.open().next() {
            return vec![open.id];
        }
        // Paths that were given up still lead to the peer, for want of others. Which of them do is
        // not known: each side may have given up what the other counts on.
        let closing = self.paths.in_use().filter(|slot| slot.path().is_some());
        closing.map(|slot| slot.id).collect()
    }

    /// Ends without telling the peer.
    #[cold]
    pub(super) fn drain(&mut self, now: Instant, error: ConnectionError) {
        if matches!(self.life, Life::Draining { .. } | Life::Drained) {
            return;
        }
        let reported = self.life.is_over();
        self.life = Life::Draining {
            until: now + self.three_pto(),
        };
        if !reported {
            self.report_end(now, error);
        }
    }

    /// Ends at once: nothing that could still arrive matters.
    #[cold]
    pub(super) fn vanish(&mut self, now: Instant, error: ConnectionError) {
        self.drain(now, error);
        self.finish_draining();
    }

    pub(super) fn finish_draining(&mut self) {
        if !matches!(self.life, Life::Drained) {
            self.life = Life::Drained;
            self.outbox.events.push_back(Event::Drained);
        }
    }

    fn report_end(&mut self, now: Instant, error: ConnectionError) {
        self.streams.forget_written();
        self.outbox
            .observe(now, &Observation::Closed { error: &error });
        self.outbox.events.push_back(Event::Closed(error));
    }

    /// A packet arrived while closing: answer some of them.
    pub(super) fn on_straggler(&mut self, path: PathId) {
        if let Life::Closing(closing) = &mut self.life {
            closing.arrived += 1;
            if closing.arrived >= closing.answer_at {
                closing.arrived = 0;
                closing.answer_at = (closing.answer_at * 2).min(1 << MAX_CLOSE_BACKOFF);
                if !closing.owed.contains(&path) {
                    closing.owed.push(path);
                }
            }
        }
    }

    pub(super) fn on_connection_close(&mut self, now: Instant, frame: &ConnectionClose<'_>) {
        let reason = String::from_utf8_lossy(frame.reason).into_owned();
        let error = if frame.application {
            ConnectionError::ApplicationClosed {
                code: frame.code,
                reason,
            }
        } else {
            ConnectionError::PeerClosed(
                TransportError::new(TransportErrorCode(frame.code), reason)
                    .in_frame(frame.frame_type),
            )
        };
        self.drain(now, error);
    }

    /// The next datagram that carries `CONNECTION_CLOSE`.
    #[cold]
    pub(super) fn transmit_close(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit> {
        loop {
            let Life::Closing(closing) = &mut self.life else {
                return None;
            };
            let path = closing.owed.pop()?;
            if let Some(transmit) = self.write_close_datagram(now, path, buf) {
                return Some(transmit);
            }
        }
    }

    fn write_close_datagram(
        &mut self,
        now: Instant,
        path: PathId,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let route = &self.paths.path(path)?.route();
        let (tuple, budget) = (route.tuple, route.amplification.budget());
        let size = u64::from(route.mtu.current()).min(budget) as usize;
        let start = buf.len();
        let mut levels = self.close_levels().peekable();
        let mut must_fill = false;
        while let Some(level) = levels.next() {
            let Some(mut packet) = self.begin_packet(level, path, buf, start + size) else {
                continue;
            };
            self.put_close(level, packet.frames());
            must_fill |= level == Level::Initial && self.identity.side.is_client();
            // The last packet fills the datagram: the others share it.
            let is_last = levels.peek().is_none() || packet.room() < CLOSE_ROOM;
            let rule = if must_fill && is_last {
                SizeRule::AtLeast(start + crate::wire::MIN_DATAGRAM_SIZE)
            } else {
                SizeRule::AsIs
            };
            self.finish_packet(now, packet, rule);
            if is_last {
                break;
            }
        }
        let length = buf.len() - start;
        (length > 0).then_some(Transmit::single(tuple, length))
    }

    /// Every level the peer may be able to read (RFC 9000, section 10.2.3).
    fn close_levels(&self) -> impl Iterator<Item = Level> + use<> {
        let confirmed = self.handshake.is_confirmed();
        let usable = [Level::Initial, Level::Handshake, Level::OneRtt].map(|level| {
            let has_keys = self.handshake.has_keys(level);
            let wanted = level == Level::OneRtt || !confirmed;
            (
                level,
                has_keys && wanted && (level != Level::OneRtt || self.may_send_one_rtt()),
            )
        });
        usable
            .into_iter()
            .filter(|(_, usable)| *usable)
            .map(|(level, _)| level)
    }

    fn put_close(&self, level: Level, frames: &mut Frames<'_>) {
        let Life::Closing(closing) = &self.life else {
            return;
        };
        // An application's words must not leave before the handshake protects them
        // (RFC 9000, section 10.2.3).
        let hidden = closing.application && level != Level::OneRtt;
        let mut frame = ConnectionClose {
            application: closing.application && !hidden,
            code: if hidden {
                TransportErrorCode::APPLICATION_ERROR.0
            } else {
                closing.code
            },
            frame_type: closing.frame_type,
            reason: if hidden { &[] } else { &closing.reason },
        };
        let overhead = 25;
        let room = frames.room().saturating_sub(overhead).min(256);
        frame.reason = &frame.reason[..frame.reason.len().min(room)];
        frames.push(&Frame::ConnectionClose(frame));
    }
}
