//! Packets of this connection: where their numbers and connection IDs come from, and what is
//! remembered of them.

use super::Connection;
use crate::handshake::Level;
use crate::packet::{Heading, Packet, Sealed, SizeRule, Via};
use crate::path::packets::Leaving;
use crate::recovery::PacketSpace;
use crate::time::Instant;
use crate::wire::{ConnectionId, PathId};

impl Connection {
    /// Starts a packet in a datagram that must end at `datagram_end` of `buf`.
    pub(super) fn begin_packet<'b>(
        &self,
        level: Level,
        path: PathId,
        buf: &'b mut Vec<u8>,
        datagram_end: usize,
    ) -> Option<Packet<'b>> {
        let slot = self.paths.slot(path)?;
        let (_, dcid, _) = slot.remote_cids().active()?;
        let space = self.space_of(level, slot.path())?;
        let heading = self.heading(level, path, Via::Route, dcid, space);
        Packet::begin(&heading, buf, datagram_end)
    }

    /// Starts a packet with data by the path's route or the one before, each with a connection ID
    /// of its own.
    pub(super) fn begin_packet_via<'b>(
        &self,
        via: Via,
        path: PathId,
        buf: &'b mut Vec<u8>,
        datagram_end: usize,
    ) -> Option<Packet<'b>> {
        if via == Via::Route {
            let level = self.data_level().unwrap_or(Level::OneRtt);
            return self.begin_packet(level, path, buf, datagram_end);
        }
        let slot = self.paths.slot(path)?;
        let dcid = slot.remote_cids().kept()?;
        let heading = self.heading(Level::OneRtt, path, via, dcid, slot.path()?.space());
        Packet::begin(&heading, buf, datagram_end)
    }

    /// The header of the next packet of a level on a path, which is numbered in this space.
    pub(super) fn heading(
        &self,
        level: Level,
        path: PathId,
        via: Via,
        dcid: ConnectionId,
        space: &PacketSpace,
    ) -> Heading<'_> {
        Heading {
            level,
            path,
            via,
            dcid,
            scid: self.identity.handshake_scid(),
            token: self.identity.token(),
            key_phase: self.handshake.key_phase(),
            pn: space.peek_pn(),
            largest_acked: space.largest_acked(),
        }
    }

    /// Seals the packet and remembers it. Returns its size in bytes, 0 if it held no frame.
    pub(super) fn finish_packet(
        &mut self,
        now: Instant,
        packet: Packet<'_>,
        rule: SizeRule,
    ) -> usize {
        let watched = self.outbox.is_observed();
        let sealed = match packet.seal(&mut self.handshake, rule, watched) {
            Ok(Some(sealed)) => sealed,
            Ok(None) => return 0,
            Err(error) => {
                self.fail(now, error);
                return 0;
            }
        };
        if let Some(payload) = &sealed.payload {
            self.outbox.observe_sent(now, &sealed, payload);
        }
        let size = sealed.leaving.size;
        let Sealed {
            level,
            path,
            via,
            leaving,
            ..
        } = sealed;
        if via == Via::Route {
            self.remember(now, level, path, leaving);
        } else {
            self.remember_elsewhere(now, path, via, leaving);
        }
        size
    }

    /// Puts a sent packet into its space and its bytes onto the route's account.
    fn remember(&mut self, now: Instant, level: Level, id: PathId, leaving: Leaving) {
        if leaving.ack_eliciting {
            self.idle.on_sent(now);
        }
        let Some(path) = self.paths.path_mut(id) else {
            return;
        };
        let window = path.route().congestion_window();
        let pn = leaving.pn;
        let sent = path.on_sent(now, leaving);
        let is_resized = path.route().congestion_window() != window;
        if sent.ack_eliciting && level.is_data() {
            self.placement.on_sent(id, &sent);
        }
        if level.is_data() {
            path.remember(pn, sent);
        } else {
            self.flights.remember(level, pn, sent);
        }
        // A controller may end a measurement as the path is used again after a pause.
        if is_resized {
            self.observe_metrics(now, id);
        }
    }

    /// Remembers a packet that did not leave by the path's route.
    fn remember_elsewhere(&mut self, now: Instant, id: PathId, via: Via, leaving: Leaving) {
        let by_previous = via == Via::Previous;
        if let Some(path) = self.paths.path_mut(id) {
            path.on_sent_elsewhere(now, by_previous, leaving);
        }
    }
}
