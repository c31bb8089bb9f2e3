//! Which paths share a bottleneck, as their delays show (RFC 8382).
//!
//! Queues leave their mark on the delay of every packet that passes: how skewed its distribution
//! is, how much it varies, how often it swings around its mean. Paths whose marks are alike share
//! the queue. Any measure of the forward delay will do, with any offset that stays the same.
//!
//! Each path's samples are summed up over intervals of 350 ms, the same for all paths. Every fifth
//! interval is a round: the paths that are at a bottleneck are grouped, and two paths are judged
//! once enough rounds in a row agree. Paths that are not at a bottleneck are not judged: the last
//! verdict on them stands.

use crate::path::MAX_OPEN_PATHS;
use crate::time::{Duration, Instant};
use anabranch_wire::PathId;
use std::collections::VecDeque;

/// RFC 8382, section 2.2: T.
const INTERVAL: Duration = Duration::from_millis(350);
/// RFC 8382, section 2.2: N, intervals behind the frequency and the loss.
const LONG: usize = 50;
/// RFC 8382, section 2.2: M, intervals behind the other statistics.
const SHORT: usize = 30;
/// Of the last [`SHORT`] intervals, those that must have samples.
const ENOUGH: usize = 20;
/// Intervals from one round to the next; three rounds after [`SHORT`] intervals make 15 seconds.
const ROUND: u64 = 5;
/// Rounds that must agree that two paths share a bottleneck.
const TOGETHER: u8 = 3;
/// Rounds that must agree that they do not: until all samples have been replaced. Who couples
/// without need loses a little, who does not couple takes from others.
const APART: u8 = 6;
/// Samples in the last [`SHORT`] intervals below which statistics are noise.
const FEWEST_SAMPLES: f64 = 150.0;

/// RFC 8382, section 2.2: `c_s`, below which delays are skewed as those behind a full queue.
const SKEW_BOTTLENECK: f64 = 0.1;
/// RFC 8382, section 2.2: `c_h`, the same for a path that was at a bottleneck before.
const SKEW_STILL: f64 = 0.3;
/// RFC 8382, section 2.2: `p_v`, the share of the deviation that a swing must exceed.
const SWING: f64 = 0.7;
/// RFC 8382, section 2.2: `p_l`, above which loss alone proves a bottleneck.
const LOSSY: f64 = 0.05;
/// RFC 8382, section 2.2: `p_f`, `p_mad`, `p_s` and `p_d`: differences within a group are smaller.
const FREQUENCY_SPREAD: f64 = 0.1;
const VARIATION_SPREAD: f64 = 0.1;
const SKEW_SPREAD: f64 = 0.15;
const LOSS_SPREAD: f64 = 0.1;

/// What makes delays of a path comparable with earlier ones. When it changes, the path is measured
/// from the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Measure {
    /// Which of the path's routes.
    pub(crate) generation: u32,
    /// How the delay was taken.
    pub(crate) kind: MeasureKind,
}

/// How a delay was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MeasureKind {
    /// Round trip; acknowledgements returned on this path.
    RoundTrip(PathId),
    /// One way, by the peer's clock; the number counts how often that clock was set.
    OneWay(u64),
}

/// The state of all paths of a connection.
#[derive(Debug, Default)]
pub(crate) struct Bottlenecks {
    flows: Vec<Flow>,
    pairs: Vec<Pair>,
    /// When the interval in progress ends; `None` before the first sample.
    interval_ends: Option<Instant>,
    intervals: u64,
}

/// One path.
#[derive(Debug)]
struct Flow {
    path: PathId,
    measure: Measure,
    current: Interval,
    history: VecDeque<Interval>,
    /// The mean of the latest interval that had samples.
    latest_mean: Option<f64>,
    /// The mean of the intervals' means.
    mean: Option<f64>,
    /// On which side of the mean the delay was last.
    side: Option<Side>,
    was_bottlenecked: bool,
    /// The lowest path of its group, plus 1; 0 if it is in none.
    group: u16,
}

/// Sums over one interval.
#[derive(Debug, Clone, Copy, Default)]
struct Interval {
    samples: u32,
    /// Of delays, microseconds.
    sum: f64,
    /// Samples below the mean less those above.
    skew: i32,
    /// Of distances from the mean of the interval before.
    deviation: f64,
    acked: u64,
    lost: u64,
    /// Whether the delay swung to the other side of the mean.
    swung: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Above,
    Below,
}

/// RFC 8382, section 3.2.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Statistics {
    skew: f64,
    variation: f64,
    frequency: f64,
    loss: f64,
}

impl Statistics {
    /// RFC 8382, section 3.3.1.
    fn is_bottlenecked(&self, before: bool) -> bool {
        self.skew < SKEW_BOTTLENECK || (before && self.skew < SKEW_STILL) || self.loss > LOSSY
    }
}

/// What rounds say of two paths, the lower one first.
#[derive(Debug, Clone, Copy)]
struct Pair {
    paths: (PathId, PathId),
    together: bool,
    rounds: u8,
    verdict: Option<bool>,
}

impl Bottlenecks {
    /// A packet took this long to the peer, in microseconds from any epoch of the measure's.
    pub(crate) fn on_sample(
        &mut self,
        now: Instant,
        path: PathId,
        measure: Measure,
        delay_us: i64,
    ) {
        self.advance(now);
        let Some(at) = self.find_or_add(path, measure) else {
            return;
        };
        self.flows[at].take(delay_us as f64);
    }

    /// Counts packets of `path` that were acknowledged or declared lost.
    pub(crate) fn on_packets(&mut self, path: PathId, acked: u64, lost: u64) {
        if let Some(flow) = self.flows.iter_mut().find(|flow| flow.path == path) {
            flow.current.acked += acked;
            flow.current.lost += lost;
        }
    }

    /// Forgets a path that was given up.
    pub(crate) fn forget(&mut self, path: PathId) {
        self.flows.retain(|flow| flow.path != path);
        self.forget_pairs(path);
    }

    /// Whether two paths share a bottleneck; `None` until it is known.
    pub(crate) fn shares(&self, path: PathId, other: PathId) -> Option<bool> {
        if path == other {
            return Some(true);
        }
        let paths = (path.min(other), path.max(other));
        let pair = self.pairs.iter().find(|pair| pair.paths == paths)?;
        pair.verdict
    }

    /// Paths with the same number are known to share a bottleneck; 0 means not known to share one.
    pub(crate) fn group(&self, path: PathId) -> u16 {
        let flow = self.flows.iter().find(|flow| flow.path == path);
        flow.map_or(0, |flow| flow.group)
    }

    fn find_or_add(&mut self, path: PathId, measure: Measure) -> Option<usize> {
        let Some(at) = self.flows.iter().position(|flow| flow.path == path) else {
            if self.flows.len() >= MAX_OPEN_PATHS {
                return None;
            }
            self.flows.push(Flow::new(path, measure));
            return Some(self.flows.len() - 1);
        };
        let known = self.flows[at].measure;
        if known != measure {
            if known.generation != measure.generation {
                self.forget_pairs(path);
            }
            let group = self.flows[at].group;
            self.flows[at] = Flow {
                group,
                ..Flow::new(path, measure)
            };
        }
        Some(at)
    }

    fn forget_pairs(&mut self, path: PathId) {
        self.pairs
            .retain(|pair| pair.paths.0 != path && pair.paths.1 != path);
        self.form_groups();
    }

    /// Closes the intervals that are over.
    fn advance(&mut self, now: Instant) {
        let ends = *self.interval_ends.get_or_insert(now + INTERVAL);
        if now < ends {
            return;
        }
        if now.since(ends) > INTERVAL * SHORT as u32 {
            // Silence for so long leaves nothing to compare with.
            for flow in &mut self.flows {
                flow.restart();
            }
            self.interval_ends = Some(now + INTERVAL);
            return;
        }
        let mut ends = ends;
        while now >= ends {
            ends += INTERVAL;
            for flow in &mut self.flows {
                flow.close_interval();
            }
            self.intervals += 1;
            if self.intervals.is_multiple_of(ROUND) && self.flows.len() > 1 {
                self.hold_round();
            }
        }
        self.interval_ends = Some(ends);
    }

    fn hold_round(&mut self) {
        let mut measured: Vec<(PathId, Statistics)> = Vec::with_capacity(self.flows.len());
        let mut free: Vec<PathId> = Vec::new();
        for flow in &mut self.flows {
            let Some(statistics) = flow.statistics() else {
                continue;
            };
            flow.was_bottlenecked = statistics.is_bottlenecked(flow.was_bottlenecked);
            if flow.was_bottlenecked {
                measured.push((flow.path, statistics));
            } else {
                free.push(flow.path);
            }
        }
        let groups = divide(measured);
        for (at, group) in groups.iter().enumerate() {
            for (place, path) in group.iter().enumerate() {
                for other in &group[place + 1..] {
                    self.note(*path, *other, true);
                }
                let others = groups[at + 1..].iter().flatten().chain(&free);
                for other in others {
                    self.note(*path, *other, false);
                }
            }
        }
        self.form_groups();
    }

    fn note(&mut self, path: PathId, other: PathId, together: bool) {
        let paths = (path.min(other), path.max(other));
        let at = self.pairs.iter().position(|pair| pair.paths == paths);
        let at = at.unwrap_or_else(|| {
            self.pairs.push(Pair {
                paths,
                together,
                rounds: 0,
                verdict: None,
            });
            self.pairs.len() - 1
        });
        let pair = &mut self.pairs[at];
        if pair.together != together {
            (pair.together, pair.rounds) = (together, 0);
        }
        let needed = if together { TOGETHER } else { APART };
        pair.rounds = (pair.rounds + 1).min(needed);
        if pair.rounds == needed {
            pair.verdict = Some(together);
        }
    }

    /// Numbers the groups by their lowest path. What two pairs have in common is one group.
    fn form_groups(&mut self) {
        for flow in &mut self.flows {
            flow.group = 0;
        }
        for pair in self.pairs.iter().filter(|pair| pair.verdict == Some(true)) {
            let (path, other) = pair.paths;
            let group = |path: PathId| match self.group(path) {
                0 => path.0.min(u32::from(u16::MAX) - 1) as u16 + 1,
                group => group,
            };
            let (one, two) = (group(path), group(other));
            let number = one.min(two);
            for flow in &mut self.flows {
                let joins = flow.group != 0 && (flow.group == one || flow.group == two);
                if joins || flow.path == path || flow.path == other {
                    flow.group = number;
                }
            }
        }
    }
}

impl Flow {
    fn new(path: PathId, measure: Measure) -> Self {
        Self {
            path,
            measure,
            current: Interval::default(),
            history: VecDeque::new(),
            latest_mean: None,
            mean: None,
            side: None,
            was_bottlenecked: false,
            group: 0,
        }
    }

    fn restart(&mut self) {
        *self = Self {
            group: self.group,
            ..Self::new(self.path, self.measure)
        };
    }

    fn take(&mut self, delay: f64) {
        let current = &mut self.current;
        current.samples += 1;
        current.sum += delay;
        if let Some(mean) = self.mean {
            current.skew += i32::from(delay < mean) - i32::from(delay > mean);
        }
        if let Some(mean) = self.latest_mean {
            current.deviation += (delay - mean).abs();
        }
    }

    fn close_interval(&mut self) {
        let current = std::mem::take(&mut self.current);
        if self.history.len() == LONG {
            self.history.pop_front();
        }
        self.history.push_back(current);
        if current.samples == 0 {
            return;
        }
        let mean = current.sum / f64::from(current.samples);
        self.latest_mean = Some(mean);
        let means = self.recent(SHORT).filter(|past| past.samples > 0);
        let (count, sum) = means.fold((0.0, 0.0), |(count, sum), past| {
            (count + 1.0, sum + past.sum / f64::from(past.samples))
        });
        let long_mean = sum / count;
        self.mean = Some(long_mean);
        let margin = SWING * self.variation();
        let side = if mean > long_mean + margin {
            Side::Above
        } else if mean < long_mean - margin {
            Side::Below
        } else {
            return;
        };
        let swung = self.side.replace(side).is_some_and(|before| before != side);
        if let Some(last) = self.history.back_mut() {
            last.swung = swung;
        }
    }

    /// The `count` latest intervals, or all that there are.
    fn recent(&self, count: usize) -> impl Iterator<Item = &Interval> {
        self.history.iter().rev().take(count)
    }

    fn samples(&self) -> f64 {
        let samples = self.recent(SHORT).map(|past| f64::from(past.samples));
        samples.sum::<f64>().max(1.0)
    }

    /// The mean absolute deviation, microseconds.
    fn variation(&self) -> f64 {
        self.recent(SHORT).map(|past| past.deviation).sum::<f64>() / self.samples()
    }

    /// `None` until enough was measured.
    fn statistics(&self) -> Option<Statistics> {
        let sampled = self.recent(SHORT).filter(|past| past.samples > 0).count();
        let few = sampled < ENOUGH || self.samples() < FEWEST_SAMPLES;
        if self.history.len() < SHORT || few {
            return None;
        }
        let skew: f64 = self.recent(SHORT).map(|past| f64::from(past.skew)).sum();
        let swings = self.recent(LONG).filter(|past| past.swung).count();
        let (acked, lost) = self.recent(LONG).fold((0, 0), |(acked, lost), past| {
            (acked + past.acked, lost + past.lost)
        });
        Some(Statistics {
            skew: skew / self.samples(),
            variation: self.variation(),
            frequency: swings as f64 / self.history.len() as f64,
            loss: lost as f64 / ((acked + lost) as f64).max(1.0),
        })
    }
}

/// Paths at a bottleneck, divided by one statistic after the other (RFC 8382, section 3.3.1).
fn divide(flows: Vec<(PathId, Statistics)>) -> Vec<Vec<PathId>> {
    let by_frequency = split(
        vec![flows],
        |of| of.frequency,
        |high, low| high - low < FREQUENCY_SPREAD,
    );
    let by_variation = split(
        by_frequency,
        |of| of.variation,
        |high, low| high - low <= VARIATION_SPREAD * high,
    );
    let lossy = |of: &Statistics| of.loss > LOSSY;
    // Where much is lost, delays are those of the packets that found room: loss tells more.
    let by_kind = split(
        by_variation,
        move |of| f64::from(u8::from(lossy(of))),
        |high, low| high - low < 0.5,
    );
    let by_rest = by_kind.into_iter().flat_map(|group| {
        if group.first().is_some_and(|(_, of)| lossy(of)) {
            split(
                vec![group],
                |of| of.loss,
                |high, low| high - low < LOSS_SPREAD * high,
            )
        } else {
            split(
                vec![group],
                |of| of.skew,
                |high, low| high - low < SKEW_SPREAD,
            )
        }
    });
    by_rest
        .map(|group| group.into_iter().map(|(path, _)| path).collect())
        .collect()
}

/// Cuts each group where neighbours, in descending order of `key`, are not `alike`.
fn split(
    groups: Vec<Vec<(PathId, Statistics)>>,
    key: impl Fn(&Statistics) -> f64,
    alike: impl Fn(f64, f64) -> bool,
) -> Vec<Vec<(PathId, Statistics)>> {
    let mut parts: Vec<Vec<(PathId, Statistics)>> = Vec::new();
    for mut group in groups {
        group.sort_by(|one, two| key(&two.1).total_cmp(&key(&one.1)));
        let mut previous = None;
        for flow in group {
            let value = key(&flow.1);
            match (previous, parts.last_mut()) {
                (Some(high), Some(part)) if alike(high, value) => part.push(flow),
                _ => parts.push(vec![flow]),
            }
            previous = Some(value);
        }
    }
    parts
}

#[cfg(test)]
mod tests;
