//! Delay-aware packet scheduling: a plan over the least common multiple of the forward delays.
//!
//! After Kuhn et al. (ICC 2014) and its public kernel module. Time is cut into ticks; every path
//! gets, each time its forward delay has passed, as many consecutive packets as its window holds.
//! Data planned for a full path is left to it ([`Booked`]); other paths send what
//! is planned for them behind it. The plan is made anew at its end, after a loss, and when a path
//! comes or goes. It trusts its estimates for a whole plan, which is its weakness.

use crate::catalogue::delivery_delay::least_delay;
use crate::toolkit::units::packet;
use crate::toolkit::{Booked, Delays};
use anabranch_proto::path::MAX_OPEN_PATHS;
use anabranch_proto::sched::{Choice, Entry, PathEvent, PathView, Scheduler, SendView, UnitKind};
use anabranch_proto::time::Instant;
use anabranch_proto::wire::PathId;
use smallvec::SmallVec;

pub(crate) const ENTRY: Entry = Entry {
    name: "daps",
    summary: "a plan over the common multiple of the forward delays, for arrival in order",
    params: &[],
    build: |_| Ok(Box::new(DelayAware::default())),
};

/// A tick in nanoseconds, as in the kernel module; longer if the plan would be.
const TICK: u64 = 4_000_000;
/// The most ticks of a plan.
const TICKS: u64 = 1000;

/// Sends by a plan over the common multiple of delays.
#[derive(Debug, Default)]
pub(crate) struct DelayAware {
    plan: Plan,
    windows: SmallVec<[Window; MAX_OPEN_PATHS]>,
    booked: Booked,
}

/// Whose turn it is, tick by tick.
#[derive(Debug, Default)]
struct Plan {
    /// In ascending order of delay.
    lanes: SmallVec<[Lane; MAX_OPEN_PATHS]>,
    end: u64,
    tick: u64,
    /// The next lane to look at in this tick.
    at: usize,
    paths: u64,
}

#[derive(Debug, Clone, Copy)]
struct Lane {
    path: PathId,
    period: u64,
    /// Bytes per turn.
    turn: u64,
    delay: u64,
}

/// The congestion window of a path, an average of one sample per RTT.
#[derive(Debug, Clone, Copy)]
struct Window {
    path: PathId,
    bytes: u64,
    sampled: Instant,
}

impl Plan {
    /// Sets the periods of the lanes in ticks of their delays, and the end of the plan.
    fn fit(&mut self) {
        self.lanes
            .sort_unstable_by_key(|lane| (lane.delay, lane.path));
        let mut tick = TICK;
        loop {
            for lane in &mut self.lanes {
                lane.period = (lane.delay.saturating_add(tick / 2) / tick).max(1);
            }
            if let Some(end) = common_multiple(&self.lanes) {
                (self.end, self.tick, self.at) = (end, 0, self.lanes.len());
                return;
            }
            tick *= 2;
        }
    }

    /// The next turn; `None` at the end of the plan.
    fn next_turn(&mut self) -> Option<Lane> {
        loop {
            while let Some(lane) = self.lanes.get(self.at) {
                self.at += 1;
                if self.tick.is_multiple_of(lane.period) {
                    return Some(*lane);
                }
            }
            let next = |lane: &Lane| (self.tick / lane.period + 1) * lane.period;
            self.tick = self.lanes.iter().map(next).min()?;
            self.at = 0;
            if self.tick > self.end {
                self.lanes.clear();
                return None;
            }
        }
    }
}

/// The least common multiple of all periods, if a plan can be that long.
fn common_multiple(lanes: &[Lane]) -> Option<u64> {
    lanes.iter().try_fold(1, |multiple: u64, lane| {
        let multiple =
            multiple / common_divisor(multiple, lane.period) * lane.period.min(TICKS + 1);
        (multiple <= TICKS).then_some(multiple)
    })
}

fn common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

/// What a plan rests on: which paths there are.
fn fingerprint(view: &SendView<'_>, delays: &Delays) -> u64 {
    let known = view
        .candidates()
        .filter(|path| delays.forward(path).is_some());
    known.fold(0, |mark: u64, path| {
        mark.rotate_left(7).wrapping_mul(31) ^ u64::from(path.id.0).wrapping_add(1)
    })
}

impl DelayAware {
    fn build(&mut self, view: &SendView<'_>, delays: &Delays) {
        self.booked.clear();
        self.renew(view, delays);
    }

    /// A new plan that goes on where the last one ended.
    fn renew(&mut self, view: &SendView<'_>, delays: &Delays) {
        self.plan.lanes.clear();
        self.plan.paths = fingerprint(view, delays);
        for path in view.candidates().take(MAX_OPEN_PATHS) {
            let Some(delay) = delays.forward(path) else {
                continue;
            };
            let window = self.window(path.id).unwrap_or(path.congestion_window);
            let whole = window - window % packet(path);
            self.plan.lanes.push(Lane {
                path: path.id,
                period: 1,
                turn: whole.max(packet(path)),
                delay,
            });
        }
        self.plan.fit();
    }

    fn window(&self, path: PathId) -> Option<u64> {
        let entry = self.windows.iter().find(|window| window.path == path)?;
        Some(entry.bytes)
    }

    /// Averages windows: an eighth of the way per RTT.
    fn note_windows(&mut self, view: &SendView<'_>) {
        for path in view.paths {
            let known = self
                .windows
                .iter_mut()
                .find(|window| window.path == path.id);
            if let Some(window) = known {
                if view.now.since(window.sampled) >= path.smoothed_rtt {
                    window.sampled = view.now;
                    window.bytes = window.bytes - window.bytes / 8 + path.congestion_window / 8;
                }
                continue;
            }
            if self.windows.len() == MAX_OPEN_PATHS {
                self.windows
                    .retain(|window| view.path(window.path).is_some());
            }
            self.windows.push(Window {
                path: path.id,
                bytes: path.congestion_window,
                sampled: view.now,
            });
        }
    }

    /// Plans on until something is planned for a path that can send.
    fn plan_on(&mut self, view: &SendView<'_>, delays: &Delays) {
        let ends = self
            .plan
            .end
            .saturating_mul(2)
            .saturating_mul(MAX_OPEN_PATHS as u64);
        for _ in 0..ends {
            let Some(lane) = self.plan.next_turn() else {
                self.renew(view, delays);
                if self.plan.lanes.is_empty() {
                    return;
                }
                continue;
            };
            // A path that is full for long does not hoard more than one plan gives it.
            let share = lane.turn.saturating_mul(self.plan.end / lane.period);
            if self.booked.of(lane.path).saturating_add(lane.turn) <= share {
                self.booked.push(lane.path, lane.turn);
            }
            if view
                .path(lane.path)
                .is_some_and(|path| path.can_send(view.now))
            {
                return;
            }
        }
    }
}

impl Scheduler for DelayAware {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        let delays = Delays::of(view);
        let known = |path: &&PathView| delays.forward(path).is_some();
        if view.unit.kind != UnitKind::Fresh || view.ready().find(known).is_none() {
            return least_delay(view, &delays);
        }
        self.note_windows(view);
        if self.plan.paths != fingerprint(view, &delays) || self.plan.lanes.is_empty() {
            self.build(view, &delays);
        }
        // A turn ends where the data does: what was bound before a pause is gone.
        self.booked.truncate(view.backlog.unsent);
        if let Some(choice) = self.booked.serve(view) {
            return choice;
        }
        self.plan_on(view, &delays);
        if let Some(choice) = self.booked.serve(view) {
            return choice;
        }
        least_delay(view, &delays)
    }

    fn on_event(&mut self, event: &PathEvent) {
        match *event {
            PathEvent::Doubted { path } | PathEvent::Abandoned { path } => {
                self.windows.retain(|window| window.path != path);
                self.plan.lanes.clear();
            }
            PathEvent::Lost { .. } => self.plan.lanes.clear(),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{fresh, full};
    use crate::toolkit::units::FOREVER;
    use anabranch_proto::sched::{Decision, PathView};
    use anabranch_proto::time::Duration;
    use proptest::prelude::*;

    fn path(id: u32, forward_ms: u64, window: u64) -> PathView {
        PathView {
            smoothed_rtt: Duration::from_millis(2 * forward_ms),
            congestion_window: window * 1000,
            max_datagram_size: 1000,
            ..PathView::new(id)
        }
    }

    fn stuffed(path: PathView) -> PathView {
        PathView {
            bytes_in_flight: path.congestion_window,
            ..path
        }
    }

    /// Where `count` packets go while nothing fills up.
    fn order(daps: &mut DelayAware, paths: &[PathView], count: usize) -> Vec<(u32, u64)> {
        let next = |_| match daps.select(&fresh(paths)).decision {
            Decision::Send(path) => (path.0, 0),
            Decision::SendAt { path, skip } => (path.0, skip / 1000),
            other => panic!("a path is open: {other:?}"),
        };
        (0..count).map(next).collect()
    }

    #[test]
    fn each_path_gets_its_window_once_per_delay() {
        let paths = [path(0, 20, 4), path(1, 80, 2)];
        let answers = order(&mut DelayAware::default(), &paths, 36);
        let turns: Vec<u32> = answers.iter().map(|(path, _)| *path).collect();
        let plan = [vec![0; 16], vec![1; 2]].concat();
        assert_eq!(turns, [plan.clone(), plan].concat());
        assert!(answers.iter().all(|(_, skip)| *skip == 0));
    }

    #[test]
    fn a_plan_does_not_outlive_its_data() {
        let mut daps = DelayAware::default();
        let paths = [stuffed(path(0, 20, 4)), path(1, 80, 2)];
        order(&mut daps, &paths, 2);
        assert!(daps.booked.total() > 3000);
        let open = [path(0, 20, 4), stuffed(path(1, 80, 2))];
        let mut view = fresh(&open);
        view.backlog.unsent = 3000;
        assert_eq!(daps.select(&view).decision, Decision::Send(PathId(0)));
        assert!(daps.booked.total() < 3000);
    }

    #[test]
    fn data_planned_for_a_full_path_is_left_to_it() {
        let mut daps = DelayAware::default();
        let fast_full = [stuffed(path(0, 20, 4)), path(1, 80, 2)];
        assert_eq!(order(&mut daps, &fast_full, 2), [(1, 16), (1, 16)]);
        let open = [path(0, 20, 4), stuffed(path(1, 80, 2))];
        assert_eq!(order(&mut daps, &open, 16), [(0, 0); 16]);
        assert_eq!(order(&mut daps, &open, 16), [(0, 0); 16]);
        assert_eq!(
            order(&mut daps, &open, 1),
            [(0, 2)],
            "behind the slow path's turn"
        );
    }

    #[test]
    fn a_full_path_hoards_no_more_than_one_plan() {
        let mut daps = DelayAware::default();
        let open = [path(0, 20, 4), stuffed(path(1, 80, 2))];
        let answers = order(&mut daps, &open, 200);
        assert_eq!(answers.iter().map(|(_, skip)| *skip).max(), Some(2));
    }

    #[test]
    fn a_loss_or_the_end_of_a_path_frees_what_was_planned() {
        let events = [
            PathEvent::Lost {
                path: PathId(1),
                bytes: 1000,
            },
            PathEvent::Doubted { path: PathId(0) },
        ];
        for event in events {
            let mut daps = DelayAware::default();
            let fast_full = [stuffed(path(0, 20, 4)), path(1, 80, 2)];
            assert_eq!(order(&mut daps, &fast_full, 1), [(1, 16)]);
            daps.on_event(&event);
            assert_eq!(order(&mut daps, &fast_full[1..], 1), [(1, 0)]);
        }
    }

    #[test]
    fn windows_are_averaged_over_round_trips() {
        let mut daps = DelayAware::default();
        let mut ask = |ms, window| {
            let paths = [path(0, 20, window)];
            let mut view = fresh(&paths);
            view.now = crate::tests::at(ms);
            daps.select(&view);
            daps.window(PathId(0))
        };
        assert_eq!(ask(0, 8), Some(8000));
        assert_eq!(ask(39, 16), Some(8000));
        assert_eq!(ask(40, 16), Some(9000));
        assert_eq!(ask(79, 16), Some(9000));
    }

    #[test]
    fn nothing_known_is_nothing_planned() {
        let mut daps = DelayAware::default();
        let choice = daps.select(&fresh(&[full(0), PathView::new(1)]));
        assert_eq!(choice.decision, Decision::Send(PathId(1)));
    }

    proptest! {
        #[test]
        fn a_plan_ends_and_gives_every_path_its_turns(
            delays in prop::collection::vec(0_u64..FOREVER, 1..8),
            short in prop::collection::vec(0_u64..500_000_000, 0..8),
        ) {
            let lane = |(id, delay): (usize, &u64)| Lane {
                path: PathId(id as u32),
                period: 0,
                turn: 1000,
                delay: *delay,
            };
            let lanes = delays.iter().chain(&short).enumerate().map(lane).collect();
            let mut plan = Plan { lanes, ..Plan::default() };
            plan.fit();
            let (lanes, end) = (plan.lanes.clone(), plan.end);
            prop_assert!(end <= TICKS);
            let mut turns = [0; MAX_OPEN_PATHS];
            while let Some(lane) = plan.next_turn() {
                turns[lane.path.0 as usize] += 1;
            }
            for lane in lanes {
                prop_assert_eq!(turns[lane.path.0 as usize], end / lane.period);
            }
        }
    }
}
