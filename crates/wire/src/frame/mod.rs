//! Frames (RFC 9000, section 19; RFC 9221; RFC 10069; draft-huitema-quic-ts-08;
//! draft-ietf-quic-ack-frequency-14) as values, and their encoding.

mod ack;
mod decode;
mod encode;
mod stream;
mod types;

pub use ack::{Ack, AckRanges, EcnCounts, Form, put_ack};
pub use decode::{MAX_STREAM_COUNT, decode};
pub use stream::{
    Stream, datagram_header_len, put_datagram_header, put_stream_header, stream_header_len,
};
pub use types::FrameType;

use crate::cid::{ConnectionId, ResetToken};
use crate::code::TransportErrorCode;
use crate::cursor::UnexpectedEnd;
use crate::id::{Dir, PathId, StreamId};
use std::fmt;

/// An endpoint's preference for a path: how its peer should use the path for sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum PathStatus {
    /// Use it.
    #[default]
    Available,
    /// Use it only if no available path works.
    Backup,
}

/// `NEW_CONNECTION_ID` (path 0) or `PATH_NEW_CONNECTION_ID`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewConnectionId {
    /// The path the connection ID belongs to.
    pub path: PathId,
    /// Sequence number, counted from 0 on each path.
    pub sequence: u64,
    /// Sequence numbers of this path below this one are to be retired.
    pub retire_prior_to: u64,
    /// The connection ID, of 1 to 20 bytes.
    pub cid: ConnectionId,
    /// Its stateless reset token.
    pub reset_token: ResetToken,
}

/// `ACK_FREQUENCY` (draft-ietf-quic-ack-frequency, section 4): how its sender wants its packets to
/// be acknowledged, on all paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AckFrequency {
    /// Sequence number: a frame that does not exceed all earlier ones is ignored.
    pub sequence: u64,
    /// The most ack-eliciting packets that may go unacknowledged; one more makes an ACK due.
    pub ack_eliciting_threshold: u64,
    /// The longest delay of an acknowledgement, in microseconds.
    pub max_ack_delay_us: u64,
    /// How many packets late a packet must be for an acknowledgement to be due at once; 0 for
    /// never.
    pub reordering_threshold: u64,
}

/// `CONNECTION_CLOSE` of either kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionClose<'a> {
    /// Whether the code belongs to the application (0x1d) or to the transport (0x1c).
    pub application: bool,
    /// The error code.
    pub code: u64,
    /// The type of the frame that caused a transport error; 0 if unknown.
    pub frame_type: u64,
    /// The reason phrase: bytes that should be UTF-8.
    pub reason: &'a [u8],
}

/// One frame, borrowing its bytes from the packet in which it arrived or will be sent.
///
/// Frames that exist for path 0 and for any path (acknowledgements, connection IDs) are one variant
/// each: [`decode()`] returns the type found on the wire beside the frame, and [`Form`] selects one
/// for encoding.
#[derive(Debug, Clone, PartialEq)]
#[allow(
    missing_docs,
    reason = "the fields carry the names of RFC 9000, section 19"
)]
pub enum Frame<'a> {
    /// A run of padding bytes.
    Padding {
        length: usize,
    },
    Ping,
    Ack(Ack<'a>),
    ResetStream {
        id: StreamId,
        code: u64,
        final_size: u64,
    },
    StopSending {
        id: StreamId,
        code: u64,
    },
    Crypto {
        offset: u64,
        data: &'a [u8],
    },
    NewToken {
        token: &'a [u8],
    },
    Stream(Stream<'a>),
    MaxData {
        limit: u64,
    },
    MaxStreamData {
        id: StreamId,
        limit: u64,
    },
    MaxStreams {
        dir: Dir,
        limit: u64,
    },
    DataBlocked {
        limit: u64,
    },
    StreamDataBlocked {
        id: StreamId,
        limit: u64,
    },
    StreamsBlocked {
        dir: Dir,
        limit: u64,
    },
    NewConnectionId(NewConnectionId),
    RetireConnectionId {
        path: PathId,
        sequence: u64,
    },
    PathChallenge {
        data: [u8; 8],
    },
    PathResponse {
        data: [u8; 8],
    },
    ConnectionClose(ConnectionClose<'a>),
    HandshakeDone,
    /// RFC 9221.
    Datagram {
        data: &'a [u8],
    },
    /// RFC 10069, as are all the following except the last three.
    PathAbandon {
        path: PathId,
        code: u64,
    },
    PathStatus {
        path: PathId,
        sequence: u64,
        status: PathStatus,
    },
    MaxPathId {
        limit: PathId,
    },
    PathsBlocked {
        limit: PathId,
    },
    PathCidsBlocked {
        path: PathId,
        next_sequence: u64,
    },
    /// draft-huitema-quic-ts-08: when the packet was sent, in microseconds since an epoch chosen by
    /// the sender, divided by 2 to the power of the sender's `ack_delay_exponent`.
    Timestamp {
        time: u64,
    },
    /// draft-ietf-quic-ack-frequency, as is the next one.
    AckFrequency(AckFrequency),
    ImmediateAck,
}

/// Why bytes are not a frame, for which the connection has to be closed with [`FrameError::code`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameError {
    /// The type of the frame; 0 if not even the type could be read.
    pub frame_type: u64,
    /// What is wrong.
    pub kind: FrameErrorKind,
}

/// What is wrong with a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameErrorKind {
    /// The packet ended before the frame was complete.
    UnexpectedEnd,
    /// No frame has this type.
    Unknown,
    /// The named field has a value that is never valid.
    Invalid(&'static str),
    /// The type is not in its shortest encoding (RFC 9000, section 12.4).
    LongType,
    /// A path ID above 2^32 − 1, and so above every limit (RFC 10069).
    PathIdTooLarge,
}

impl FrameError {
    /// The code to close the connection with.
    pub const fn code(&self) -> TransportErrorCode {
        match self.kind {
            FrameErrorKind::UnexpectedEnd
            | FrameErrorKind::Unknown
            | FrameErrorKind::Invalid(_) => TransportErrorCode::FRAME_ENCODING_ERROR,
            FrameErrorKind::LongType | FrameErrorKind::PathIdTooLarge => {
                TransportErrorCode::PROTOCOL_VIOLATION
            }
        }
    }
}

impl fmt::Display for FrameErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnexpectedEnd => "the packet ends within the frame",
            Self::Unknown => "no such type of frame",
            Self::Invalid(what) => what,
            Self::LongType => "the type is not in its shortest encoding",
            Self::PathIdTooLarge => "a path ID above 2^32 - 1",
        })
    }
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "frame {}: {}", FrameType(self.frame_type), self.kind)
    }
}

impl std::error::Error for FrameError {}

impl From<UnexpectedEnd> for FrameErrorKind {
    fn from(_: UnexpectedEnd) -> Self {
        Self::UnexpectedEnd
    }
}

#[cfg(test)]
mod tests;
