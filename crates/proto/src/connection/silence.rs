//! Carries out what [`Liveness`](crate::path::liveness::Liveness) finds about paths that go silent,
//! and tells it what it has to know of the connection (docs/failover.md).

use super::Connection;
use crate::datagram::{SocketId, Tuple};
use crate::event::{Observation, PathNotice};
use crate::handshake::Level;
use crate::path::liveness::{Rest, Verdict};
use crate::path::manager::Common;
use crate::path::state::Path;
use crate::recovery::sent::SentFrame;
use crate::sched::PathEvent;
use crate::time::{Duration, Instant};
use crate::wire::{PathId, TransportErrorCode};
use smallvec::SmallVec;

/// However short the peer wants the connection to outlast silence, it cannot make us ask more often
/// than this.
const LEAST_LONGEST_REST: Duration = Duration::from_secs(1);

impl Connection {
    /// What each path has to know of the connection.
    pub(super) fn common(&self) -> Common {
        let census = self.paths.census();
        let starves = census.open > 1 && self.streams.has_gap();
        Common {
            census,
            last_data: starves.then_some(self.last_data.at),
            confirmed: self.handshake.is_confirmed(),
            keep_alive: Rest {
                most: self.config.keep_alive,
                follows: self.config.keep_alive_follows,
            },
            longest_rest: self
                .idle_timeout()
                .map(|time| LEAST_LONGEST_REST.max(time / 2)),
            idle_timeout: self.config.path_idle_timeout,
        }
    }

    #[cold]
    pub(super) fn carry_out(&mut self, now: Instant, id: PathId, verdict: Verdict) {
        match verdict {
            Verdict::Probe => {
                self.placement.on_path(&PathEvent::Pto { path: id });
                self.observe_metrics(now, id);
            }
            Verdict::Challenge => self.challenge_all(now),
            Verdict::Doubt => self.on_doubted(now, id),
            Verdict::DoubtSilent => self.doubt_where(now, |path| path.on_other_responded(now)),
            Verdict::Trust { after, .. } => self.on_trusted(now, id, after),
            Verdict::Abandon => {
                let code = TransportErrorCode::PATH_UNSTABLE_OR_POOR.0;
                self.abandon(now, id, code, false);
            }
        }
    }

    /// Carries out what `ask` says about each open path.
    fn doubt_where(&mut self, now: Instant, mut ask: impl FnMut(&mut Path) -> Option<Verdict>) {
        let open = self.paths.open_mut();
        let verdicts = open.filter_map(|(id, path)| Some((id, ask(path)?)));
        let verdicts: SmallVec<[(PathId, Verdict); 4]> = verdicts.collect();
        for (id, verdict) in verdicts {
            self.carry_out(now, id, verdict);
        }
    }

    fn challenge_all(&mut self, now: Instant) {
        for (_, path) in self.paths.open_mut() {
            path.ask(now, &mut self.rng);
        }
    }

    /// Stops scheduling on a silent path and lets other paths carry what it holds.
    fn on_doubted(&mut self, now: Instant, id: PathId) {
        self.outbox.notice(now, PathNotice::Doubted { id });
        self.reinject(now, id);
        self.on_path_event(PathEvent::Doubted { path: id });
    }

    /// Offers everything in flight on a path to the others. The packets stay in flight: a late
    /// acknowledgement still counts.
    fn reinject(&mut self, now: Instant, id: PathId) {
        let Some(path) = self.paths.open_path(id) else {
            return;
        };
        let frames: Vec<SentFrame> = path
            .space()
            .iter_unacked()
            .flat_map(|(_, packet)| packet.frames.iter().copied())
            .collect();
        let mut reinjected = 0;
        for frame in &frames {
            match frame {
                SentFrame::Stream { .. } | SentFrame::Datagram { .. } => {
                    reinjected += self.streams.reinject(frame, id);
                }
                _ => self.on_frame_lost(Level::OneRtt, id, frame),
            }
        }
        if let Some(path) = self.paths.open_path_mut(id) {
            path.count_reinjected(reinjected);
        }
        let (path, bytes) = (id, reinjected);
        self.outbox
            .observe(now, &Observation::Reinjected { path, bytes });
    }

    fn on_trusted(&mut self, now: Instant, id: PathId, after: Duration) {
        self.on_path_event(PathEvent::Recovered { path: id });
        self.outbox.notice(now, PathNotice::Recovered { id, after });
    }

    /// Something was acknowledged: the peer's acknowledgements find a way.
    pub(super) fn end_inquiry(&mut self) {
        for (_, path) in self.paths.open_mut() {
            path.end_inquiry();
        }
    }

    /// A path responded to a challenge.
    pub(super) fn on_path_responded(&mut self, now: Instant, id: PathId) {
        let Some(path) = self.paths.open_path_mut(id) else {
            return;
        };
        for verdict in path.on_proven(now) {
            self.carry_out(now, id, verdict);
        }
    }

    /// The driver cannot send or receive on this socket any more: its interface is gone.
    pub fn on_socket_error(&mut self, now: Instant, socket: SocketId) {
        self.on_refused(now, |tuple| tuple.socket == socket);
    }

    /// The driver was refused a datagram along this route: there is no way from here to that peer,
    /// while others may be reached from the same socket.
    pub fn on_route_error(&mut self, now: Instant, tuple: Tuple) {
        self.on_refused(now, |other| other == tuple);
    }

    fn on_refused(&mut self, now: Instant, concerns: impl Fn(Tuple) -> bool) {
        // The last one that answers goes on.
        let mut left = self.paths.census().healthy;
        self.doubt_where(now, |path| {
            let others = left - usize::from(path.is_healthy());
            if others == 0 || !concerns(path.route().tuple()) {
                return None;
            }
            let verdict = path.on_refused(now);
            if verdict.is_some() {
                left = others;
            }
            verdict
        });
    }
}
