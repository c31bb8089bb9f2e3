//! Asks the scheduler, and holds it to what is possible.

use super::{Connection, retransmit};
use crate::config::{RetransmissionPolicy, TransportConfig};
use crate::event::Observation;
use crate::path::manager::Slot;
use crate::path::state::Path;
use crate::path::{PathSet, PathState};
use crate::recovery::SentPacket;
use crate::recovery::sent::{SentFrame, SentFrames};
use crate::sched::{
    Choice, Decision, MinRtt, PathEvent, PathView, Reason, Scheduler, SendView, StreamView, Unit,
    UnitKind,
};
use crate::time::{Duration, Instant};
use crate::wire::{PathId, StreamId};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};

/// Copies waiting for room on their paths; further ones are not made.
const MAX_DUPLICATES: usize = 64;

/// No hold is cut shorter than this for lack of a probe time-out.
const SHORTEST_HOLD: Duration = Duration::from_millis(10);

/// What the connection and its scheduler have agreed on.
#[derive(Debug)]
pub(super) struct Sending {
    scheduler: Box<dyn Scheduler>,
    chunk: Option<u64>,
    /// The snapshot handed to the scheduler, reused.
    views: Vec<PathView>,
    /// The streams in it, reused too.
    streams: Vec<StreamView>,
    /// A decision not carried out yet.
    choice: Option<Carry>,
    /// The scheduler asked for patience until then.
    hold: Option<Instant>,
    /// When patience ends, however often the scheduler asks for more: set by the first hold in a
    /// row.
    patience: Option<Instant>,
    /// Patience ran out: lowest RTT decides once, so that nothing is held for ever.
    overdue: bool,
    /// Frames to be repeated on a path.
    duplicates: VecDeque<Repeat>,
    /// Something was lost, and no retransmission was sent since.
    pub(super) fresh_loss: bool,
    /// The most connection credit seen: what the peer's receive buffer holds at least.
    pub(super) widest_credit: u64,
    last_reason: Option<(Reason, Option<PathId>)>,
    pub(super) reasons: BTreeMap<Reason, u64>,
    pub(super) holds: u64,
    pub(super) overruled: u64,
}

/// Frames to be repeated on another path.
#[derive(Debug, Clone)]
pub(super) struct Repeat {
    pub(super) from: PathId,
    pub(super) on: PathId,
    pub(super) frames: SentFrames,
    /// The bytes of the datagrams among them, which nobody else keeps.
    pub(super) datagrams: Vec<Bytes>,
}

/// A decision as the connection carries it out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Carry {
    pub(super) path: PathId,
    pub(super) what: Payload,
    /// Stream bytes at most.
    pub(super) budget: u64,
    /// Paths that get a copy of the same frames.
    pub(super) also: PathSet,
    /// It leaves although window or pacer of the path have no room, as one packet after a loss may
    /// (RFC 9002, section 7.3.2): to repair the loss, so without datagrams.
    pub(super) beyond: bool,
}

/// Which data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Payload {
    /// What waits, after leaving `skip` fresh bytes to others.
    Waiting { skip: u64 },
    /// Fresh data, although other data is to be sent again.
    Fresh { skip: u64 },
    /// Fresh data of this stream.
    Stream(StreamId),
    /// What everything waits for, which this path carries.
    Hole { from: PathId },
    /// What other paths carry unacknowledged.
    Copy,
}

impl Sending {
    pub(super) fn new(config: &TransportConfig) -> Self {
        Self {
            scheduler: config.scheduler.build(),
            chunk: config.chunk,
            views: Vec::new(),
            streams: Vec::new(),
            choice: None,
            hold: None,
            patience: None,
            overdue: false,
            duplicates: VecDeque::new(),
            fresh_loss: false,
            widest_credit: 0,
            last_reason: None,
            reasons: BTreeMap::new(),
            holds: 0,
            overruled: 0,
        }
    }

    pub(super) fn replace(&mut self, scheduler: Box<dyn Scheduler>) {
        self.scheduler = scheduler;
        self.wake();
    }

    /// Something changed: ask again.
    pub(super) fn wake(&mut self) {
        self.choice = None;
        self.hold = None;
        self.patience = None;
    }

    /// New data came: a hold was about less than there is now. Patience does not begin anew, or an
    /// application that keeps writing would keep what it wrote from leaving.
    pub(super) fn on_written(&mut self) {
        self.scheduler.on_event(&PathEvent::Written);
        self.hold = None;
    }

    /// An ack-eliciting packet left.
    pub(super) fn on_sent(&mut self, path: PathId, packet: &SentPacket) {
        let bytes = u64::from(packet.size);
        self.scheduler.on_event(&PathEvent::Sent { path, bytes });
        let blocked = |frame: &SentFrame| {
            matches!(
                frame,
                SentFrame::DataBlocked | SentFrame::StreamDataBlocked { .. }
            )
        };
        if packet.frames.iter().any(blocked) {
            self.scheduler.on_event(&PathEvent::FlowBlocked);
        }
    }

    pub(super) fn set_chunk(&mut self, chunk: Option<u64>) {
        self.chunk = chunk.filter(|bytes| *bytes > 0);
    }

    pub(super) fn tell(&mut self, event: &PathEvent) {
        self.scheduler.on_event(event);
    }

    /// The path is gone: nothing planned for it is left.
    pub(super) fn forget(&mut self, path: PathId) {
        self.wake();
        self.duplicates
            .retain(|repeat| repeat.on != path && repeat.from != path);
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.hold
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.hold.is_some_and(|until| until <= now) {
            self.hold = None;
            // What ends when the scheduler said is its own affair: it is asked again.
            if self.patience.is_none_or(|end| end <= now) {
                self.patience = None;
                self.overdue = true;
            }
        }
    }

    /// The next copy for a path.
    pub(super) fn take_duplicate(&mut self, on: PathId) -> Option<Repeat> {
        let at = self.duplicates.iter().position(|repeat| repeat.on == on)?;
        self.duplicates.remove(at)
    }

    pub(super) fn has_duplicate(&self, has_room: impl Fn(PathId) -> bool) -> Option<PathId> {
        if self.duplicates.is_empty() {
            return None;
        }
        self.duplicates
            .iter()
            .map(|repeat| repeat.on)
            .find(|path| has_room(*path))
    }

    pub(super) fn push_duplicates(
        &mut self,
        from: PathId,
        also: &PathSet,
        frames: &SentFrames,
        datagrams: &[Bytes],
    ) {
        for on in also.iter().filter(|path| *path != from) {
            if self.duplicates.len() < MAX_DUPLICATES {
                self.duplicates.push_back(Repeat {
                    from,
                    on,
                    frames: frames.clone(),
                    datagrams: datagrams.to_vec(),
                });
            }
        }
    }

    pub(super) fn wants_copies(&self, busy: bool) -> bool {
        if busy {
            return self.scheduler.wants_copies_while_busy();
        }
        self.scheduler.wants_copies()
    }

    fn count(&mut self, reason: Reason) {
        *self.reasons.entry(reason).or_default() += 1;
    }
}

impl Connection {
    /// What to send next on which path, if window and pacer of any path let anything go.
    ///
    /// The answer is kept until [`taken`](Self::take_choice), so asking twice decides once.
    pub(super) fn choose(&mut self, now: Instant) -> Option<Carry> {
        if let Some(choice) = self.sending.choice {
            return Some(choice);
        }
        self.data_level()?;
        if !self.handshake.is_complete() && self.handshake_waits() {
            // The peer can read nothing without it, and may have earned little more.
            return None;
        }
        self.refresh_caps(now);
        let idle = !self.streams.has_unsent();
        if idle {
            self.drop_assignments();
            if !self.streams.has_unacked() {
                // A receiver: nothing waits, and nothing is under way that could be copied.
                return None;
            }
            let held = self.sending.hold.is_some_and(|until| now < until);
            if !held && let Some(carry) = self.rescue(now) {
                self.sending.choice = Some(carry);
                return Some(carry);
            }
            // Fresh data that waits for the peer's credit or for room in the send buffer waits for
            // the paths too: copies would take the time that frees either.
            let busy = self.streams.blockade().is_some();
            if !self.sending.wants_copies(busy) {
                return None;
            }
        }
        if let Some(carry) = self.assigned(now) {
            self.sending.choice = Some(carry);
            return Some(carry);
        }
        if self.sending.hold.is_some_and(|until| now < until) {
            return None;
        }
        let carry = self.ask(now, idle)?;
        self.sending.choice = Some(carry);
        Some(carry)
    }

    /// Marks the kept decision as carried out.
    pub(super) fn take_choice(&mut self) {
        self.sending.choice = None;
        self.sending.patience = None;
    }

    /// Whether the policy for retransmissions may send one although no window has room.
    fn is_urgent(&self) -> bool {
        self.sending.fresh_loss
            && self.config.mechanisms.retransmission != RetransmissionPolicy::Scheduler
            && self.streams.backlog().retransmit > 0
    }

    /// The rest of an earlier decision that covered more than a packet.
    fn assigned(&self, now: Instant) -> Option<Carry> {
        self.sending.chunk?;
        let ready = |path: &&Path| path.assigned() > 0 && can_send(path, now);
        let path = self.paths.open().filter_map(Slot::open).find(ready)?;
        let what = Payload::Waiting { skip: 0 };
        Some(Carry {
            path: path.id(),
            what,
            budget: path.assigned(),
            also: PathSet::EMPTY,
            beyond: false,
        })
    }

    fn drop_assignments(&mut self) {
        if self.sending.chunk.is_some() {
            self.paths.open_mut().for_each(|(_, path)| path.assign(0));
        }
    }

    fn ask(&mut self, now: Instant, idle: bool) -> Option<Carry> {
        // The cheap question first: most often no window has room.
        let has_room = |path: &Path| {
            let size = u64::from(path.route().mtu.current());
            path.room() >= size && path.ready_at(now, size) <= now
        };
        if !self.is_urgent() && !self.candidates().any(|(_, path)| has_room(path)) {
            return None;
        }
        let mut views = std::mem::take(&mut self.sending.views);
        self.fill_views(now, idle, &mut views);
        let carry = self.consult(now, idle, &views);
        self.sending.views = views;
        carry
    }

    /// The open paths that may carry data.
    fn candidates(&self) -> impl Iterator<Item = (&Slot, &Path)> {
        let open = self
            .paths
            .in_use()
            .filter_map(|slot| Some((slot, slot.open()?)));
        open.filter(|(slot, path)| path.route().is_open_to_data() && slot.remote_cids.has_active())
    }

    fn consult(&mut self, now: Instant, idle: bool, views: &[PathView]) -> Option<Carry> {
        let next = if idle {
            Unit {
                kind: UnitKind::Idle,
                ..Unit::default()
            }
        } else {
            self.streams.next_unit()
        };
        let mut streams = std::mem::take(&mut self.sending.streams);
        if self.sending.scheduler.wants_streams() {
            self.streams.fill_views(&mut streams);
        }
        let packet = views
            .first()
            .map_or(1200, |path| u64::from(path.max_datagram_size));
        let unit = Unit {
            bytes: self.sending.chunk.unwrap_or(packet),
            ..next
        };
        let mut view = SendView {
            now,
            paths: views,
            backlog: self.streams.backlog(),
            unit,
            streams: &streams,
        };
        let mut decided = self.follow_policy(&view);
        // What has to wait for its path leaves the others to fresh data.
        let overtakes = decided.is_some_and(|choice| choice.reason == Reason::NoRoom);
        if overtakes && let Some(fresh) = self.streams.next_fresh() {
            decided = None;
            view.unit = Unit {
                bytes: unit.bytes,
                ..fresh
            };
        }
        let choice = if let Some(choice) = decided {
            choice
        } else if std::mem::take(&mut self.sending.overdue) && !idle {
            MinRtt.select(&view)
        } else {
            self.sending.scheduler.select(&view)
        };
        self.sending.count(choice.reason);
        self.observe_choice(now, choice);
        let mut carry = self.admit_choice(&view, choice);
        if unit.kind != view.unit.kind
            && let Some(carry) = &mut carry
            && let Payload::Waiting { skip } = carry.what
        {
            carry.what = Payload::Fresh { skip };
        }
        if carry.is_none() && !idle {
            self.hold(now, &view, choice);
        }
        self.sending.streams = streams;
        carry
    }

    /// What the policy for retransmissions says about the next one.
    fn follow_policy(&mut self, view: &SendView<'_>) -> Option<Choice> {
        if view.unit.kind != UnitKind::Retransmission {
            return None;
        }
        let (policy, urgent) = (self.config.mechanisms.retransmission, self.is_urgent());
        retransmit::decide(policy, view, urgent, &mut self.rng)
    }

    /// Turns an answer into something that is possible and allowed, or nothing.
    fn admit_choice(&mut self, view: &SendView<'_>, choice: Choice) -> Option<Carry> {
        let any_active = view
            .paths
            .iter()
            .any(|path| path.state == PathState::Active);
        let urgent = view.unit.kind == UnitKind::Retransmission && self.is_urgent();
        let has_room = |path: &PathView| path.has_room(u64::from(path.max_datagram_size), view.now);
        let possible = |id: PathId| {
            view.path(id).filter(|path| {
                (urgent || has_room(path)) && (path.state == PathState::Active || !any_active)
            })
        };
        let waiting = view.unit.kind != UnitKind::Idle;
        let (path, what, also) = match choice.decision {
            Decision::Send(path) if waiting => (path, Payload::Waiting { skip: 0 }, PathSet::EMPTY),
            Decision::SendAt { path, skip } if waiting => {
                (path, Payload::Waiting { skip }, PathSet::EMPTY)
            }
            Decision::SendStream { path, stream } if waiting && self.streams.has_fresh(stream) => {
                (path, Payload::Stream(stream), PathSet::EMPTY)
            }
            Decision::Duplicate(set) if waiting => {
                let first = set.iter().find(|id| possible(*id).is_some())?;
                let others = set.iter().filter(|id| possible(*id).is_some()).collect();
                (first, Payload::Waiting { skip: 0 }, others)
            }
            Decision::Copy(path) if view.path(path).is_some_and(|path| path.copyable) => {
                (path, Payload::Copy, PathSet::EMPTY)
            }
            _ => return None,
        };
        let Some(target) = possible(path) else {
            self.sending.overruled += 1;
            return None;
        };
        let beyond = !has_room(target);
        let mut budget = u64::MAX;
        if let (Some(chunk), Payload::Waiting { skip: 0 }) = (self.sending.chunk, what)
            && also.is_empty()
        {
            budget = chunk;
            if let Some(path) = self.paths.open_path_mut(path) {
                path.assign(chunk);
            }
        }
        Some(Carry {
            path,
            what,
            budget,
            also,
            beyond,
        })
    }

    /// Notes that the scheduler left room unused, and for how long that is respected.
    fn hold(&mut self, now: Instant, view: &SendView<'_>, choice: Choice) {
        let wanted = match choice.decision {
            Decision::Hold { until } => until,
            Decision::Send(path) => view.path(path).map(|path| path.pacer_ready),
            _ => None,
        };
        self.hold_until(now, wanted);
    }

    /// Leaves the scheduler alone until then, or for one probe time-out at the most.
    pub(super) fn hold_until(&mut self, now: Instant, wanted: Option<Instant>) {
        let ack_delay = self.peer_max_ack_delay();
        let open = self.paths.open().filter_map(Slot::open);
        let fastest = open.map(|path| path.pto(ack_delay)).min();
        let longest = now + fastest.unwrap_or(SHORTEST_HOLD).max(SHORTEST_HOLD);
        let cap = *self.sending.patience.get_or_insert(longest);
        let until = wanted.filter(|until| *until > now);
        self.sending.hold = Some(until.map_or(cap, |until| until.min(cap)));
        self.sending.holds += 1;
    }

    fn observe_choice(&mut self, now: Instant, choice: Choice) {
        if !self.outbox.is_observed() {
            return;
        }
        let path = match choice.decision {
            Decision::Send(path)
            | Decision::SendAt { path, .. }
            | Decision::SendStream { path, .. }
            | Decision::Copy(path) => Some(path),
            _ => None,
        };
        if self.sending.last_reason != Some((choice.reason, path)) {
            self.sending.last_reason = Some((choice.reason, path));
            self.outbox.observe(now, &Observation::Decision { choice });
        }
    }

    /// The snapshot of all open paths that may carry data.
    fn fill_views(&mut self, now: Instant, idle: bool, views: &mut Vec<PathView>) {
        views.clear();
        let scheduler = &self.sending.scheduler;
        let copies = if idle {
            scheduler.wants_copies()
        } else {
            scheduler.wants_copies_while_busy()
        };
        for (slot, path) in self.candidates() {
            let mut view = snapshot(slot, path, now);
            view.forward_delay_us = self.one_way.forward(now, path.id());
            view.bottleneck = self.bottlenecks.group(path.id());
            views.push(view);
        }
        if copies {
            for view in views {
                view.copyable_since = self.oldest_copy(view.id).map(|copy| copy.sent);
                view.copyable = view.copyable_since.is_some();
            }
        }
    }
}

/// Whether window and pacer let a full packet go now.
pub(super) fn can_send(path: &Path, now: Instant) -> bool {
    let size = u64::from(path.route().mtu.current());
    path.is_healthy() && path.room() >= size && path.ready_at(now, size) <= now
}

fn snapshot(slot: &Slot, path: &Path, now: Instant) -> PathView {
    let route = path.route();
    let size = route.mtu.current();
    PathView {
        id: path.id(),
        status: slot.status(),
        state: path.state(),
        smoothed_rtt: if route.rtt.has_sample() {
            route.rtt.smoothed()
        } else {
            Duration::ZERO
        },
        rttvar: route.rtt.rttvar(),
        latest_rtt: route.rtt.latest(),
        min_rtt: route.rtt.min(),
        forward_delay_us: None,
        forward_jitter_us: 0,
        congestion_window: path.window(),
        ssthresh: route.controller.ssthresh(),
        bytes_in_flight: route.in_flight,
        queued: path.assigned(),
        delivery_rate: route.rate.bandwidth(),
        pacing_rate: route.pacer.rate().unwrap_or(0),
        pacer_ready: path.ready_at(now, u64::from(size)),
        loss: path.loss(),
        pto_count: path.liveness().pto_count(),
        last_ack: path.liveness().last_ack(),
        in_recovery: route.controller.in_recovery(),
        app_limited: route.app_limited,
        max_datagram_size: size,
        weight: path.options().weight,
        priority: path.options().priority,
        cost: path.options().cost,
        bottleneck: 0,
        copyable: false,
        copyable_since: None,
    }
}
