//! The scheduler: what it sees, what it decides, and what it learns from.
//!
//! ```text
//! fast path full, slow one free
//!   wait: the next unit that the fast path takes is what was decided about
//!   send: the unit on the slow path is
//! the first acknowledgement on that path for bytes sent from then on ends the decision
//!   reward = 20 ms / time since the decision, at most 1
//! ```
//!
//! One decision per path is followed at a time. A wait that times out earns nothing, and one that
//! is given up at the next event counts for nothing.
//!
//! While it learns, a twin decides a part of the time by ECF's rule; every ten seconds both records
//! are compared, and after 30 s a learner that earns less than nine tenths of what the rule earns
//! hands over to it for good.

use crate::bandit::Arm;
use anabranch_proto::path::MAX_OPEN_PATHS;
use anabranch_proto::sched::{
    Choice, Entry, ParamDoc, PathEvent, PathView, Reason, Scheduler, SendView, UnitKind, lowest_rtt,
};
use anabranch_proto::spec::{Params, SpecError};
use anabranch_proto::time::{Duration, Instant};
use anabranch_proto::wire::PathId;
use anabranch_schedulers::toolkit::Patience;

/// What users see of it: `--scheduler peekaboo:alpha=0.75` in a program that registers it.
pub const PEEKABOO: Entry = Entry {
    name: "peekaboo",
    summary: "learns when waiting for the fast path pays (experimental)",
    params: &[
        ParamDoc {
            key: "alpha",
            default: "0.75",
            summary: "how much doubt counts: more of it explores more",
        },
        ParamDoc {
            key: "forget",
            default: "0.999",
            summary: "part of what was learnt that stays with each reward",
        },
    ],
    build: |params| Ok(Box::new(Peekaboo::from_params(params)?)),
};

/// Numbers of a context.
const N: usize = 6;

/// An acknowledgement that comes this soon is as good as any.
const BEST: Duration = Duration::from_millis(20);
/// Of so many decisions in a row, the last is the fixed rule's: the record to compare with.
const TURN: u32 = 8;
/// No verdict before this much time.
const TRIAL: Duration = Duration::from_secs(30);
/// How often the records are compared.
const CHECK: Duration = Duration::from_secs(10);
/// What is left of a record after another reward, of either author.
const FADE: f64 = 0.995;
/// Rewards, less what faded, that a record needs to count.
const WEIGHT_MIN: f64 = 10.0;
/// The learner must earn this part of what the rule earns.
const GOOD_ENOUGH: f64 = 0.9;

/// What a decision was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Wait,
    Send,
}

/// Who took a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Author {
    Learner,
    Rule,
}

/// A decision whose outcome is awaited.
#[derive(Debug, Clone, Copy)]
struct Open {
    path: PathId,
    action: Action,
    author: Author,
    context: [f64; N],
    taken: Instant,
    /// Bytes sent on the path before the one decided about; they must be acknowledged first.
    ahead: u64,
    /// The unit decided about was sent.
    is_sent: bool,
    /// It was acknowledged: the next question tells when.
    is_acked: bool,
}

/// Rewards of one author. Both records fade together, so that they tell of the same time.
#[derive(Debug, Clone, Copy, Default)]
struct Record {
    sum: f64,
    weight: f64,
}

impl Record {
    fn fade(&mut self) {
        self.sum *= FADE;
        self.weight *= FADE;
    }

    fn add(&mut self, reward: f64) {
        self.sum += reward;
        self.weight += 1.0;
    }

    fn mean(&self) -> Option<f64> {
        (self.weight >= WEIGHT_MIN).then(|| self.sum / self.weight)
    }
}

/// Learns when to wait.
#[derive(Debug)]
pub struct Peekaboo {
    alpha: f64,
    forget: f64,
    wait: Arm<N>,
    send: Arm<N>,
    open: [Option<Open>; MAX_OPEN_PATHS],
    /// The wait under way: one decision until something happens, however often it is asked about.
    waiting: Option<PathId>,
    started: Option<Instant>,
    checked: Instant,
    decisions: u32,
    learner: Record,
    rule: Record,
    is_disabled: bool,
    patience: Patience,
}

impl Peekaboo {
    fn from_params(params: &mut Params) -> Result<Self, SpecError> {
        Ok(Self {
            alpha: params.take_in("alpha", 0.75, 0.0..=100.0)?,
            forget: params.take_in("forget", 0.999, 0.5..=1.0)?,
            wait: Arm::default(),
            send: Arm::default(),
            open: [None; MAX_OPEN_PATHS],
            waiting: None,
            started: None,
            checked: Instant::ZERO,
            decisions: 0,
            learner: Record::default(),
            rule: Record::default(),
            is_disabled: false,
            patience: Patience::default(),
        })
    }

    /// Whether it has handed over to the fixed rule.
    pub fn is_disabled(&self) -> bool {
        self.is_disabled
    }

    fn learnt(&self, context: &[f64; N]) -> Action {
        let wait = self.wait.value(context, self.alpha);
        if wait > self.send.value(context, self.alpha) {
            Action::Wait
        } else {
            Action::Send
        }
    }

    fn decide(&mut self, view: &SendView<'_>, fast: &PathView, slow: &PathView) -> Action {
        let context = context(view, fast, slow);
        self.decisions = self.decisions.wrapping_add(1);
        let author = if self.is_disabled || self.decisions.is_multiple_of(TURN) {
            Author::Rule
        } else {
            Author::Learner
        };
        let action = match author {
            Author::Learner => self.learnt(&context),
            Author::Rule => rule(view, fast, slow),
        };
        let path = match action {
            Action::Wait => fast,
            Action::Send => slow,
        };
        self.follow(Open {
            path: path.id,
            action,
            author,
            context,
            taken: view.now,
            ahead: path.bytes_in_flight,
            is_sent: false,
            is_acked: false,
        });
        action
    }

    /// Follows a decision unless one of its path is followed already.
    fn follow(&mut self, decision: Open) {
        let is_known = |open: &Option<Open>| open.is_some_and(|open| open.path == decision.path);
        if self.is_disabled || self.open.iter().any(is_known) {
            return;
        }
        if let Some(free) = self.open.iter_mut().find(|open| open.is_none()) {
            *free = Some(decision);
        }
    }

    fn settle(&mut self, decision: &Open, reward: f64) {
        let arm = match decision.action {
            Action::Wait => &mut self.wait,
            Action::Send => &mut self.send,
        };
        arm.forget(self.forget);
        arm.reward(&decision.context, reward);
        self.learner.fade();
        self.rule.fade();
        match decision.author {
            Author::Learner => self.learner.add(reward),
            Author::Rule => self.rule.add(reward),
        }
    }

    /// Ends decisions about `path` by what `step` makes of them: a reward, or nothing yet.
    fn conclude(&mut self, path: PathId, step: impl Fn(&mut Open) -> Option<f64>) {
        for at in 0..self.open.len() {
            let Some(open) = self.open[at].as_mut().filter(|open| open.path == path) else {
                continue;
            };
            let decision = *open;
            if let Some(reward) = step(open) {
                self.open[at] = None;
                self.settle(&decision, reward);
            }
        }
    }

    /// Rewards what was acknowledged since the last question.
    fn reap(&mut self, now: Instant) {
        for at in 0..self.open.len() {
            if let Some(decision) = self.open[at].filter(|open| open.is_acked) {
                self.open[at] = None;
                let took = now.since(decision.taken).max(BEST);
                self.settle(&decision, BEST.as_secs_f64() / took.as_secs_f64());
            }
        }
    }

    /// Hands over for good if the rule does clearly better.
    fn check(&mut self, now: Instant) {
        let started = *self.started.get_or_insert(now);
        if self.is_disabled || now.since(self.checked) < CHECK || now.since(started) < TRIAL {
            return;
        }
        self.checked = now;
        if let (Some(learner), Some(rule)) = (self.learner.mean(), self.rule.mean())
            && learner < GOOD_ENOUGH * rule
        {
            self.is_disabled = true;
            self.open = [None; MAX_OPEN_PATHS];
        }
    }
}

/// Rates in units of what both paths can do together: windows, what is under way and what the
/// connection may still send, over each path's RTT.
fn context(view: &SendView<'_>, fast: &PathView, slow: &PathView) -> [f64; N] {
    let per =
        |bytes: u64, path: &PathView| bytes as f64 / path.smoothed_rtt.as_secs_f64().max(1e-6);
    let window = view.backlog.send_window.min(1 << 48);
    let scale = per(fast.congestion_window, fast) + per(slow.congestion_window, slow);
    let part = |rate: f64| (rate / scale.max(1.0)).min(1.0);
    [
        part(per(fast.congestion_window, fast)),
        part(per(slow.bytes_in_flight, slow)),
        part(per(window, fast)),
        part(per(window, slow)),
        part(per(fast.bytes_in_flight, fast)),
        part(per(slow.congestion_window, slow)),
    ]
}

/// ECF's comparison without hysteresis.
fn rule(view: &SendView<'_>, fast: &PathView, slow: &PathView) -> Action {
    let seconds = |time: Duration| time.as_secs_f64();
    let window = |path: &PathView| (path.congestion_window as f64).max(1.0);
    let margin = seconds(fast.rttvar.max(slow.rttvar));
    let waiting = view.backlog.total() as f64;
    let rounds = waiting.max(window(fast)) / window(fast) + 1.0;
    let later = seconds(fast.smoothed_rtt) * rounds < seconds(slow.smoothed_rtt) + margin;
    let on_slow = seconds(slow.smoothed_rtt) * waiting.max(window(slow)) / window(slow);
    if later && on_slow >= 2.0 * seconds(fast.smoothed_rtt) + margin {
        Action::Wait
    } else {
        Action::Send
    }
}

fn by_rtt(path: &PathView) -> (bool, Duration, PathId) {
    (path.smoothed_rtt.is_zero(), path.smoothed_rtt, path.id)
}

impl Scheduler for Peekaboo {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        self.reap(view.now);
        self.check(view.now);
        let fast = view.candidates().min_by_key(|path| by_rtt(path));
        let slow = view.ready().min_by_key(|path| by_rtt(path));
        let (Some(fast), Some(slow)) = (fast, slow) else {
            return view.no_room();
        };
        let decided = fast.id == slow.id || slow.smoothed_rtt.is_zero();
        if decided || view.unit.kind == UnitKind::Retransmission {
            self.waiting = None;
            self.patience.end();
            return lowest_rtt(view);
        }
        let waits = self.waiting == Some(fast.id) || {
            self.waiting = None;
            self.decide(view, fast, slow) == Action::Wait
        };
        if !waits {
            // A wait that was given up was none.
            let is_given_up = |open: &Open| open.action == Action::Wait && !open.is_sent;
            for open in &mut self.open {
                *open = open.filter(|open| !is_given_up(open));
            }
            self.patience.end();
            return Choice::send(slow.id, Reason::Spill);
        }
        self.waiting = Some(fast.id);
        let choice = self.patience.wait_for(view, fast, Reason::WaitForBetter);
        if choice.reason != Reason::WaitForBetter {
            // It waited in vain.
            self.waiting = None;
            self.conclude(fast.id, |open| {
                (open.action == Action::Wait && !open.is_sent).then_some(0.0)
            });
        }
        choice
    }

    fn on_event(&mut self, event: &PathEvent) {
        self.patience.on_event(event);
        match *event {
            PathEvent::Sent { path, .. } => self.conclude(path, |open| {
                open.is_sent = true;
                None
            }),
            PathEvent::Acked { path, bytes, .. } => {
                self.waiting = None;
                self.conclude(path, |open| {
                    open.is_acked |= open.is_sent && bytes > open.ahead;
                    open.ahead = open.ahead.saturating_sub(bytes);
                    None
                });
            }
            PathEvent::Lost { path, bytes } => {
                self.waiting = None;
                self.conclude(path, |open| {
                    open.ahead = open.ahead.saturating_sub(bytes);
                    None
                });
            }
            PathEvent::Abandoned { path } | PathEvent::Doubted { path } => {
                self.waiting = self.waiting.filter(|waiting| *waiting != path);
                self.conclude(path, |_| Some(0.0));
            }
            PathEvent::Written => self.waiting = None,
            _ => {}
        }
    }
}

#[cfg(test)]
#[path = "peekaboo/tests.rs"]
mod tests;
