//! Earliest delivery path first: each unit to the path that is predicted to deliver it first,
//! whether or not that path can send now.
//!
//! A reconstruction of what Chebrolu (2005) and Gurtov and Korhonen (2009, "fastest path first")
//! describe. The prediction is the forward delay, and what is believed to be in the way at the
//! path's bandwidth: data bound to the path, what stands in the network's queues, and the part of
//! the unit that the window does not take. If that path cannot send, the unit waits for it, no
//! longer than an acknowledgement takes. Rates that are too low starve a path; so one that stood by
//! while so many packets went elsewhere carries a copy of one. And rates that scatter would make
//! choices flutter, so the path is kept until another one is better by a margin.

use crate::toolkit::units::{FOREVER, bytes_in, nanos, paced, packet, time_for};
use crate::toolkit::{Delays, Patience, bandwidth, carried, unit};
use anabranch_proto::path::{MAX_OPEN_PATHS, PathSet};
use anabranch_proto::sched::{
    Choice, Decision, Entry, ParamDoc, PathEvent, PathView, Reason, Scheduler, SendView, UnitKind,
};
use anabranch_proto::spec::{Params, SpecError};
use anabranch_proto::wire::PathId;
use smallvec::SmallVec;

pub(crate) const ENTRY: Entry = Entry {
    name: "edpf-like",
    summary: "the earliest predicted delivery, queues included; waits for it if it is full",
    params: &[ParamDoc {
        key: "probe",
        default: "100",
        summary: "packets after which a path that stood by carries a copy; 0 for never",
    }],
    build: |params| Ok(Box::new(EarliestDelivery::from_params(params)?)),
};

/// Another path must be better by this much, or by a 20th of the time if that is more.
const MARGIN: u64 = 1_000_000;

/// Chooses the earliest delivery.
#[derive(Debug, Default)]
pub(crate) struct EarliestDelivery {
    probe_after: u64,
    sent: u64,
    /// What `sent` was when each path was last used.
    used: SmallVec<[(PathId, u64); MAX_OPEN_PATHS]>,
    last: Option<PathId>,
    /// Whether the favoured path was waited for since the last probe: under light load the others
    /// stand by because they are not needed.
    waited: bool,
    patience: Patience,
}

impl EarliestDelivery {
    fn from_params(params: &mut Params) -> Result<Self, SpecError> {
        Ok(Self {
            probe_after: params.take_in("probe", 100, 0..=1_000_000)?,
            ..Self::default()
        })
    }

    /// The candidate that delivers first, and with a margin if it is not the last one used.
    fn best<'a>(&self, view: &SendView<'a>) -> Option<&'a PathView> {
        let delays = Delays::of(view);
        let key = |path: &PathView| (carried(view, path), eta(view, &delays, path));
        let mut best: Option<((bool, u64), &PathView)> = None;
        let mut last: Option<((bool, u64), &PathView)> = None;
        for path in view.candidates() {
            let key = key(path);
            // What nothing is known of is not waited for.
            if key.1 == FOREVER && !path.can_send(view.now) {
                continue;
            }
            if best.is_none_or(|(least, _)| key < least) {
                best = Some((key, path));
            }
            if Some(path.id) == self.last {
                last = Some((key, path));
            }
        }
        match (best, last) {
            (Some((best, _)), Some((now, path)))
                if best.0 == now.0 && now.1 - best.1 <= MARGIN.max(now.1 / 20) =>
            {
                Some(path)
            }
            (best, _) => best.map(|(_, path)| path),
        }
    }

    /// A path that stood by for so long that its estimates may be what is wrong, and that can
    /// carry a copy of what goes on `best`.
    fn starved(&self, view: &SendView<'_>, best: &PathView) -> Option<PathId> {
        if self.probe_after == 0 || !self.waited || view.unit.kind != UnitKind::Fresh {
            return None;
        }
        let starved = |path: &&PathView| {
            let away = self.sent.saturating_sub(self.used_at(path.id));
            path.id != best.id && away >= self.probe_after && path.is_usable() && path.cost == 0
        };
        view.ready().find(starved).map(|path| path.id)
    }

    fn used_at(&self, path: PathId) -> u64 {
        let entry = self.used.iter().find(|(id, _)| *id == path);
        entry.map_or(0, |(_, sent)| *sent)
    }

    fn note(&mut self, view: &SendView<'_>, path: PathId) {
        self.sent += 1;
        let sent = self.sent;
        if let Some(entry) = self.used.iter_mut().find(|(id, _)| *id == path) {
            entry.1 = sent;
            return;
        }
        if self.used.len() == MAX_OPEN_PATHS {
            self.used.retain(|(id, _)| view.path(*id).is_some());
        }
        self.used.push((path, sent));
    }
}

/// Nanoseconds until `path` would have delivered the unit, less an offset common to all paths.
fn eta(view: &SendView<'_>, delays: &Delays, path: &PathView) -> u64 {
    let Some(forward) = delays.forward(path) else {
        return FOREVER;
    };
    let rate = bandwidth(path);
    let unit = unit(view, path);
    let under_way = bytes_in(nanos(path.min_rtt), rate);
    let standing = path.bytes_in_flight.saturating_sub(under_way);
    let before = path.queued.saturating_add(standing).saturating_add(unit);
    let excess = unit.max(packet(path)).saturating_sub(path.room());
    let queue = time_for(before.saturating_add(excess), rate);
    let wait = queue.saturating_add(paced(path, view.now));
    forward.saturating_add(wait).min(FOREVER - 1)
}

impl Scheduler for EarliestDelivery {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        if view.ready().next().is_none() {
            return view.no_room();
        }
        let Some(best) = self.best(view) else {
            return view.no_room();
        };
        if !best.can_send(view.now) {
            self.waited = true;
            let choice = self.patience.wait_for(view, best, Reason::WaitForBetter);
            if let Decision::Send(path) = choice.decision {
                self.note(view, path);
            }
            return choice;
        }
        self.last = Some(best.id);
        self.patience.end();
        let starved = self.starved(view, best);
        self.note(view, best.id);
        let Some(starved) = starved else {
            return Choice::send(best.id, Reason::EarliestArrival);
        };
        self.waited = false;
        self.note(view, starved);
        Choice {
            decision: Decision::Duplicate(PathSet::from_iter([best.id, starved])),
            reason: Reason::Probe,
        }
    }

    fn on_event(&mut self, event: &PathEvent) {
        self.patience.on_event(event);
        if let PathEvent::Abandoned { path } | PathEvent::Doubted { path } = event {
            self.used.retain(|(id, _)| id != path);
            self.last = self.last.filter(|last| last != path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{at, built, fresh, send};
    use anabranch_proto::time::Duration;

    fn path(id: u32, forward_ms: i64, queued: u64) -> PathView {
        PathView {
            smoothed_rtt: Duration::from_millis(20),
            min_rtt: Duration::from_millis(20),
            forward_delay_us: Some(forward_ms * 1000),
            delivery_rate: 1_000_000,
            congestion_window: 100_000,
            queued,
            max_datagram_size: 1000,
            ..PathView::new(id)
        }
    }

    fn view(paths: &[PathView]) -> SendView<'_> {
        let mut view = fresh(paths);
        view.unit.bytes = 1000;
        view
    }

    fn etas(paths: &[PathView]) -> Vec<u64> {
        let view = view(paths);
        let delays = Delays::of(&view);
        let eta = |path: &PathView| eta(&view, &delays, path) / 1_000_000;
        paths.iter().map(eta).collect()
    }

    #[test]
    fn the_sum_of_delay_and_queue_decides() {
        let light = [path(0, 10, 0), path(1, 30, 0)];
        assert_eq!(etas(&light), [11, 31]);
        let heavy = [path(0, 10, 25_000), path(1, 30, 0)];
        assert_eq!(etas(&heavy), [36, 31]);
        let mut edpf = built("edpf-like");
        assert_eq!(edpf.select(&view(&light)), send(0, Reason::EarliestArrival));
        assert_eq!(edpf.select(&view(&heavy)), send(1, Reason::EarliestArrival));
    }

    #[test]
    fn what_stands_in_the_network_counts_and_what_travels_does_not() {
        let travelling = PathView {
            bytes_in_flight: 20_000,
            ..path(0, 10, 0)
        };
        let standing = PathView {
            bytes_in_flight: 50_000,
            ..travelling
        };
        assert_eq!(etas(&[travelling, path(1, 30, 0)]), [11, 31]);
        assert_eq!(etas(&[standing, path(1, 30, 0)]), [41, 31]);
    }

    #[test]
    fn a_full_path_that_still_delivers_first_is_waited_for() {
        let full = PathView {
            congestion_window: 10_000,
            bytes_in_flight: 10_000,
            ..path(0, 10, 0)
        };
        let paths = [full, path(1, 30, 0)];
        let mut edpf = built("edpf-like");
        let choice = edpf.select(&view(&paths));
        assert_eq!(choice, Choice::hold_until(at(20), Reason::WaitForBetter));
        let mut later = view(&paths);
        later.now = at(20);
        assert_eq!(edpf.select(&later), send(1, Reason::Spill));
    }

    #[test]
    fn a_path_is_kept_until_another_is_better_by_a_margin() {
        let mut edpf = built("edpf-like");
        let mut ask = |queue| {
            edpf.select(&view(&[path(0, 10, queue), path(1, 10, 0)]))
                .decision
        };
        assert_eq!(ask(0), Decision::Send(PathId(0)));
        assert_eq!(ask(1000), Decision::Send(PathId(0)));
        assert_eq!(ask(2000), Decision::Send(PathId(1)));
    }

    #[test]
    fn a_path_that_stood_by_for_long_under_load_carries_a_copy() {
        let open = PathView {
            congestion_window: 10_000,
            ..path(0, 10, 0)
        };
        let full = PathView {
            bytes_in_flight: 10_000,
            ..open
        };
        let slow = PathView {
            delivery_rate: 10,
            ..path(1, 30, 0)
        };
        let mut edpf = built("edpf-like:probe=3");
        let mut ask = |first| edpf.select(&view(&[first, slow]));
        for _ in 0..9 {
            assert_eq!(ask(open), send(0, Reason::EarliestArrival), "light load");
        }
        assert_eq!(ask(full).reason, Reason::WaitForBetter);
        let both = PathSet::from_iter([PathId(0), PathId(1)]);
        assert_eq!(ask(open).decision, Decision::Duplicate(both));
        assert_eq!(ask(full).reason, Reason::WaitForBetter);
        for _ in 0..3 {
            assert_eq!(ask(open), send(0, Reason::EarliestArrival));
        }
        assert_eq!(ask(open).decision, Decision::Duplicate(both));
    }
}
