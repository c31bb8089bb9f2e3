//! Affinity: each flow and each stream has its path, so that nothing inside it is reordered.
//!
//! A new flow gets the path that promises it most: the rate of the path, shared with the flows that
//! are there already. It moves when its path stops being an option, and after a pause longer than
//! the paths' delays differ (a flowlet: what was sent before has arrived when the rest takes the
//! other path), if another path promises clearly more. One flow is never faster than one path.
//! A path that becomes a backup is left, as whoever declared it so wants; picoquic, whose streams
//! are tied to paths by the application, lets them stay (`keep-backup`).
//! Units that belong to no flow go by the lowest RTT.

use crate::catalogue::flow_table::{FlowTable, Key, Pin};
use crate::toolkit::units::{NANOS, micros, passed};
use crate::toolkit::{Patience, PerPath, delivered_rate};
use anabranch_proto::path::PathState;
use anabranch_proto::sched::{
    Choice, Decision, Entry, ParamDoc, PathEvent, PathView, Reason, Scheduler, SendView, UnitKind,
    Wants, lowest_rtt,
};
use anabranch_proto::spec::{Params, SpecError};
use anabranch_proto::time::{Duration, Instant};
use anabranch_proto::wire::PathId;

pub(crate) const ENTRY: Entry = Entry {
    name: "affinity",
    summary: "each flow and stream stays on its path; new ones go where they get most",
    params: &[
        ParamDoc {
            key: "flowlets",
            default: "true",
            summary: "after a pause that rules reordering out, a flow may move to a better path",
        },
        ParamDoc {
            key: "keep-backup",
            default: "false",
            summary: "a stream stays on its path when that becomes a backup",
        },
    ],
    build: |params| Ok(Box::new(Affinity::from_params(params)?)),
};

/// A flow moves only for this many quarters of what it has.
const WORTH_MOVING: u64 = 5;

/// How often flows per path are counted anew.
const RECOUNT: u64 = NANOS;

/// Keeps flows on their paths.
#[derive(Debug)]
pub(crate) struct Affinity {
    flowlets: bool,
    /// Streams keep a path that became a backup, as picoquic's do.
    keep_backup: bool,
    table: FlowTable,
    flows: PerPath<Flows>,
    patience: Patience,
}

/// Flows that were active on a path: in the last whole second, and in this one.
#[derive(Debug, Clone, Copy)]
struct Flows {
    since: Instant,
    before: u64,
    now: u64,
}

impl Flows {
    fn new(now: Instant) -> Self {
        Self {
            since: now,
            before: 0,
            now: 0,
        }
    }

    fn count(&self) -> u64 {
        self.before.max(self.now)
    }
}

impl Affinity {
    fn from_params(params: &mut Params) -> Result<Self, SpecError> {
        Ok(Self {
            flowlets: params.take("flowlets", true)?,
            keep_backup: params.flag("keep-backup")?,
            table: FlowTable::default(),
            flows: PerPath::default(),
            patience: Patience::default(),
        })
    }

    fn recount(&mut self, view: &SendView<'_>) {
        for (_, flows) in self.flows.iter_mut() {
            if passed(flows.since, view.now) >= RECOUNT {
                (flows.before, flows.now) = (flows.now, 0);
                flows.since = view.now;
            }
        }
    }

    /// What one more flow would get on `path`; one that is there counts itself once.
    fn promise(&self, path: &PathView, is_there: bool) -> u64 {
        let flows = self.flows.get(path.id).map_or(0, Flows::count);
        match flows.saturating_sub(u64::from(is_there)) {
            0 => delivered_rate(path),
            others => delivered_rate(path) / (others + 1),
        }
    }

    /// The path that promises most to a flow, which may be `there` already.
    fn best<'a>(&self, view: &SendView<'a>, there: Option<PathId>) -> Option<(u64, &'a PathView)> {
        let mut best: Option<(u64, &PathView)> = None;
        for path in view.candidates() {
            let most = best.map(|(most, _)| most);
            // No path promises more than its rate, so most of them need no closer look.
            if most.is_some_and(|most| delivered_rate(path) <= most) {
                continue;
            }
            let promised = self.promise(path, there == Some(path.id));
            if most.is_none_or(|most| promised > most) {
                best = Some((promised, path));
            }
        }
        best
    }

    /// The path of a flow that sends now and has this pin, if any. One that is `kept` may have
    /// become a backup. The path of new flows is the same for all until one sends: it is kept in
    /// `new`.
    fn path_of<'a>(
        &self,
        view: &SendView<'a>,
        pin: Option<Pin>,
        kept: bool,
        new: &mut Option<&'a PathView>,
    ) -> Option<&'a PathView> {
        let Some(pin) = pin else {
            *new = new.or_else(|| Some(self.best(view, None)?.1));
            return *new;
        };
        let backup = || {
            view.path(pin.path)
                .filter(|path| kept && path.state == PathState::Active)
        };
        let path = view.candidates().find(|path| path.id == pin.path);
        let Some(path) = path.or_else(backup) else {
            return Some(self.best(view, Some(pin.path))?.1);
        };
        if !self.flowlets || !is_pause(view, view.now.since(pin.used)) {
            return Some(path);
        }
        let (most, other) = self.best(view, Some(pin.path))?;
        let worth = most / WORTH_MOVING > self.promise(path, true) / 4;
        Some(if worth { other } else { path })
    }

    /// Notes that `key`, whose pin is where it was found, sends on `path`.
    fn touch(&mut self, view: &SendView<'_>, key: Key, found: Option<(usize, Pin)>, path: PathId) {
        let flows = self.flows.entry(view, path, || Flows::new(view.now));
        let counted = found.is_some_and(|(_, pin)| pin.path == path && pin.used >= flows.since);
        if !counted {
            flows.now += 1;
        }
        match found {
            Some((at, _)) => self.table.renew(at, path, view.now),
            None => self.table.pin(key, path, view.now),
        }
    }

    fn streams(&mut self, view: &SendView<'_>) -> Choice {
        let mut first = None;
        let mut new = None;
        for (at, stream) in view.streams.iter().enumerate() {
            let key = Key::stream(stream.id);
            let found = self.table.find(key);
            let pin = found.map(|(_, pin)| pin);
            let Some(path) = self.path_of(view, pin, self.keep_backup, &mut new) else {
                break;
            };
            first = first.or(Some(path));
            if !path.can_send(view.now) {
                continue;
            }
            self.touch(view, key, found, path.id);
            self.patience.end();
            let (path, stream) = (path.id, stream.id);
            let decision = match at {
                0 => Decision::Send(path),
                _ => Decision::SendStream { path, stream },
            };
            return Choice {
                decision,
                reason: Reason::Affinity,
            };
        }
        self.wait(view, first)
    }

    fn flow(&mut self, view: &SendView<'_>, key: Key) -> Choice {
        let found = self.table.find(key);
        let path = self.path_of(view, found.map(|(_, pin)| pin), false, &mut None);
        if let Some(path) = path.filter(|path| path.can_send(view.now)) {
            self.touch(view, key, found, path.id);
            self.patience.end();
            return Choice::send(path.id, Reason::Affinity);
        }
        self.wait(view, path)
    }

    fn wait(&mut self, view: &SendView<'_>, path: Option<&PathView>) -> Choice {
        match path {
            Some(path) if view.ready().next().is_some() => {
                self.patience.wait_for(view, path, Reason::Affinity)
            }
            _ => view.no_room(),
        }
    }
}

/// Whether everything that was sent so long ago has arrived, by whatever path.
fn is_pause(view: &SendView<'_>, pause: Duration) -> bool {
    let pause = micros(pause);
    // First, as it answers for most packets of a flow that is not interrupted.
    if view
        .candidates()
        .any(|path| 4 * micros(path.rttvar) >= pause)
    {
        return false;
    }
    let spread = |delays: (Option<i64>, Option<i64>)| match delays {
        (Some(least), Some(most)) => most.saturating_sub(least),
        _ => 0,
    };
    let forward = |path: &PathView| path.forward_delay_us;
    let half = |path: &PathView| Some((micros(path.smoothed_rtt) / 2) as i64);
    let all = |delay: &dyn Fn(&PathView) -> Option<i64>| {
        let least = view.candidates().filter_map(delay).min();
        spread((least, view.candidates().filter_map(delay).max()))
    };
    let measured = view
        .candidates()
        .all(|path| path.forward_delay_us.is_some());
    let difference = if measured { all(&forward) } else { all(&half) };
    pause > difference.unsigned_abs().into()
}

impl Scheduler for Affinity {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        self.table.sweep(view.now, |_| false);
        self.recount(view);
        match view.unit.kind {
            UnitKind::Fresh if !view.streams.is_empty() => self.streams(view),
            UnitKind::Datagram => match Key::flow(view.unit.flow) {
                Some(key) => self.flow(view, key),
                None => lowest_rtt(view),
            },
            _ => lowest_rtt(view),
        }
    }

    fn on_event(&mut self, event: &PathEvent) {
        self.table.on_event(event);
        if let PathEvent::Abandoned { path } | PathEvent::Doubted { path } = event {
            self.flows.remove(*path);
        }
        self.patience.on_event(event);
    }

    fn wants(&self) -> Wants {
        Wants {
            streams: true,
            ..Wants::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{at, built, fresh, full, send};
    use anabranch_proto::sched::StreamView;
    use anabranch_proto::wire::StreamId;
    use anabranch_proto::wire::frame::PathStatus;

    fn path(id: u32) -> PathView {
        PathView {
            smoothed_rtt: Duration::from_millis(40),
            rttvar: Duration::from_millis(1),
            ..PathView::new(id)
        }
    }

    fn flow(scheduler: &mut dyn Scheduler, paths: &[PathView], flow: u64, ms: u64) -> Choice {
        let mut view = fresh(paths);
        view.now = at(ms);
        view.unit.kind = UnitKind::Datagram;
        view.unit.flow = flow;
        scheduler.select(&view)
    }

    fn goes(scheduler: &mut dyn Scheduler, paths: &[PathView], number: u64, ms: u64) -> u32 {
        match flow(scheduler, paths, number, ms) {
            Choice {
                decision: Decision::Send(id),
                reason: Reason::Affinity,
            } => id.0,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn two_flows_share_two_equal_paths_and_survive_one() {
        let mut scheduler = built("affinity:flowlets=false");
        let both = [path(0), path(1)];
        let mut ask = |paths: &[PathView], number, ms| goes(&mut *scheduler, paths, number, ms);
        assert_eq!([ask(&both, 7, 1), ask(&both, 8, 2)], [0, 1]);
        assert_eq!([ask(&both, 7, 3), ask(&both, 8, 4)], [0, 1]);
        let silent = PathView {
            state: PathState::Doubtful,
            ..path(0)
        };
        let one = [silent, path(1)];
        assert_eq!([ask(&one, 7, 5), ask(&one, 8, 6)], [1, 1]);
        assert_eq!(
            [ask(&both, 7, 1100), ask(&both, 8, 1101)],
            [1, 1],
            "they stay"
        );
        assert_eq!(
            ask(&both, 9, 1102),
            0,
            "new flows take the path that came back"
        );
    }

    #[test]
    fn a_flow_waits_for_its_path_and_others_do_not() {
        let mut scheduler = built("affinity");
        let both = [path(0), path(1)];
        assert_eq!(goes(&mut *scheduler, &both, 7, 1), 0);
        assert_eq!(goes(&mut *scheduler, &both, 8, 1), 1);
        let busy = PathView {
            bytes_in_flight: 12_000,
            ..path(0)
        };
        let choice = flow(&mut *scheduler, &[busy, path(1)], 7, 2);
        assert!(matches!(choice.decision, Decision::Hold { until: Some(_) }));
        assert_eq!(goes(&mut *scheduler, &[busy, path(1)], 8, 2), 1);
    }

    #[test]
    fn a_pause_longer_than_the_delays_differ_lets_a_flow_move() {
        let slow = |id, rate| PathView {
            delivery_rate: rate,
            ..path(id)
        };
        let far = |rate| PathView {
            smoothed_rtt: Duration::from_millis(100),
            ..slow(1, rate)
        };
        let before = [slow(0, 1000), far(500)];
        let after = [slow(0, 1000), far(1300)];
        let mut scheduler = built("affinity");
        assert_eq!(goes(&mut *scheduler, &before, 7, 0), 0);
        assert_eq!(
            goes(&mut *scheduler, &after, 7, 30),
            0,
            "30 ms is the difference"
        );
        assert_eq!(goes(&mut *scheduler, &after, 7, 61), 1, "31 ms is more");
        let mut stays = built("affinity:flowlets=false");
        assert_eq!(goes(&mut *stays, &before, 7, 0), 0);
        assert_eq!(goes(&mut *stays, &after, 7, 500), 0);
    }

    #[test]
    fn streams_keep_their_paths() {
        let mut scheduler = built("affinity");
        assert!(scheduler.wants().streams);
        let stream = |id| StreamView {
            id: StreamId(id),
            priority: 0,
            class: 0,
            unsent: 10_000,
            finished: false,
        };
        let mut ask = |paths: &[PathView], ids: &[u64]| {
            let streams: Vec<StreamView> = ids.iter().map(|id| stream(*id)).collect();
            let mut view = fresh(paths);
            view.streams = &streams;
            scheduler.select(&view)
        };
        let both = [path(0), path(1)];
        assert_eq!(ask(&both, &[0]), send(0, Reason::Affinity));
        assert_eq!(ask(&both, &[4]), send(1, Reason::Affinity));
        let busy = PathView {
            smoothed_rtt: Duration::from_millis(40),
            ..full(0)
        };
        let other = Choice {
            decision: Decision::SendStream {
                path: PathId(1),
                stream: StreamId(4),
            },
            reason: Reason::Affinity,
        };
        assert_eq!(ask(&[busy, path(1)], &[0, 4]), other);
        let waiting = ask(&[busy, path(1)], &[0]);
        assert_eq!(waiting, Choice::hold_until(at(40), Reason::Affinity));
    }

    #[test]
    fn a_stream_leaves_its_path_to_be_a_backup_unless_told_to_stay() {
        let streams = [StreamView {
            id: StreamId(0),
            priority: 0,
            class: 0,
            unsent: 10_000,
            finished: false,
        }];
        for (text, expected) in [("affinity", 1), ("affinity:keep-backup=true", 0)] {
            let mut scheduler = built(text);
            let mut ask = |paths: &[PathView]| {
                let mut view = fresh(paths);
                view.streams = &streams;
                scheduler.select(&view)
            };
            assert_eq!(ask(&[path(0), path(1)]), send(0, Reason::Affinity));
            let backup = PathView {
                status: PathStatus::Backup,
                ..path(0)
            };
            assert_eq!(
                ask(&[backup, path(1)]),
                send(expected, Reason::Affinity),
                "{text}"
            );
            let silent = PathView {
                state: PathState::Doubtful,
                ..backup
            };
            assert_eq!(ask(&[silent, path(1)]), send(1, Reason::Affinity), "{text}");
        }
    }

    #[test]
    fn what_belongs_to_no_flow_goes_by_rtt() {
        let choice = flow(&mut *built("affinity"), &[path(0), path(1)], 0, 0);
        assert_eq!(choice, send(0, Reason::LowestRtt));
    }
}
