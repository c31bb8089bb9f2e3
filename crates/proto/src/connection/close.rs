//! The end of a connection: closing, draining, idle time-out, reset (RFC 9000, section 10).

use super::Connection;
use crate::datagram::Transmit;
use crate::endpoint::internal_error;
use crate::error::{ConnectionError, TransportError};
use crate::event::{Event, Observation};
use crate::handshake::Level;
use crate::life::Farewell;
use crate::packet::SizeRule;
use crate::time::Instant;
use crate::wire::frame::ConnectionClose;
use crate::wire::{ErrorCode, PathId, TransportErrorCode};

/// Room for one more packet with a `CONNECTION_CLOSE`: the longest long header, the frame with a
/// short reason, and the tag.
const CLOSE_ROOM: usize = 160;

impl Connection {
    /// Closes the connection for the application: tells the peer `code` and `reason`.
    pub fn close(&mut self, now: Instant, code: impl Into<ErrorCode>, reason: &[u8]) {
        if self.life.is_over() {
            return;
        }
        self.begin_closing(now, Farewell::of_application(code.into(), reason));
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
        self.outbox.set_observer(None, 0);
        if self.life.is_over() {
            self.vanish(now, ConnectionError::LocallyClosed);
        } else {
            self.close_with_error(now, internal_error());
        }
    }

    /// Tells the peer once more that the connection is closed, on every path: nobody confirms it.
    pub fn repeat_close(&mut self) {
        self.life.say_again(self.paths.last_ways());
    }

    pub(super) fn close_with_error(&mut self, now: Instant, error: TransportError) {
        if self.life.is_over() {
            return;
        }
        self.begin_closing(now, Farewell::of_error(&error));
        self.report_end(now, ConnectionError::Transport(error));
    }

    fn begin_closing(&mut self, now: Instant, farewell: Farewell) {
        let until = now + self.three_pto();
        self.life.close(farewell, self.paths.last_ways(), until);
    }

    /// Ends without telling the peer.
    #[cold]
    pub(super) fn drain(&mut self, now: Instant, error: ConnectionError) {
        let until = now + self.three_pto();
        if self.life.drain(until) {
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
        if self.life.finish() {
            self.outbox.tell(Event::Drained);
        }
    }

    fn report_end(&mut self, now: Instant, error: ConnectionError) {
        self.streams.forget_written();
        self.streams.expect_no_more();
        self.outbox
            .observe(now, &Observation::Closed { error: &error });
        self.outbox.tell(Event::Closed(error));
    }

    pub(super) fn on_connection_close(&mut self, now: Instant, frame: &ConnectionClose<'_>) {
        self.drain(now, ConnectionError::of_peer(frame));
    }

    /// The next datagram that carries `CONNECTION_CLOSE`.
    #[cold]
    pub(super) fn transmit_close(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit> {
        while let Some(path) = self.life.next_owed() {
            if let Some(transmit) = self.write_close_datagram(now, path, buf) {
                return Some(transmit);
            }
        }
        None
    }

    fn write_close_datagram(
        &mut self,
        now: Instant,
        path: PathId,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let route = self.paths.path(path)?.route();
        let (tuple, size) = (route.tuple(), route.sendable_datagram_size() as usize);
        let start = buf.len();
        let mut levels = self.close_levels().peekable();
        let mut must_fill = false;
        while let Some(level) = levels.next() {
            let Some(mut packet) = self.begin_packet(level, path, buf, start + size) else {
                continue;
            };
            self.life.write(level, packet.frames());
            must_fill |= level == Level::Initial && self.identity.side().is_client();
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
}
