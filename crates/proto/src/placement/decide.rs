//! Asks the scheduler, and holds it to what is possible.

use super::snapshot::candidates;
use super::{Chunk, Job, Load, Placement, Sight, Task, room_in, room_on};
use crate::handshake::Level;
use crate::path::manager::Slot;
use crate::path::state::Path;
use crate::path::{PathSet, PathState};
use crate::sched::{
    Choice, ClassSet, Decision, MinRtt, PathView, Reason, Scheduler, SendView, StreamView, Unit,
    UnitKind,
};
use crate::streams::Streams;
use crate::time::Duration;

/// No hold is cut shorter than this for lack of a probe time-out.
const SHORTEST_HOLD: Duration = Duration::from_millis(10);

impl Placement {
    /// What data to send next on which path, if window and pacer of any path let anything go.
    ///
    /// The answer is kept until a packet [carried](Self::carried) it, so asking twice decides once.
    pub(crate) fn decide(&mut self, sight: &mut Sight<'_>) -> Option<Job> {
        let version = sight.paths.version();
        if std::mem::replace(&mut self.version, version) != version {
            self.ask_again();
        }
        if let Some(job) = self.kept {
            // The application may have taken back what it was about.
            if is_current(&job, sight) {
                return Some(job);
            }
            self.kept = None;
        }
        self.kept = self.decide_anew(sight);
        self.kept
    }

    fn decide_anew(&mut self, sight: &mut Sight<'_>) -> Option<Job> {
        let waiting = sight.streams.waiting_classes();
        self.awaited = PathSet::EMPTY;
        if !waiting.is_empty()
            && let Some(job) = self.stand(sight)
        {
            return Some(job);
        }
        if waiting.is_empty() {
            // Nothing is left of what the scheduler waited with, nor of chunks.
            self.waits.keep(waiting);
            self.chunks.clear();
            if !sight.streams.has_unacked() {
                // A receiver: nothing waits, and nothing is under way that could be copied.
                return None;
            }
            if let Some(mechanisms) = self.mechanisms.as_mut() {
                let rescue = mechanisms.rescue(sight.now, sight.paths, sight.streams);
                if let Some((job, event)) = rescue {
                    self.scheduler.on_event(&event);
                    return Some(job);
                }
            }
            if !self.wants_copies(sight.streams) {
                return None;
            }
        } else if sight.streams.has_classes() {
            self.waits.keep(waiting);
            self.chunks.retain(|chunk| waiting.contains(chunk.class));
        }
        if let Some(job) = self.rest_of_chunk(sight) {
            return Some(job);
        }
        let wanted = Wanted {
            open: waiting.without(self.waits.held_at(sight.now)),
            quiet: self.quiet(sight.streams, waiting),
        };
        if wanted.open.is_empty() && wanted.quiet.is_empty() {
            return None;
        }
        self.ask(sight, wanted, waiting.is_empty())
    }

    /// The classes of which nothing waits, but something is under way that may be copied.
    fn quiet(&self, streams: &Streams, waiting: ClassSet) -> ClassSet {
        if waiting.is_empty() {
            return streams.unacked_classes();
        }
        if !streams.has_classes() || !self.scheduler.wants().copies_while_busy {
            return ClassSet::EMPTY;
        }
        streams.unacked_classes().without(waiting)
    }

    /// Whether the scheduler wants copies although nothing else can be sent.
    fn wants_copies(&self, streams: &Streams) -> bool {
        // Fresh data that waits for the peer's credit or for room in the send buffer waits for
        // the paths too: copies would take the time that frees either.
        let blocked = streams.blockade().is_some();
        self.scheduler.wants().idle_copies(blocked)
    }

    /// Whether one packet may leave although no window has room.
    fn is_urgent(&self, streams: &Streams) -> bool {
        let mechanisms = self.mechanisms.as_ref();
        mechanisms.is_some_and(|mechanisms| mechanisms.is_urgent(streams))
    }

    /// The rest of an earlier decision that covered more than a packet.
    fn rest_of_chunk(&self, sight: &Sight<'_>) -> Option<Job> {
        self.chunk?;
        let mut chunks = self.chunks.iter().copied();
        let ready = |path| sight.paths.ready(path, sight.now).is_some();
        let Chunk { path, class, left } = chunks.find(|chunk| ready(chunk.path))?;
        let load = Load::Waiting {
            first: sight.streams.next_unit_of(ClassSet::of(class)).kind,
            class,
            skip: 0,
            budget: left,
            also: PathSet::EMPTY,
            overtakes: false,
            beyond: false,
        };
        let job = Job::data(path, load);
        is_current(&job, sight).then_some(job)
    }

    fn ask(&mut self, sight: &mut Sight<'_>, wanted: Wanted, idle: bool) -> Option<Job> {
        let urgent = self.is_urgent(sight.streams);
        // The cheap question first: most often no window has room.
        if !urgent && !candidates(sight.paths).any(|(_, path)| path.has_room(sight.now)) {
            if idle {
                self.awaited = paced(sight);
            }
            return None;
        }
        let mut views = std::mem::take(&mut self.views);
        let mut roomy = std::mem::take(&mut self.roomy);
        let mut streams = std::mem::take(&mut self.streams);
        let tight = self.fill_views(sight, &mut views);
        let asked = Asked {
            idle,
            urgent,
            tight,
        };
        let mut show = Shown {
            views: &mut views,
            roomy: &mut roomy,
            streams: &mut streams,
        };
        let mut job = wanted.quiet.iter().find_map(|class| {
            let unit = Unit {
                kind: UnitKind::Idle,
                class,
                ..Unit::default()
            };
            self.consult(sight, asked, unit, &mut show)
        });
        // A class that is held keeps no other waiting: each is asked about once.
        let mut open = wanted.open;
        while job.is_none() && !open.is_empty() {
            let unit = sight.streams.next_unit_of(open);
            if unit.kind == UnitKind::Idle {
                // What waits may not be sent: limits fell with a refusal of early data.
                break;
            }
            job = self.consult(sight, asked, unit, &mut show);
            open = open.without(ClassSet::of(unit.class));
        }
        (self.views, self.roomy, self.streams) = (views, roomy, streams);
        job
    }

    /// Asks about one unit.
    fn consult(
        &mut self,
        sight: &mut Sight<'_>,
        asked: Asked,
        next: Unit,
        shown: &mut Shown<'_>,
    ) -> Option<Job> {
        let of = ClassSet::of(next.class);
        let is_idle = next.kind == UnitKind::Idle;
        let wants = self.scheduler.wants();
        if is_idle || wants.copies_while_busy {
            self.fill_copies(sight, next.class, shown.views);
        }
        let can_copy = |path: &PathView| path.copyable && path.can_send(sight.now);
        if is_idle && !asked.idle && !shown.views.iter().any(can_copy) {
            return None;
        }
        if wants.streams {
            sight.streams.fill_views(of, shown.streams);
        }
        let (views, streams) = (&**shown.views, &*shown.streams);
        let packet = views
            .first()
            .map_or(1200, |path| u64::from(path.max_datagram_size));
        let bytes = self.chunk.unwrap_or(packet);
        let mut view = SendView {
            now: sight.now,
            paths: views,
            backlog: sight.streams.backlog(),
            unit: Unit { bytes, ..next },
            streams,
        };
        let mut decided = self.follow_policy(&view, sight);
        // What has to wait for its path leaves the others to what waits behind it.
        let mut overtaken = None;
        if decided.is_some_and(|choice| choice.reason == Reason::NoRoom)
            && let Some(behind) = sight.streams.next_new(of)
        {
            overtaken = decided.take();
            view.unit = Unit { bytes, ..behind };
        }
        if view.unit.kind == UnitKind::Datagram {
            view.paths = that_hold(&view, shown.roomy, sight.streams);
        }
        let (choice, is_own) = if let Some(choice) = decided {
            (choice, false)
        } else if !is_idle && self.waits.take_overdue(next.class) {
            (MinRtt.select(&view), false)
        } else {
            (self.scheduler.select(&view), true)
        };
        let job = self.permit(sight, asked, &view, choice, overtaken.is_some());
        if is_own && !asked.tight {
            self.note_standing(sight, job, choice);
        }
        if job.is_none() && !matches!(choice.decision, Decision::Hold { .. }) {
            self.overruled += 1;
        }
        self.count(choice, sight.is_watched);
        if job.is_none() && !is_idle {
            self.wait(sight, &view, [Some(choice), overtaken]);
        }
        job
    }

    /// What the policy for retransmissions says, if there is one.
    fn follow_policy(&self, view: &SendView<'_>, sight: &mut Sight<'_>) -> Option<Choice> {
        let mechanisms = self.mechanisms.as_ref()?;
        mechanisms.choose(view, sight.streams, sight.rng)
    }

    /// Turns an answer into something that is possible and allowed, or nothing; `overtakes` if it
    /// is not about what is to be sent again although that waits.
    fn permit(
        &mut self,
        sight: &Sight<'_>,
        asked: Asked,
        view: &SendView<'_>,
        choice: Choice,
        overtakes: bool,
    ) -> Option<Job> {
        let is_active = |path: &PathView| path.state == PathState::Active;
        let any_active = view.paths.iter().any(is_active);
        let urgent = asked.urgent && view.unit.kind == UnitKind::Retransmission;
        let possible = |id| {
            let path = view.path(id)?;
            let may = (urgent || path.can_send(view.now)) && (is_active(path) || !any_active);
            may.then_some(path)
        };
        let (waiting, class) = (view.unit.kind != UnitKind::Idle, view.unit.class);
        let (path, skip, also) = match choice.decision {
            Decision::Send(path) if waiting => (path, 0, PathSet::EMPTY),
            Decision::SendAt { path, skip } if waiting => (path, skip, PathSet::EMPTY),
            Decision::Duplicate(set) if waiting => {
                let first = set.iter().find(|id| possible(*id).is_some())?;
                // A copy waits for room on its path.
                let carries = |id| {
                    view.path(id)
                        .is_some_and(|path| is_active(path) || !any_active)
                };
                let others = set.iter().filter(|id| carries(*id));
                (first, 0, others.collect())
            }
            Decision::SendStream { path, stream }
                if waiting
                    && sight.streams.would_write_stream(usize::MAX, stream)
                    && sight.streams.class_of(stream) == Some(class) =>
            {
                let path = possible(path)?;
                let job = Job::data(path.id, Load::Stream { id: stream, class });
                return would_write(&job, asked, path, sight).then_some(job);
            }
            Decision::Copy(path) if view.path(path).is_some_and(|path| path.copyable) => {
                let path = possible(path)?;
                let original = self.oldest_copy(path.id, class, sight.paths, sight.streams)?;
                let job = Job::data(path.id, Load::Copy(original));
                return would_write(&job, asked, path, sight).then_some(job);
            }
            _ => return None,
        };
        let path = possible(path)?;
        let covers_chunk = self.chunk.filter(|_| skip == 0 && also.is_empty());
        let budget = covers_chunk.unwrap_or(u64::MAX);
        let load = Load::Waiting {
            first: view.unit.kind,
            class,
            skip,
            budget,
            also,
            overtakes,
            beyond: !path.can_send(view.now),
        };
        let job = Job::data(path.id, load);
        let is_plain = skip == 0 && !asked.tight && view.unit.kind != UnitKind::Datagram;
        if !is_plain && !would_write(&job, asked, path, sight) {
            return None;
        }
        if let Some(chunk) = covers_chunk {
            self.leave(path.id, class, chunk);
        }
        Some(job)
    }

    /// Does not ask again until the first time that an answer named, at most one probe time-out.
    /// What was overtaken has an answer of its own: what waits behind it must not delay it.
    fn wait(&mut self, sight: &Sight<'_>, view: &SendView<'_>, answers: [Option<Choice>; 2]) {
        let paced = |id| {
            let ready = view.path(id).map(|path| path.pacer_ready);
            ready.filter(|at| *at > sight.now)
        };
        let named = |choice: Choice| match choice.decision {
            Decision::Hold { until } => until,
            Decision::Send(path)
            | Decision::SendAt { path, .. }
            | Decision::SendStream { path, .. }
            | Decision::Copy(path) => paced(path),
            Decision::Duplicate(set) => set.iter().filter_map(paced).min(),
        };
        let open = sight.paths.open().filter_map(Slot::open);
        let fastest = open.map(|path| path.pto(sight.max_ack_delay)).min();
        let longest = sight.now + fastest.unwrap_or(SHORTEST_HOLD).max(SHORTEST_HOLD);
        let in_flight = sight.paths.open().filter_map(Slot::open);
        let in_flight = in_flight.map(|path| path.route().bytes_in_flight()).sum();
        let named = answers.into_iter().flatten().filter_map(named);
        let wanted = named.filter(|until| *until > sight.now).min();
        self.waits.hold(view.unit.class, wanted, longest, in_flight);
        self.holds += 1;
    }

    pub(super) fn count(&mut self, choice: Choice, is_watched: bool) {
        *self.reasons.entry(choice.reason).or_default() += 1;
        if !is_watched {
            return;
        }
        let path = match choice.decision {
            Decision::Send(path)
            | Decision::SendAt { path, .. }
            | Decision::SendStream { path, .. }
            | Decision::Copy(path) => Some(path),
            _ => None,
        };
        if self.last_reason != Some((choice.reason, path)) {
            self.last_reason = Some((choice.reason, path));
            self.news = Some(choice);
        }
    }
}

/// The paths that could carry a copy of what others have in flight but for their pacers.
fn paced(sight: &Sight<'_>) -> PathSet {
    let carries = |path: &Path| path.space().ack_eliciting_in_flight() > 0;
    let open = || sight.paths.open().filter_map(Slot::open);
    let waits = |path: &Path| {
        let copyable = open().any(|other| other.id() != path.id() && carries(other));
        copyable && path.is_paced(sight.now)
    };
    let paced = candidates(sight.paths).filter(|(_, path)| waits(path));
    paced.map(|(slot, _)| slot.id()).collect()
}

/// What the scheduler is asked about.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    /// Classes that wait and are not held.
    open: ClassSet,
    /// Classes of which only copies could be sent.
    quiet: ClassSet,
}

/// What the scheduler is shown.
struct Shown<'a> {
    views: &'a mut Vec<PathView>,
    roomy: &'a mut Vec<PathView>,
    streams: &'a mut Vec<StreamView>,
}

/// The paths whose packets hold the datagram that is asked about: all of them where no candidate is
/// among those, as then it is about to be dropped.
fn that_hold<'a>(
    view: &SendView<'a>,
    roomy: &'a mut Vec<PathView>,
    streams: &Streams,
) -> &'a [PathView] {
    let of = ClassSet::of(view.unit.class);
    let holds = |path: &PathView| {
        let room = room_in(u64::from(path.max_datagram_size), Level::OneRtt);
        streams.would_write_datagram(of, room)
    };
    if view.paths.iter().all(holds) || !view.candidates().any(holds) {
        return view.paths;
    }
    roomy.clear();
    roomy.extend(view.paths.iter().filter(|path| holds(path)));
    roomy
}

/// How the scheduler is asked.
#[derive(Debug, Clone, Copy)]
struct Asked {
    /// Nothing waits in any class: only copies are of use.
    idle: bool,
    /// One packet need not wait for room.
    urgent: bool,
    /// Not every packet has the room that frames may count on.
    tight: bool,
}

/// Whether the packet of a job that is decided on would hold any of it.
fn would_write(job: &Job, asked: Asked, path: &PathView, sight: &Sight<'_>) -> bool {
    if asked.tight {
        return is_current(job, sight);
    }
    let Task::Data(load) = job.task else {
        return false;
    };
    let room = room_in(u64::from(path.max_datagram_size), Level::OneRtt);
    load.would_write(job.path, room, sight.streams)
}

/// Whether the packet of a job that was decided on would still hold any of it.
fn is_current(job: &Job, sight: &Sight<'_>) -> bool {
    let Some(path) = sight.paths.carrier(job.path) else {
        return false;
    };
    let room = room_on(path, sight.level);
    match job.task {
        Task::Data(Load::Copy(original)) => {
            original.would_write(job.path, room, sight.paths, sight.streams)
        }
        Task::Data(load) => load.would_write(job.path, room, sight.streams),
        _ => false,
    }
}
