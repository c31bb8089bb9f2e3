//! What a connection tells its application, and what it shows to observers.

use crate::datagram::Tuple;
use crate::error::ConnectionError;
use crate::handshake::Level;
use crate::recovery::sent::SentFrame;
use crate::sched::Choice;
use crate::streams::StreamEvent;
use crate::time::Instant;
use anabranch_wire::PathId;
use anabranch_wire::frame::Frame;
use std::fmt::Debug;
use std::time::Duration;

/// Something the application has to know.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A client began a handshake (servers only).
    Incoming,
    /// The handshake is complete; the peer is who it ought to be.
    Connected,
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
    PacketSent {
        level: Level,
        path: PathId,
        pn: u64,
        size: usize,
        frames: &'a [SentFrame],
    },
    PacketReceived {
        level: Level,
        path: PathId,
        pn: u64,
        size: usize,
        frames: &'a [Frame<'a>],
    },
    PacketLost {
        level: Level,
        path: PathId,
        pn: u64,
        size: usize,
    },
    /// A datagram or packet that could not be used.
    PacketDropped {
        size: usize,
        why: &'static str,
    },
    /// Estimates and window of a path after an acknowledgement or a loss.
    Metrics {
        path: PathId,
        smoothed_rtt: Duration,
        rttvar: Duration,
        min_rtt: Duration,
        latest_rtt: Duration,
        congestion_window: u64,
        ssthresh: u64,
        bytes_in_flight: u64,
        pto_count: u32,
    },
    /// A scheduler's answer that differs from the one before.
    Decision {
        choice: Choice,
    },
    Path(PathNotice),
    MtuUpdated {
        path: PathId,
        mtu: u16,
    },
    KeyUpdated {
        phase: u64,
    },
    HandshakeComplete,
    Closed {
        error: &'a ConnectionError,
    },
}

/// Sees what happens inside a connection, without influence on it.
pub trait Observer: Debug + Send {
    /// Something happened.
    fn observe(&mut self, now: Instant, observation: &Observation<'_>);
}
