//! Packet scheduling: which path carries what is sent next.
//!
//! A [`Scheduler`] sees an immutable [`SendView`] and answers with a [`Choice`]. It decides nothing
//! else: the connection enforces congestion windows, pacing, amplification limits and validation on
//! every answer, so a bad scheduler can slow a connection, not break it. An answer that cannot be
//! carried out (an unknown path, a full one) counts as a hold.
//!
//! Here is what every scheduler needs and one plain policy, [`MinRtt`]. The crate
//! `anabranch-schedulers` has all the others, wrappers around them, and a toolkit for new ones.

mod class;
mod contest;
mod factory;
mod min_rtt;
mod registry;
#[cfg(test)]
mod tests;
mod view;
mod wants;

pub(crate) use class::known as known_class;
pub use class::{ClassSet, MAX_CLASSES};
pub use contest::{Contest, lowest_rtt, rank};
pub use factory::SchedulerFactory;
pub use min_rtt::MinRtt;
pub use registry::{Entry, ParamDoc, Registry, Wrap, Wrapper};
pub use view::{Backlog, MAX_STREAM_VIEWS, PathView, SendView, StreamView, Unit, UnitKind};
pub use wants::Wants;

use crate::path::PathSet;
use crate::time::{Duration, Instant};
use anabranch_wire::frame::PathStatus;
use anabranch_wire::{PathId, StreamId};
use std::fmt::Debug;

/// Chooses a path for each scheduling unit.
///
/// Called once per unit, which is one packet unless `chunk` is configured or the scheduler
/// [is steady](Self::is_steady), and only while something waits to be sent or the scheduler
/// [wants copies](Wants::copies). The same object runs in
/// the simulator, in emulated networks and on real links.
pub trait Scheduler: Debug + Send {
    /// Where the next unit goes.
    fn select(&mut self, view: &SendView<'_>) -> Choice;

    /// Something happened on a path. The view already shows it.
    fn on_event(&mut self, _event: &PathEvent) {}

    /// What the scheduler uses: asked before each selection, since it may change.
    fn wants(&self) -> Wants {
        Wants::default()
    }

    /// Whether an answer that sends fresh data on a path stands, at one instant, as long as nothing
    /// happens but that this path sends and has room: then the question is asked once for a batch
    /// of packets, and not for each. Not for a scheduler that counts what it is asked. A wrapper
    /// that passes such questions on unseen may pass this on.
    fn is_steady(&self) -> bool {
        false
    }
}

/// What to do with the next unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decision {
    /// Send it on this path.
    Send(PathId),
    /// Send on this path, but leave the next `skip` bytes of fresh data for other paths.
    SendAt {
        /// The path.
        path: PathId,
        /// Bytes of unsent data to leave alone, from the oldest on.
        skip: u64,
    },
    /// Send fresh data of this stream on this path, although other streams come first.
    SendStream {
        /// The path.
        path: PathId,
        /// One of [`SendView::streams`].
        stream: StreamId,
    },
    /// Send on each of these paths: now where there is room, later on the full ones. At least one
    /// must have room. The receiver keeps the first copy to arrive; so datagrams, which it would
    /// pass on twice, are copied only if they are [critical](Unit).
    Duplicate(PathSet),
    /// Send on this path a copy of the oldest unacknowledged data that is under way on other paths
    /// alone.
    Copy(PathId),
    /// Send nothing now. Ends at `until`, on any acknowledgement, loss, path change or new data,
    /// and at the latest after one PTO of the fastest path.
    Hold {
        /// When to ask again, if nothing happens before.
        until: Option<Instant>,
    },
}

/// A decision and why it was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// What to do.
    pub decision: Decision,
    /// Why: counted and written to qlog.
    pub reason: Reason,
}

impl Choice {
    /// Send on `path`.
    pub const fn send(path: PathId, reason: Reason) -> Self {
        Self {
            decision: Decision::Send(path),
            reason,
        }
    }

    /// Send nothing until something happens.
    pub const fn hold(reason: Reason) -> Self {
        Self {
            decision: Decision::Hold { until: None },
            reason,
        }
    }

    /// Send nothing before `until` unless something happens.
    pub const fn hold_until(until: Instant, reason: Reason) -> Self {
        Self {
            decision: Decision::Hold { until: Some(until) },
            reason,
        }
    }
}

/// Why a decision was taken: the answer to "why this path?".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Reason {
    /// The only path that can send.
    OnlyPath,
    /// It was this path's turn.
    Turn,
    /// The path is owed a share by its weight.
    Weight,
    /// The lowest smoothed RTT of the paths that can send.
    LowestRtt,
    /// The highest priority of the paths that can send.
    Priority,
    /// Preferred paths are full, so the next one is used.
    Spill,
    /// No path with status available is usable, so a backup is used.
    Backup,
    /// The path on which the unit is predicted to arrive first.
    EarliestArrival,
    /// A plan made earlier says so.
    Planned,
    /// The path with the most room.
    MostRoom,
    /// The flow or stream stays on its path.
    Affinity,
    /// A copy for safety.
    Redundancy,
    /// Chosen to meet the deadline.
    Deadline,
    /// A copy to measure a path that has no or old estimates.
    Probe,
    /// Every path is full or paced.
    NoRoom,
    /// A path that could send is left idle in favour of a better one.
    WaitForBetter,
    /// A path that could send is left idle because its data would block the window.
    WouldBlock,
    /// The path whose turn it is cannot send, and turns are not skipped.
    WaitForTurn,
    /// A reason of the scheduler's own.
    Other(&'static str),
}

impl Reason {
    /// One word, for counts and traces.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OnlyPath => "only_path",
            Self::Turn => "turn",
            Self::Weight => "weight",
            Self::LowestRtt => "lowest_rtt",
            Self::Priority => "priority",
            Self::Spill => "spill",
            Self::Backup => "backup",
            Self::EarliestArrival => "earliest_arrival",
            Self::Planned => "planned",
            Self::MostRoom => "most_room",
            Self::Affinity => "affinity",
            Self::Redundancy => "redundancy",
            Self::Deadline => "deadline",
            Self::Probe => "probe",
            Self::NoRoom => "no_room",
            Self::WaitForBetter => "wait_for_better",
            Self::WouldBlock => "would_block",
            Self::WaitForTurn => "wait_for_turn",
            Self::Other(words) => words,
        }
    }
}

/// What a scheduler may want to know between selections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[allow(
    missing_docs,
    reason = "the fields are named by the variant they belong to"
)]
pub enum PathEvent {
    /// A path was validated and may carry data.
    Opened { path: PathId },
    /// The path's status (available, backup) changed.
    Status { path: PathId, status: PathStatus },
    /// The path went silent; it carries no data until it answers.
    Doubted { path: PathId },
    /// A doubted path answered.
    Recovered { path: PathId },
    /// The path is gone; its ID is never used again.
    Abandoned { path: PathId },
    /// Ack-eliciting bytes were sent.
    Sent { path: PathId, bytes: u64 },
    /// Bytes were acknowledged.
    Acked {
        path: PathId,
        bytes: u64,
        rtt: Option<Duration>,
    },
    /// Bytes were declared lost.
    Lost { path: PathId, bytes: u64 },
    /// A probe time-out fired.
    Pto { path: PathId },
    /// Data that this path carries blocked everything else and was copied onto a faster one.
    Overtaken { path: PathId, by: PathId },
    /// The peer's flow control stops new data of a stream, or of all.
    FlowBlocked,
    /// The application wrote data.
    Written,
}
