//! Copies in time: a datagram goes on as many paths as its deadline needs, and stream data that
//! stays unacknowledged for too long is sent once more by another path.
//!
//! *Datagrams with a deadline*: the cheapest set of paths by which it arrives in time with the
//! wanted probability, its delay taken as normally distributed. Only critical datagrams may arrive
//! twice, and copies have their budget: any other datagram goes once, by the cheapest path that is
//! likely enough or else by the likeliest one. So it does if no set reaches the probability:
//! dropping it is the engine's part.
//!
//! *Reinjection*: after `max(low, min(hard, factor * RTT))` with the lowest RTT of all paths, as in
//! alibaba's `xqc_reinj_deadline.c` (its code, not its header comment, gives the defaults). No data
//! is reinjected twice, but what its first path lost may go there once more. XLINK lets reinjection
//! run only while the player's buffer is low; a sender learns of that by the priority the
//! application gives its streams (`gate`).

use crate::toolkit::Budget;
use crate::toolkit::units::{micros, packet};
use anabranch_proto::path::PathSet;
use anabranch_proto::sched::{
    Choice, Decision, Entry, ParamDoc, PathEvent, PathView, Reason, Scheduler, SendView, UnitKind,
    Wants, lowest_rtt, rank,
};
use anabranch_proto::spec::{Params, SpecError};
use anabranch_proto::time::{Duration, Instant};
use anabranch_proto::wire::PathId;

pub(crate) const ENTRY: Entry = Entry {
    name: "deadline-redundant",
    summary: "lowest RTT; copies of late datagrams and of data unacknowledged for long",
    params: &[
        ParamDoc {
            key: "target",
            default: "0.99",
            summary: "wanted probability that a datagram with a deadline arrives in time",
        },
        ParamDoc {
            key: "factor",
            default: "1.1",
            summary: "age for reinjection, in lowest RTTs of all paths",
        },
        ParamDoc {
            key: "low-ms",
            default: "20",
            summary: "the age for reinjection is at least this",
        },
        ParamDoc {
            key: "hard-ms",
            default: "500",
            summary: "the age for reinjection is at most this",
        },
        ParamDoc {
            key: "budget",
            default: "0.05",
            summary: "copied bytes as a share of the bytes sent, 0 to 1 (unlimited)",
        },
        ParamDoc {
            key: "gate",
            default: "none",
            summary: "ON/OFF: reinject while a stream waits with priority ON; stop below OFF",
        },
    ],
    build: |params| Ok(Box::new(DeadlineRedundant::from_params(params)?)),
};

/// Repeats what is or would be late.
#[derive(Debug)]
pub(crate) struct DeadlineRedundant {
    target: f64,
    /// In thousandths.
    factor: u32,
    low: Duration,
    hard: Duration,
    budget: Budget,
    gate: Option<Gate>,
    /// The latest data reinjected: when it was sent first, and the path of the copy.
    reinjected: Option<(Instant, PathId)>,
}

/// Reinjection is on while the application is in a hurry.
#[derive(Debug, Clone, Copy)]
struct Gate {
    on: i32,
    off: i32,
    is_open: bool,
}

impl DeadlineRedundant {
    fn from_params(params: &mut Params) -> Result<Self, SpecError> {
        let factor: f64 = params.take_in("factor", 1.1, 0.0..=100.0)?;
        let gate: Vec<i32> = params.list("gate")?;
        let gate = match gate[..] {
            [] => None,
            [on, off] if off <= on => Some(Gate {
                on,
                off,
                is_open: false,
            }),
            _ => {
                let given: Vec<String> = gate.iter().map(ToString::to_string).collect();
                let expected = "two priorities ON/OFF, the first not lower";
                return Err(params.bad_value("gate", &given.join("/"), expected));
            }
        };
        Ok(Self {
            target: params.take_in("target", 0.99, 0.0..=1.0)?,
            factor: (factor * 1000.0).round() as u32,
            low: Duration::from_millis(params.take_in("low-ms", 20, 0..=60_000)?),
            hard: Duration::from_millis(params.take_in("hard-ms", 500, 1..=60_000)?),
            budget: Budget::from_params(params, 0.05)?,
            gate,
            reinjected: None,
        })
    }

    /// How long data stays unacknowledged before it is sent again.
    fn age(&self, view: &SendView<'_>) -> Duration {
        let measured = view
            .paths
            .iter()
            .filter(|path| !path.smoothed_rtt.is_zero());
        let least = measured.map(|path| path.smoothed_rtt).min();
        let wanted = least.map_or(self.hard, |rtt| rtt.saturating_mul(self.factor) / 1000);
        wanted.min(self.hard).max(self.low)
    }

    fn may_reinject(&mut self, view: &SendView<'_>) -> bool {
        let Some(gate) = &mut self.gate else {
            return true;
        };
        // Without a stream in view nothing is known anew.
        if let Some(most) = view.streams.iter().map(|stream| stream.priority).max() {
            gate.is_open = most >= if gate.is_open { gate.off } else { gate.on };
        }
        gate.is_open
    }

    /// A copy of the oldest data that is overdue, on the fastest path that has room and did not
    /// carry it.
    fn reinject(&mut self, view: &SendView<'_>) -> Option<Choice> {
        let age = self.age(view);
        let overdue = |path: &&PathView| {
            let Some(since) = path.copyable_since.filter(|_| path.copyable) else {
                return false;
            };
            let again = self
                .reinjected
                .is_some_and(|(until, by)| since < until || (since == until && path.id != by));
            path.is_usable() && path.cost == 0 && !again && view.now.since(since) >= age
        };
        let path = view.ready().filter(overdue).min_by_key(|path| rank(path))?;
        if !self.may_reinject(view) || !self.budget.pay(packet(path)) {
            return None;
        }
        let since = path.copyable_since?;
        self.reinjected = Some((since, path.id));
        Some(Choice {
            decision: Decision::Copy(path.id),
            reason: Reason::Deadline,
        })
    }

    /// The cheapest set of paths that is likely enough to deliver by `deadline`.
    fn in_time(&mut self, view: &SendView<'_>, deadline: Instant) -> Option<Choice> {
        let left = micros(deadline.since(view.now)) as f64;
        let chance = |path: &PathView| {
            let delay = Delay::of(view, path);
            delay.chance_within(left) * (1.0 - f64::from(path.loss.clamp(0.0, 1.0)))
        };
        let mut missing = 1.0;
        let mut chosen = PathSet::EMPTY;
        while 1.0 - missing < self.target {
            let free = view.ready().filter(|path| !chosen.contains(path.id));
            let hopeful = free.filter(|path| chance(path) >= HOPELESS);
            let Some(next) = hopeful.min_by(|a, b| {
                let likelier = || chance(b).total_cmp(&chance(a));
                a.cost
                    .cmp(&b.cost)
                    .then_with(likelier)
                    .then(a.id.cmp(&b.id))
            }) else {
                break;
            };
            if !chosen.insert(next.id) {
                break;
            }
            missing *= 1.0 - chance(next);
        }
        let likeliest = view.ready().min_by(|a, b| {
            let likelier = chance(b).total_cmp(&chance(a));
            likelier.then_with(|| rank(a).cmp(&rank(b)))
        })?;
        let bytes = view.unit.bytes.min(packet(likeliest));
        self.budget.earn(bytes);
        // Copies that would not save it are not made.
        let needed = if 1.0 - missing < self.target {
            PathSet::EMPTY
        } else {
            self.without_superfluous(view, chosen, chance)
        };
        let copies = needed.len().saturating_sub(1) as u64;
        let decision = match needed.iter().next() {
            Some(only) if copies == 0 => Decision::Send(only),
            Some(_) if view.unit.critical && self.budget.pay(bytes.saturating_mul(copies)) => {
                Decision::Duplicate(needed)
            }
            _ => Decision::Send(likeliest.id),
        };
        Some(Choice {
            decision,
            reason: Reason::Deadline,
        })
    }

    /// Leaves out what the paths added later made unnecessary.
    fn without_superfluous(
        &self,
        view: &SendView<'_>,
        chosen: PathSet,
        chance: impl Fn(&PathView) -> f64,
    ) -> PathSet {
        let mut needed = chosen;
        for id in chosen.iter() {
            let rest: PathSet = needed.iter().filter(|other| *other != id).collect();
            let paths = rest.iter().filter_map(|id| view.path(id));
            let missing = paths.fold(1.0, |missing, path| missing * (1.0 - chance(path)));
            if !rest.is_empty() && 1.0 - missing >= self.target {
                needed = rest;
            }
        }
        needed
    }
}

impl Scheduler for DeadlineRedundant {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        if let Some(choice) = self.reinject(view) {
            return choice;
        }
        if view.unit.kind == UnitKind::Idle {
            return view.no_room();
        }
        if let (UnitKind::Datagram, Some(deadline)) = (view.unit.kind, view.unit.deadline)
            && let Some(choice) = self.in_time(view, deadline)
        {
            return choice;
        }
        let choice = lowest_rtt(view);
        if let Decision::Send(path) = choice.decision
            && let Some(path) = view.path(path)
        {
            self.budget.earn(view.unit.bytes.min(packet(path)));
        }
        choice
    }

    fn on_event(&mut self, event: &PathEvent) {
        if let PathEvent::Abandoned { path } = event
            && self.reinjected.is_some_and(|(_, by)| by == *path)
        {
            self.reinjected = None;
        }
    }

    fn wants(&self) -> Wants {
        Wants {
            streams: self.gate.is_some(),
            ..Wants::COPIES
        }
    }
}

/// Below this chance a path only adds cost.
const HOPELESS: f64 = 0.01;

/// One-way delay of a path, in microseconds.
#[derive(Debug, Clone, Copy)]
struct Delay {
    mean: f64,
    deviation: f64,
}

/// The standard deviation of a normal distribution, in mean deviations.
const MEAN_DEVIATIONS: f64 = 1.2533;

impl Delay {
    /// Half the RTT; where forward delays are measured, their differences around the average of
    /// the halves.
    fn of(view: &SendView<'_>, path: &PathView) -> Self {
        let half = |path: &PathView| micros(path.smoothed_rtt) as f64 / 2.0;
        if path.smoothed_rtt.is_zero() && path.forward_delay_us.is_none() {
            return Self {
                mean: f64::INFINITY,
                deviation: 1.0,
            };
        }
        let Some(forward) = path.forward_delay_us else {
            return Self {
                mean: half(path),
                deviation: micros(path.rttvar) as f64 * MEAN_DEVIATIONS,
            };
        };
        let (mut sum, mut count) = (0.0, 0.0);
        for other in view
            .paths
            .iter()
            .filter(|path| !path.smoothed_rtt.is_zero())
        {
            if let Some(forward) = other.forward_delay_us {
                sum += half(other) - forward as f64;
                count += 1.0;
            }
        }
        let offset = if count > 0.0 { sum / count } else { 0.0 };
        Self {
            mean: (forward as f64 + offset).max(0.0),
            deviation: path.forward_jitter_us.max(1) as f64 * MEAN_DEVIATIONS,
        }
    }

    fn chance_within(&self, left: f64) -> f64 {
        if self.mean.is_infinite() {
            return 0.0;
        }
        normal((left - self.mean) / self.deviation)
    }
}

/// The normal distribution at 0, 0.25, 0.5 and so on to 3.5 standard deviations.
const NORMAL: [f64; 15] = [
    0.5, 0.598_706, 0.691_462, 0.773_373, 0.841_345, 0.894_350, 0.933_193, 0.959_941, 0.977_250,
    0.987_776, 0.993_790, 0.997_020, 0.998_650, 0.999_423, 0.999_767,
];

/// The share of a normal distribution below `z` standard deviations, within 0.003. Interpolated, as
/// the exponentials of platforms differ in their last digits and decisions must not.
fn normal(z: f64) -> f64 {
    let at = z.abs() * 4.0;
    let index = at as usize;
    let share = match (NORMAL.get(index), NORMAL.get(index.saturating_add(1))) {
        (Some(low), Some(high)) => low + (high - low) * (at - index as f64),
        _ => 1.0,
    };
    if z < 0.0 { 1.0 - share } else { share }
}

#[cfg(test)]
mod tests;
