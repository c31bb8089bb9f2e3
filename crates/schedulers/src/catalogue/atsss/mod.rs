//! The steering modes of ATSSS (3GPP TS 23.501, clause 5.32.8), for any number of paths.
//!
//! | mode | what it does |
//! |---|---|
//! | `active-standby` | one path of the highest priority; others only if it does not answer |
//! | `smallest-delay` | the lowest forward delay where it is measured, else the lowest RTT |
//! | `load-balancing` | the paths' weights, or with `autonomous` what each delivers |
//! | `priority-based` | the highest priority first; the rest takes the overflow |
//! | `redundant` | everything on every path; with `primary`, copies of critical units alone |
//!
//! Limits on RTT and loss move traffic away from a path that exceeds one, until it is a fifth below
//! it again. With limits, `redundant` makes copies only while every path exceeds one of them.
//! What is striped over paths arrives out of order: datagrams need a re-sequencer.

mod import;
mod modes;

pub use import::{Steering, SteeringAccess, SteeringError, SteeringRule};
pub use modes::{ORDERED, SteeringMode, UnknownMode, steered};

use crate::catalogue::critical_redundant::with_copies;
use crate::catalogue::priority::Priority;
use crate::catalogue::redundant::Redundant;
use crate::catalogue::weighted::Weighted;
use crate::toolkit::{Budget, Demoter, PerPath, delivered_rate, hold_for, leaves, lowest_by};
use anabranch_proto::sched::{
    Choice, Decision, Entry, ParamDoc, PathEvent, PathView, Reason, Scheduler, SendView, UnitKind,
    Wants, lowest_rtt, rank,
};
use anabranch_proto::spec::{Params, SpecError};
use anabranch_proto::time::Duration;
use anabranch_proto::wire::PathId;
use modes::MODES;
use std::cmp::Reverse;
use std::fmt;

pub(crate) const ENTRY: Entry = Entry {
    name: "atsss",
    summary: "the steering modes of 3GPP's ATSSS, with limits on RTT and loss",
    params: &[
        ParamDoc {
            key: "mode",
            default: "smallest-delay",
            summary: "active-standby, smallest-delay, load-balancing, priority-based or redundant",
        },
        ParamDoc {
            key: "weights",
            default: "each path's own",
            summary: "load-balancing: shares of the paths in the order they open, as 80/20",
        },
        ParamDoc {
            key: "autonomous",
            default: "false",
            summary: "load-balancing: shares follow what each path delivers",
        },
        ParamDoc {
            key: "primary",
            default: "false",
            summary: "redundant: by priority, with copies of critical units alone",
        },
        ParamDoc {
            key: "datagrams",
            default: "once",
            summary: "redundant: once, or copy, which is for critical ones on every open path",
        },
        ParamDoc {
            key: "max-rtt-ms",
            default: "0",
            summary: "limit on a path's RTT; 0 for none",
        },
        ParamDoc {
            key: "max-loss",
            default: "0",
            summary: "limit on a path's loss in percent; 0 for none",
        },
    ],
    build: |params| Ok(Box::new(Atsss::from_params(params)?)),
};

/// A path is good again below this part of a limit.
const GOOD_AGAIN: f64 = 0.8;

/// The share of copies that `primary` makes: that of `critical-redundant`.
const COPIES: f64 = 0.05;

/// Steers by one of five modes.
pub struct Atsss {
    mode: SteeringMode,
    limits: Limits,
    /// Whether a path exceeds a limit, as far as it has one.
    exceeded: PerPath<bool>,
    inner: Box<dyn Scheduler>,
    demoter: Demoter,
}

#[derive(Debug, Clone, Copy)]
struct Limits {
    rtt: Option<Duration>,
    loss: Option<f64>,
}

impl Limits {
    fn any(&self) -> bool {
        self.rtt.is_some() || self.loss.is_some()
    }

    /// Whether `path` exceeds a limit, having done so `before`.
    fn exceeds(&self, path: &PathView, before: bool) -> bool {
        let part = if before { GOOD_AGAIN } else { 1.0 };
        let beyond = |value: f64, limit: f64| {
            if before {
                value >= limit * part
            } else {
                value > limit
            }
        };
        let rtt = |limit: Duration| beyond(path.smoothed_rtt.as_secs_f64(), limit.as_secs_f64());
        let loss = |limit| beyond(f64::from(path.loss), limit);
        self.rtt.is_some_and(rtt) || self.loss.is_some_and(loss)
    }
}

impl Atsss {
    fn from_params(params: &mut Params) -> Result<Self, SpecError> {
        let mode = params.choice("mode", SteeringMode::SmallestDelay, &MODES)?;
        let (autonomous, primary) = (params.flag("autonomous")?, params.flag("primary")?);
        let weighted = Weighted::of(params)?;
        let redundant = Redundant::from_params(params)?;
        let rtt_ms: u64 = params.take_in("max-rtt-ms", 0, 0..=60_000)?;
        let percent: f64 = params.take_in("max-loss", 0.0, 0.0..=100.0)?;
        let limits = Limits {
            rtt: (rtt_ms > 0).then(|| Duration::from_millis(rtt_ms)),
            loss: (percent > 0.0).then_some(percent / 100.0),
        };
        let inner: Box<dyn Scheduler> = match mode {
            SteeringMode::ActiveStandby => Box::new(ActiveStandby::default()),
            SteeringMode::SmallestDelay => Box::new(SmallestDelay),
            SteeringMode::LoadBalancing if autonomous => Box::new(Proportional::default()),
            SteeringMode::LoadBalancing => Box::new(weighted),
            SteeringMode::PriorityBased => Box::new(Priority::new(true)),
            SteeringMode::Redundant if primary => Box::new(Primary {
                priority: Priority::new(true),
                budget: Budget::new(COPIES),
            }),
            SteeringMode::Redundant => Box::new(redundant),
        };
        Ok(Self {
            mode,
            limits,
            exceeded: PerPath::default(),
            inner,
            demoter: Demoter::default(),
        })
    }

    /// Notes which paths exceed a limit; returns whether every usable one does.
    fn measure(&mut self, view: &SendView<'_>) -> bool {
        let mut all = true;
        for path in view.paths {
            let exceeded = self.exceeded.entry(view, path.id, || false);
            *exceeded = self.limits.exceeds(path, *exceeded);
            all &= *exceeded || !path.is_usable();
        }
        all
    }
}

impl Scheduler for Atsss {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        if !self.limits.any() || self.mode == SteeringMode::ActiveStandby {
            return self.inner.select(view);
        }
        let all = self.measure(view);
        let exceeded = &self.exceeded;
        let is_bad = |path: &PathView| exceeded.get(path.id) == Some(&true);
        if self.mode == SteeringMode::Redundant && !all {
            if view.unit.kind == UnitKind::Idle {
                return view.no_room();
            }
            return self.demoter.ask(&mut SmallestDelay, view, is_bad);
        }
        self.demoter.ask(&mut *self.inner, view, is_bad)
    }

    fn on_event(&mut self, event: &PathEvent) {
        self.inner.on_event(event);
        self.exceeded.on_event(event);
        self.demoter.on_event(event);
    }

    fn wants(&self) -> Wants {
        self.inner.wants()
    }
}

impl fmt::Debug for Atsss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Atsss");
        shown
            .field("mode", &self.mode)
            .field("limits", &self.limits);
        shown.finish_non_exhaustive()
    }
}

/// One path, as long as it answers and none of higher priority does.
#[derive(Debug, Default)]
struct ActiveStandby {
    active: Option<PathId>,
}

impl Scheduler for ActiveStandby {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        let active = self.active;
        let order = |path: &PathView| {
            let stands_by = Some(path.id) != active;
            (Reverse(path.priority), stands_by, rank(path))
        };
        let choice = lowest_by(view, order, Reason::Priority);
        let Some(best) = view.candidates().min_by_key(|path| order(path)) else {
            return choice;
        };
        self.active = Some(best.id);
        match choice.decision {
            // What is active will have room, or becomes doubtful.
            Decision::Send(id) if id != best.id => {
                hold_for(view, best, Reason::WaitForBetter).unwrap_or(choice)
            }
            _ => choice,
        }
    }
}

/// The lowest forward delay, where every candidate has one.
#[derive(Debug)]
struct SmallestDelay;

impl Scheduler for SmallestDelay {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        let lost = view.unit.kind == UnitKind::Retransmission;
        if lost
            || view
                .candidates()
                .any(|path| path.forward_delay_us.is_none())
        {
            return lowest_rtt(view);
        }
        let key = |path: &PathView| (path.forward_delay_us, rank(path));
        lowest_by(view, key, Reason::EarliestArrival)
    }
}

/// Shares in proportion to what each path delivers.
#[derive(Debug, Default)]
struct Proportional {
    owed: PerPath<f64>,
}

impl Scheduler for Proportional {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        let share = |path: &PathView| delivered_rate(path).max(1) as f64;
        let leaves = leaves(view);
        let open = || view.ready().filter(|path| !leaves(path));
        let sum: f64 = open().map(share).sum();
        let mut most: Option<(f64, &PathView)> = None;
        for path in open() {
            let owed = self.owed.entry(view, path.id, || 0.0);
            *owed += share(path) / sum;
            if most.is_none_or(|(best, _)| *owed > best) {
                most = Some((*owed, path));
            }
        }
        let Some((_, path)) = most else {
            return view.no_room();
        };
        if let Some(owed) = self.owed.get_mut(path.id) {
            *owed -= 1.0;
        }
        Choice::send(path.id, Reason::Weight)
    }

    fn on_event(&mut self, event: &PathEvent) {
        if let PathEvent::Abandoned { path } | PathEvent::Doubted { path } = event {
            self.owed.remove(*path);
        }
    }
}

/// By priority, with copies of critical units.
#[derive(Debug)]
struct Primary {
    priority: Priority,
    budget: Budget,
}

impl Scheduler for Primary {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        let choice = self.priority.select(view);
        self.budget.earn(view.unit.bytes);
        if view.unit.critical || view.unit.kind == UnitKind::Retransmission {
            return with_copies(view, choice, 1, &mut self.budget);
        }
        choice
    }
}

#[cfg(test)]
mod tests;
