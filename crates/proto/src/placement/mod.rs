//! Decides what is sent next and on which path, or how long to wait: asks the scheduler, refuses
//! answers that are not possible, and keeps the decision until a packet has carried it out.
//!
//! ```text
//! on_written, on_acked, ...  ─>  Placement  ─> Job ─> packet writer
//!        paths, streams (Sight) ─^   ^               │
//!                                    └──── write <───┘
//! ```
//!
//! A decision is a [`Job`], made only if its packet will hold at least one frame; [`load`] writes
//! what it is about. Before that no path or stream is changed but for the windows that
//! [`mechanisms`] limit.

mod blocked;
mod copies;
mod decide;
mod fronts;
mod hole;
mod job;
mod load;
mod mechanisms;
mod patience;
mod repeats;
mod snapshot;
mod standing;
#[cfg(test)]
mod tests;
mod waits;

pub use blocked::{BlockedStats, BlockedTime};
pub(crate) use job::{Job, Load, Original, Task};
use load::Carried;
pub(crate) use load::{room_in, room_on};

use crate::config::TransportConfig;
use crate::congestion::Bottlenecks;
use crate::handshake::Level;
use crate::path::PathSet;
use crate::path::manager::Manager;
use crate::recovery::sent::{SentFrame, SentFrames};
use crate::recovery::{OneWay, SentPacket};
use crate::rng::Rng;
use crate::sched::{Choice, PathEvent, PathView, Reason, Scheduler, StreamView};
use crate::streams::Streams;
use crate::time::{Duration, Instant};
use anabranch_wire::PathId;
use blocked::Blocked;
use fronts::Fronts;
use mechanisms::Mechanisms;
use repeats::{Repeats, Room};
use smallvec::SmallVec;
use standing::Standing;
use std::collections::BTreeMap;
use waits::Waits;

/// How the scheduler decided.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SchedulerStats {
    /// Decisions by reason.
    pub reasons: Vec<(Reason, u64)>,
    /// How often the scheduler held although a path had room.
    pub holds: u64,
    /// Answers that could not be carried out: they name a path that is unknown, full or doubted
    /// while others are not, or nothing could be written for them.
    pub overruled: u64,
}

/// What a decision is made from.
pub(crate) struct Sight<'a> {
    pub(crate) now: Instant,
    pub(crate) paths: &'a Manager,
    pub(crate) streams: &'a Streams,
    pub(crate) one_way: &'a OneWay,
    pub(crate) bottlenecks: &'a Bottlenecks,
    pub(crate) rng: &'a mut Rng,
    /// What data packets are protected with now.
    pub(crate) level: Level,
    /// The longest that the peer may hold an acknowledgement back.
    pub(crate) max_ack_delay: Duration,
    /// Whether somebody wants to know about decisions.
    pub(crate) is_watched: bool,
}

/// The owner of the sending decision.
#[derive(Debug)]
pub(crate) struct Placement {
    scheduler: Box<dyn Scheduler>,
    /// The snapshot handed to the scheduler, reused.
    views: Vec<PathView>,
    /// Those of its paths that carry a datagram which some do not, reused too.
    roomy: Vec<PathView>,
    /// The streams in it, reused too.
    streams: Vec<StreamView>,
    /// `Manager::version()` at the last decision.
    version: u64,
    /// What was decided and not carried out yet.
    kept: Option<Job>,
    /// An answer that holds for the packets after it, too.
    standing: Option<Standing>,
    /// The classes that the scheduler lets wait.
    waits: Waits,
    chunk: Option<u64>,
    /// What paths may still send of chunks, ascending by path.
    chunks: SmallVec<[Chunk; 4]>,
    repeats: Repeats,
    /// How far paths are with copying what the others carry, by class.
    fronts: SmallVec<[Fronts; 1]>,
    /// Paths whose pacers copies wait for.
    awaited: PathSet,
    mechanisms: Option<Box<Mechanisms>>,
    blocked: Blocked,
    last_reason: Option<(Reason, Option<PathId>)>,
    /// A choice that differs from the one before, for observers.
    news: Option<Choice>,
    reasons: BTreeMap<Reason, u64>,
    holds: u64,
    overruled: u64,
}

impl Placement {
    pub(crate) fn new(config: &TransportConfig) -> Self {
        Self {
            scheduler: config.scheduler.build(),
            views: Vec::new(),
            roomy: Vec::new(),
            streams: Vec::new(),
            version: 0,
            kept: None,
            standing: None,
            waits: Waits::default(),
            chunk: config.chunk,
            chunks: SmallVec::new(),
            repeats: Repeats::default(),
            fronts: SmallVec::new(),
            awaited: PathSet::EMPTY,
            mechanisms: Mechanisms::new(config),
            blocked: Blocked::default(),
            last_reason: None,
            news: None,
            reasons: BTreeMap::new(),
            holds: 0,
            overruled: 0,
        }
    }

    pub(crate) fn set_scheduler(&mut self, scheduler: Box<dyn Scheduler>) {
        self.scheduler = scheduler;
        self.waits.forgive();
        self.ask_again();
    }

    /// Bytes each decision covers from now on; `None` means one packet.
    pub(crate) fn set_chunk(&mut self, chunk: Option<u64>) {
        self.chunk = chunk.filter(|bytes| *bytes > 0);
        // Nothing is left of decisions that covered another size.
        self.chunks.clear();
        self.kept = None;
        self.standing = None;
    }

    /// New data came: a hold was about less than there is now. A decision about what waited before
    /// still stands.
    pub(crate) fn on_written(&mut self) {
        self.scheduler.on_event(&PathEvent::Written);
        self.waits.end();
    }

    /// What was sent waits again, though not because of congestion.
    pub(crate) fn on_requeued(&mut self) {
        self.ask_again();
    }

    /// The peer gave more credit.
    pub(crate) fn on_credit(&mut self) {
        self.ask_again();
    }

    /// An ack-eliciting packet left.
    pub(crate) fn on_sent(&mut self, path: PathId, packet: &SentPacket) {
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

    pub(crate) fn on_acked(&mut self, path: PathId, bytes: u64, rtt: Duration) {
        self.waits.on_acked(bytes);
        self.ask_again();
        let rtt = Some(rtt);
        self.scheduler
            .on_event(&PathEvent::Acked { path, bytes, rtt });
    }

    /// Packets were lost to congestion, or to what looks like it.
    pub(crate) fn on_lost(&mut self, path: PathId, bytes: u64) {
        if let Some(mechanisms) = &mut self.mechanisms {
            mechanisms.on_lost();
        }
        self.waits.on_lost(bytes);
        self.ask_again();
        self.scheduler.on_event(&PathEvent::Lost { path, bytes });
    }

    /// Something else happened to a path.
    pub(crate) fn on_path(&mut self, event: &PathEvent) {
        match *event {
            PathEvent::Doubted { path } => {
                self.leave(path, 0, 0);
                self.repeats.forget(path);
            }
            PathEvent::Abandoned { path } => {
                self.leave(path, 0, 0);
                self.repeats.forget(path);
                for fronts in &mut self.fronts {
                    fronts.forget(path);
                }
                if let Some(mechanisms) = &mut self.mechanisms {
                    mechanisms.forget(path);
                }
            }
            _ => {}
        }
        self.ask_again();
        self.scheduler.on_event(event);
    }

    pub(crate) fn on_timeout(&mut self, now: Instant) {
        self.waits.on_timeout(now);
    }

    /// Whether copies wait for the pacer of a path.
    pub(crate) fn waits_for(&self, path: PathId) -> bool {
        self.awaited.contains(path) || self.repeats.wait_for(path)
    }

    /// When the scheduler is asked again at the latest.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.waits.deadline()
    }

    /// A packet was written for the decision.
    fn carried(&mut self, path: PathId, load: Load, what: &Carried<'_>) {
        self.kept = None;
        match load {
            Load::Waiting {
                class,
                also,
                beyond,
                ..
            } => {
                self.waits.on_sent(class);
                if let Some(mechanisms) = &mut self.mechanisms {
                    mechanisms.on_carried(what.again > 0 || beyond);
                }
                self.spend(path, what.bytes);
                let mut frames = what.frames.iter();
                let is_stream = |frame: &SentFrame| matches!(frame, SentFrame::Stream { .. });
                if !also.is_empty() && (frames.any(is_stream) || !what.datagrams.is_empty()) {
                    self.push_repeats(path, &also, what);
                }
            }
            Load::Stream { class, .. } | Load::Copy(Original { class, .. }) => {
                self.waits.on_sent(class);
            }
            // Made only while no class waits.
            Load::Hole { .. } => {}
        }
    }

    fn push_repeats(&mut self, path: PathId, also: &PathSet, what: &Carried<'_>) {
        let frames: SentFrames = what.frames.iter().copied().collect();
        self.repeats.push(path, also, &frames, what.datagrams);
    }

    /// The next copy that was asked for together with its original, if its path has room.
    pub(crate) fn next_repeat(
        &mut self,
        now: Instant,
        level: Level,
        paths: &Manager,
        streams: &Streams,
    ) -> Option<Job> {
        let room = |id| {
            let path = paths.ready(id, now)?;
            let largest = u64::from(path.route().max_datagram_size());
            Some(Room {
                next: room_on(path, level),
                full: room_in(largest, Level::OneRtt),
            })
        };
        let (path, number) = self.repeats.next(streams, room)?;
        Some(Job::new(path, Task::Repeat(number)))
    }

    /// Writes into the paths what mechanisms let them have in flight.
    pub(crate) fn limit_windows(&mut self, now: Instant, paths: &mut Manager, streams: &Streams) {
        if let Some(mechanisms) = &mut self.mechanisms {
            mechanisms.limit_windows(now, paths, streams);
        }
    }

    /// A choice that was not told to observers yet.
    pub(crate) fn take_news(&mut self) -> Option<Choice> {
        self.news.take()
    }

    pub(crate) fn stats(&self) -> SchedulerStats {
        let reasons = self.reasons.iter();
        SchedulerStats {
            reasons: reasons.map(|(reason, count)| (*reason, *count)).collect(),
            holds: self.holds,
            overruled: self.overruled,
        }
    }

    /// What kept the connection from sending, up to `now`.
    pub(crate) fn blocked_stats(&self, now: Instant) -> BlockedStats {
        self.blocked.stats(now)
    }

    /// Something changed: what was decided or held was about something else. Patience goes on.
    fn ask_again(&mut self) {
        self.kept = None;
        self.standing = None;
        self.waits.end();
    }

    /// The bytes of a chunk that are left to a path.
    fn left(&self, path: PathId) -> u64 {
        let mut chunks = self.chunks.iter();
        let left = chunks.find_map(|chunk| (chunk.path == path).then_some(chunk.left));
        left.unwrap_or(0)
    }

    /// Sets how many bytes of a class are left of the chunk that was decided for `path`.
    fn leave(&mut self, path: PathId, class: u8, left: u64) {
        let chunk = Chunk { path, class, left };
        match self.chunks.binary_search_by_key(&path, |chunk| chunk.path) {
            Ok(at) if left == 0 => {
                self.chunks.remove(at);
            }
            Ok(at) => self.chunks[at] = chunk,
            Err(at) if left > 0 => self.chunks.insert(at, chunk),
            Err(_) => {}
        }
    }

    /// A path sent some of the bytes left to it.
    pub(crate) fn spend(&mut self, path: PathId, bytes: u64) {
        if let Some(at) = self.chunks.iter().position(|chunk| chunk.path == path) {
            let chunk = &mut self.chunks[at];
            chunk.left = chunk.left.saturating_sub(bytes);
            if chunk.left == 0 {
                self.chunks.remove(at);
            }
        }
    }
}

/// The rest of a decision that covers more than a packet.
#[derive(Debug, Clone, Copy)]
struct Chunk {
    path: PathId,
    class: u8,
    /// Bytes.
    left: u64,
}
