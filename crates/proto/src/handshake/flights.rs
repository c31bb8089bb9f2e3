//! The packets of the handshake: their two packet number spaces, what is sent in them, and the
//! probe time-out that both share (RFC 9002, section 6.2).
//!
//! They all travel on path 0, whose route knows RTT, window and what may be sent at all. Keys and
//! CRYPTO bytes are those of [`Handshake`].

use super::{Handshake, Level};
use crate::datagram::Ecn;
use crate::error::TransportError;
use crate::packet::{Kind, Packet};
use crate::path::liveness::MAX_BACKOFF;
use crate::path::state::Path;
use crate::recovery::sent::SentFrame;
use crate::recovery::{LargestNewlyAcked, PacketSpace, SentPacket};
use crate::rng::Rng;
use crate::time::{Duration, Instant};
use anabranch_wire::frame::Form;
use anabranch_wire::{MIN_DATAGRAM_SIZE, PathId, Side};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::ops::RangeInclusive;

/// The levels of the handshake, in order.
pub(crate) const LEVELS: [Level; 2] = [Level::Initial, Level::Handshake];

/// The least worth sending with a long header, the longest connection IDs and an acknowledgement.
const MIN_BUDGET: u64 = 128;

/// Packets that answer one probe time-out.
const PROBES: u8 = 2;

/// The spaces of Initial and Handshake packets, and what their timers share.
#[derive(Debug)]
pub(crate) struct Flights {
    /// `None` once their keys are gone. Boxed: most of its time a connection has none.
    spaces: [Option<Box<PacketSpace>>; 2],
    /// Ack-eliciting packets owed to a probe time-out, per space.
    probes_owed: [u8; 2],
    pto_count: u32,
    /// Packets that are to leave by further paths as they are: no more than those of one datagram
    /// for each open path, as the next is written once they have left.
    copies: VecDeque<(PathId, Box<[u8]>)>,
}

impl Flights {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        Self {
            spaces: [Some(Box::new(space(rng))), Some(Box::new(space(rng)))],
            probes_owed: [0; 2],
            pto_count: 0,
            copies: VecDeque::new(),
        }
    }

    /// The space of a level; `None` once its keys are gone, and for levels of data.
    pub(crate) fn space(&self, level: Level) -> Option<&PacketSpace> {
        self.spaces.get(level as usize)?.as_deref()
    }

    /// The space of a level; `None` once its keys are gone, and for levels of data.
    fn space_mut(&mut self, level: Level) -> Option<&mut PacketSpace> {
        self.spaces.get_mut(level as usize)?.as_deref_mut()
    }

    /// Whether nothing is sent or read in them any more.
    pub(crate) fn are_over(&self) -> bool {
        self.spaces.iter().all(Option::is_none)
    }

    /// Whether a probe time-out is over since the last acknowledgement that ends its back-off.
    pub(crate) fn is_probing(&self) -> bool {
        self.pto_count > 0
    }

    /// Has a packet leave by these paths as it is.
    pub(crate) fn copy_to(&mut self, paths: impl Iterator<Item = PathId>, packet: &[u8]) {
        self.copies.extend(paths.map(|path| (path, packet.into())));
    }

    /// The next copy of a packet, and the path it is to leave by.
    pub(crate) fn next_copy(&mut self) -> Option<(PathId, Box<[u8]>)> {
        self.copies.pop_front()
    }

    /// Whether any packet of the peer could be opened.
    pub(crate) fn have_heard(&self) -> bool {
        let heard = |space: &PacketSpace| space.received().largest().is_some();
        let mut spaces = self.spaces.iter();
        spaces.any(|space| space.as_deref().is_none_or(heard))
    }

    /// The levels of which packets are to be sent now.
    pub(crate) fn wanted(
        &self,
        now: Instant,
        handshake: &Handshake,
        path: &Path,
    ) -> SmallVec<[Level; 2]> {
        let mut wanted = SmallVec::new();
        for level in LEVELS {
            if self.wants(now, level, handshake, path) {
                wanted.push(level);
            }
        }
        wanted
    }

    fn wants(&self, now: Instant, level: Level, handshake: &Handshake, path: &Path) -> bool {
        let Some(space) = self.space(level) else {
            return false;
        };
        let route = path.route();
        let has_room = || {
            route.free_window() > 0 && route.amplification_budget() >= MIN_DATAGRAM_SIZE as u64 / 2
        };
        handshake.has_keys(level)
            && may_send(path)
            && (self.probes_owed[level as usize] > 0
                || space.received().ack_due(now)
                || (handshake.has_crypto(level) && has_room()))
    }

    /// Writes an acknowledgement, CRYPTO bytes, and what a probe needs beside.
    pub(crate) fn write(
        &mut self,
        now: Instant,
        packet: &mut Packet<'_>,
        handshake: &mut Handshake,
    ) {
        let level = packet.level();
        if let Some(space) = self.space_mut(level) {
            let (frames, path) = (packet.frames(), PathId::ZERO);
            space
                .received_mut()
                .write_ack(now, frames, Form::Plain, path);
        }
        handshake.write_crypto(level, packet.frames());
        let owed = &mut self.probes_owed[level as usize];
        if *owed > 0 {
            *owed -= 1;
            packet.set_kind(Kind::Probe);
            packet.ensure_eliciting();
        }
    }

    /// Something was acknowledged, so the path works in both directions (RFC 9002, section 6.2.1).
    pub(crate) fn on_acked(&mut self, level: Level, side: Side) {
        // A client whose address the server has not proven yet keeps its backoff: the
        // acknowledgement may be all the server is allowed to send.
        if level != Level::Initial || side.is_server() {
            self.pto_count = 0;
        }
    }

    /// Moves packets of a level to `lost` that newer acknowledgements or time have overtaken.
    pub(crate) fn detect_lost(
        &mut self,
        now: Instant,
        level: Level,
        path: &Path,
        lost: &mut Vec<(u64, SentPacket)>,
    ) {
        if let Some(space) = self.space_mut(level) {
            space.detect_lost(now, path.route().rtt(), lost);
        }
    }

    /// A packet that left is one of the level's space.
    pub(crate) fn remember(&mut self, level: Level, pn: u64, sent: SentPacket) {
        if let Some(space) = self.space_mut(level) {
            space.remember(pn, sent);
        }
    }

    /// A packet was read. What asks for an answer gets it at once (RFC 9000, section 13.2.1).
    pub(crate) fn on_received(
        &mut self,
        now: Instant,
        (level, pn): (Level, u64),
        ecn: Option<Ecn>,
        ack_eliciting: bool,
    ) {
        if let Some(space) = self.space_mut(level) {
            let received = space.received_mut();
            received.on_received(now, pn, ack_eliciting, ecn);
            if ack_eliciting {
                received.request_immediate();
            }
        }
    }

    /// Moves the packets that `ranges` acknowledge to `acked`; none once the level's keys are gone:
    /// there is nothing left to learn.
    ///
    /// # Errors
    /// `PROTOCOL_VIOLATION` if one was never sent.
    pub(crate) fn take_acked(
        &mut self,
        level: Level,
        ranges: impl Iterator<Item = RangeInclusive<u64>>,
        acked: &mut Vec<(u64, SentPacket)>,
    ) -> Result<Option<LargestNewlyAcked>, TransportError> {
        match self.space_mut(level) {
            Some(space) => space.on_ack(ranges, acked),
            None => Ok(None),
        }
    }

    /// The peer has an acknowledgement that reported packets up to `largest`.
    pub(crate) fn on_ack_acked(&mut self, level: Level, largest: u64) {
        if let Some(space) = self.space_mut(level) {
            space.received_mut().on_ack_acked(largest);
        }
    }

    /// Closes the space of a level; returns what is in flight there, which counts as neither
    /// acknowledged nor lost. `None` if it was closed before.
    pub(crate) fn close(&mut self, level: Level) -> Option<Vec<(u64, SentPacket)>> {
        let mut space = self.spaces.get_mut(level as usize)?.take()?;
        self.probes_owed[level as usize] = 0;
        self.pto_count = 0;
        self.copies = VecDeque::new();
        Some(space.take_all())
    }

    /// A Retry came: returns what will never be acknowledged, since its keys are gone.
    pub(crate) fn restart(&mut self) -> Option<Vec<(u64, SentPacket)>> {
        let sent = self.space_mut(Level::Initial)?.take_all();
        self.pto_count = 0;
        self.probes_owed = [0; 2];
        Some(sent)
    }

    /// Whether the loss time of a level is over.
    pub(crate) fn has_lost(&self, now: Instant, level: Level) -> bool {
        let loss_time = self.space(level).and_then(PacketSpace::loss_time);
        loss_time.is_some_and(|at| at <= now)
    }

    /// Has the packets of a level probe, if the time-out that both share is over. Returns the
    /// level, and the frames that the peer may have missed.
    pub(crate) fn probe(
        &mut self,
        now: Instant,
        handshake: &Handshake,
        path: &Path,
    ) -> Option<(Level, Vec<SentFrame>)> {
        let (_, level) = self.pto(handshake, path).filter(|(at, _)| *at <= now)?;
        self.pto_count += 1;
        self.probes_owed[level as usize] = PROBES;
        let unacked = self
            .space(level)
            .into_iter()
            .flat_map(PacketSpace::iter_unacked);
        let frames = unacked.flat_map(|(_, packet)| packet.frames.iter().copied());
        Some((level, frames.collect()))
    }

    /// When an acknowledgement, a loss or a probe is due.
    pub(crate) fn deadline(&self, handshake: &Handshake, path: Option<&Path>) -> Option<Instant> {
        if handshake.is_confirmed() && self.are_over() {
            return None;
        }
        // An acknowledgement that may not be sent waits for the peer, who earns the room for it.
        let may_send = path.is_some_and(may_send);
        let spaces = LEVELS.into_iter().filter_map(|level| {
            let space = self.space(level)?;
            let sendable = may_send && handshake.has_keys(level);
            let acknowledgement = space.received().deadline().filter(|_| sendable);
            [space.loss_time(), acknowledgement]
                .into_iter()
                .flatten()
                .min()
        });
        let pto = path.and_then(|path| self.pto(handshake, path));
        spaces.chain(pto.map(|(at, _)| at)).min()
    }

    /// When to probe, and at which level.
    fn pto(&self, handshake: &Handshake, path: &Path) -> Option<(Instant, Level)> {
        // A server that may not send any more must wait for the client (RFC 9002, section 6.2.2.1).
        if handshake.is_confirmed() || !may_send(path) {
            return None;
        }
        let wait = path.route().rtt().pto_base() * (1 << self.pto_count.min(MAX_BACKOFF));
        let armed = LEVELS.into_iter().filter_map(|level| {
            let space = self.space(level)?;
            // Bytes that were lost wait for the window, which data may fill that the peer cannot
            // read without them.
            let waits = handshake.has_keys(level) && handshake.has_crypto(level);
            let is_idle = space.ack_eliciting_in_flight() == 0 && !waits;
            let is_armed = !is_idle && self.probes_owed[level as usize] == 0;
            is_armed.then_some((space.last_ack_eliciting_sent()? + wait, level))
        });
        // A client keeps probing although nothing is in flight: the server may be unable to send
        // until it hears more.
        armed.min().or_else(|| {
            let owed = self.probes_owed.iter().any(|owed| *owed > 0);
            if handshake.side().is_server() || owed || handshake.is_complete() {
                return None;
            }
            let level = if handshake.has_keys(Level::Handshake) {
                Level::Handshake
            } else {
                Level::Initial
            };
            self.space(level)?;
            Some((path.liveness().last_activity() + wait, level))
        })
    }
}

/// Whether the amplification limit leaves room for a packet.
fn may_send(path: &Path) -> bool {
    path.route().amplification_budget() >= MIN_BUDGET
}

/// A space whose packets are acknowledged without delay.
fn space(rng: &mut Rng) -> PacketSpace {
    let mut space = PacketSpace::new(rng);
    space.received_mut().set_max_ack_delay(Duration::ZERO);
    space
}

#[cfg(test)]
mod tests;
