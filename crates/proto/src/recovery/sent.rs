//! What a packet carried, remembered until it is acknowledged or lost.

use anabranch_wire::{Dir, PathId, StreamId};
use smallvec::SmallVec;
use std::num::NonZeroU64;

/// What a sent packet carried. Bulk data packets carry one or two frames.
pub type SentFrames = SmallVec<[SentFrame; 2]>;

/// One frame of a sent packet: enough to know what to do when the packet is acknowledged or lost.
///
/// Only references to state live here; the bytes stay with their owner (streams, handshake, paths).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(
    missing_docs,
    reason = "the fields carry the names of the frames' fields"
)]
pub enum SentFrame {
    /// Stream bytes `start..start + length`, and whether the end of the stream came with them.
    Stream {
        id: StreamId,
        start: u64,
        length: u32,
        fin: bool,
    },
    /// CRYPTO bytes `start..start + length` of the packet's encryption level.
    Crypto {
        start: u64,
        length: u32,
    },
    /// A DATAGRAM frame of this many bytes, and under which number it is kept if it is to be sent
    /// again when it is lost.
    Datagram {
        length: u16,
        repair: Option<NonZeroU64>,
    },
    ResetStream {
        id: StreamId,
    },
    StopSending {
        id: StreamId,
    },
    MaxData,
    MaxStreamData {
        id: StreamId,
    },
    MaxStreams {
        dir: Dir,
    },
    DataBlocked,
    StreamDataBlocked {
        id: StreamId,
    },
    StreamsBlocked {
        dir: Dir,
    },
    HandshakeDone,
    NewTokens {
        number: u64,
    },
    /// An acknowledgement of `path` up to `largest`: once it is acknowledged itself, ranges up to
    /// there need not be reported again (RFC 9000, section 13.2.4).
    Ack {
        path: PathId,
        largest: u64,
    },
    NewConnectionId {
        path: PathId,
        sequence: u64,
    },
    RetireConnectionId {
        path: PathId,
        sequence: u64,
    },
    PathAbandon {
        path: PathId,
    },
    PathStatus {
        path: PathId,
        sequence: u64,
    },
    MaxPathId {
        limit: PathId,
    },
    PathsBlocked {
        limit: PathId,
    },
    PathCidsBlocked {
        path: PathId,
    },
    AckFrequency {
        sequence: u64,
    },
}

impl SentFrame {
    /// Whether it is about paths or their connection IDs, acknowledgements apart.
    pub fn is_about_paths(&self) -> bool {
        matches!(
            self,
            Self::NewConnectionId { .. }
                | Self::RetireConnectionId { .. }
                | Self::PathAbandon { .. }
                | Self::PathStatus { .. }
                | Self::MaxPathId { .. }
                | Self::PathsBlocked { .. }
                | Self::PathCidsBlocked { .. }
        )
    }
}
