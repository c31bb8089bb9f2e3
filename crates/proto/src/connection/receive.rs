//! From a datagram to frames: split, find keys, open, hand over.

use super::Connection;
use crate::datagram::{Ecn, Tuple};
use crate::error::{ConnectionError, TransportError};
use crate::event::{DropReason, Observation};
use crate::handshake::undecryptable::{Early, Origin};
use crate::handshake::{Level, OpenError};
use crate::packet::{Contents, Incoming, Piece, is_probing, next_frame};
use crate::path::manager::Slot;
use crate::path::packets::Received;
use crate::path::state::Path;
use crate::recovery::PacketSpace;
use crate::time::Instant;
use crate::wire::cursor::Reader;
use crate::wire::{ConnectionId, MIN_DATAGRAM_SIZE, PathId, ResetToken};
use std::net::SocketAddr;

impl Connection {
    /// A datagram arrived for `path`. Coalesced packets are split here.
    pub(crate) fn handle_datagram(
        &mut self,
        now: Instant,
        tuple: Tuple,
        ecn: Option<Ecn>,
        path: PathId,
        data: &mut [u8],
    ) {
        self.clock = self.clock.max(now);
        self.sent_all_at = None;
        if self.life.is_over() {
            self.life.on_straggler(path);
            return;
        }
        if !self.admit(tuple, path, data.len() as u64) {
            self.outbox
                .on_dropped(now, path, data.len(), DropReason::ForeignAddress);
            return;
        }
        let is_small = data.len() < MIN_DATAGRAM_SIZE;
        let mut rest = data;
        while !rest.is_empty() {
            let Some(incoming) = self.next_packet(now, path, rest) else {
                return;
            };
            let (packet, tail) = rest.split_at_mut(incoming.length);
            if incoming.level == Level::Initial && is_small && self.identity.side().is_server() {
                // RFC 9000, section 14.1.
                self.outbox
                    .on_dropped(now, path, packet.len(), DropReason::SmallInitial);
                rest = tail;
                continue;
            }
            let from = Origin {
                came_at: now,
                tuple,
                ecn,
                path,
            };
            self.handle_packet(now, from, &incoming, packet);
            if self.life.is_over() {
                return;
            }
            rest = tail;
        }
    }

    /// Puts a datagram on its path's account, unless it [is foreign](Self::is_foreign); whether it
    /// is to be read.
    fn admit(&mut self, tuple: Tuple, id: PathId, bytes: u64) -> bool {
        let path = self.paths.path_mut(id);
        let has_path = path.is_some();
        if let Some(path) = path
            && path.route().tuple().remote == tuple.remote
        {
            path.on_datagram(tuple, bytes);
            return true;
        }
        if self.is_foreign(tuple.remote, has_path) {
            return false;
        }
        if let Some(path) = self.paths.path_mut(id) {
            path.on_datagram(tuple, bytes);
        }
        true
    }

    /// Whether a datagram comes from an address that its sender must not use: it is as good as lost
    /// (RFC 9000, section 9). To a client that is each address it does not know as its server's;
    /// to a server that allows no moves (`disable_active_migration`), each that its path is not at.
    /// Our own end may differ: the client was invited to a preferred address. Asked only of an
    /// address that the path is not at; `has_path` tells that there is one.
    #[cold]
    fn is_foreign(&self, remote: SocketAddr, has_path: bool) -> bool {
        if self.identity.side().is_client() {
            return !self.knows_server_at(remote);
        }
        has_path && !self.config.migration && self.handshake.is_confirmed()
    }

    /// Whether a client sends to this address, did so, or was told that its server is there too.
    fn knows_server_at(&self, remote: SocketAddr) -> bool {
        let paths = self.paths.in_use().filter_map(Slot::path);
        let mut routes = paths.flat_map(|path| path.previous().into_iter().chain([path.route()]));
        self.identity.handshake_remote() == remote
            || self.identity.preferred_remote(remote.is_ipv4()) == Some(remote)
            || routes.any(|route| route.tuple().remote == remote)
    }

    /// Tells what the next packet is; `None` if the rest of the datagram holds none.
    fn next_packet(&mut self, now: Instant, path: PathId, bytes: &[u8]) -> Option<Incoming> {
        let identity = &self.identity;
        match Piece::first_of(bytes, identity.cids().length(), identity.side()) {
            Piece::Packet(incoming) => return Some(incoming),
            Piece::Retry {
                scid,
                token,
                body,
                tag,
            } => self.on_retry(now, scid, token, body, tag),
            Piece::VersionNegotiation { scid, versions } => {
                self.on_version_negotiation(now, scid, versions);
            }
            Piece::Useless(why) => self.outbox.on_dropped(now, path, bytes.len(), why),
        }
        None
    }

    #[cold]
    fn on_version_negotiation(&mut self, now: Instant, scid: &[u8], versions: &[u8]) {
        if self.identity.is_refused(scid, versions) {
            self.vanish(now, ConnectionError::VersionMismatch);
        } else {
            let why = DropReason::OutOfState;
            self.outbox
                .on_dropped(now, PathId::ZERO, versions.len(), why);
        }
    }

    fn handle_packet(
        &mut self,
        now: Instant,
        from: Origin,
        incoming: &Incoming,
        packet: &mut [u8],
    ) {
        let (level, path) = (incoming.level, from.path);
        // Opening spoils the bytes, even where it fails.
        let tail = packet
            .last_chunk()
            .copied()
            .filter(|_| level == Level::OneRtt);
        if !self.accepts(level, path, incoming.scid) {
            self.on_unusable(now, path, tail, packet.len(), DropReason::OutOfState);
            return;
        }
        if !self.handshake.can_open(level) {
            self.keep_undecryptable(now, from, level, packet);
            return;
        }
        let Some(header) = self.handshake.unprotect(level, packet, incoming.pn_offset) else {
            self.on_unusable(now, path, tail, packet.len(), DropReason::TooShort);
            return;
        };
        let space = self.space(level, path);
        let expected = space.map_or(0, |space| space.received().expected());
        let pn = crate::wire::packet_number::expand(header.pn, header.pn_len, expected);
        if space.is_some_and(|space| space.received().is_duplicate(pn)) {
            self.on_unusable(now, path, tail, packet.len(), DropReason::Duplicate);
            return;
        }
        let header_len = incoming.pn_offset + header.pn_len;
        match self
            .handshake
            .open(now, level, path, pn, header.key_phase, packet, header_len)
        {
            Ok(_) if !header.reserved_bits_zero => {
                self.fail(
                    now,
                    TransportError::violation("reserved header bits are not zero"),
                );
            }
            Ok(payload) => {
                let arrival = Arrival {
                    now,
                    came_at: from.came_at,
                    tuple: from.tuple,
                    ecn: from.ecn,
                    path,
                    level,
                    pn,
                    size: packet.len(),
                };
                if let Some(scid) = incoming.scid {
                    self.learn_peer_cid(scid);
                }
                self.on_authenticated(arrival, &packet[payload]);
            }
            Err(OpenError::Undecryptable) => {
                self.on_unusable(now, path, tail, packet.len(), DropReason::Undecryptable);
            }
            Err(OpenError::Fatal(error)) => self.fail(now, error),
        }
    }

    /// Whether a packet of this level can mean anything on this path now.
    fn accepts(&self, level: Level, path: PathId, scid: Option<ConnectionId>) -> bool {
        if level != Level::OneRtt {
            // RFC 9000, section 7.2: the peer's connection ID does not change in the handshake.
            // Nor has the handshake, or what comes before its end, any path but the first.
            return self
                .identity
                .peer_scid()
                .is_none_or(|known| Some(known) == scid)
                && path == PathId::ZERO
                && self.space(level, path).is_some();
        }
        self.paths.slot(path).is_some()
    }

    #[cold]
    fn keep_undecryptable(&mut self, now: Instant, from: Origin, level: Level, packet: &[u8]) {
        let early = || Early {
            from,
            bytes: packet.to_vec(),
        };
        if !self.handshake.may_open_later(level) || !self.undecryptable.keep(early) {
            let why = DropReason::KeysMissing;
            self.outbox.on_dropped(now, from.path, packet.len(), why);
        }
    }

    /// Tries again what came before its keys.
    #[cold]
    pub(super) fn replay_undecryptable(&mut self, now: Instant) {
        for mut kept in self.undecryptable.take() {
            if self.life.is_over() {
                return;
            }
            // Its bytes were accounted for when it arrived.
            if let Some(incoming) = self.next_packet(now, kept.from.path, &kept.bytes) {
                self.handle_packet(now, kept.from, &incoming, &mut kept.bytes);
            }
        }
    }

    /// A packet that means nothing, unless it is no packet but a stateless reset.
    #[cold]
    fn on_unusable(
        &mut self,
        now: Instant,
        path: PathId,
        tail: Option<[u8; 16]>,
        size: usize,
        why: DropReason,
    ) {
        if !self.on_reset(now, tail) {
            self.outbox.on_dropped(now, path, size, why);
        }
    }

    /// Ends the connection if `tail`, the last bytes of a datagram that looks like a 1-RTT packet,
    /// is the token of a connection ID in use (RFC 9000, section 10.3.1).
    ///
    /// Its other bytes are random: they may name any path, be too short for a packet or pass for a
    /// packet number that was there before.
    #[cold]
    fn on_reset(&mut self, now: Instant, tail: Option<[u8; 16]>) -> bool {
        let is_reset = tail.is_some_and(|tail| self.paths.knows_token(ResetToken(tail)));
        if is_reset {
            self.drain(now, ConnectionError::Reset);
        }
        is_reset
    }

    fn on_authenticated(&mut self, arrival: Arrival, payload: &[u8]) {
        let Arrival {
            now, path, level, ..
        } = arrival;
        if !self.has_heard_peer() {
            self.greet(now);
        }
        self.idle.on_received(now);
        self.on_level_used(now, level);
        if path != PathId::ZERO && !self.handshake.is_confirmed() {
            // A server sends on further paths only in answer to 1-RTT packets, which it opens once
            // it is complete: as good as their acknowledgement (RFC 9001, section 4.1.2).
            self.on_confirmed(now);
        }
        self.observe_keys(now, true);
        self.follow(&arrival, payload);
        if self.space(level, path).is_none() {
            return;
        }
        match self.handle_frames(&arrival, payload) {
            Ok(contents) => {
                self.settle_delays(&arrival);
                self.note_received(&arrival, &contents, payload.len());
            }
            Err(error) => self.fail(now, error),
        }
    }

    /// Creates the path or follows it to a new address, before frames are looked at.
    fn follow(&mut self, arrival: &Arrival, payload: &[u8]) {
        let Arrival {
            now,
            tuple,
            path,
            level,
            pn,
            size,
            ..
        } = *arrival;
        if level != Level::OneRtt {
            return;
        }
        let multipath = self.multipath_active();
        let Some((known, is_open)) = self.paths.known_mut(path) else {
            self.on_first_packet(now, path, tuple, size as u64);
            return;
        };
        let may_have_moved = known.on_authentic(now, pn, tuple);
        // RFC 9000, section 9.3. With several paths there is no need to probe an address under a
        // path ID that is elsewhere: whatever comes from there is the path.
        if is_open && may_have_moved && (multipath || !is_probing(payload)) {
            self.on_new_tuple(now, path, tuple, size as u64);
        }
    }

    fn handle_frames(
        &mut self,
        arrival: &Arrival,
        payload: &[u8],
    ) -> Result<Contents, TransportError> {
        if payload.is_empty() {
            return Err(TransportError::violation("a packet without frames"));
        }
        let mut observed = self.outbox.is_observed().then(Vec::new);
        let mut contents = Contents::default();
        let mut reader = Reader::new(payload);
        while !reader.is_empty() {
            let (frame_type, frame) = next_frame(&mut reader, arrival.level)?;
            contents.add(frame_type, &frame);
            if let Some(observed) = &mut observed {
                observed.push((frame_type, frame.clone()));
            }
            self.dispatch(arrival, frame_type, frame)
                .map_err(|error| error.in_frame(frame_type.0))?;
            if self.life.is_over() {
                break;
            }
        }
        if let Some(frames) = observed {
            let Arrival {
                now,
                path,
                level,
                pn,
                size,
                ..
            } = *arrival;
            let packet = Observation::PacketReceived {
                level,
                path,
                pn,
                size,
                frames: &frames,
            };
            self.outbox.observe(now, &packet);
        }
        Ok(contents)
    }

    fn note_received(&mut self, arrival: &Arrival, contents: &Contents, payload_len: usize) {
        let Arrival {
            now,
            came_at,
            ecn,
            path,
            level,
            pn,
            ..
        } = *arrival;
        if !level.is_data() {
            let packet = (level, pn);
            self.flights
                .on_received(now, packet, ecn, contents.ack_eliciting);
            return;
        }
        let Some((known, is_open)) = self.paths.known_mut(path) else {
            return;
        };
        let lone_ping = contents.is_lone_ping(payload_len);
        let received = Received {
            came_at,
            pn,
            ecn,
            ack_eliciting: contents.ack_eliciting,
            immediate: contents.immediate,
            lone_ping,
            // Probes have no timestamp.
            measures: lone_ping && contents.timestamp,
            is_open,
        };
        if let Some(until) = known.on_received(now, received) {
            self.outbox
                .observe(now, &Observation::Detour { path, until });
        }
    }

    /// Whether any packet of the handshake could be opened.
    pub(crate) fn has_heard_peer(&self) -> bool {
        self.life.is_over() || self.handshake.is_complete() || self.flights.have_heard()
    }

    /// The packet number space of a level, or of a path for 1-RTT.
    pub(super) fn space(&self, level: Level, path: PathId) -> Option<&PacketSpace> {
        self.space_of(level, self.paths.path(path))
    }

    /// The packet number space of a level, or of this path for 1-RTT.
    pub(super) fn space_of<'a>(
        &'a self,
        level: Level,
        path: Option<&'a Path>,
    ) -> Option<&'a PacketSpace> {
        match level {
            Level::Initial | Level::Handshake => self.flights.space(level),
            Level::OneRtt | Level::ZeroRtt => path.map(Path::space),
        }
    }
}

/// Where and when a packet arrived, and what it is called.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival {
    pub(super) now: Instant,
    /// Earlier than now if it waited for its keys.
    pub(super) came_at: Instant,
    pub(super) tuple: Tuple,
    pub(super) ecn: Option<Ecn>,
    pub(super) path: PathId,
    pub(super) level: Level,
    pub(super) pn: u64,
    /// Size of the packet in bytes.
    pub(super) size: usize,
}
