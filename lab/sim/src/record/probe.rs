//! What only the engine's observers see: order of arrival, decisions, individual packets.

use super::reseq::Resequencing;
use anabranch_proto::event::Level;
use anabranch_proto::event::{Observation, Observer, ObserverFactory, Purpose};
use anabranch_proto::sched::{Choice, Decision, Reason};
use anabranch_proto::time::{Duration, Instant};
use anabranch_proto::wire::frame::{Ack, Frame, FrameType};
use anabranch_proto::wire::{PathId, StreamId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The most packets and decisions kept; later ones are only counted.
const MAX_ROWS: usize = 4_000_000;

/// What to record besides counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Watch {
    /// Order of arrival at the receiver.
    pub order: bool,
    /// Decisions that differ from the one before.
    pub decisions: bool,
    /// Every packet that carries stream data.
    pub packets: bool,
}

/// Why a packet carried stream data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketKind {
    /// For the first time.
    Fresh,
    /// Again, after a loss or because its path was doubted.
    Again,
    /// As a copy the scheduler asked for.
    Copy,
    /// The packet carried none.
    Other,
}

/// One packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketRow {
    /// The connection, numbered from 0 in the order they started.
    pub connection: usize,
    /// The path.
    pub path: PathId,
    /// The packet number.
    pub pn: u64,
    /// When it was sent.
    pub sent: Instant,
    /// When it was received.
    pub arrived: Option<Instant>,
    /// When the sender learned that it arrived.
    pub acked: Option<Instant>,
    /// When the sender declared it lost.
    pub lost: Option<Instant>,
    /// Bytes of the packet.
    pub bytes: u32,
    /// The stream and the offset of its first stream frame.
    pub data: Option<(StreamId, u64)>,
    /// Why it carried that data.
    pub kind: PacketKind,
}

/// One decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecisionRow {
    /// When.
    pub at: Instant,
    /// The connection.
    pub connection: usize,
    /// The choice and its reason.
    pub choice: Choice,
}

#[derive(Debug, Default)]
pub(super) struct Inner {
    watch: Watch,
    /// Connections seen so far, by side.
    connections: [usize; 2],
    pub(super) order: BTreeMap<usize, Resequencing>,
    packets: Vec<PacketRow>,
    by_number: BTreeMap<(usize, PathId, u64), usize>,
    /// The highest offset sent on each stream.
    sent_end: BTreeMap<(usize, StreamId), u64>,
    decisions: Vec<DecisionRow>,
    /// For each connection: since when its scheduler has left room unused, and the total of earlier
    /// times.
    holding: BTreeMap<usize, (Option<Instant>, Duration)>,
    dropped_rows: u64,
}

/// Collects what the observers of both ends report. Clones share what they collect.
#[derive(Debug, Clone, Default)]
pub struct Probe {
    inner: Arc<Mutex<Inner>>,
}

impl Probe {
    /// A probe that records these things.
    pub fn new(watch: Watch) -> Self {
        let inner = Inner {
            watch,
            ..Inner::default()
        };
        Self {
            inner: Arc::new(Mutex::new(inner)),
        }
    }

    /// The observer for the transport settings of the sending end.
    pub fn sender(&self) -> ObserverFactory {
        self.factory(false)
    }

    /// The observer for the transport settings of the receiving end.
    pub fn receiver(&self) -> ObserverFactory {
        self.factory(true)
    }

    fn factory(&self, receives: bool) -> ObserverFactory {
        let probe = self.clone();
        ObserverFactory::from_fn(move |_| {
            let inner = probe.inner.clone();
            let mut all = lock(&inner);
            let connection = all.connections[usize::from(receives)];
            all.connections[usize::from(receives)] += 1;
            drop(all);
            Some(Box::new(Eye {
                inner,
                connection,
                receives,
            }))
        })
    }

    /// The packets so far, in the order they were sent, if packets are watched.
    pub fn packets(&self) -> Vec<PacketRow> {
        lock(&self.inner).packets.clone()
    }

    /// The decisions so far, if decisions are watched.
    pub fn decisions(&self) -> Vec<DecisionRow> {
        lock(&self.inner).decisions.clone()
    }

    /// Rows dropped for lack of space.
    pub fn dropped_rows(&self) -> u64 {
        lock(&self.inner).dropped_rows
    }

    /// Gives `look` access to the order of arrival on a connection.
    pub fn with_order<T>(&self, connection: usize, look: impl FnOnce(&Resequencing) -> T) -> T {
        look(lock(&self.inner).order.entry(connection).or_default())
    }

    /// How long the scheduler of a connection has chosen to leave room unused.
    pub fn held(&self, connection: usize, now: Instant) -> Duration {
        let inner = lock(&self.inner);
        let (since, total) = inner.holding.get(&connection).copied().unwrap_or_default();
        total + since.map_or(Duration::ZERO, |since| now.since(since))
    }

    /// The most bytes and runs of a connection that waited for earlier bytes since the last call.
    pub fn take_recent_peaks(&self, connection: usize) -> (u64, u64) {
        let mut inner = lock(&self.inner);
        let order = inner.order.entry(connection).or_default();
        order.take_recent_peaks()
    }
}

/// A world has one thread, so the lock is never contended; what was observed before a panic stays
/// valid.
fn lock(inner: &Mutex<Inner>) -> MutexGuard<'_, Inner> {
    inner.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The observer of one connection.
#[derive(Debug)]
struct Eye {
    inner: Arc<Mutex<Inner>>,
    connection: usize,
    receives: bool,
}

impl Observer for Eye {
    fn observe(&mut self, now: Instant, observation: &Observation<'_>) {
        let mut inner = lock(&self.inner);
        let connection = self.connection;
        match observation {
            Observation::PacketSent {
                level: Level::OneRtt,
                path,
                pn,
                size,
                purpose,
                frames,
            } if !self.receives && inner.watch.packets => {
                let row = PacketRow {
                    connection,
                    path: *path,
                    pn: *pn,
                    sent: now,
                    arrived: None,
                    acked: None,
                    lost: None,
                    bytes: *size as u32,
                    data: None,
                    kind: PacketKind::Other,
                };
                inner.on_sent(row, *purpose, frames);
            }
            Observation::PacketReceived {
                level: Level::OneRtt,
                path,
                pn,
                frames,
                ..
            } => {
                if self.receives {
                    inner.on_arrived(now, (connection, *path, *pn), frames);
                } else if inner.watch.packets {
                    for (_, frame) in *frames {
                        if let Frame::Ack(ack) = frame {
                            inner.on_acked(now, connection, ack);
                        }
                    }
                }
            }
            Observation::PacketLost {
                level: Level::OneRtt,
                path,
                pn,
                ..
            } if !self.receives => {
                if let Some(row) = inner.row(&(connection, *path, *pn)) {
                    row.lost = Some(now);
                }
            }
            Observation::Decision { choice } if !self.receives => {
                inner.on_decision(now, connection, *choice);
            }
            _ => {}
        }
    }
}

impl Inner {
    fn row(&mut self, key: &(usize, PathId, u64)) -> Option<&mut PacketRow> {
        let index = *self.by_number.get(key)?;
        self.packets.get_mut(index)
    }

    fn on_sent(&mut self, mut row: PacketRow, purpose: Purpose, frames: &[(FrameType, Frame<'_>)]) {
        let streams = frames.iter().filter_map(|(_, frame)| match frame {
            Frame::Stream(stream) => Some(stream),
            _ => None,
        });
        for stream in streams {
            let end = stream.offset + stream.data.len() as u64;
            let key = (row.connection, stream.id);
            let highest = self.sent_end.entry(key).or_default();
            if row.data.is_none() {
                row.data = Some((stream.id, stream.offset));
                row.kind = match purpose {
                    Purpose::Copy => PacketKind::Copy,
                    _ if stream.offset < *highest => PacketKind::Again,
                    _ => PacketKind::Fresh,
                };
            }
            *highest = (*highest).max(end);
        }
        if self.packets.len() >= MAX_ROWS {
            self.dropped_rows += 1;
            return;
        }
        let key = (row.connection, row.path, row.pn);
        self.by_number.insert(key, self.packets.len());
        self.packets.push(row);
    }

    fn on_arrived(
        &mut self,
        now: Instant,
        key: (usize, PathId, u64),
        frames: &[(FrameType, Frame<'_>)],
    ) {
        if self.watch.packets
            && let Some(row) = self.row(&key)
        {
            row.arrived.get_or_insert(now);
        }
        if !self.watch.order {
            return;
        }
        let order = self.order.entry(key.0).or_default();
        for (_, frame) in frames {
            if let Frame::Stream(stream) = frame {
                let end = stream.offset + stream.data.len() as u64;
                order.on_arrival(now, key.1, stream.id, stream.offset, end);
            }
        }
    }

    fn on_acked(&mut self, now: Instant, connection: usize, ack: &Ack<'_>) {
        for range in ack.ranges() {
            // From the newest packet number down to one already known to be acknowledged: each
            // acknowledgement repeats older ranges.
            for pn in range.rev() {
                match self.row(&(connection, ack.path, pn)) {
                    Some(row) if row.acked.is_none() => row.acked = Some(now),
                    _ => break,
                }
            }
        }
    }

    fn on_decision(&mut self, now: Instant, connection: usize, choice: Choice) {
        let holds =
            matches!(choice.decision, Decision::Hold { .. }) && choice.reason != Reason::NoRoom;
        let (since, total) = self.holding.entry(connection).or_default();
        match (*since, holds) {
            (None, true) => *since = Some(now),
            (Some(began), false) => {
                *total += now.since(began);
                *since = None;
            }
            _ => {}
        }
        if !self.watch.decisions {
            return;
        }
        if self.decisions.len() >= MAX_ROWS {
            self.dropped_rows += 1;
            return;
        }
        self.decisions.push(DecisionRow {
            at: now,
            connection,
            choice,
        });
    }
}
