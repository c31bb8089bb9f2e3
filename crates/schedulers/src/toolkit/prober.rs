//! Copies that keep the estimates of unused paths fresh.
//!
//! What is known about a path that carries nothing grows old, and a policy that avoids the path
//! because of old figures would avoid it for ever. A copy of a current packet renews them at the
//! price of one packet. The multiplier of 5 RTTs is that of the active-probing scheduler of
//! `ProgMP`.

use crate::toolkit::PerPath;
use anabranch_proto::path::PathSet;
use anabranch_proto::sched::{Choice, Decision, PathEvent, PathView, Reason, SendView, UnitKind};
use anabranch_proto::time::{Duration, Instant};

/// Remembers when paths were probed.
#[derive(Debug)]
pub struct Prober {
    rtts: u32,
    shortest: Duration,
    probed: PerPath<Instant>,
}

impl Prober {
    /// Estimates older than this many RTTs are stale.
    pub const RTTS: u32 = 5;

    /// Paths are probed no more often than this, however short their RTT.
    pub const SHORTEST: Duration = Duration::from_millis(200);

    /// Probes paths last heard of or probed at least `rtts` of their RTTs ago, and `shortest`.
    pub fn new(rtts: u32, shortest: Duration) -> Self {
        Self {
            rtts,
            shortest,
            probed: PerPath::default(),
        }
    }

    /// Adds to a choice to send fresh data on one path a copy on another one that `may` be probed,
    /// has room and was not heard of for long. Paths that cost something are left alone.
    pub fn add(
        &mut self,
        view: &SendView<'_>,
        choice: Choice,
        may: impl Fn(&PathView) -> bool,
    ) -> Choice {
        let Decision::Send(chosen) = choice.decision else {
            return choice;
        };
        if view.unit.kind != UnitKind::Fresh {
            return choice;
        }
        let stale = |path: &&PathView| {
            path.id != chosen
                && path.cost == 0
                && path.can_send(view.now)
                && may(path)
                && self.is_stale(view, path)
        };
        let Some(path) = view.paths.iter().find(stale) else {
            return choice;
        };
        *self.probed.entry(view, path.id, || view.now) = view.now;
        Choice {
            decision: Decision::Duplicate(PathSet::from_iter([chosen, path.id])),
            reason: Reason::Probe,
        }
    }

    fn is_stale(&self, view: &SendView<'_>, path: &PathView) -> bool {
        let probed = self.probed.get(path.id).copied();
        let heard = path.last_ack.max(probed).unwrap_or(Instant::ZERO);
        let age = path.smoothed_rtt.saturating_mul(self.rtts);
        view.now.since(heard) >= age.max(self.shortest)
    }

    /// Forgets a path that is gone. Call it with every event.
    pub fn on_event(&mut self, event: &PathEvent) {
        self.probed.on_event(event);
    }
}

impl Default for Prober {
    fn default() -> Self {
        Self::new(Self::RTTS, Self::SHORTEST)
    }
}
