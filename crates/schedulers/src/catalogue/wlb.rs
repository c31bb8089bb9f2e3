//! WLB, weighted load balancing for tunnels: flows of datagrams stay on a path, chosen in
//! proportion to what each path is expected to deliver ([LATE](super::late)).
//!
//! The `wlb` scheduler of mp0rta's xquic. A packet whose path is full goes elsewhere and its flow
//! keeps the path. What belongs to no flow (streams, unnamed datagrams) goes by lowest RTT.
//! Deviations: shares keep their fractions (the original's whole numbers make 3.9:1 into 3:1), a
//! flow is found by its whole name and not by a hash that others may share, and new pins are
//! limited per second.

use crate::catalogue::flow_table::{FlowTable, Key};
use crate::catalogue::late;
use crate::toolkit::PerPath;
use anabranch_proto::sched::{
    Choice, Entry, ParamDoc, PathEvent, PathView, Reason, Scheduler, SendView, UnitKind, lowest_rtt,
};
use anabranch_proto::spec::{Params, SpecError};
use anabranch_proto::time::{Duration, Instant};
use anabranch_proto::wire::PathId;

pub(crate) const ENTRY: Entry = Entry {
    name: "wlb",
    summary: "flows of datagrams stay on a path, shared by expected throughput",
    params: &[ParamDoc {
        key: "max-rtt-ms",
        default: "50",
        summary: "longest RTT to plan for while none was measured",
    }],
    build: |params| Ok(Box::new(Wlb::from_params(params)?)),
};

/// Flows leave paths that lose at least this share.
const LOSS_MAX: f32 = 0.02;
/// Time-outs in a row after which a flow leaves its path.
const PTO_MAX: u32 = 3;
/// After a path came back, flows are spread and not pinned for this long.
const GRACE: Duration = Duration::from_secs(1);

/// Balances flows.
#[derive(Debug)]
pub(crate) struct Wlb {
    longest: Duration,
    table: FlowTable,
    /// Packets a path may still send in this cycle.
    owed: PerPath<f64>,
    /// A path came back: the pins are void.
    recovered: bool,
    grace_until: Instant,
}

impl Wlb {
    fn from_params(params: &mut Params) -> Result<Self, SpecError> {
        let longest = params.take_in("max-rtt-ms", 50, 1..=60_000)?;
        Ok(Self {
            longest: Duration::from_millis(longest),
            table: FlowTable::default(),
            owed: PerPath::default(),
            recovered: false,
            grace_until: Instant::ZERO,
        })
    }

    fn owed(&self, path: PathId) -> f64 {
        self.owed.get(path).copied().unwrap_or(0.0)
    }

    /// Begins a new cycle if none of `paths` is owed anything: each is owed what it is expected to
    /// deliver, as a multiple of the least.
    fn renew(&mut self, view: &SendView<'_>, only_ready: bool) {
        let is_meant = |path: &&PathView| !only_ready || path.can_send(view.now);
        let mut paths = view.candidates().filter(is_meant);
        if paths.any(|path| self.owed(path.id) > 0.0) {
            return;
        }
        let longest = view.candidates().map(|path| path.smoothed_rtt).max();
        let longest = longest.filter(|rtt| !rtt.is_zero()).unwrap_or(self.longest);
        let weight = |path: &PathView| late::packets(path, longest).max(1e-3);
        let least = view.candidates().map(weight).fold(f64::INFINITY, f64::min);
        for path in view.candidates() {
            let share = weight(path) / least;
            let owed = self.owed.entry(view, path.id, || 0.0);
            // What is left from the last cycle does not pile up while a path is full.
            *owed = (*owed + share).min(2.0 * share);
        }
    }

    /// The path that is owed most of those that can send, or of all.
    fn most_owed<'a>(&mut self, view: &SendView<'a>, only_ready: bool) -> Option<&'a PathView> {
        self.renew(view, only_ready);
        let mut most: Option<(f64, &PathView)> = None;
        for path in view.candidates() {
            if only_ready && !path.can_send(view.now) {
                continue;
            }
            let owed = self.owed(path.id);
            if most.is_none_or(|(best, _)| owed > best) {
                most = Some((owed, path));
            }
        }
        most.map(|(_, path)| path)
    }

    fn spread(&mut self, view: &SendView<'_>) -> Choice {
        let Some(path) = self.most_owed(view, true) else {
            return view.no_room();
        };
        if let Some(owed) = self.owed.get_mut(path.id) {
            *owed -= 1.0;
        }
        Choice::send(path.id, Reason::Weight)
    }

    fn flow(&mut self, view: &SendView<'_>, key: Key) -> Choice {
        let pinned = self.table.get_mut(key).map(|pin| {
            pin.used = view.now;
            pin.path
        });
        let path = pinned.and_then(|id| view.candidates().find(|path| path.id == id));
        match path {
            Some(path) if path.pto_count < PTO_MAX => {
                if path.can_send(view.now) {
                    return Choice::send(path.id, Reason::Affinity);
                }
                return self.spread(view);
            }
            _ => self.table.unpin(key),
        }
        let may_pin = view.candidates().nth(1).is_some() && view.now >= self.grace_until;
        if may_pin && let Some(home) = self.most_owed(view, false) {
            self.table.pin(key, home.id, view.now);
            if home.can_send(view.now) {
                if let Some(owed) = self.owed.get_mut(home.id) {
                    *owed -= 1.0;
                }
                return Choice::send(home.id, Reason::Affinity);
            }
        }
        self.spread(view)
    }
}

impl Scheduler for Wlb {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        if std::mem::take(&mut self.recovered) {
            self.table.clear();
            self.grace_until = view.now + GRACE;
        }
        self.table.sweep(view.now, |pin| {
            let path = view.path(pin.path);
            path.is_none_or(|path| path.loss >= LOSS_MAX)
        });
        match (view.unit.kind, Key::flow(view.unit.flow)) {
            (UnitKind::Datagram, Some(key)) => self.flow(view, key),
            _ => lowest_rtt(view),
        }
    }

    fn on_event(&mut self, event: &PathEvent) {
        self.table.on_event(event);
        self.owed.on_event(event);
        self.recovered |= matches!(event, PathEvent::Recovered { .. });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{at, built, fresh, send};
    use anabranch_proto::path::PathState;
    use anabranch_proto::sched::Decision;

    /// A fast path of 40 packets and a slow one of 20: six to one by expectation.
    fn paths() -> [PathView; 2] {
        let path = |id, rtt, window: u64| PathView {
            smoothed_rtt: Duration::from_millis(rtt),
            congestion_window: window * 1200,
            ..PathView::new(id)
        };
        [path(0, 20, 40), path(1, 60, 20)]
    }

    fn ask(wlb: &mut dyn Scheduler, paths: &[PathView], flow: u64, ms: u64) -> Choice {
        let mut view = fresh(paths);
        view.now = at(ms);
        view.unit.kind = UnitKind::Datagram;
        view.unit.flow = flow;
        wlb.select(&view)
    }

    fn path_of(wlb: &mut dyn Scheduler, paths: &[PathView], flow: u64, ms: u64) -> u32 {
        match ask(wlb, paths, flow, ms).decision {
            Decision::Send(id) => id.0,
            other => panic!("{other:?}"),
        }
    }

    fn full(path: PathView) -> PathView {
        PathView {
            bytes_in_flight: path.congestion_window,
            ..path
        }
    }

    #[test]
    fn flows_are_spread_by_expected_throughput_and_then_stay() {
        let mut wlb = built("wlb");
        let homes: Vec<u32> = (1..=14)
            .map(|flow| path_of(&mut *wlb, &paths(), flow, 1))
            .collect();
        assert_eq!(homes, [0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1]);
        for (flow, home) in (1..=14).zip(&homes) {
            assert_eq!(path_of(&mut *wlb, &paths(), flow, 2), *home);
        }
    }

    #[test]
    fn packets_without_a_pin_are_spread_in_proportion() {
        let mut wlb = built("wlb");
        wlb.on_event(&PathEvent::Recovered { path: PathId(1) });
        let sent: Vec<u32> = (0..7).map(|_| path_of(&mut *wlb, &paths(), 5, 1)).collect();
        assert_eq!(sent, [0, 0, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn fractions_of_shares_are_kept() {
        let mut wlb = built("wlb");
        wlb.on_event(&PathEvent::Recovered { path: PathId(1) });
        // 39 packets to 10 in the same time.
        let path = |id, window: u64| PathView {
            smoothed_rtt: Duration::from_millis(50),
            congestion_window: window * 1200,
            ..PathView::new(id)
        };
        let paths = [path(0, 39), path(1, 10)];
        let mut sent = [0; 2];
        for _ in 0..490 {
            sent[path_of(&mut *wlb, &paths, 5, 1) as usize] += 1;
        }
        assert!((385..=395).contains(&sent[0]), "{sent:?}");
    }

    #[test]
    fn a_full_path_lends_a_packet_and_keeps_its_flow() {
        let mut wlb = built("wlb");
        let [fast, slow] = paths();
        assert_eq!(ask(&mut *wlb, &paths(), 9, 1), send(0, Reason::Affinity));
        assert_eq!(
            ask(&mut *wlb, &[full(fast), slow], 9, 2),
            send(1, Reason::Weight)
        );
        assert_eq!(ask(&mut *wlb, &paths(), 9, 3), send(0, Reason::Affinity));
    }

    #[test]
    fn a_failing_path_loses_its_flows() {
        let mut wlb = built("wlb");
        let [fast, slow] = paths();
        assert_eq!(path_of(&mut *wlb, &paths(), 9, 1), 0);
        let failing = PathView {
            pto_count: 3,
            ..full(fast)
        };
        path_of(&mut *wlb, &[failing, slow], 9, 2);
        let silent = PathView {
            state: PathState::Doubtful,
            ..fast
        };
        assert_eq!(path_of(&mut *wlb, &[silent, slow], 9, 3), 1);
        let mut wlb = built("wlb");
        assert_eq!(path_of(&mut *wlb, &paths(), 9, 1), 0);
        let lossy = PathView { loss: 0.02, ..fast };
        let (mut on_slow, asked) = (0, 2000);
        for flow in 0..asked {
            on_slow += path_of(&mut *wlb, &[lossy, slow], 100 + flow, 1500);
        }
        assert!(on_slow > 0);
    }

    #[test]
    fn a_single_path_pins_nothing_and_a_returned_one_voids_the_pins() {
        let mut wlb = Wlb::from_params(&mut Params::default()).unwrap();
        let [fast, slow] = paths();
        ask(&mut wlb, &[fast], 9, 1);
        assert_eq!(wlb.table.len(), 0);
        ask(&mut wlb, &paths(), 9, 2);
        assert_eq!(wlb.table.len(), 1);
        wlb.on_event(&PathEvent::Recovered { path: slow.id });
        ask(&mut wlb, &paths(), 9, 3);
        assert_eq!(wlb.table.len(), 0);
        ask(&mut wlb, &paths(), 9, 1002);
        assert_eq!(wlb.table.len(), 0, "a second has not passed");
        ask(&mut wlb, &paths(), 9, 1003);
        assert_eq!(wlb.table.len(), 1);
    }

    #[test]
    fn streams_go_by_rtt() {
        let choice = built("wlb").select(&fresh(&paths()));
        assert_eq!(choice, send(0, Reason::LowestRtt));
    }
}
