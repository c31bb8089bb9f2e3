//! Packets: what one that arrives is and may hold, and one under construction: header, frames,
//! padding, protection.
//!
//! [`Packet`] owns the buffer it is written to and knows where it must end; the owners of state
//! append to its [`Frames`]. Which packet is sent, and what is remembered of it, is decided
//! elsewhere.

mod contents;
mod frames;
mod incoming;

pub(crate) use contents::{Contents, Extensions, check_place, is_probing, next_frame};
pub use frames::Frames;
pub(crate) use incoming::{Incoming, Piece};

use crate::error::TransportError;
use crate::event::Purpose;
use crate::handshake::{Handshake, Level};
use crate::path::liveness::Sent;
use crate::path::packets::Leaving;
use crate::recovery::sent_packets::BesideWindow;
use anabranch_wire::header::{self, LongHeader, LongType};
use anabranch_wire::{ConnectionId, PathId, packet_number};

/// Room below which starting a packet is not worth its header and tag.
pub(crate) const MIN_USEFUL_ROOM: usize = 64;

/// Bytes that the sample of header protection starts behind the packet number's offset.
const SAMPLE_OFFSET: usize = 4;

/// What goes into the header of a packet.
#[derive(Debug)]
pub(crate) struct Heading<'a> {
    pub(crate) level: Level,
    pub(crate) path: PathId,
    pub(crate) via: Via,
    pub(crate) dcid: ConnectionId,
    /// Of long headers.
    pub(crate) scid: ConnectionId,
    /// Of Initial packets.
    pub(crate) token: &'a [u8],
    /// Of 1-RTT packets.
    pub(crate) key_phase: bool,
    pub(crate) pn: u64,
    /// The largest packet number that the peer acknowledged in the same space.
    pub(crate) largest_acked: Option<u64>,
}

/// A packet whose frames are being written.
#[derive(Debug)]
pub(crate) struct Packet<'a> {
    frames: Frames<'a>,
    level: Level,
    path: PathId,
    via: Via,
    kind: Kind,
    pn: u64,
    start: usize,
    pn_offset: usize,
    pn_len: usize,
    long: Option<LongHeader>,
}

/// Which way a packet leaves. Only what leaves by the path's route is on its account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Via {
    /// The path's route.
    Route,
    /// The path's route before it moved.
    Previous,
    /// An address the path is not at.
    Elsewhere,
}

/// What is special about a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Plain,
    /// It shares its datagram with packets of the handshake.
    BehindHandshake,
    /// It only proves a route: such packets repeat by a timer of their own.
    Validation,
    /// An answer to a probe time-out.
    Probe,
    /// A DPLPMTUD probe, whose loss says nothing about congestion.
    MtuProbe,
    /// A copy that the scheduler requested: it is not copied again.
    Copy,
    /// It leaves for the sake of control frames, or of an acknowledgement that asks for one.
    Control,
}

/// How large a finished packet has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SizeRule {
    AsIs,
    /// Padded until the datagram ends at this offset of the buffer.
    AtLeast(usize),
}

/// A packet that is ready to leave.
#[derive(Debug)]
pub(crate) struct Sealed {
    pub(crate) level: Level,
    pub(crate) path: PathId,
    pub(crate) via: Via,
    pub(crate) purpose: Purpose,
    /// Its frames before they were encrypted, if somebody wants to see them.
    pub(crate) payload: Option<Vec<u8>>,
    pub(crate) leaving: Leaving,
}

impl<'a> Packet<'a> {
    /// Starts a packet in a datagram that must end at `datagram_end` of `buf`; `None` if too little
    /// would fit.
    pub(crate) fn begin(
        heading: &Heading<'_>,
        buf: &'a mut Vec<u8>,
        datagram_end: usize,
    ) -> Option<Self> {
        if datagram_end < buf.len() + MIN_USEFUL_ROOM {
            return None;
        }
        let Heading { level, pn, .. } = *heading;
        let pn_len = packet_number::encoded_len(pn, heading.largest_acked);
        let start = buf.len();
        let (long, pn_offset) = put_header(heading, pn_len, buf);
        let end = datagram_end - Handshake::TAG_LEN;
        if buf.len() + SAMPLE_OFFSET > end {
            buf.truncate(start);
            return None;
        }
        Some(Self {
            frames: Frames::new(buf, end),
            level,
            path: heading.path,
            via: heading.via,
            kind: Kind::Plain,
            pn,
            start,
            pn_offset,
            pn_len,
            long,
        })
    }

    pub(crate) fn level(&self) -> Level {
        self.level
    }

    pub(crate) fn path(&self) -> PathId {
        self.path
    }

    pub(crate) fn via(&self) -> Via {
        self.via
    }

    /// What it holds, and what may still be added.
    pub(crate) fn frames(&mut self) -> &mut Frames<'a> {
        &mut self.frames
    }

    /// Bytes frames may still take.
    pub(crate) fn room(&self) -> usize {
        self.frames.room()
    }

    /// Whether any frame was written.
    pub(crate) fn has_frames(&self) -> bool {
        !self.frames.is_empty()
    }

    /// Whether one of its frames asks for an acknowledgement.
    pub(crate) fn is_ack_eliciting(&self) -> bool {
        self.frames.is_ack_eliciting()
    }

    pub(crate) fn set_kind(&mut self, kind: Kind) {
        self.kind = kind;
    }

    /// Makes the peer acknowledge the packet, if it does not anyway and there is room.
    pub(crate) fn ensure_eliciting(&mut self) {
        if !self.is_ack_eliciting() {
            self.frames.ping();
        }
    }

    /// Leaves the buffer as it was before the packet.
    pub(crate) fn give_up(self) {
        self.frames.into_buf().truncate(self.start);
    }

    /// Pads and protects the packet; `None` if it holds no frame. In that case, and if keys forbid
    /// it, the buffer is left as it was before the packet. `watched` keeps the frames to be shown.
    pub(crate) fn seal(
        self,
        handshake: &mut Handshake,
        rule: SizeRule,
        watched: bool,
    ) -> Result<Option<Sealed>, TransportError> {
        if !self.has_frames() {
            self.give_up();
            return Ok(None);
        }
        let (awaits, purpose) = (self.awaits(), self.purpose());
        let Self {
            frames,
            level,
            path,
            via,
            kind,
            pn,
            start,
            pn_offset,
            pn_len,
            long,
        } = self;
        let ack_eliciting = frames.is_ack_eliciting();
        let (buf, frames) = frames.into_parts();
        let padded = pad(buf, pn_offset + SAMPLE_OFFSET, rule);
        if let Some(long) = &long {
            let end = buf.len() + Handshake::TAG_LEN;
            long.set_length(buf, end);
        }
        let payload = watched.then(|| buf[pn_offset + pn_len..].to_vec());
        if let Err(error) = handshake.seal(level, path, pn, buf, start, pn_offset, pn_len) {
            buf.truncate(start);
            return Err(error);
        }
        let leaving = Leaving {
            pn,
            size: buf.len() - start,
            takes_mark: level.is_data() && kind != Kind::BehindHandshake,
            ack_eliciting,
            in_flight: ack_eliciting || padded,
            is_mtu_probe: kind == Kind::MtuProbe,
            beside_window: match kind {
                Kind::Validation => Some(BesideWindow::Proof),
                Kind::Control => Some(BesideWindow::Control),
                _ => None,
            },
            awaits,
            frames,
        };
        Ok(Some(Sealed {
            level,
            path,
            via,
            purpose,
            payload,
            leaving,
        }))
    }

    /// What it means for the silence that may follow.
    fn awaits(&self) -> Sent {
        let is_awaited = self.level.is_data() && self.is_ack_eliciting();
        match self.kind {
            Kind::Validation => Sent::Unawaited,
            _ if !is_awaited => Sent::Unawaited,
            Kind::Probe => Sent::Awaited,
            _ if self.frames.sent().is_empty() => Sent::Question,
            _ => Sent::Awaited,
        }
    }

    fn purpose(&self) -> Purpose {
        match self.kind {
            Kind::MtuProbe => Purpose::MtuProbe,
            Kind::Probe => Purpose::Probe,
            Kind::Copy => Purpose::Copy,
            Kind::Plain | Kind::BehindHandshake | Kind::Validation | Kind::Control => {
                Purpose::Frames
            }
        }
    }
}

/// Appends the header; returns what is completed later of a long one, and where the packet number
/// is.
fn put_header(
    heading: &Heading<'_>,
    pn_len: usize,
    buf: &mut Vec<u8>,
) -> (Option<LongHeader>, usize) {
    let Heading { dcid, scid, pn, .. } = heading;
    let (kind, token) = match heading.level {
        Level::OneRtt => {
            let offset = header::put_short(buf, dcid, false, heading.key_phase, *pn, pn_len);
            return (None, offset);
        }
        Level::Initial => (LongType::Initial, heading.token),
        Level::ZeroRtt => (LongType::ZeroRtt, [].as_slice()),
        Level::Handshake => (LongType::Handshake, [].as_slice()),
    };
    let long = header::put_long(buf, kind, dcid, scid, token, *pn, pn_len);
    let offset = long.pn_offset;
    (Some(long), offset)
}

/// Pads the plaintext, at least to `shortest`; returns whether padding makes the packet count as in
/// flight.
fn pad(buf: &mut Vec<u8>, shortest: usize, rule: SizeRule) -> bool {
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

#[cfg(test)]
mod tests;
