//! The guard: a wrapper that keeps several paths from doing worse than the best one alone.
//!
//! It watches what the scheduler inside achieves and takes paths out that do harm. The scheduler
//! sees them as backups: they carry data only when no other path answers, and probes that keep
//! their estimates fresh.
//!
//! ```text
//!           three windows in a row whose goodput is below `margin` of the best path's
//!           or a delay that no receiver should wait for
//!  in use ----------------------------------------------------------------------------> demoted
//!         <----------------------------------------------------------------------------
//!           30 s are over, doubled each time up to 10 min
//!           or the next window is worse than the one before: then it stays in use as long
//! ```
//!
//! A window is ten seconds in which something always waited. Goodput is what was acknowledged, less
//! the copies; a path alone is taken to do what it delivered while its own window, and not the
//! application, was the limit. Three good windows make up for earlier demotions. The path that
//! delivers most, or with the lowest delay, is never demoted.
//!
//! Timers: none. Time is looked at whenever the scheduler is asked.

use crate::toolkit::units::micros;
use crate::toolkit::{Demoter, PerPath, Prober};
use anabranch_proto::sched::{
    Choice, Decision, ParamDoc, PathEvent, PathView, Scheduler, SendView, UnitKind, Wants, Wrapper,
};
use anabranch_proto::spec::{Params, SpecError};
use anabranch_proto::time::{Duration, Instant};
use anabranch_proto::wire::PathId;
use std::cmp::Reverse;

pub(crate) const ENTRY: Wrapper = Wrapper {
    name: "guard",
    summary: "takes paths out that make things worse than the best path alone",
    params: &[
        ParamDoc {
            key: "margin",
            default: "0.95",
            summary: "goodput to reach, as a share of the best path's own",
        },
        ParamDoc {
            key: "window-ms",
            default: "10000",
            summary: "how long goodput is measured before it is judged; thrice bad is bad",
        },
        ParamDoc {
            key: "max-wait-ms",
            default: "100",
            summary: "forward delay behind the fastest path beyond which a path is of no use",
        },
        ParamDoc {
            key: "out-ms",
            default: "30000",
            summary: "how long a path stays out the first time",
        },
    ],
    build: |params, inner| Ok(Box::new(Guard::from_params(params, inner)?)),
};

/// Bad windows in a row that are needed to act, and good ones to forget.
const WINDOWS: u32 = 3;
/// No path stays out for longer than this without another try.
const OUT_MAX: Duration = Duration::from_secs(600);
/// Without a question for this long, nothing waited and the window says nothing.
const PAUSE: Duration = Duration::from_millis(500);
/// How often rates are sampled.
const SAMPLE: Duration = Duration::from_millis(5);
/// A path this many times slower than the fastest, with less than a tenth of the rate, goes out.
const FAR_TOO_SLOW: u32 = 10;

/// Watches a scheduler and takes harmful paths from it.
#[derive(Debug)]
pub(crate) struct Guard {
    inner: Box<dyn Scheduler>,
    demoter: Demoter,
    prober: Prober,
    margin: f64,
    window: Duration,
    max_wait: Duration,
    out: Duration,
    paths: PerPath<Watch>,
    /// When the present window began.
    since: Instant,
    asked: Instant,
    sampled: Instant,
    acked: u64,
    /// Bytes that were sent more than once on purpose.
    copied: u64,
    bad: u32,
    good: u32,
    /// The path taken out last and the rate before, until a window has shown whether it helped.
    on_trial: Option<(PathId, f64)>,
}

/// What is known of a path.
#[derive(Debug, Clone, Copy, Default)]
struct Watch {
    /// The highest rate in this window while the path's own window was the limit.
    rate: u64,
    /// That rate in an earlier window.
    rate_before: u64,
    /// Out until then.
    out_until: Option<Instant>,
    /// How long it was out last; zero if never or forgotten.
    out_for: Duration,
    /// Not to be taken out again before then.
    immune_until: Instant,
}

impl Watch {
    fn estimate(&self) -> u64 {
        if self.rate > 0 {
            self.rate
        } else {
            self.rate_before
        }
    }
}

impl Guard {
    fn from_params(params: &mut Params, inner: Box<dyn Scheduler>) -> Result<Self, SpecError> {
        let ms = Duration::from_millis;
        Ok(Self {
            inner,
            demoter: Demoter::default(),
            prober: Prober::default(),
            margin: params.take_in("margin", 0.95, 0.0..=1.0)?,
            window: ms(params.take_in("window-ms", 10_000, 100..=600_000)?),
            max_wait: ms(params.take_in("max-wait-ms", 100, 1..=60_000)?),
            out: ms(params.take_in("out-ms", 30_000, 100..=600_000)?),
            paths: PerPath::default(),
            since: Instant::ZERO,
            asked: Instant::ZERO,
            sampled: Instant::ZERO,
            acked: 0,
            copied: 0,
            bad: 0,
            good: 0,
            on_trial: None,
        })
    }

    fn is_out(&self, path: PathId) -> bool {
        self.paths
            .get(path)
            .is_some_and(|watch| watch.out_until.is_some())
    }

    fn is_anything_out(&self) -> bool {
        self.paths
            .iter()
            .any(|(_, watch)| watch.out_until.is_some())
    }

    /// Begins a window.
    fn restart(&mut self, now: Instant) {
        (self.since, self.acked, self.copied) = (now, 0, 0);
        for (_, watch) in self.paths.iter_mut() {
            if watch.rate > 0 {
                watch.rate_before = std::mem::take(&mut watch.rate);
            }
        }
    }

    fn observe(&mut self, view: &SendView<'_>) {
        let now = view.now;
        if now.since(self.asked) > PAUSE {
            self.restart(now);
            (self.bad, self.good) = (0, 0);
        }
        self.asked = now;
        if now.since(self.sampled) < SAMPLE {
            return;
        }
        self.sampled = now;
        for path in view.paths {
            let watch = self.paths.entry(view, path.id, Watch::default);
            if !path.app_limited {
                watch.rate = watch.rate.max(path.delivery_rate);
            }
        }
        self.restore(now);
        self.take_out_the_hopeless(view);
        if now.since(self.since) >= self.window {
            self.judge(view);
            self.restart(now);
        }
    }

    /// Takes paths in whose time is over.
    fn restore(&mut self, now: Instant) {
        let mut any = false;
        for (_, watch) in self.paths.iter_mut() {
            if watch.out_until.is_some_and(|until| until <= now) {
                watch.out_until = None;
                any = true;
            }
        }
        if any {
            (self.bad, self.good) = (0, 0);
            self.restart(now);
        }
    }

    fn in_use<'a>(&self, view: &SendView<'a>) -> impl Iterator<Item = &'a PathView> {
        let usable = view.paths.iter().filter(|path| path.is_usable());
        usable.filter(|path| !self.is_out(path.id))
    }

    /// Paths whose delay alone makes them useless.
    fn take_out_the_hopeless(&mut self, view: &SendView<'_>) {
        let measured = |path: &&PathView| !path.smoothed_rtt.is_zero();
        let fastest = self
            .in_use(view)
            .filter(measured)
            .map(|path| path.smoothed_rtt)
            .min();
        let Some(fastest) = fastest else { return };
        let forward = self
            .in_use(view)
            .filter_map(|path| path.forward_delay_us)
            .min();
        let total: u128 = self
            .in_use(view)
            .map(|path| u128::from(path.delivery_rate))
            .sum();
        let is_hopeless = |path: &&PathView| {
            let behind = path
                .forward_delay_us
                .zip(forward)
                .map_or(0, |(own, least)| {
                    u128::from(own.saturating_sub(least).unsigned_abs())
                });
            let thin = path.delivery_rate > 0 && u128::from(path.delivery_rate) * 10 < total;
            behind > micros(self.max_wait)
                || (thin && path.smoothed_rtt > fastest.saturating_mul(FAR_TOO_SLOW))
        };
        let may = |path: &&PathView| self.may_go(path.id, view.now);
        let hopeless = self.in_use(view).filter(is_hopeless).find(may);
        if let Some(path) = hopeless
            && self.in_use(view).nth(1).is_some()
        {
            self.take_out(path.id, view.now);
        }
    }

    fn may_go(&self, path: PathId, now: Instant) -> bool {
        self.paths
            .get(path)
            .is_none_or(|watch| watch.immune_until <= now)
    }

    fn take_out(&mut self, path: PathId, now: Instant) {
        if let Some(watch) = self.paths.get_mut(path) {
            watch.out_for = if watch.out_for.is_zero() {
                self.out
            } else {
                watch.out_for.saturating_mul(2).min(OUT_MAX)
            };
            watch.out_until = Some(now + watch.out_for);
        }
        (self.bad, self.good) = (0, 0);
        self.restart(now);
    }

    /// The end of a window.
    fn judge(&mut self, view: &SendView<'_>) {
        let elapsed = view.now.since(self.since).as_secs_f64();
        let goodput = self.acked.saturating_sub(self.copied) as f64 / elapsed;
        if let Some((path, before)) = self.on_trial.take()
            && goodput < before * self.margin
        {
            // It helped after all.
            if let Some(watch) = self.paths.get_mut(path) {
                watch.out_until = None;
                watch.immune_until = view.now + watch.out_for;
            }
            return;
        }
        let Some((single, worst)) = self.best_and_worst(view) else {
            return;
        };
        if goodput >= single as f64 * self.margin {
            (self.bad, self.good) = (0, self.good + 1);
            if self.good >= WINDOWS {
                self.forgive();
            }
            return;
        }
        (self.bad, self.good) = (self.bad + 1, 0);
        if self.bad >= WINDOWS
            && let Some(worst) = worst
        {
            self.take_out(worst, view.now);
            self.on_trial = Some((worst, goodput));
        }
    }

    /// What the best path would do alone, and which one is the worst that may go out. `None` if
    /// nothing is known or there is only one path.
    fn best_and_worst(&self, view: &SendView<'_>) -> Option<(u64, Option<PathId>)> {
        let estimate = |path: &PathView| self.paths.get(path.id).map_or(0, Watch::estimate);
        let key = |path: &&PathView| (estimate(path), Reverse(path.smoothed_rtt), Reverse(path.id));
        let best = self.in_use(view).max_by_key(key)?;
        let single = Some(estimate(best)).filter(|rate| *rate > 0)?;
        let others = || self.in_use(view).filter(|path| path.id != best.id);
        others().next()?;
        let may = others().filter(|path| self.may_go(path.id, view.now));
        Some((single, may.min_by_key(key).map(|path| path.id)))
    }

    fn forgive(&mut self) {
        for (_, watch) in self.paths.iter_mut() {
            if watch.out_until.is_none() {
                watch.out_for = Duration::ZERO;
            }
        }
    }

    fn count_copies(&mut self, view: &SendView<'_>, choice: &Choice) {
        let copies = match choice.decision {
            Decision::Copy(_) => 1,
            Decision::Duplicate(paths) => paths.len().saturating_sub(1) as u64,
            _ => 0,
        };
        let packet = view
            .paths
            .first()
            .map_or(0, |path| u64::from(path.max_datagram_size));
        let bytes = match view.unit.kind {
            UnitKind::Idle => packet,
            _ => view.unit.bytes.min(packet),
        };
        self.copied = self.copied.saturating_add(copies * bytes);
    }
}

impl Scheduler for Guard {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        if view.unit.kind != UnitKind::Idle {
            self.observe(view);
        }
        let choice = if self.is_anything_out() {
            let paths = &self.paths;
            let is_out = |path: &PathView| {
                paths
                    .get(path.id)
                    .is_some_and(|watch| watch.out_until.is_some())
            };
            let choice = self.demoter.ask(&mut *self.inner, view, is_out);
            self.prober
                .add(view, choice, |path| path.is_usable() && is_out(path))
        } else {
            self.inner.select(view)
        };
        self.count_copies(view, &choice);
        choice
    }

    fn on_event(&mut self, event: &PathEvent) {
        self.inner.on_event(event);
        self.demoter.on_event(event);
        self.prober.on_event(event);
        self.paths.on_event(event);
        match event {
            PathEvent::Acked { bytes, .. } => self.acked = self.acked.saturating_add(*bytes),
            PathEvent::Abandoned { path } => {
                self.on_trial = self.on_trial.filter(|(of, _)| of != path);
            }
            _ => {}
        }
    }

    fn wants(&self) -> Wants {
        self.inner.wants()
    }
}

#[cfg(test)]
mod tests;
