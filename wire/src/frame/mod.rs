//! Frames (RFC 9000, section 19; RFC 9221; RFC 10069) as values.

use crate::cid::{ConnectionId, ResetToken};
use crate::id::{Dir, PathId, StreamId};

/// ECN counts of one packet number space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EcnCounts {
    /// Packets received with ECT(0).
    pub ect0: u64,
    /// Packets received with ECT(1).
    pub ect1: u64,
    /// Packets received with CE.
    pub ce: u64,
}

/// What an endpoint states about a path: what its peer should send there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum PathStatus {
    /// Use it.
    #[default]
    Available,
    /// Use it only if no available path works.
    Backup,
}

/// `STREAM`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream<'a> {
    /// Which stream.
    pub id: StreamId,
    /// Offset of the first byte.
    pub offset: u64,
    /// Whether the last byte of the stream is the last byte here.
    pub fin: bool,
    /// The bytes.
    pub data: &'a [u8],
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

/// `CONNECTION_CLOSE` of either kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionClose<'a> {
    /// Whether the code belongs to the application (0x1d) or to the transport (0x1c).
    pub application: bool,
    /// The error code.
    pub code: u64,
    /// The type of the frame that caused a transport error; 0 if unknown.
    pub frame_type: u64,
    /// Reason phrase: bytes that ought to be UTF-8.
    pub reason: &'a [u8],
}

/// One frame, borrowing its bytes from the packet it came in or goes out with.
///
/// Frames that exist for path 0 and for any path (acknowledgements, connection IDs) are one variant
/// each; [`FrameType`](crate::frame) tells which form was on the wire.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "the fields carry the names of RFC 9000, section 19")]
pub enum Frame<'a> {
    /// A run of padding bytes.
    Padding { length: usize },
    Ping,
    Ack(Ack<'a>),
    ResetStream { id: StreamId, code: u64, final_size: u64 },
    StopSending { id: StreamId, code: u64 },
    Crypto { offset: u64, data: &'a [u8] },
    NewToken { token: &'a [u8] },
    Stream(Stream<'a>),
    MaxData { limit: u64 },
    MaxStreamData { id: StreamId, limit: u64 },
    MaxStreams { dir: Dir, limit: u64 },
    DataBlocked { limit: u64 },
    StreamDataBlocked { id: StreamId, limit: u64 },
    StreamsBlocked { dir: Dir, limit: u64 },
    NewConnectionId(NewConnectionId),
    RetireConnectionId { path: PathId, sequence: u64 },
    PathChallenge { data: [u8; 8] },
    PathResponse { data: [u8; 8] },
    ConnectionClose(ConnectionClose<'a>),
    HandshakeDone,
    /// RFC 9221.
    Datagram { data: &'a [u8] },
    /// RFC 10069, as are all below.
    PathAbandon { path: PathId, code: u64 },
    PathStatus { path: PathId, sequence: u64, status: PathStatus },
    MaxPathId { limit: PathId },
    PathsBlocked { limit: PathId },
    PathCidsBlocked { path: PathId, next_sequence: u64 },
}

/// `ACK` (path 0, and the Initial and Handshake spaces) or `PATH_ACK`.
#[derive(Debug, Clone, PartialEq)]
pub struct Ack<'a> {
    /// The path whose packet numbers are acknowledged.
    pub path: PathId,
    /// The largest packet number acknowledged.
    pub largest: u64,
    /// Delay in units of the peer's `ack_delay_exponent`, as on the wire.
    pub delay: u64,
    /// The encoded ranges.
    pub ranges: &'a [u8],
    /// ECN counts, if the frame carries them.
    pub ecn: Option<EcnCounts>,
}
