//! What frames of a received packet mean for the packet, and where each may be.

use crate::error::TransportError;
use crate::handshake::Level;
use anabranch_wire::cursor::Reader;
use anabranch_wire::frame::{self, Frame, FrameType};
use anabranch_wire::{PathId, TransportErrorCode};

/// A packet with nothing but a PING has at most this payload; larger ones are MTU probes.
const MAX_LONE_PING: usize = 64;

/// What the frames of one packet mean together.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    pub(crate) ack_eliciting: bool,
    /// An answer is wanted at once.
    pub(crate) immediate: bool,
    /// Frames other than PING, `IMMEDIATE_ACK`, PADDING and TIMESTAMP were there.
    more_than_ping: bool,
    pub(crate) timestamp: bool,
}

impl Contents {
    /// One more frame was there.
    pub(crate) fn add(&mut self, frame_type: FrameType, frame: &Frame<'_>) {
        self.ack_eliciting |= frame_type.is_ack_eliciting();
        match frame {
            Frame::Ping | Frame::Padding { .. } => {}
            Frame::ImmediateAck => self.immediate = true,
            Frame::Timestamp { .. } => self.timestamp = true,
            _ => self.more_than_ping = true,
        }
    }

    /// Whether the packet, whose frames take `payload_len` bytes, only asks for an answer.
    pub(crate) fn is_lone_ping(&self, payload_len: usize) -> bool {
        self.ack_eliciting && !self.more_than_ping && payload_len <= MAX_LONE_PING
    }
}

/// Extensions by which a peer may send frames.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extensions {
    /// Acknowledgement frequency (draft-ietf-quic-ack-frequency).
    pub(crate) ack_frequency: bool,
    /// Multipath (RFC 10069), and the largest path ID that the peer may name.
    pub(crate) multipath: Option<PathId>,
}

/// Reads the next frame of a packet of this level.
pub(crate) fn next_frame<'a>(
    reader: &mut Reader<'a>,
    level: Level,
) -> Result<(FrameType, Frame<'a>), TransportError> {
    if level != Level::OneRtt {
        refuse_extension(reader)?;
    }
    frame::decode(reader).map_err(|error| {
        TransportError::new(error.code(), error.to_string()).in_frame(error.frame_type)
    })
}

/// Frames of the extension are out of place before the handshake ends, whatever is in them.
fn refuse_extension(reader: &Reader<'_>) -> Result<(), TransportError> {
    match reader.clone().varint().map(FrameType) {
        Ok(kind) if kind.is_multipath() => Err(TransportError::violation(
            "multipath frame before the handshake ends",
        )
        .in_frame(kind.0)),
        _ => Ok(()),
    }
}

/// Whether a packet only asks about an address, without moving there (RFC 9000, section 9.1).
pub(crate) fn is_probing(payload: &[u8]) -> bool {
    let mut reader = Reader::new(payload);
    while !reader.is_empty() {
        match frame::decode(&mut reader) {
            Ok((kind, _)) if kind.is_probing() => {}
            Ok(_) => return false,
            // The connection is about to be closed; where it is does not matter any more.
            Err(_) => return true,
        }
    }
    true
}

/// Checks where a frame may be at all (RFC 9000, section 12.4; RFC 10069).
pub(crate) fn check_place(
    level: Level,
    frame_type: FrameType,
    frame: &Frame<'_>,
    extensions: Extensions,
) -> Result<(), TransportError> {
    let is_allowed = match level {
        Level::OneRtt => true,
        Level::ZeroRtt => frame_type.allowed_in_zero_rtt(),
        Level::Initial | Level::Handshake => frame_type.allowed_in_initial_or_handshake(),
    };
    if !is_allowed {
        return Err(TransportError::violation(
            "frame not allowed before the handshake ends",
        ));
    }
    let not_offered = |what: &'static str| {
        let code = TransportErrorCode::FRAME_ENCODING_ERROR;
        Err(TransportError::new(code, what))
    };
    if frame_type.is_about_ack_frequency() && !extensions.ack_frequency {
        return not_offered("a frame about acknowledgement frequency, which was not offered");
    }
    if !frame_type.is_multipath() {
        return Ok(());
    }
    let Some(largest) = extensions.multipath else {
        return not_offered("multipath frame without the extension");
    };
    let named = match frame {
        Frame::Ack(ack) => Some(ack.path),
        Frame::NewConnectionId(new) => Some(new.path),
        Frame::RetireConnectionId { path, .. }
        | Frame::PathAbandon { path, .. }
        | Frame::PathStatus { path, .. }
        | Frame::PathCidsBlocked { path, .. } => Some(*path),
        _ => None,
    };
    if named.is_some_and(|path| path > largest) {
        return Err(TransportError::violation(
            "path ID above the announced limit",
        ));
    }
    Ok(())
}
