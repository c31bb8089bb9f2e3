//! What a connection tells its application, and what it shows to observers.

use crate::datagram::Tuple;
use crate::error::ConnectionError;
pub use crate::handshake::Level;
use crate::sched::Choice;
use crate::streams::StreamEvent;
use crate::time::Instant;
use anabranch_wire::frame::{Frame, FrameType};
use anabranch_wire::params::TransportParameters;
use anabranch_wire::{ConnectionId, PathId, Side};
use std::fmt::{self, Debug};
use std::sync::Arc;
use std::time::Duration;

/// Something the application has to know.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A client has a connection, and its handshake began (servers only).
    Handshaking,
    /// The handshake is complete; the peer is who it ought to be.
    Connected,
    /// Both sides know that the handshake is complete (RFC 9001, section 4.1.2). From now on paths
    /// can be opened and moved, and keys updated.
    Confirmed,
    /// The server reads data that came before the end of the handshake. A server is told when it
    /// can accept the first streams; until [`Event::Connected`], the data may be a replay by an
    /// attacker. A client is told at the end of the handshake.
    EarlyDataAccepted,
    /// The server did not read what was sent before the end of the handshake (clients only).
    /// Streams are as they were: their bytes are on their way again. Datagrams are gone.
    EarlyDataRejected,
    /// A later connection can be
    /// [resumed](crate::Connection::take_resumption) (clients only).
    Resumable,
    /// Something on a stream, or a datagram.
    Stream(StreamEvent),
    /// Something on a path.
    Path(PathNotice),
    /// The connection ended. Nothing follows but [`Event::Drained`].
    Closed(ConnectionError),
    /// The handle is free.
    Drained,
}

/// Something happened on a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathNotice {
    /// A further path can be opened now.
    Capacity,
    /// The path was validated and carries data.
    Opened {
        /// The path.
        id: PathId,
        /// Its ends.
        tuple: Tuple,
    },
    /// The path went silent; it is probed and carries no data.
    Doubted {
        /// The path.
        id: PathId,
    },
    /// A doubted path answers again.
    Recovered {
        /// The path.
        id: PathId,
        /// How long it was doubted.
        after: Duration,
    },
    /// The peer is reached at another address, on the same path.
    Moved {
        /// The path.
        id: PathId,
        /// Its new ends.
        tuple: Tuple,
    },
    /// The path was given up, by either side. Its ID is spent.
    Abandoned {
        /// The path.
        id: PathId,
        /// The code of the first `PATH_ABANDON`.
        code: u64,
        /// Whether the peer asked for it.
        by_peer: bool,
    },
    /// Both sides gave the path up and its state is gone.
    Discarded {
        /// The path.
        id: PathId,
    },
}

/// Something that can be observed inside a connection: the source of qlog, counters and checks.
#[derive(Debug)]
#[non_exhaustive]
#[allow(
    missing_docs,
    reason = "the fields are named by the variant they belong to"
)]
pub enum Observation<'a> {
    /// Observation begins; [`Observation::RouteAssigned`] follows for each path there is.
    Started {
        side: Side,
        original_dcid: ConnectionId,
        local_cid: ConnectionId,
        remote_cid: ConnectionId,
        tuple: Tuple,
    },
    /// What an endpoint declared about itself.
    Parameters {
        by_peer: bool,
        params: &'a TransportParameters,
    },
    /// A path was created, or moved, and sends along these ends now.
    RouteAssigned {
        path: PathId,
        tuple: Tuple,
    },
    PacketSent {
        level: Level,
        path: PathId,
        pn: u64,
        /// Bytes of the packet, header and tag included.
        size: usize,
        purpose: Purpose,
        frames: &'a [(FrameType, Frame<'a>)],
    },
    PacketReceived {
        level: Level,
        path: PathId,
        pn: u64,
        size: usize,
        frames: &'a [(FrameType, Frame<'a>)],
    },
    PacketLost {
        level: Level,
        path: PathId,
        pn: u64,
        size: usize,
        is_mtu_probe: bool,
        trigger: LossTrigger,
    },
    /// A datagram or packet that could not be used.
    PacketDropped {
        path: PathId,
        size: usize,
        why: DropReason,
    },
    /// Estimates and window of a path after an acknowledgement, a loss or a probe time-out.
    Metrics {
        path: PathId,
        metrics: Metrics,
    },
    /// ECN counts of a path make no sense: its packets are not marked any more.
    EcnFailed {
        path: PathId,
    },
    /// A scheduler's answer that differs from the one before.
    Decision {
        choice: Choice,
    },
    Path(PathNotice),
    /// Stream bytes in flight on a doubted path were offered to the other paths.
    Reinjected {
        path: PathId,
        bytes: u64,
    },
    /// Acknowledgements of a path take another one until then.
    Detour {
        path: PathId,
        until: Instant,
    },
    MtuUpdated {
        path: PathId,
        old: u16,
        new: u16,
    },
    /// New 1-RTT keys are in use, counted from 0 for those of the handshake.
    KeyUpdated {
        generation: u64,
        by_peer: bool,
    },
    /// The keys of this level are gone for ever.
    KeysDiscarded {
        level: Level,
    },
    HandshakeComplete {
        alpn: Option<&'a [u8]>,
    },
    HandshakeConfirmed,
    Closed {
        error: &'a ConnectionError,
    },
}

/// What a packet was sent for, where its frames do not tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Purpose {
    /// To carry its frames.
    #[default]
    Frames,
    /// To get an answer, after a probe time-out (RFC 9002, section 6.2.4).
    Probe,
    /// To learn whether its size passes (RFC 8899).
    MtuProbe,
    /// To copy frames in flight elsewhere, by the scheduler's wish.
    Copy,
}

/// Why a packet was declared lost (RFC 9002, section 6.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossTrigger {
    /// Packets sent enough later were acknowledged.
    Reordering,
    /// It was sent too long before a packet that was acknowledged.
    Time,
}

/// Why bytes that arrived were of no use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DropReason {
    /// An Initial packet with a token, from a server.
    ServerToken,
    /// 0-RTT, or a version that is not spoken.
    Unsupported,
    /// An Initial packet in a datagram of less than 1200 bytes, from a client.
    SmallInitial,
    /// The header makes no sense.
    MalformedHeader,
    /// The connection has no use for such a packet now.
    OutOfState,
    /// Too short for header protection.
    TooShort,
    /// Neither authentic nor a stateless reset.
    Undecryptable,
    /// The packet came from an address that its sender must not use.
    ForeignAddress,
    /// The packet was received before.
    Duplicate,
    /// The packet came before its keys, and no more such packets are kept.
    KeysMissing,
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ServerToken => "a token from a server",
            Self::SmallInitial => "an Initial in a small datagram",
            Self::Unsupported => "0-RTT or a version that is not spoken",
            Self::MalformedHeader => "a malformed header",
            Self::OutOfState => "of no use in this state of the connection",
            Self::TooShort => "too short for header protection",
            Self::Undecryptable => "cannot be decrypted",
            Self::ForeignAddress => "from an address its sender must not use",
            Self::Duplicate => "received before",
            Self::KeysMissing => "came before its keys",
        })
    }
}

/// Estimates and window of one path. Sizes in bytes, rates in bytes per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metrics {
    /// Smoothed RTT.
    pub smoothed_rtt: Duration,
    /// Mean deviation of the RTT.
    pub rttvar: Duration,
    /// Smallest RTT.
    pub min_rtt: Duration,
    /// Latest RTT sample.
    pub latest_rtt: Duration,
    /// Congestion window, in bytes.
    pub congestion_window: u64,
    /// Slow-start threshold, in bytes; `u64::MAX` in the first slow start.
    pub ssthresh: u64,
    /// Bytes sent and neither acknowledged nor declared lost.
    pub bytes_in_flight: u64,
    /// Estimated delivery rate, in bytes per second; 0 if unknown.
    pub delivery_rate: u64,
    /// Probe time-outs since the last acknowledgement.
    pub pto_count: u32,
    /// The congestion controller's phase.
    pub phase: &'static str,
    /// Whether the path was left with room it did not use.
    pub app_limited: bool,
}

/// Sees what happens inside a connection, without influence on it.
pub trait Observer: Debug + Send {
    /// Something happened.
    fn observe(&mut self, now: Instant, observation: &Observation<'_>);
}

/// The connection an observer is wanted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subject {
    /// Whether this is the client or the server.
    pub side: Side,
    /// The connection ID the client invented for its first Initial: the connection's name in qlog,
    /// the same on both sides unless the server asked for a Retry.
    pub original_dcid: ConnectionId,
    /// The ends of the first path.
    pub tuple: Tuple,
    /// When it began.
    pub began: Instant,
}

type Observe = dyn Fn(&Subject) -> Option<Box<dyn Observer>> + Send + Sync;

/// Makes an observer for each connection that shares a configuration: before the first packet of a
/// client, and once a server has opened one, since noise is not worth observing.
#[derive(Clone)]
pub struct ObserverFactory(Arc<Observe>);

impl ObserverFactory {
    /// Calls `observe` for each connection; `None` leaves one unobserved.
    pub fn from_fn(
        observe: impl Fn(&Subject) -> Option<Box<dyn Observer>> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(observe))
    }

    /// The observer for a connection, if it is to be observed.
    pub fn build(&self, subject: &Subject) -> Option<Box<dyn Observer>> {
        (self.0)(subject)
    }
}

impl Debug for ObserverFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObserverFactory").finish_non_exhaustive()
    }
}
