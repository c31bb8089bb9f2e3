//! What the next datagram is for: decided once, and handed unchanged to whoever writes the packet.

use crate::path::PathSet;
use crate::path::manager::Slot;
use crate::path::state::Path;
use crate::recovery::sent::SentFrame;
use crate::sched::UnitKind;
use crate::time::Instant;
use anabranch_wire::{PathId, StreamId};

/// The reason for one datagram on one path. It is made only if its packet will hold at least one
/// frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) path: PathId,
    pub(crate) task: Task,
}

/// What a datagram is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Task {
    /// Prove the far end of a route, or answer its proof; by the route before a move if `previous`.
    Validate { previous: bool },
    /// A probe time-out wants an answer.
    Probe,
    /// A larger packet is tried.
    MtuProbe { size: u16 },
    /// A PING is owed.
    Ping,
    /// An acknowledgement is due.
    Acknowledge,
    /// Control frames wait.
    Control,
    /// The copy of this number, which the scheduler asked for together with the original.
    Repeat(u64),
    /// Data, as the scheduler or a mechanism decided.
    Data(Load),
}

/// Which data. Budgets are bytes of streams and datagrams at the most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Load {
    /// What waits: first that of the kind which was asked about, then the rest as far as there is
    /// room.
    Waiting {
        first: UnitKind,
        /// The class of all of it.
        class: u8,
        /// Fresh bytes left to others.
        skip: u64,
        budget: u64,
        /// Paths that get a copy of the same frames.
        also: PathSet,
        /// What is to be sent again has to wait for its path, and is left out.
        overtakes: bool,
        /// It leaves although window or pacer of the path have no room, as one packet after a loss
        /// may (RFC 9002, section 7.3.2): to repair the loss, so without datagrams.
        beyond: bool,
    },
    /// Fresh data of this stream, which is of this class.
    Stream { id: StreamId, class: u8 },
    /// What everything waits for, which `from` carries.
    Hole { from: PathId, frame: SentFrame },
    /// What other paths carry unacknowledged, this packet first.
    Copy(Original),
}

/// A packet in flight whose data another path may carry too. Ordered by age.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Original {
    /// When it was sent.
    pub(crate) sent: Instant,
    /// By which path.
    pub(crate) path: PathId,
    pub(crate) pn: u64,
    /// The class of the data that was looked for.
    pub(crate) class: u8,
}

impl Job {
    pub(crate) const fn new(path: PathId, task: Task) -> Self {
        Self { path, task }
    }

    /// What a path needs for itself, whatever waits on the connection.
    pub(crate) fn of_path(now: Instant, slot: &Slot, confirmed: bool) -> Option<Self> {
        let path = slot.open()?;
        let task = Self::task_of(now, slot, path, confirmed)?;
        // The peer may have taken back every connection ID of a path: then it waits for another.
        let has_cid = slot.remote_cids().has_active();
        has_cid.then_some(Self::new(slot.id(), task))
    }

    fn task_of(now: Instant, slot: &Slot, path: &Path, confirmed: bool) -> Option<Task> {
        let route = path.route();
        let owes_proof = route.owes_proof(now);
        let previous = !owes_proof
            && path.previous().is_some_and(|old| old.owes_proof(now))
            && slot.remote_cids().kept().is_some();
        if previous || owes_proof {
            return Some(Task::Validate { previous });
        }
        if !route.is_validated() {
            return None;
        }
        if path.liveness().owes_probe() {
            return Some(Task::Probe);
        }
        // A probe must not wait behind a full window for ever, nor exceed it.
        if confirmed
            && path.is_healthy()
            && let Some(size) = route.due_mtu_probe()
            && route.free_window() >= u64::from(size)
        {
            return Some(Task::MtuProbe { size });
        }
        path.liveness().owes_ping().then_some(Task::Ping)
    }

    pub(super) const fn data(path: PathId, load: Load) -> Self {
        Self::new(path, Task::Data(load))
    }

    /// Whether it leaves by the path's route before a move.
    pub(crate) fn by_previous(&self) -> bool {
        self.task == Task::Validate { previous: true }
    }

    /// Whether its datagrams may share a batch with equal ones.
    pub(crate) fn is_batchable(&self) -> bool {
        matches!(
            self.task,
            Task::Data(_) | Task::Repeat(_) | Task::Acknowledge
        )
    }
}
