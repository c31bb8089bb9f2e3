//! Encoding of frames.

use super::ack::ack_type;
use super::stream::stream_type;
use super::{AckFrequency, ConnectionClose, Form, Frame, FrameType, PathStatus};
use crate::id::{Dir, PathId};
use crate::varint;

impl Frame<'_> {
    /// The type with which the frame is written; STREAM and DATAGRAM frames carry their length.
    pub fn frame_type(&self, form: Form) -> FrameType {
        match self {
            Self::Padding { .. } => FrameType::PADDING,
            Self::Ping => FrameType::PING,
            Self::Ack(ack) => ack_type(form, ack.ecn.is_some()),
            Self::ResetStream { .. } => FrameType::RESET_STREAM,
            Self::StopSending { .. } => FrameType::STOP_SENDING,
            Self::Crypto { .. } => FrameType::CRYPTO,
            Self::NewToken { .. } => FrameType::NEW_TOKEN,
            Self::Stream(stream) => stream_type(stream.offset, true, stream.fin),
            Self::MaxData { .. } => FrameType::MAX_DATA,
            Self::MaxStreamData { .. } => FrameType::MAX_STREAM_DATA,
            Self::MaxStreams { dir: Dir::Bi, .. } => FrameType::MAX_STREAMS_BIDI,
            Self::MaxStreams { dir: Dir::Uni, .. } => FrameType::MAX_STREAMS_UNI,
            Self::DataBlocked { .. } => FrameType::DATA_BLOCKED,
            Self::StreamDataBlocked { .. } => FrameType::STREAM_DATA_BLOCKED,
            Self::StreamsBlocked { dir: Dir::Bi, .. } => FrameType::STREAMS_BLOCKED_BIDI,
            Self::StreamsBlocked { dir: Dir::Uni, .. } => FrameType::STREAMS_BLOCKED_UNI,
            Self::NewConnectionId(_) => match form {
                Form::Plain => FrameType::NEW_CONNECTION_ID,
                Form::Multipath => FrameType::PATH_NEW_CONNECTION_ID,
            },
            Self::RetireConnectionId { .. } => match form {
                Form::Plain => FrameType::RETIRE_CONNECTION_ID,
                Form::Multipath => FrameType::PATH_RETIRE_CONNECTION_ID,
            },
            Self::PathChallenge { .. } => FrameType::PATH_CHALLENGE,
            Self::PathResponse { .. } => FrameType::PATH_RESPONSE,
            Self::ConnectionClose(close) => close.frame_type(),
            Self::HandshakeDone => FrameType::HANDSHAKE_DONE,
            Self::Datagram { .. } => FrameType::DATAGRAM_WITH_LENGTH,
            Self::PathAbandon { .. } => FrameType::PATH_ABANDON,
            Self::PathStatus {
                status: PathStatus::Backup,
                ..
            } => FrameType::PATH_STATUS_BACKUP,
            Self::PathStatus {
                status: PathStatus::Available,
                ..
            } => FrameType::PATH_STATUS_AVAILABLE,
            Self::MaxPathId { .. } => FrameType::MAX_PATH_ID,
            Self::PathsBlocked { .. } => FrameType::PATHS_BLOCKED,
            Self::PathCidsBlocked { .. } => FrameType::PATH_CIDS_BLOCKED,
            Self::Timestamp { .. } => FrameType::TIMESTAMP,
            Self::AckFrequency(_) => FrameType::ACK_FREQUENCY,
            Self::ImmediateAck => FrameType::IMMEDIATE_ACK,
        }
    }

    /// Appends the frame. `form` matters for acknowledgements and connection IDs; the plain form
    /// omits their path, which must then be path 0 or an earlier packet number space.
    ///
    /// # Panics
    /// If a number exceeds 2^62 − 1, which no decoded number does.
    pub fn encode(&self, out: &mut Vec<u8>, form: Form) {
        self.write(out, form);
    }

    /// Appends the frame if `out` is then no longer than `limit`; returns whether it did.
    pub fn encode_within(&self, out: &mut Vec<u8>, form: Form, limit: usize) -> bool {
        let fits = out.len() + self.encoded_len(form) <= limit;
        if fits {
            self.write(out, form);
        }
        fits
    }

    /// The number of bytes that [`Self::encode`] appends.
    pub fn encoded_len(&self, form: Form) -> usize {
        let mut length = Length(0);
        self.write(&mut length, form);
        length.0
    }

    fn write(&self, out: &mut impl Sink, form: Form) {
        if let Self::Padding { length } = *self {
            return out.zeros(length);
        }
        out.varint(self.frame_type(form).0);
        let path_if_named = |out: &mut _, path: PathId| {
            if form == Form::Multipath {
                Sink::varint(out, path.0.into());
            }
        };
        match self {
            Self::Padding { .. } | Self::Ping | Self::HandshakeDone | Self::ImmediateAck => {}
            Self::Ack(ack) => {
                path_if_named(out, ack.path);
                out.varints(&[ack.largest, ack.delay, ack.more_ranges()]);
                out.bytes(ack.ranges);
                if let Some(ecn) = ack.ecn {
                    out.varints(&ecn.values());
                }
            }
            Self::ResetStream {
                id,
                code,
                final_size,
            } => out.varints(&[id.0, *code, *final_size]),
            Self::StopSending { id, code } => out.varints(&[id.0, *code]),
            Self::Crypto { offset, data } => {
                out.varint(*offset);
                out.length_prefixed(data);
            }
            Self::Stream(stream) => {
                out.varint(stream.id.0);
                if stream.offset > 0 {
                    out.varint(stream.offset);
                }
                out.length_prefixed(stream.data);
            }
            Self::NewToken { token: data } | Self::Datagram { data } => out.length_prefixed(data),
            Self::MaxData { limit }
            | Self::DataBlocked { limit }
            | Self::MaxStreams { limit, .. }
            | Self::StreamsBlocked { limit, .. }
            | Self::Timestamp { time: limit } => out.varint(*limit),
            Self::MaxStreamData { id, limit } | Self::StreamDataBlocked { id, limit } => {
                out.varints(&[id.0, *limit]);
            }
            Self::NewConnectionId(new) => {
                path_if_named(out, new.path);
                out.varints(&[new.sequence, new.retire_prior_to]);
                // The length is one byte rather than a variable-length integer; up to 20 both are
                // the same byte.
                out.length_prefixed(new.cid.as_slice());
                out.bytes(&new.reset_token.0);
            }
            Self::RetireConnectionId { path, sequence } => {
                path_if_named(out, *path);
                out.varint(*sequence);
            }
            Self::PathChallenge { data } | Self::PathResponse { data } => out.bytes(data),
            Self::AckFrequency(wish) => out.varints(&wish.values()),
            Self::ConnectionClose(close) => close.write(out),
            Self::PathAbandon { .. }
            | Self::PathStatus { .. }
            | Self::PathCidsBlocked { .. }
            | Self::MaxPathId { .. }
            | Self::PathsBlocked { .. } => self.write_about_paths(out),
        }
    }

    /// Writes the frames that exist only with multipath.
    fn write_about_paths(&self, out: &mut impl Sink) {
        match *self {
            Self::PathAbandon { path, code: value }
            | Self::PathStatus {
                path,
                sequence: value,
                ..
            }
            | Self::PathCidsBlocked {
                path,
                next_sequence: value,
            } => out.varints(&[path.0.into(), value]),
            Self::MaxPathId { limit } | Self::PathsBlocked { limit } => out.varint(limit.0.into()),
            _ => {}
        }
    }
}

impl AckFrequency {
    /// The fields in their order on the wire.
    const fn values(&self) -> [u64; 4] {
        [
            self.sequence,
            self.ack_eliciting_threshold,
            self.max_ack_delay_us,
            self.reordering_threshold,
        ]
    }
}

impl ConnectionClose<'_> {
    fn frame_type(&self) -> FrameType {
        if self.application {
            FrameType::APPLICATION_CLOSE
        } else {
            FrameType::CONNECTION_CLOSE
        }
    }

    /// Writes the fields after the type.
    fn write(&self, out: &mut impl Sink) {
        out.varint(self.code);
        if !self.application {
            out.varint(self.frame_type);
        }
        out.length_prefixed(self.reason);
    }

    /// Cuts the reason short, between two characters, so that the frame takes at most `available`
    /// bytes. If there is no room for a reason at all, the frame may still be longer than that.
    pub fn fitted(self, available: usize) -> Self {
        let fixed = Frame::ConnectionClose(Self {
            reason: &[],
            ..self
        })
        .encoded_len(Form::Plain);
        // `fixed` already counts one byte for the reason's length.
        let room = (available + 1).saturating_sub(fixed);
        let fits = |length: usize| varint::size(length as u64) + length <= room;
        let mut length = self.reason.len().min(room);
        while length > 0 && !fits(length) {
            length -= 1;
        }
        let mut boundary = length;
        // A character takes at most four bytes: three steps back find its start.
        while boundary > 0
            && length - boundary < 3
            && self
                .reason
                .get(boundary)
                .is_some_and(|byte| byte & 0xc0 == 0x80)
        {
            boundary -= 1;
        }
        Self {
            reason: &self.reason[..boundary],
            ..self
        }
    }
}

/// The destination of encoded bytes: a packet, or just a count.
trait Sink {
    fn bytes(&mut self, bytes: &[u8]);
    fn zeros(&mut self, count: usize);
    fn varint(&mut self, value: u64);

    fn varints(&mut self, values: &[u64]) {
        for value in values {
            self.varint(*value);
        }
    }

    fn length_prefixed(&mut self, bytes: &[u8]) {
        self.varint(bytes.len() as u64);
        self.bytes(bytes);
    }
}

impl Sink for Vec<u8> {
    fn bytes(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    fn zeros(&mut self, count: usize) {
        self.resize(self.len() + count, 0);
    }

    fn varint(&mut self, value: u64) {
        varint::put(self, value);
    }
}

/// A sink that only counts bytes.
struct Length(usize);

impl Sink for Length {
    fn bytes(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }

    fn zeros(&mut self, count: usize) {
        self.0 += count;
    }

    fn varint(&mut self, value: u64) {
        self.0 += varint::size(value);
    }
}
