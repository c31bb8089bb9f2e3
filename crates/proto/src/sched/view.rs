//! What a scheduler sees: an immutable snapshot of paths and backlog.

use super::{Choice, Decision, Reason};
use crate::path::{PathSet, PathState};
use crate::time::{Duration, Instant};
use anabranch_wire::frame::PathStatus;
use anabranch_wire::{PathId, StreamId};

/// A snapshot of one validated, open path. Sizes in bytes, rates in bytes per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PathView {
    /// The path's name on the wire.
    pub id: PathId,
    /// The path's status: as the peer set it for what we send, as we set it where the peer is
    /// silent.
    pub status: PathStatus,
    /// Whether the path answers.
    pub state: PathState,
    /// Smoothed RTT; zero until the first sample, which means unknown, not fast.
    pub smoothed_rtt: Duration,
    /// Mean deviation of the RTT.
    pub rttvar: Duration,
    /// The latest RTT sample.
    pub latest_rtt: Duration,
    /// The smallest RTT seen.
    pub min_rtt: Duration,
    /// How many microseconds longer packets take to the peer than on the fastest path, queues
    /// included. Measured by the peer's timestamps, or by acknowledgements of several paths that
    /// return on one. `None` if the connection measures by neither, or this path was not measured
    /// lately.
    pub forward_delay_us: Option<i64>,
    /// Mean deviation of the forward delay, in microseconds; 0 where it is not measured.
    pub forward_jitter_us: u64,
    /// Congestion window, in bytes.
    pub congestion_window: u64,
    /// Slow-start threshold, in bytes; `u64::MAX` in the first slow start.
    pub ssthresh: u64,
    /// Bytes sent and neither acknowledged nor declared lost.
    pub bytes_in_flight: u64,
    /// Bytes assigned to the path by earlier decisions and not sent yet.
    pub queued: u64,
    /// Estimated delivery rate, in bytes per second; 0 if unknown.
    pub delivery_rate: u64,
    /// The rate the pacer lets packets go at; 0 if it does not limit.
    pub pacing_rate: u64,
    /// When the pacer lets the next packet go.
    pub pacer_ready: Instant,
    /// Share of packets lost lately, 0.0 to 1.0.
    pub loss: f32,
    /// Probe time-outs since the last acknowledgement.
    pub pto_count: u32,
    /// When the last acknowledgement for this path arrived.
    pub last_ack: Option<Instant>,
    /// Whether the controller is recovering from loss.
    pub in_recovery: bool,
    /// Whether the application sent less than the path had room for.
    pub app_limited: bool,
    /// Bytes of the largest packet's payload on this path.
    pub max_datagram_size: u16,
    /// The user's weight; 1 unless set.
    pub weight: u32,
    /// The user's priority, higher first; 0 unless set.
    pub priority: i32,
    /// The user's cost per byte, in units of the user's choice; 0 unless set.
    pub cost: u32,
    /// Paths of the same group share a bottleneck (RFC 8382); 0 means not known to share one.
    pub bottleneck: u16,
    /// Whether unacknowledged data is under way on other paths and not on this one. Filled only for
    /// schedulers that [want copies](super::Wants::copies).
    pub copyable: bool,
    /// When the data that a copy on this path would repeat was sent; `None` where nothing is
    /// [copyable](Self::copyable).
    pub copyable_since: Option<Instant>,
}

impl PathView {
    /// A path with these names and nothing measured: a starting point for tests.
    pub fn new(id: u32) -> Self {
        Self {
            id: PathId(id),
            status: PathStatus::Available,
            state: PathState::Active,
            smoothed_rtt: Duration::ZERO,
            rttvar: Duration::ZERO,
            latest_rtt: Duration::ZERO,
            min_rtt: Duration::ZERO,
            forward_delay_us: None,
            forward_jitter_us: 0,
            congestion_window: 12_000,
            ssthresh: u64::MAX,
            bytes_in_flight: 0,
            queued: 0,
            delivery_rate: 0,
            pacing_rate: 0,
            pacer_ready: Instant::ZERO,
            loss: 0.0,
            pto_count: 0,
            last_ack: None,
            in_recovery: false,
            app_limited: false,
            max_datagram_size: 1200,
            weight: 1,
            priority: 0,
            cost: 0,
            bottleneck: 0,
            copyable: false,
            copyable_since: None,
        }
    }

    /// Bytes that the congestion window still allows before an acknowledgement.
    pub fn room(&self) -> u64 {
        self.congestion_window
            .saturating_sub(self.bytes_in_flight.saturating_add(self.queued))
    }

    /// Whether the path is preferred for data and answers.
    pub fn is_usable(&self) -> bool {
        self.status == PathStatus::Available && self.state == PathState::Active
    }

    /// Whether window and pacer let `length` bytes go now.
    pub fn has_room(&self, length: u64, now: Instant) -> bool {
        self.room() >= length && self.pacer_ready <= now
    }

    /// Whether window and pacer let one full packet go now.
    pub fn can_send(&self, now: Instant) -> bool {
        self.has_room(u64::from(self.max_datagram_size), now)
    }
}

/// What waits to be sent on the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Backlog {
    /// Stream bytes never sent, as far as flow control lets them go.
    pub unsent: u64,
    /// Stream bytes declared lost or taken from a doubtful path, to be sent again.
    pub retransmit: u64,
    /// Bytes of DATAGRAM frames waiting.
    pub datagrams: u64,
    /// Connection flow-control credit left for new stream bytes.
    pub credit: u64,
    /// Sent and unacknowledged stream bytes; `oldest_unacked` tells the age of the oldest one.
    pub unacked: u64,
    /// When the oldest unacknowledged stream byte was first sent.
    pub oldest_unacked: Option<Instant>,
    /// Stream bytes that may be sent in all, counted from the oldest unacknowledged one, before the
    /// peer's flow control or the send buffer stops us: the send window of the connection.
    pub send_window: u64,
    /// Whether new data waits that the peer's flow control or the send buffer stops, and nothing
    /// else can be sent.
    pub blocked: bool,
}

impl Backlog {
    /// Everything that waits.
    pub fn total(&self) -> u64 {
        self.unsent
            .saturating_add(self.retransmit)
            .saturating_add(self.datagrams)
    }
}

/// What the decision is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UnitKind {
    /// Stream data sent for the first time.
    #[default]
    Fresh,
    /// Stream data sent before, on the paths in [`Unit::carried_by`].
    Retransmission,
    /// A DATAGRAM frame.
    Datagram,
    /// Nothing waits; the question is only whether to [copy](super::Decision::Copy).
    Idle,
}

/// The next unit: what one decision covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Unit {
    /// The kind of data.
    pub kind: UnitKind,
    /// How many bytes the decision covers: the configured chunk, or one packet.
    pub bytes: u64,
    /// Paths that carried this data before.
    pub carried_by: PathSet,
    /// The class that the application gave the stream or datagram, below
    /// [`MAX_CLASSES`](super::MAX_CLASSES); 0 unless set. One decision covers one class, and what
    /// is repeated keeps its class.
    pub class: u8,
    /// The flow a datagram belongs to, as the application named it; 0 means none.
    pub flow: u64,
    /// When a datagram loses its worth.
    pub deadline: Option<Instant>,
    /// How far behind the fastest path a datagram may arrive. `None`: any delay, its flow has no
    /// order.
    pub max_skew: Option<Duration>,
    /// Whether losing or delaying the unit costs more than its bytes: small datagrams that the
    /// application marked, the start and the end of streams.
    pub critical: bool,
}

/// The most streams a [`SendView`] shows.
pub const MAX_STREAM_VIEWS: usize = 16;

/// A stream that could send now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamView {
    /// The stream.
    pub id: StreamId,
    /// The application's priority, higher first.
    pub priority: i32,
    /// The class that the application gave it; 0 unless set.
    pub class: u8,
    /// Bytes written and not sent yet, as far as flow control lets them go.
    pub unsent: u64,
    /// Whether the application has finished the stream, so that `unsent` is all there will be.
    pub finished: bool,
}

/// Everything a decision may depend on.
#[derive(Debug, Clone, Copy, Default)]
pub struct SendView<'a> {
    /// The time.
    pub now: Instant,
    /// Validated, open paths in ascending order of their IDs. If `unit` is a datagram, only paths
    /// whose packets can hold it.
    pub paths: &'a [PathView],
    /// What waits on the connection.
    pub backlog: Backlog,
    /// What is to be placed.
    pub unit: Unit,
    /// Streams with fresh data in the order they would be served, at most [`MAX_STREAM_VIEWS`].
    /// Filled only for schedulers that [want streams](super::Wants::streams).
    pub streams: &'a [StreamView],
}

impl<'a> SendView<'a> {
    /// The path of this ID.
    pub fn path(&self, id: PathId) -> Option<&'a PathView> {
        self.paths
            .binary_search_by_key(&id, |path| path.id)
            .ok()
            .map(|at| &self.paths[at])
    }

    /// The paths to choose from, full or not: those that are available and answer; if there is
    /// none, backups that answer; if there is none, the doubtful path with the fewest probe
    /// time-outs.
    pub fn candidates(&self) -> impl Iterator<Item = &'a PathView> + use<'a> {
        let answers = |path: &PathView| path.state == PathState::Active;
        let preferred = self.paths.iter().any(PathView::is_usable);
        let any_answers = preferred || self.paths.iter().any(answers);
        // Asked for only where nothing better is left.
        let doubtful = self.paths.iter().filter(|_| !any_answers);
        let least_bad = doubtful
            .min_by_key(|path| (path.pto_count, path.id))
            .map(|p| p.id);
        self.paths
            .iter()
            .filter(move |path| match (preferred, any_answers) {
                (true, _) => path.is_usable(),
                (false, true) => answers(path),
                (false, false) => Some(path.id) == least_bad,
            })
    }

    /// The [candidates](Self::candidates) that can take one packet now.
    pub fn ready(&self) -> impl Iterator<Item = &'a PathView> + use<'a> {
        let now = self.now;
        self.candidates().filter(move |path| path.can_send(now))
    }

    /// The [candidates](Self::candidates) in ascending order of their IDs, from the first one after
    /// `last` on and once around.
    pub fn ring(&self, last: Option<PathId>) -> impl Iterator<Item = &'a PathView> + use<'a> {
        let after = self.candidates().filter(move |path| Some(path.id) > last);
        after.chain(self.candidates().filter(move |path| Some(path.id) <= last))
    }

    /// The answer when nothing is [ready](Self::ready): hold until the first pacer opens or, where
    /// windows are the limit, until something happens.
    pub fn no_room(&self) -> Choice {
        let paced = |path: &&PathView| path.room() >= u64::from(path.max_datagram_size);
        let openings = self.candidates().filter(paced).map(|path| path.pacer_ready);
        let until = openings.filter(|at| *at > self.now).min();
        Choice {
            decision: Decision::Hold { until },
            reason: Reason::NoRoom,
        }
    }
}
