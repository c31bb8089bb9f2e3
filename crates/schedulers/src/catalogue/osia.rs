//! Out-of-order sending for in-order arrival, planned a round at a time.
//!
//! A reconstruction after Wang, Liao and Li (J. Netw. Comput. Appl. 35(2), 2012), as the BTH thesis
//! describes it. A round is one window of every path: all its chances to send are put in the order
//! of predicted arrival and numbered, and each path sends the data of its own numbers, so that
//! later numbers leave first on slow paths. A new round is planned when a path has used up its
//! part, or when the delay or the window of any path has moved by a tenth. Within a round the order
//! is fixed: that is the difference to [`idd`](super::idd), which predicts anew for each packet.

use crate::catalogue::arrival::{Forecast, Slots};
use crate::catalogue::delivery_delay::least_delay;
use crate::toolkit::units::{self, packet};
use crate::toolkit::{Delays, send_behind, skip_limit};
use anabranch_proto::path::MAX_OPEN_PATHS;
use anabranch_proto::sched::{
    Choice, Entry, PathEvent, PathView, Reason, Scheduler, SendView, UnitKind,
};
use anabranch_proto::wire::PathId;
use smallvec::SmallVec;

pub(crate) const ENTRY: Entry = Entry {
    name: "osia-like",
    summary: "out-of-order sending for in-order arrival, planned for a window of each path",
    params: &[],
    build: |_| Ok(Box::new(OutOfOrder::default())),
};

/// The most packets of a round. Larger windows are planned in parts.
const ROUND: u64 = 1024;

/// Sends by a plan of one window per path.
#[derive(Debug)]
pub(crate) struct OutOfOrder {
    forecast: Forecast,
    lanes: SmallVec<[Lane; MAX_OPEN_PATHS]>,
    /// The numbers of the packets of each lane, one lane after the other.
    numbers: Vec<u16>,
}

/// The part of one path in a round.
#[derive(Debug, Clone, Copy)]
struct Lane {
    path: PathId,
    packet: u64,
    /// Where its numbers begin, how many there are, and how many are sent.
    start: usize,
    count: usize,
    sent: usize,
    /// The number of its next packet, [`NONE`] if all are sent.
    next: u16,
    /// What the plan rests on.
    forward: u64,
    steady_forward: Steady,
    steady_window: Steady,
}

/// The number of no packet: a round has fewer packets.
const NONE: u16 = u16::MAX;

/// The values no more than a tenth away from the one that a plan rests on.
#[derive(Debug, Clone, Copy)]
struct Steady {
    least: u64,
    most: u64,
}

impl Default for OutOfOrder {
    fn default() -> Self {
        Self {
            forecast: Forecast::default(),
            lanes: SmallVec::new(),
            // Room for a round at once: nothing allocates later.
            numbers: Vec::with_capacity(ROUND as usize),
        }
    }
}

impl OutOfOrder {
    /// Whether the round is over or rests on what is no longer so.
    fn is_stale(&self, view: &SendView<'_>, delays: &Delays) -> bool {
        let mut lanes = self.lanes.iter();
        for path in view.candidates() {
            let Some(forward) = delays.forward(path).filter(|_| has_window(path)) else {
                continue;
            };
            let Some(lane) = lanes.next().filter(|lane| lane.path == path.id) else {
                return true;
            };
            let used_up = lane.sent == lane.count && path.can_send(view.now);
            let steady =
                lane.steady_forward.has(forward) && lane.steady_window.has(path.congestion_window);
            if used_up || !steady {
                return true;
            }
        }
        lanes.next().is_some()
    }

    fn plan(&mut self, view: &SendView<'_>, delays: &Delays) {
        self.lanes.clear();
        let planned = || {
            view.candidates()
                .filter(|path| delays.forward(path).is_some() && has_window(path))
        };
        let all = planned().fold(0, |sum: u64, path| sum.saturating_add(window(path)));
        let limit = ROUND - MAX_OPEN_PATHS as u64;
        let mut slots: SmallVec<[Slots<'_>; MAX_OPEN_PATHS]> = SmallVec::new();
        let mut start = 0;
        for path in planned().take(MAX_OPEN_PATHS) {
            let part = units::scale(window(path), limit, all.max(limit));
            let forward = delays.forward(path).unwrap_or(0);
            slots.push(Slots::new(&self.forecast, view.now, path));
            self.lanes.push(Lane {
                path: path.id,
                packet: packet(path),
                start,
                count: part.max(1) as usize,
                sent: 0,
                next: NONE,
                forward,
                steady_forward: Steady::around(forward),
                steady_window: Steady::around(path.congestion_window),
            });
            start += part.max(1) as usize;
        }
        self.numbers.clear();
        self.numbers.resize(start, 0);
        number(&mut self.lanes, &mut slots, &mut self.numbers);
        for lane in &mut self.lanes {
            (lane.sent, lane.next) = (0, self.numbers[lane.start]);
        }
    }

    /// Notes that the lane sends its next packet.
    fn advance(&mut self, at: usize) {
        let lane = &mut self.lanes[at];
        lane.sent += 1;
        lane.next = if lane.sent < lane.count {
            self.numbers[lane.start + lane.sent]
        } else {
            NONE
        };
    }

    fn numbers_of(&self, lane: &Lane) -> &[u16] {
        &self.numbers[lane.start..lane.start + lane.count]
    }

    /// The unsent bytes of the round before the packet of that number.
    fn before(&self, number: u16) -> u64 {
        let pending = |lane: &Lane| {
            // Most often its next packet is a later one.
            if lane.next >= number {
                return 0;
            }
            let earlier = self.numbers_of(lane).partition_point(|own| *own < number);
            earlier.saturating_sub(lane.sent) as u64 * lane.packet
        };
        self.lanes.iter().map(pending).sum()
    }

    /// The lane whose next packet is the earliest of those of paths that can send now, and the
    /// path. The lanes are those of the candidates in their order, as no plan is used that is
    /// [stale](Self::is_stale).
    fn earliest<'a>(&self, view: &SendView<'a>) -> Option<(usize, &'a PathView)> {
        let mut earliest: Option<(usize, &PathView)> = None;
        let mut least = NONE;
        let mut paths = view.candidates();
        for (at, lane) in self.lanes.iter().enumerate() {
            let path = paths.find(|path| path.id == lane.path)?;
            if lane.next < least && path.can_send(view.now) {
                (least, earliest) = (lane.next, Some((at, path)));
            }
        }
        earliest
    }
}

impl Steady {
    fn around(value: u64) -> Self {
        let tenth = value / 10;
        Self {
            least: value - tenth,
            most: value.saturating_add(tenth),
        }
    }

    fn has(self, value: u64) -> bool {
        (self.least..=self.most).contains(&value)
    }
}

/// Numbers the packets of all lanes by arrival; at equal times the lower delay goes first.
fn number(lanes: &mut [Lane], slots: &mut [Slots<'_>], numbers: &mut [u16]) {
    let mut order: SmallVec<[usize; MAX_OPEN_PATHS]> = (0..lanes.len()).collect();
    order.sort_by_key(|at| lanes[*at].forward);
    // When the next packet of a lane arrives, and the rank of the lane at equal times: one number,
    // as many are compared.
    let mut next = |lane: &Lane, at: usize, rank: u128| {
        let slot = slots[at].next().unwrap_or(0);
        u128::from(slot.saturating_add(lane.forward)) << 64 | rank
    };
    let mut coming: SmallVec<[u128; MAX_OPEN_PATHS]> = SmallVec::new();
    for (rank, at) in order.iter().enumerate() {
        coming.push(next(&lanes[*at], *at, rank as u128));
    }
    coming.sort_unstable();
    let (order, mut coming) = (&order[..], &mut coming[..]);
    let mut number = 0;
    while let Some(first) = coming.first() {
        let rank = *first as u64;
        let at = order[rank as usize];
        let lane = &mut lanes[at];
        numbers[lane.start + lane.sent] = number;
        number += 1;
        lane.sent += 1;
        if lane.sent == lane.count {
            coming = &mut std::mem::take(&mut coming)[1..];
            continue;
        }
        // The packet after it most often stays near the front.
        let arrival = next(lane, at, rank.into());
        let mut to = 0;
        while to + 1 < coming.len() && coming[to + 1] < arrival {
            coming[to] = coming[to + 1];
            to += 1;
        }
        coming[to] = arrival;
    }
}

/// The window in whole packets.
fn window(path: &PathView) -> u64 {
    path.congestion_window / packet(path)
}

/// Whether the window has room for a packet at all.
fn has_window(path: &PathView) -> bool {
    path.congestion_window >= packet(path)
}

impl Scheduler for OutOfOrder {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        self.forecast.note_time(view.now);
        let delays = Delays::of(view);
        if view.unit.kind != UnitKind::Fresh || view.ready().next().is_none() {
            return least_delay(view, &delays);
        }
        if self.is_stale(view, &delays) {
            self.plan(view, &delays);
        }
        let Some((at, path)) = self.earliest(view) else {
            return least_delay(view, &delays);
        };
        let ahead = self.before(self.lanes[at].next);
        self.advance(at);
        send_behind(path.id, ahead.min(skip_limit(view, path)), Reason::Planned)
    }

    fn on_event(&mut self, event: &PathEvent) {
        self.forecast.on_event(event);
        if let PathEvent::Doubted { .. } | PathEvent::Abandoned { .. } = event {
            self.lanes.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{at, fresh};
    use anabranch_proto::sched::Decision;
    use anabranch_proto::time::Duration;

    fn path(id: u32, delay_ms: u64, window: u64) -> PathView {
        PathView {
            smoothed_rtt: Duration::from_millis(delay_ms),
            forward_delay_us: Some(delay_ms as i64 * 1000),
            congestion_window: window * 1000,
            delivery_rate: 100_000,
            max_datagram_size: 1000,
            ..PathView::new(id)
        }
    }

    /// Answers until nothing is ready, at one instant without a pacer.
    fn order(scheduler: &mut dyn Scheduler, paths: &mut [PathView]) -> Vec<(u32, u64)> {
        let mut answers = Vec::new();
        loop {
            let (path, skip) = match scheduler.select(&fresh(paths)).decision {
                Decision::Send(path) => (path, 0),
                Decision::SendAt { path, skip } => (path, skip),
                _ => return answers,
            };
            paths[path.0 as usize].bytes_in_flight += 1000;
            scheduler.on_event(&PathEvent::Sent { path, bytes: 1000 });
            answers.push((path.0, skip / 1000));
        }
    }

    #[test]
    fn a_round_leaves_in_order_of_arrival() {
        // Arrivals 50, 60, 70 and 100, 110, 120, 130, 140: the fast path's window comes first.
        let mut paths = [path(0, 50, 3), path(1, 100, 5)];
        let answers = order(&mut OutOfOrder::default(), &mut paths);
        let expected = [0, 0, 0, 1, 1, 1, 1, 1].map(|path| (path, 0));
        assert_eq!(answers, expected);
    }

    #[test]
    fn a_slow_path_sends_the_numbers_after_those_of_a_busy_fast_one() {
        // The fast path arrives at 50..120, the slow one at 100..140; ties go to the fast one.
        let fast = PathView {
            pacer_ready: at(1),
            ..path(0, 50, 8)
        };
        let mut paths = [fast, path(1, 100, 5)];
        let mut osia = OutOfOrder::default();
        let answers = order(&mut osia, &mut paths);
        assert_eq!(answers, [(1, 5), (1, 6), (1, 7), (1, 8), (1, 8)]);
        paths[0].pacer_ready = at(0);
        let rest: Vec<(u32, u64)> = order(&mut osia, &mut paths);
        assert_eq!(rest, [(0, 0); 8], "what was left to it, in order");
    }

    #[test]
    fn a_tenth_more_window_or_delay_makes_a_new_round() {
        let mut osia = OutOfOrder::default();
        let plan = |osia: &mut OutOfOrder, paths: &[PathView]| {
            osia.select(&fresh(paths));
            osia.numbers.len()
        };
        assert_eq!(plan(&mut osia, &[path(0, 50, 10), path(1, 100, 10)]), 20);
        assert_eq!(plan(&mut osia, &[path(0, 50, 11), path(1, 100, 10)]), 20);
        assert_eq!(plan(&mut osia, &[path(0, 50, 12), path(1, 100, 10)]), 22);
        assert_eq!(plan(&mut osia, &[path(0, 50, 12), path(1, 100, 10)]), 22);
        assert_eq!(osia.lanes[0].sent, 2);
        plan(&mut osia, &[path(0, 50, 12), path(1, 200, 10)]);
        assert_eq!(osia.lanes[0].sent, 1, "a new round");
    }

    #[test]
    fn windows_of_any_size_fit_a_round() {
        let mut osia = OutOfOrder::default();
        let paths: Vec<PathView> = (0..16).map(|id| path(id, 50, 1 << (2 * id))).collect();
        osia.select(&fresh(&paths));
        assert!(osia.numbers.len() <= ROUND as usize);
        assert!(osia.lanes.iter().all(|lane| lane.count > 0));
        let mut numbers = osia.numbers.clone();
        numbers.sort_unstable();
        assert!(
            numbers.iter().copied().eq(0..numbers.len() as u16),
            "each once"
        );
    }

    #[test]
    fn a_path_that_fails_leaves_its_numbers_to_the_others() {
        let fast = PathView {
            pacer_ready: at(1),
            ..path(0, 50, 8)
        };
        let mut osia = OutOfOrder::default();
        let paths = [fast, path(1, 100, 5)];
        let choice = osia.select(&fresh(&paths));
        assert_eq!(
            choice.decision,
            Decision::SendAt {
                path: PathId(1),
                skip: 5000
            }
        );
        osia.on_event(&PathEvent::Doubted { path: PathId(0) });
        let choice = osia.select(&fresh(&paths[1..]));
        assert_eq!(choice.decision, Decision::Send(PathId(1)));
    }
}
