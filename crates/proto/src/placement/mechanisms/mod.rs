//! Mechanisms of the multipath literature (docs/mechanisms.md), as far as they are about what is
//! sent where: retransmission policies, rescue of data that everything waits for, split buffers,
//! penalties and the cap against bufferbloat. A connection whose configuration names none of them
//! has none of this.

mod penalty;
mod rescue;
mod retransmission;
mod windows;

use crate::config::{Mechanisms as Settings, Rescue, RetransmissionPolicy, TransportConfig};
use crate::path::state::Path;
use crate::rng::Rng;
use crate::sched::{Choice, SendView, UnitKind};
use crate::streams::Streams;
use crate::time::{Duration, Instant};
use anabranch_wire::PathId;
use penalty::Record;

/// The mechanisms of one connection.
#[derive(Debug)]
pub(super) struct Mechanisms {
    settings: Settings,
    send_buffer: u64,
    max_copies: usize,
    /// Something was lost, and no retransmission was sent since.
    fresh_loss: bool,
    /// The most connection credit seen: what the peer's receive buffer holds at least.
    widest_credit: u64,
    /// What is known of each path.
    records: Vec<(PathId, Record)>,
}

impl Mechanisms {
    /// Nothing if the configuration wants none of them.
    pub(super) fn new(config: &TransportConfig) -> Option<Box<Self>> {
        let settings = config.mechanisms;
        let is_plain = settings.retransmission == RetransmissionPolicy::Scheduler
            && settings.rescue == Rescue::Off
            && !settings.limits_windows();
        (!is_plain).then(|| {
            Box::new(Self {
                settings,
                send_buffer: config.streams.send_buffer,
                max_copies: config.streams.max_copies,
                fresh_loss: false,
                widest_credit: 0,
                records: Vec::new(),
            })
        })
    }

    pub(super) fn on_lost(&mut self) {
        self.fresh_loss = true;
    }

    /// Waiting data was sent; `repaired` if that was the packet a loss allows.
    pub(super) fn on_carried(&mut self, repaired: bool) {
        self.fresh_loss &= !repaired;
    }

    /// The path is gone.
    pub(super) fn forget(&mut self, path: PathId) {
        self.records.retain(|(id, _)| *id != path);
    }

    /// Whether the policy for retransmissions may send one although no window has room.
    pub(super) fn is_urgent(&self, streams: &Streams) -> bool {
        self.fresh_loss
            && self.settings.retransmission != RetransmissionPolicy::Scheduler
            && streams.backlog().retransmit > 0
    }

    /// What the policy for retransmissions says about the next one, if that is what is next.
    pub(super) fn choose(
        &self,
        view: &SendView<'_>,
        streams: &Streams,
        rng: &mut Rng,
    ) -> Option<Choice> {
        if view.unit.kind != UnitKind::Retransmission {
            return None;
        }
        let (policy, urgent) = (self.settings.retransmission, self.is_urgent(streams));
        retransmission::decide(policy, view, urgent, rng)
    }

    /// A path that blocked others while a faster one had room gets half its window.
    fn penalise(&mut self, now: Instant, slow: Option<&Path>, fast_rtt: Duration) {
        if let Some(path) = slow {
            self.record(path.id()).penalise(now, path, fast_rtt);
        }
    }

    fn record(&mut self, path: PathId) -> &mut Record {
        let known = self.records.iter().position(|(id, _)| *id == path);
        let at = known.unwrap_or_else(|| {
            self.records.push((path, Record::default()));
            self.records.len() - 1
        });
        &mut self.records[at].1
    }
}
