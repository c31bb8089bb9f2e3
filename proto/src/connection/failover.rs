//! Paths that go silent, and their return (docs/failover.md).
//!
//! ```text
//! Active --first PTO, ACK silence or a dead socket, while another path answers--> Doubtful
//! Doubtful --anything ack-eliciting acknowledged--> Active
//! Doubtful --silent for path_idle_timeout--> abandoned
//! ```

use super::Connection;
use crate::datagram::{SocketId, Tuple};
use crate::event::{Observation, PathNotice};
use crate::handshake::Level;
use crate::path::manager::Slot;
use crate::path::stalls;
use crate::path::state::{Health, Path};
use crate::recovery::SentPacket;
use crate::recovery::sent::SentFrame;
use crate::sched::PathEvent;
use crate::time::{Duration, Instant};
use crate::wire::PathId;

/// The longest time between probes of a doubted path, so that a repaired path is back in use within
/// a second.
pub(super) const MAX_PROBE_INTERVAL: Duration = Duration::from_millis(500);

/// Lone PINGs in a row after which acknowledgements take a detour for a while.
const PINGS_BEFORE_DETOUR: u32 = 2;

/// How long the first detour lasts; each further one lasts twice as long.
const FIRST_DETOUR: Duration = Duration::from_secs(2);
const LONGEST_DETOUR: Duration = Duration::from_secs(60);

impl Connection {
    /// Number of open paths that answer.
    pub(super) fn healthy_count(&self) -> usize {
        let open = self.paths.open().filter_map(Slot::open);
        open.filter(|path| path.is_healthy()).count()
    }

    /// Whether another path than `id` answers.
    pub(super) fn has_other_healthy(&self, id: PathId) -> bool {
        self.paths
            .open()
            .any(|slot| slot.id != id && slot.open().is_some_and(Path::is_healthy))
    }

    /// Stops scheduling on a silent path and lets other paths carry what it holds.
    #[cold]
    pub(super) fn doubt(&mut self, now: Instant, id: PathId) {
        let Some(path) = self.paths.open_path_mut(id) else {
            return;
        };
        if path.health != Health::Active || !path.route.validated {
            return;
        }
        path.health = Health::Doubtful { since: now };
        path.answers_since = None;
        path.assigned = 0;
        path.counters.doubts += 1;
        self.notice(now, PathNotice::Doubted { id });
        self.reinject(now, id);
        self.sending.wake();
        self.sending.tell(&PathEvent::Doubted { path: id });
    }

    /// Offers everything in flight on a path to the others. The packets stay in flight: a late
    /// acknowledgement still counts.
    fn reinject(&mut self, now: Instant, id: PathId) {
        let Some(path) = self.paths.open_path(id) else {
            return;
        };
        let frames: Vec<SentFrame> = path
            .space
            .iter_unacked()
            .flat_map(|(_, packet)| packet.frames.iter().copied())
            .collect();
        let mut reinjected = 0;
        for frame in &frames {
            match frame {
                SentFrame::Stream { .. } => reinjected += self.streams.reinject(frame, id),
                SentFrame::Datagram { .. } => {}
                _ => self.on_frame_lost(Level::OneRtt, id, frame),
            }
        }
        if let Some(path) = self.paths.open_path_mut(id) {
            path.counters.reinjected_bytes += reinjected;
        }
        let (path, bytes) = (id, reinjected);
        self.outbox
            .observe(now, &Observation::Reinjected { path, bytes });
    }

    /// Something ack-eliciting among the path's packets `acked` was acknowledged.
    pub(super) fn on_path_answered(
        &mut self,
        now: Instant,
        id: PathId,
        acked: &[(u64, SentPacket)],
    ) {
        if let Some(path) = self.paths.open_path_mut(id) {
            path.probes_owed = 0;
        }
        self.end_inquiry();
        let was_slow = self.was_slow(now, id, acked);
        self.trust(now, id, was_slow);
    }

    /// Whether a doubted path was slow and not dead: it answers what was sent before the doubt.
    ///
    /// The answer to a probe may tell of older packets too. If it comes soon, they were on their
    /// way or the peer was slow to tell; if it comes later, they may have arrived before a silence
    /// in which their acknowledgements were lost.
    fn was_slow(&self, now: Instant, id: PathId, acked: &[(u64, SentPacket)]) -> bool {
        let Some(path) = self.paths.open_path(id) else {
            return false;
        };
        let Health::Doubtful { since } = path.health else {
            return false;
        };
        let eliciting = acked.iter().filter(|(_, packet)| packet.ack_eliciting);
        let times = eliciting.map(|(_, packet)| packet.time_sent);
        let soon = now.since(since) < stalls::most(path.pto(self.peer_max_ack_delay()));
        let newest = times.clone().max();
        let is_old = |time: Option<Instant>| time.is_some_and(|time| time < since);
        is_old(newest) || is_old(times.min()) && soon
    }

    /// Ends the doubt about a path that responded.
    pub(super) fn trust(&mut self, now: Instant, id: PathId, was_slow: bool) {
        let Some(path) = self.paths.open_path_mut(id) else {
            return;
        };
        let Health::Doubtful { since } = path.health else {
            return;
        };
        path.health = Health::Active;
        // What is known of the capacity of a path that was slow still holds.
        if was_slow {
            path.stalls.on_slow(now);
        } else {
            path.route.controller.restart(now);
            path.route.update_pacing(now);
        }
        self.sending.tell(&PathEvent::Recovered { path: id });
        self.notice(
            now,
            PathNotice::Recovered {
                id,
                after: now.since(since),
            },
        );
    }

    /// The driver cannot send or receive on this socket any more: its interface is gone.
    pub fn on_socket_error(&mut self, now: Instant, socket: SocketId) {
        self.doubt_where(now, |tuple| tuple.socket == socket);
    }

    /// The driver was refused a datagram along this route: there is no way from here to that peer,
    /// while others may be reached from the same socket.
    pub fn on_route_error(&mut self, now: Instant, tuple: Tuple) {
        self.doubt_where(now, |other| other == tuple);
    }

    fn doubt_where(&mut self, now: Instant, concerns: impl Fn(Tuple) -> bool) {
        let affected: Vec<_> = self
            .paths
            .open()
            .filter(|slot| slot.open().is_some_and(|path| concerns(path.route.tuple)))
            .map(|slot| slot.id)
            .collect();
        for id in affected {
            if self.has_other_healthy(id) {
                self.doubt(now, id);
            }
        }
    }

    /// Notices that the peer probes in vain, so that acknowledgements go back another way too.
    pub(super) fn note_detour(
        &mut self,
        now: Instant,
        id: PathId,
        lone_ping: bool,
        ack_eliciting: bool,
    ) {
        let Some(path) = self.paths.open_path_mut(id) else {
            return;
        };
        let detour = &mut path.detour;
        if !lone_ping {
            if ack_eliciting {
                detour.lone_pings = 0;
            }
            return;
        }
        path.space.received.request_immediate();
        detour.lone_pings += 1;
        if detour.lone_pings >= PINGS_BEFORE_DETOUR {
            detour.span = (detour.span * 2).clamp(FIRST_DETOUR, LONGEST_DETOUR);
            let until = now + detour.span;
            detour.until = Some(until);
            self.outbox
                .observe(now, &Observation::Detour { path: id, until });
        }
    }
}

/// When to ask a doubted path with this PTO that has nothing in flight, and so no probe time-out:
/// packets that were refused on the way out were perhaps none that elicit an acknowledgement, or
/// are given up meanwhile. Unasked it would never be trusted again.
pub(super) fn quiet_probe_deadline(path: &Path, pto: Duration) -> Option<Instant> {
    let Health::Doubtful { since } = path.health else {
        return None;
    };
    let last = path.space.last_ack_eliciting_sent();
    let asked = last.map_or(since, |last| last.max(since));
    Some(asked + MAX_PROBE_INTERVAL.max(pto))
}

/// When a path with this PTO has been silent for too long although it owes an acknowledgement.
///
/// The probe time-out restarts with every packet sent; this does not, so a path that swallows a
/// steady stream is noticed after one time-out too. If several packets are late by then, half
/// of it without a word is enough: the oldest packets of a full window were sent a round trip
/// before the last acknowledgement. With fewer it may be that they are lost, and what a small
/// window brings comes once in a round trip. A queue that grows makes packets late as well, but
/// goes on to deliver. A path that stalled lately gets the whole time, and one that answered later
/// than that lately the time it took.
pub(super) fn silence_deadline(path: &Path, pto: Duration) -> Option<Instant> {
    if path.health != Health::Active || !path.route.validated {
        return None;
    }
    let oldest = path.space.oldest_eliciting()?;
    let heard = path.last_ack.map_or(oldest, |ack| ack.max(oldest));
    let usual = heard + path.stalls.patience(heard, pto);
    match path.space.several_eliciting() {
        Some(several) if !path.stalls.were_before(heard) => {
            let early = (heard + pto / 2).max(several + pto);
            Some(early.min(usual))
        }
        _ => Some(usual),
    }
}
