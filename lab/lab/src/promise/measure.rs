//! What all links did in a world, against each of them alone and against an oracle.

use super::Promise;
use super::world::{Condition, Work, World};
use crate::backend::Backend;
use crate::backend::sim::Sim;
use crate::plan::{Changes, Plan, Run};
use crate::results::{Outcome, Status};
use crate::scenario::Document;
use anabranch_schedulers::{Names, RECOMMENDED};
use anabranch_sim::Seed;

/// How many bins of the series the ideal time has: the oracle is exact to a fraction of that.
const DETAIL: f64 = 500.0;

/// What the figures of a world are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Figure {
    /// Seconds until the last byte of a file was there.
    Completion,
    /// Seconds that 95 % of the requests took at most.
    Requests,
    /// The share of datagrams that came after their deadline or not at all.
    Late,
}

/// The result of one world.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// The world's seed.
    pub seed: u64,
    /// What the figures are.
    pub figure: Figure,
    /// What makes the world hard.
    pub conditions: Vec<Condition>,
    /// How many links the world has.
    pub links: usize,
    /// The figure with all links; infinite if the time limit of the run was reached.
    pub all: f64,
    /// The figure of the best link alone.
    pub best: f64,
    /// The name of the best link.
    pub best_link: &'static str,
    /// The round trip of the best link in seconds, without queues.
    pub round_trip: f64,
    /// Seconds in which an oracle is done that gets from each link what that link alone delivered,
    /// from when it can be used. For files only.
    pub oracle: Option<f64>,
    /// Stream bytes that arrived more than once, as a share of what was sent.
    pub twice: f64,
}

impl Figure {
    /// Its name in tables, with the unit.
    pub fn name(self) -> &'static str {
        match self {
            Self::Completion => "completion_s",
            Self::Requests => "request_p95_s",
            Self::Late => "late_share",
        }
    }
}

impl Measured {
    /// How much faster than the best link all links are: below 1 they are slower. For late
    /// datagrams, of which there may be none, the share that is in time is compared.
    pub fn gain(&self) -> f64 {
        match self.figure {
            // Nothing in time, or never done, by either.
            _ if self.all.total_cmp(&self.best).is_eq() => 1.0,
            Figure::Late => (1.0 - self.all) / (1.0 - self.best),
            _ => self.best / self.all,
        }
    }

    /// How much of the oracle is reached.
    pub fn of_oracle(&self) -> Option<f64> {
        Some(self.oracle? / self.all)
    }

    /// Whether it took longer than `factor` times the best link and one of its round trips. Of
    /// datagrams, one in a hundred more may be late for each 2 % in the factor.
    pub fn breaks(&self, factor: f64) -> bool {
        match self.figure {
            Figure::Late => self.all > self.best + (factor - 1.0) / 2.0,
            _ => self.all > factor * self.best + self.round_trip,
        }
    }
}

impl Promise {
    /// Runs a world with all links, and with each alone: each [so often](Promise::draws), with
    /// other losses and jitter by chance every time, of which the median one counts. In a
    /// [control](Promise::control) the best link alone runs once more in the place of all links.
    ///
    /// # Errors
    /// The world is not a valid scenario, or a run failed for a reason other than time: with the
    /// seed.
    pub fn measure(&self, world: &World, names: &Names) -> Result<Measured, String> {
        let problem = |what: String| format!("world {}: {what}", world.seed);
        let scheduler = if self.control {
            RECOMMENDED
        } else {
            &self.scheduler
        };
        let text = world.scenario(scheduler, self.congestion.as_deref(), DETAIL);
        let file = format!("promise-{}.toml", world.seed);
        let document = Document::parse(&file, &text).map_err(|error| problem(error.to_string()))?;
        let document = document.with_names(names.clone());
        let plan = Plan::make(&document, &Changes::default());
        let plan = plan.map_err(|error| problem(error.to_string()))?;
        let sim = Sim::new(names.clone());
        let carry_out = |run: &Run| {
            let outcome = median_of(self.draws, kind(world), run, &sim);
            outcome.map_err(|reason| problem(format!("{}: {reason}", run.contender)))
        };
        let of_one = |run: &Run| Some((only_link(run)?, run.clone()));
        let mut singles = Vec::new();
        for (link, run) in plan.runs.iter().filter_map(of_one) {
            singles.push((link, carry_out(&run)?));
        }
        let best = best(world, &singles).ok_or_else(|| problem("no run with one link".into()))?;
        let other = if self.control {
            plan.runs.iter().filter_map(of_one).find_map(|(link, run)| {
                let seed = Seed(run.seed).derive("control", 0).0;
                (link == best.1).then_some(Run { seed, ..run })
            })
        } else {
            let mut runs = plan.runs.iter();
            runs.find(|run| only_link(run).is_none()).cloned()
        };
        let other = other.ok_or_else(|| problem("no run with all links".into()))?;
        Ok(judge(world, &carry_out(&other)?, best, &singles))
    }
}

/// Carries a run out `draws` times, each with other luck, and picks the one whose figure is the
/// median, the worse one of two; an error says why a run failed for a reason other than time.
fn median_of(draws: u32, kind: Figure, run: &Run, sim: &Sim) -> Result<Outcome, String> {
    let mut outcomes = Vec::new();
    for draw in 0..draws.max(1) {
        let seed = match draw {
            0 => run.seed,
            _ => Seed(run.seed).derive("draw", u64::from(draw)).0,
        };
        let outcome = sim.run(&Run {
            seed,
            ..run.clone()
        });
        if !matches!(outcome.status, Status::Ok | Status::Timeout) {
            return Err(outcome.reason);
        }
        outcomes.push(outcome);
    }
    outcomes.sort_by(|a, b| figure(kind, a).total_cmp(&figure(kind, b)));
    Ok(outcomes.swap_remove(outcomes.len() / 2))
}

/// What the best link did alone, and which it is.
fn best(world: &World, singles: &[(usize, Outcome)]) -> Option<(f64, usize)> {
    let kind = kind(world);
    let alone = singles.iter().map(|(link, one)| (figure(kind, one), *link));
    alone.min_by(|a, b| a.0.total_cmp(&b.0))
}

fn kind(world: &World) -> Figure {
    match world.work {
        Work::File(_) => Figure::Completion,
        Work::Requests(..) => Figure::Requests,
        Work::Datagrams(..) => Figure::Late,
    }
}

/// The link of a run with one link only.
fn only_link(run: &Run) -> Option<usize> {
    match run.scenario.transport.paths[..] {
        [path] if run.single => Some(path),
        _ => None,
    }
}

fn judge(
    world: &World,
    all: &Outcome,
    (best, link): (f64, usize),
    singles: &[(usize, Outcome)],
) -> Measured {
    let kind = kind(world);
    let oracle = match world.work {
        Work::File(bytes) => oracle(bytes, singles),
        _ => None,
    };
    Measured {
        seed: world.seed,
        figure: kind,
        conditions: world.conditions.clone(),
        links: world.links(),
        all: figure(kind, all),
        best,
        best_link: World::link_name(link),
        round_trip: world.round_trip(link),
        oracle,
        twice: all.duplicate_bytes.unwrap_or(0) as f64 / all.bytes.max(1) as f64,
    }
}

pub(super) fn figure(kind: Figure, outcome: &Outcome) -> f64 {
    let seconds = |time: Option<f64>| match outcome.status {
        Status::Ok => time.unwrap_or(f64::INFINITY),
        _ => f64::INFINITY,
    };
    match kind {
        Figure::Completion => seconds(outcome.completion_s),
        Figure::Requests => seconds(outcome.unit_p95_s),
        Figure::Late => {
            let sent = outcome.sent_units.unwrap_or(0);
            outcome.late_units as f64 / sent.max(1) as f64
        }
    }
}

/// When the sum of what the links delivered alone holds the file. The link whose handshake is over
/// first begins; the others can be used from then on, and take their own time from there.
fn oracle(bytes: u64, singles: &[(usize, Outcome)]) -> Option<f64> {
    let handshake = |(link, one): &(usize, Outcome)| Some((one.handshake_s?, *link));
    let handshakes = singles.iter().filter_map(handshake);
    let (over, first) = handshakes.min_by(|a, b| a.0.total_cmp(&b.0))?;
    let mut arrivals: Vec<(f64, f64, f64)> = Vec::new();
    for (link, one) in singles {
        let shift = if *link == first { 0.0 } else { over };
        let mut from = 0.0;
        for bin in one.series.iter().filter(|bin| bin.path == 0) {
            arrivals.push((from + shift, bin.t_s + shift, bin.goodput_bytes as f64));
            from = bin.t_s;
        }
    }
    let bytes = bytes as f64;
    let held = |at: f64| -> f64 {
        let part = |(from, to, bytes): &(f64, f64, f64)| {
            bytes * ((at - from) / (to - from).max(1e-12)).clamp(0.0, 1.0)
        };
        arrivals.iter().map(part).sum()
    };
    let last = arrivals.iter().map(|(_, to, _)| *to).fold(0.0, f64::max);
    if held(last) < bytes * 0.999_999 {
        return None;
    }
    let (mut early, mut late) = (0.0, last);
    for _ in 0..50 {
        let middle = f64::midpoint(early, late);
        if held(middle) < bytes {
            early = middle;
        } else {
            late = middle;
        }
    }
    Some(late)
}
