//! Packets of the handshake: when they leave, and by which way.
//!
//! They belong to path 0. If it fails just before the server has the last of them, the server can
//! read nothing of any path (RFC 9001, section 5.7), and probes of path 0 do not help. A server
//! that announces `handshake_by_any_path` reads them wherever they come from, so its client then
//! sends each by its further paths, too. It does not migrate by that (RFC 9000, section 9, allows
//! it only later): path 0 stays where it is. Its connection ID leaves from other addresses, which
//! section 9.5 forbids as observers can link them by it. So no other server gets such packets, and
//! none does before a probe time-out tells that they are needed.

use super::Connection;
use crate::datagram::Transmit;
use crate::handshake::Level;
use crate::handshake::flights::LEVELS;
use crate::packet::{Kind, SizeRule};
use crate::path::manager::Slot;
use crate::path::state::Path;
use crate::recovery::sent::SentFrame;
use crate::time::Instant;
use crate::wire::{MIN_DATAGRAM_SIZE, PathId};

/// Bytes that a datagram with packets of the handshake has to have left for connection IDs to go
/// along: those of two paths, with the header of their packet.
const ROOM_FOR_CIDS: usize = 128;

impl Connection {
    /// Initial and Handshake packets, coalesced into one datagram. Behind the last of them there
    /// may be room for connection IDs of further paths.
    pub(super) fn transmit_handshake(
        &mut self,
        now: Instant,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        if self.flights.are_over() {
            return None;
        }
        if let Some(transmit) = self.transmit_copy(buf) {
            return Some(transmit);
        }
        let path = self.paths.path(PathId::ZERO)?;
        let wanted = self.flights.wanted(now, &self.handshake, path);
        let last = *wanted.last()?;
        let route = path.route();
        let (tuple, mut size) = (route.tuple(), route.sendable_datagram_size() as usize);
        if self.leaves_by_all_paths(Level::Handshake) {
            size = size.min(usize::from(route.safe_datagram_size()));
        }
        let start = buf.len();
        let mut must_fill = false;
        for level in wanted {
            let Some(mut packet) = self.begin_packet(level, PathId::ZERO, buf, start + size) else {
                continue;
            };
            self.flights.write(now, &mut packet, &mut self.handshake);
            // RFC 9000, section 14.1: datagrams with Initial packets are full size where that helps
            // validating the path.
            must_fill |= level == Level::Initial
                && (packet.is_ack_eliciting() || self.identity.side().is_client());
            let is_followed = level == last && self.are_cids_to_follow(level, packet.room());
            let fill = must_fill && level == last && size >= MIN_DATAGRAM_SIZE;
            let rule = if fill {
                SizeRule::AtLeast(start + MIN_DATAGRAM_SIZE)
            } else {
                SizeRule::AsIs
            };
            let own = if is_followed { SizeRule::AsIs } else { rule };
            let is_copied =
                self.leaves_by_all_paths(level) && packet.frames().sent().iter().any(is_crypto);
            let length = self.finish_packet(now, packet, own);
            if is_copied {
                self.copy_to_further_paths(&buf[buf.len() - length..]);
            }
            self.on_level_sent(now, level);
            if is_followed {
                self.transmit_cids(now, buf, start + size, rule);
            }
        }
        let length = buf.len() - start;
        // Not marked: a route that drops marks costs no handshake, and counts are kept per packet
        // number space, of which only one can be checked: that of 1-RTT packets, which lasts.
        (length > 0).then_some(Transmit::single(tuple, length))
    }

    /// Writes the packet with connection IDs behind those of the handshake.
    fn transmit_cids(&mut self, now: Instant, buf: &mut Vec<u8>, end: usize, rule: SizeRule) {
        if let Some(mut packet) = self.begin_packet(Level::OneRtt, PathId::ZERO, buf, end) {
            packet.set_kind(Kind::BehindHandshake);
            self.write_control(&mut packet);
            self.finish_packet(now, packet, rule);
        }
    }

    /// Whether connection IDs of further paths go behind a packet of the handshake that leaves so
    /// much room in its datagram: with them the peer can use them as soon as it has read it.
    fn are_cids_to_follow(&self, level: Level, room: usize) -> bool {
        level == Level::Handshake
            && room >= ROOM_FOR_CIDS
            && self.paths.owes_frames()
            && self.multipath_active()
            && !self.handshake_waits()
    }

    /// Whether bytes of the handshake itself are still to be sent.
    pub(super) fn handshake_waits(&self) -> bool {
        LEVELS.iter().any(|level| self.handshake.has_crypto(*level))
    }

    /// Whether packets of this level leave by all paths: the end of a client's handshake, once a
    /// probe time-out tells that path 0 may have lost it.
    pub(super) fn leaves_by_all_paths(&self, level: Level) -> bool {
        level == Level::Handshake
            && self.handshake.is_complete()
            && self.flights.is_probing()
            && self.identity.peer().handshake_by_any_path
    }

    /// Has a packet leave by each further path as it is. The peer reads the first that comes. The
    /// copies are no packets of those paths, and need no window there.
    #[cold]
    fn copy_to_further_paths(&mut self, packet: &[u8]) {
        let paths = self.paths.open().filter_map(Slot::open).map(Path::id);
        let further = paths.filter(|path| *path != PathId::ZERO);
        self.flights.copy_to(further, packet);
    }

    /// The next of these copies.
    fn transmit_copy(&mut self, buf: &mut Vec<u8>) -> Option<Transmit> {
        loop {
            let (path, packet) = self.flights.next_copy()?;
            if let Some(path) = self.paths.open_path_mut(path) {
                path.count_elsewhere(packet.len());
                buf.extend_from_slice(&packet);
                return Some(Transmit::single(path.route().tuple(), packet.len()));
            }
        }
    }

    pub(super) fn handle_flights_timeout(&mut self, now: Instant) {
        for level in LEVELS {
            if self.flights.has_lost(now, level) {
                self.detect_lost(now, level, PathId::ZERO);
            }
        }
        let Some(path) = self.paths.path(PathId::ZERO) else {
            return;
        };
        if let Some((level, missed)) = self.flights.probe(now, &self.handshake, path) {
            for frame in missed {
                self.on_frame_lost(level, PathId::ZERO, &frame);
            }
            if let Some(path) = self.paths.path_mut(PathId::ZERO) {
                path.on_handshake_probe(now);
            }
        }
    }
}

fn is_crypto(frame: &SentFrame) -> bool {
    matches!(frame, SentFrame::Crypto { .. })
}
