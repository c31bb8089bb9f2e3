//! Proportional fragments: one message is cut so that its parts arrive together.
//!
//! After multilink PPP (RFC 1990), whose intent this is; the formula is a reconstruction. RFC 1990
//! leaves open how a sender cuts, and names both ways: `unequal` gives each path one part in
//! proportion to its rate, less what its longer delay and its queue cost; `equal` cuts fragments of
//! one size and deals them out in that proportion. A part for a full path is left to it
//! ([`Booked`]). Packets are what is sent, so parts end up rounded to them; with
//! `chunk` set the engine keeps a chunk on one path and nothing is cut.

use crate::catalogue::delivery_delay::least_delay;
use crate::toolkit::units::{FOREVER, packet, time_for};
use crate::toolkit::{Booked, Delays, Patience, bandwidth};
use anabranch_proto::path::MAX_OPEN_PATHS;
use anabranch_proto::sched::{
    Choice, Entry, ParamDoc, PathEvent, PathView, Scheduler, SendView, UnitKind,
};
use anabranch_proto::spec::{Params, SpecError};
use anabranch_proto::wire::PathId;
use smallvec::SmallVec;
use std::cmp::Reverse;

pub(crate) const ENTRY: Entry = Entry {
    name: "mlppp-like",
    summary: "messages cut in proportion to the rates, so that the parts arrive together",
    params: &[
        ParamDoc {
            key: "message",
            default: "65536",
            summary: "bytes of unsent data that are cut at a time",
        },
        ParamDoc {
            key: "fragments",
            default: "unequal",
            summary: "unequal: a part per path; equal: fragments of one size, dealt out",
        },
    ],
    build: |params| Ok(Box::new(Fragments::from_params(params)?)),
};

/// Parts below this many bytes are not worth a packet.
const PART_MIN: u64 = 200;
/// The most fragments of a message.
const FRAGMENTS: u64 = 24;
/// Messages cut at a time to find something for a path that can send.
const MESSAGES: usize = 8;
/// Rates beyond this (bytes per second) count as this: sums stay far from overflow.
const RATE_MAX: u64 = 1 << 48;

/// Cuts messages in proportion to rates.
#[derive(Debug, Default)]
pub(crate) struct Fragments {
    message: u64,
    equal: bool,
    booked: Booked,
    patience: Patience,
}

/// One path as the cut sees it: bytes per second, nanoseconds later than the first one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Lane {
    path: PathId,
    rate: u64,
    delay: u64,
    part: u64,
}

type Lanes = SmallVec<[Lane; MAX_OPEN_PATHS]>;

impl Fragments {
    fn from_params(params: &mut Params) -> Result<Self, SpecError> {
        let ways = [("unequal", false), ("equal", true)];
        Ok(Self {
            message: params.take_in("message", 65_536, 200..=16_777_216)?,
            equal: params.choice("fragments", false, &ways)?,
            ..Self::default()
        })
    }

    /// The paths that something is known of, in ascending order of delay, queues included.
    fn lanes(&self, view: &SendView<'_>, delays: &Delays) -> Lanes {
        let lane = |path: &PathView| {
            let rate = bandwidth(path).min(RATE_MAX);
            let forward = delays.forward(path).filter(|_| rate > 0)?;
            let queue = self.booked.of(path.id).saturating_add(path.queued);
            Some(Lane {
                path: path.id,
                rate,
                delay: forward.saturating_add(time_for(queue, rate)).min(FOREVER),
                part: 0,
            })
        };
        let mut lanes: Lanes = view.candidates().filter_map(lane).collect();
        lanes.sort_unstable_by_key(|lane| (lane.delay, lane.path));
        let least = lanes.first().map_or(0, |lane| lane.delay);
        lanes.iter_mut().for_each(|lane| lane.delay -= least);
        lanes
    }

    /// Cuts the next message. Returns whether there was one.
    fn cut(&mut self, view: &SendView<'_>, delays: &Delays) -> bool {
        let left = view.backlog.unsent.saturating_sub(self.booked.total());
        let length = self.message.min(left);
        let mut lanes = self.lanes(view, delays);
        let spare = self.booked.spare() as u64 > FRAGMENTS + MAX_OPEN_PATHS as u64;
        if length == 0 || lanes.is_empty() || !spare {
            return false;
        }
        if self.equal {
            let largest = view.paths.iter().map(packet).max().unwrap_or(1);
            let size = largest.max(length.div_ceil(FRAGMENTS));
            deal(length, size, &mut lanes, |path, bytes| {
                self.booked.push(path, bytes);
            });
        } else {
            split(length, &mut lanes);
            for lane in &lanes {
                self.booked.push(lane.path, lane.part);
            }
        }
        true
    }
}

/// Parts of `length` that arrive together: `rate * (end - delay)` each, where `end` is such that
/// they add up. Lanes are in ascending order of delay; those that are too late get nothing.
fn split(length: u64, lanes: &mut [Lane]) {
    const NANOS: u128 = 1_000_000_000;
    let (mut rates, mut ahead, mut end) = (0_u128, 0_u128, 0_u128);
    for (at, lane) in lanes.iter().enumerate() {
        rates += u128::from(lane.rate);
        ahead += u128::from(lane.rate) * u128::from(lane.delay);
        end = (u128::from(length) * NANOS + ahead) / rates.max(1);
        let next = lanes.get(at + 1).map(|next| u128::from(next.delay));
        if next.is_none_or(|next| end <= next) {
            break;
        }
    }
    let mut left = length;
    for lane in lanes.iter_mut() {
        let time = end.saturating_sub(u128::from(lane.delay));
        let part = u128::from(lane.rate) * time / NANOS;
        let part = u64::try_from(part).unwrap_or(u64::MAX).min(left);
        lane.part = if part < PART_MIN { 0 } else { part };
        left -= lane.part;
    }
    // The remainder of all divisions, and what was too little, goes to the fastest.
    let fastest = lanes
        .iter_mut()
        .filter(|lane| u128::from(lane.delay) < end.max(1))
        .min_by_key(|lane| (Reverse(lane.rate), lane.path));
    if let Some(fastest) = fastest {
        fastest.part += left;
    }
}

/// Deals fragments of `size` out, each to the lane that delivers it first.
fn deal(length: u64, size: u64, lanes: &mut [Lane], mut give: impl FnMut(PathId, u64)) {
    let mut left = length;
    while left > 0 {
        let fragment = size.min(left);
        left -= fragment;
        let arrival = |lane: &&mut Lane| {
            let bytes = lane.part.saturating_add(fragment);
            lane.delay.saturating_add(time_for(bytes, lane.rate))
        };
        if let Some(lane) = lanes.iter_mut().min_by_key(arrival) {
            lane.part += fragment;
            give(lane.path, fragment);
        }
    }
}

impl Scheduler for Fragments {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        let delays = Delays::of(view);
        let known = |path: &PathView| bandwidth(path) > 0 && delays.forward(path).is_some();
        if view.unit.kind != UnitKind::Fresh || !view.ready().any(known) {
            return least_delay(view, &delays);
        }
        self.booked.truncate(view.backlog.unsent);
        for _ in 0..MESSAGES {
            if let Some(choice) = self.booked.serve(view) {
                self.patience.end();
                return choice;
            }
            if !self.cut(view, &delays) {
                break;
            }
        }
        match self.booked.serve(view) {
            Some(choice) => {
                self.patience.end();
                choice
            }
            None => self.booked.wait(view, &mut self.patience),
        }
    }

    fn on_event(&mut self, event: &PathEvent) {
        self.patience.on_event(event);
        self.booked.on_event(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{at, built, fresh};
    use anabranch_proto::sched::{Decision, PathView, Reason};
    use anabranch_proto::time::Duration;
    use proptest::prelude::*;

    fn lane(path: u32, rate: u64, delay_us: u64) -> Lane {
        Lane {
            path: PathId(path),
            rate,
            delay: delay_us * 1000,
            part: 0,
        }
    }

    fn parts(length: u64, lanes: &[Lane]) -> Vec<u64> {
        let mut lanes = lanes.to_vec();
        split(length, &mut lanes);
        lanes.iter().map(|lane| lane.part).collect()
    }

    #[test]
    fn parts_arrive_together() {
        let of = |delay_us| parts(4000, &[lane(0, 3_000_000, 0), lane(1, 1_000_000, delay_us)]);
        assert_eq!(of(0), [3000, 1000]);
        assert_eq!(of(1000), [3750, 250]);
        assert_eq!(of(5000), [4000, 0]);
        let equal = parts(1001, &[lane(0, 1_000_000, 0), lane(1, 1_000_000, 0)]);
        assert_eq!(equal, [501, 500], "ties go to the lowest ID");
        assert_eq!(of(1100), [4000, 0], "175 bytes are not worth a packet");
    }

    #[test]
    fn equal_fragments_are_dealt_out_in_proportion() {
        let dealt = |delay_us| {
            let mut lanes = [lane(0, 3_000_000, 0), lane(1, 1_000_000, delay_us)];
            let mut order = Vec::new();
            deal(8500, 1000, &mut lanes, |path, bytes| {
                order.push((path.0, bytes));
            });
            let paths: Vec<u32> = order.iter().map(|(path, _)| *path).collect();
            assert_eq!(order.last().map(|(_, bytes)| *bytes), Some(500));
            paths
        };
        assert_eq!(dealt(0), [0, 0, 0, 1, 0, 0, 0, 1, 0]);
        assert_eq!(dealt(9000), [0; 9]);
    }

    fn path(id: u32, rate: u64) -> PathView {
        PathView {
            smoothed_rtt: Duration::from_millis(20),
            delivery_rate: rate,
            max_datagram_size: 1000,
            ..PathView::new(id)
        }
    }

    fn order(fragments: &mut dyn Scheduler, paths: &[PathView], count: usize) -> Vec<(u32, u64)> {
        let next = |_| match fragments.select(&fresh(paths)).decision {
            Decision::Send(path) => (path.0, 0),
            Decision::SendAt { path, skip } => (path.0, skip / 1000),
            other => panic!("a path is open: {other:?}"),
        };
        (0..count).map(next).collect()
    }

    #[test]
    fn each_path_sends_its_part_of_every_message() {
        let paths = [path(0, 3_000_000), path(1, 1_000_000)];
        let mut unequal = built("mlppp-like:message=4000");
        let sent = order(&mut *unequal, &paths, 8);
        assert_eq!(sent, [0, 0, 0, 1, 0, 0, 0, 1].map(|path| (path, 0)));
        let mut equal = built("mlppp-like:message=4000,fragments=equal");
        let sent = order(&mut *equal, &paths, 8);
        assert_eq!(sent, [0, 0, 0, 1, 0, 0, 0, 1].map(|path| (path, 0)));
    }

    #[test]
    fn a_full_path_is_left_its_part() {
        let full = PathView {
            bytes_in_flight: 12_000,
            ..path(0, 3_000_000)
        };
        let mut fragments = built("mlppp-like:message=4000");
        let sent = order(&mut *fragments, &[full, path(1, 1_000_000)], 1);
        assert_eq!(sent, [(1, 3)]);
        let mut view = fresh(&[]);
        let paths = [full, path(1, 1_000_000)];
        view.paths = &paths;
        view.backlog.unsent = 3000;
        let choice = fragments.select(&view);
        assert_eq!(choice, Choice::hold_until(at(20), Reason::WaitForBetter));
        fragments.on_event(&PathEvent::Doubted { path: PathId(0) });
        view.paths = &paths[1..];
        let choice = fragments.select(&view);
        assert_eq!(choice.decision, Decision::Send(PathId(1)), "owned again");
    }

    proptest! {
        #[test]
        fn nothing_is_lost_in_a_cut_and_no_part_is_late(
            length in 1_u64..1_000_000,
            lanes in prop::collection::vec((1_u64..RATE_MAX, 0_u64..10_000_000), 1..8),
        ) {
            let mut lanes: Vec<Lane> = (0..)
                .zip(lanes)
                .map(|(id, (rate, delay_us))| lane(id, rate, delay_us))
                .collect();
            lanes.sort_by_key(|lane| lane.delay);
            let least = lanes[0].delay;
            for lane in &mut lanes {
                lane.delay -= least;
            }
            split(length, &mut lanes);
            prop_assert_eq!(lanes.iter().map(|lane| lane.part).sum::<u64>(), length);
            // Never later than the best path alone, but for what rounding adds to one part.
            let alone = |lane: &Lane| lane.delay + time_for(length, lane.rate);
            let best = lanes.iter().map(alone).min().unwrap();
            for lane in lanes.iter().filter(|lane| lane.part > 0) {
                let slack = time_for(PART_MIN * 8 + 8, lane.rate) + 8;
                prop_assert!(lane.delay + time_for(lane.part, lane.rate) <= best + slack);
            }
        }
    }
}
