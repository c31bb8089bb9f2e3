//! One packet under construction: header, frames, padding, protection, bookkeeping.

use super::Connection;
use crate::event::{Observation, Purpose};
use crate::handshake::{Handshake, Level};
use crate::path::liveness::Sent;
use crate::path::packets::Leaving;
use crate::recovery::sent::{SentFrame, SentFrames};
use crate::recovery::{PacketSpace, SentPacket};
use crate::time::Instant;
use crate::wire::cursor::Reader;
use crate::wire::frame;
use crate::wire::header::{self, LongHeader, LongType};
use crate::wire::{ConnectionId, PathId, packet_number};

/// Room below which starting a packet is not worth its header and tag.
pub(super) const MIN_USEFUL_ROOM: usize = 64;

/// A packet whose frames are being written.
pub(super) struct Packet {
    pub(super) level: Level,
    pub(super) path: PathId,
    pub(super) pn: u64,
    pub(super) ack_eliciting: bool,
    /// Set on DPLPMTUD probes: their loss says nothing about congestion.
    pub(super) is_mtu_probe: bool,
    /// Set on copies that the scheduler requested: they are not copied again.
    pub(super) is_copy: bool,
    /// Set on answers to a probe time-out.
    pub(super) is_pto_probe: bool,
    /// Set on packets that only prove a route: they repeat by a timer of their own.
    pub(super) is_validation: bool,
    pub(super) via: Via,
    pub(super) frames: SentFrames,
    /// Where frames must end for the tag to fit.
    pub(super) end: usize,
    start: usize,
    pn_offset: usize,
    pn_len: usize,
    long: Option<LongHeader>,
}

impl Packet {
    /// Bytes frames may still take.
    pub(super) fn room(&self, buf: &[u8]) -> usize {
        self.end.saturating_sub(buf.len())
    }

    /// Whether any frame was written.
    pub(super) fn has_frames(&self, buf: &[u8]) -> bool {
        buf.len() > self.pn_offset + self.pn_len
    }

    /// What it means for the silence that may follow.
    fn awaits(&self) -> Sent {
        if !self.level.is_data() || !self.ack_eliciting || self.is_validation {
            Sent::Unawaited
        } else if self.frames.is_empty() && !self.is_pto_probe {
            Sent::Question
        } else {
            Sent::Awaited
        }
    }

    fn purpose(&self) -> Purpose {
        match self {
            Self {
                is_mtu_probe: true, ..
            } => Purpose::MtuProbe,
            Self {
                is_pto_probe: true, ..
            } => Purpose::Probe,
            Self { is_copy: true, .. } => Purpose::Copy,
            _ => Purpose::Frames,
        }
    }

    /// Notes a frame that was written.
    pub(super) fn sent(&mut self, frame: SentFrame) {
        self.frames.push(frame);
        self.ack_eliciting |= !matches!(frame, SentFrame::Ack { .. });
    }

    /// Whether one of the noted frames asks for an acknowledgement.
    pub(super) fn note_eliciting(&mut self) {
        self.ack_eliciting |= self
            .frames
            .iter()
            .any(|frame| !matches!(frame, SentFrame::Ack { .. }));
    }
}

/// Which way a packet leaves. Only what leaves by the path's route is on its account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Via {
    /// The path's route.
    Route,
    /// The path's route before it moved.
    Previous,
    /// An address the path is not at.
    Elsewhere,
}

/// How large a finished packet has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SizeRule {
    AsIs,
    /// Padded until the datagram ends at this offset of the buffer.
    AtLeast(usize),
}

impl Connection {
    /// Starts a packet in a datagram that must end at `datagram_end` of `buf`.
    pub(super) fn begin_packet(
        &mut self,
        level: Level,
        path: PathId,
        buf: &mut Vec<u8>,
        datagram_end: usize,
    ) -> Option<Packet> {
        let (_, dcid, _) = self.paths.slot(path)?.remote_cids.active()?;
        self.begin_packet_for(&dcid, level, path, buf, datagram_end)
    }

    /// Starts a packet with data by the path's route or the one before, each with a connection ID
    /// of its own.
    pub(super) fn begin_packet_via(
        &mut self,
        via: Via,
        path: PathId,
        buf: &mut Vec<u8>,
        datagram_end: usize,
    ) -> Option<Packet> {
        if via == Via::Route {
            let level = self.data_level().unwrap_or(Level::OneRtt);
            return self.begin_packet(level, path, buf, datagram_end);
        }
        let dcid = self.paths.slot(path)?.remote_cids.kept()?;
        let mut packet = self.begin_packet_for(&dcid, Level::OneRtt, path, buf, datagram_end)?;
        packet.via = via;
        Some(packet)
    }

    /// As [`begin_packet`](Self::begin_packet), to another connection ID than the one in use.
    pub(super) fn begin_packet_for(
        &mut self,
        dcid: &ConnectionId,
        level: Level,
        path: PathId,
        buf: &mut Vec<u8>,
        datagram_end: usize,
    ) -> Option<Packet> {
        if datagram_end < buf.len() + MIN_USEFUL_ROOM {
            return None;
        }
        let space = self.space(level, path)?;
        let pn = space.peek_pn();
        let pn_len = packet_number::encoded_len(pn, space.largest_acked());
        let start = buf.len();
        let scid = &self.identity.handshake_scid;
        let (long, pn_offset) = match level {
            Level::OneRtt => {
                let phase = self.handshake.key_phase();
                (None, header::put_short(buf, dcid, false, phase, pn, pn_len))
            }
            Level::Initial | Level::Handshake | Level::ZeroRtt => {
                let (kind, token) = match level {
                    Level::Initial => (LongType::Initial, self.identity.token.as_slice()),
                    Level::ZeroRtt => (LongType::ZeroRtt, [].as_slice()),
                    _ => (LongType::Handshake, [].as_slice()),
                };
                let long = header::put_long(buf, kind, dcid, scid, token, pn, pn_len);
                let offset = long.pn_offset;
                (Some(long), offset)
            }
        };
        let end = datagram_end - Handshake::TAG_LEN;
        if buf.len() + 4 > end {
            buf.truncate(start);
            return None;
        }
        Some(Packet {
            level,
            path,
            pn,
            ack_eliciting: false,
            is_mtu_probe: false,
            is_copy: false,
            is_pto_probe: false,
            is_validation: false,
            via: Via::Route,
            frames: SentFrames::new(),
            end,
            start,
            pn_offset,
            pn_len,
            long,
        })
    }

    /// Seals the packet and remembers it. Returns its size in bytes, 0 if it held no frame.
    pub(super) fn finish_packet(
        &mut self,
        now: Instant,
        packet: &mut Packet,
        buf: &mut Vec<u8>,
        rule: SizeRule,
    ) -> usize {
        if !packet.has_frames(buf) {
            buf.truncate(packet.start);
            return 0;
        }
        packet.note_eliciting();
        let padded = pad(packet, buf, rule);
        let end = buf.len() + Handshake::TAG_LEN;
        if let Some(long) = &packet.long {
            long.set_length(buf, end);
        }
        let Packet {
            level,
            path,
            pn,
            start,
            pn_offset,
            pn_len,
            ..
        } = *packet;
        let payload = self
            .outbox
            .is_observed()
            .then(|| buf[pn_offset + pn_len..].to_vec());
        if let Err(error) = self
            .handshake
            .seal(level, path, pn, buf, start, pn_offset, pn_len)
        {
            buf.truncate(start);
            self.fail(now, error);
            return 0;
        }
        let size = buf.len() - start;
        if let Some(payload) = payload {
            self.observe_sent(now, packet, &payload, size);
        }
        if packet.via == Via::Route {
            self.remember(now, packet, size, padded);
        } else {
            self.remember_elsewhere(now, packet, size);
        }
        size
    }

    fn observe_sent(&mut self, now: Instant, packet: &Packet, payload: &[u8], size: usize) {
        let mut frames = Vec::new();
        let mut reader = Reader::new(payload);
        while !reader.is_empty() {
            let Ok(typed) = frame::decode(&mut reader) else {
                debug_assert!(false, "a frame of ours does not decode");
                break;
            };
            frames.push(typed);
        }
        let sent = Observation::PacketSent {
            level: packet.level,
            path: packet.path,
            pn: packet.pn,
            size,
            purpose: packet.purpose(),
            frames: &frames,
        };
        self.outbox.observe(now, &sent);
    }

    /// Puts a sent packet into its space and its bytes onto the route's account.
    fn remember(&mut self, now: Instant, packet: &mut Packet, size: usize, padded: bool) {
        if packet.ack_eliciting && self.outbox.stats.sent_since_received == 0 {
            self.idle_since = now;
        }
        if packet.ack_eliciting {
            self.outbox.stats.sent_since_received += 1;
        }
        let Some(path) = self.paths.path_mut(packet.path) else {
            return;
        };
        let window = path.route().controller.window();
        let sent = path.on_sent(
            now,
            Leaving {
                pn: packet.pn,
                size,
                is_data: packet.level.is_data(),
                ack_eliciting: packet.ack_eliciting,
                in_flight: packet.ack_eliciting || padded,
                is_copy: packet.is_copy,
                is_mtu_probe: packet.is_mtu_probe,
                awaits: packet.awaits(),
                frames: std::mem::take(&mut packet.frames),
            },
        );
        let is_resized = path.route().controller.window() != window;
        if sent.ack_eliciting && packet.level.is_data() {
            self.placement.on_sent(packet.path, &sent);
        }
        let space = match packet.level {
            Level::Initial => self.early.spaces[0].as_mut(),
            Level::Handshake => self.early.spaces[1].as_mut(),
            Level::OneRtt | Level::ZeroRtt => Some(path.space_mut()),
        };
        put_into(space, packet.pn, sent);
        // A controller may end a measurement as the path is used again after a pause.
        if is_resized {
            self.observe_metrics(now, packet.path);
        }
    }

    /// Remembers a packet that did not leave by the path's route.
    fn remember_elsewhere(&mut self, now: Instant, packet: &mut Packet, size: usize) {
        let by_previous = packet.via == Via::Previous;
        let frames = std::mem::take(&mut packet.frames);
        if let Some(path) = self.paths.path_mut(packet.path) {
            let sent = path.on_sent_elsewhere(now, size, by_previous, frames);
            put_into(Some(path.space_mut()), packet.pn, sent);
        }
    }
}

fn put_into(space: Option<&mut PacketSpace>, pn: u64, sent: SentPacket) {
    if let Some(space) = space {
        let next = space.next_pn();
        debug_assert_eq!(next, pn, "the packet number was announced by peek_pn");
        space.on_sent(next, sent);
    }
}

/// Pads the plaintext; returns whether padding makes the packet count as in flight.
fn pad(packet: &Packet, buf: &mut Vec<u8>, rule: SizeRule) -> bool {
    // Header protection samples 16 bytes that start 4 bytes after the packet number's offset.
    let shortest = packet.pn_offset + 4;
    if buf.len() < shortest {
        buf.resize(shortest, 0);
    }
    match rule {
        SizeRule::AtLeast(end) if buf.len() + Handshake::TAG_LEN < end => {
            buf.resize(end - Handshake::TAG_LEN, 0);
            true
        }
        _ => false,
    }
}
