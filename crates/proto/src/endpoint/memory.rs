//! Who gets the memory for what a server's applications write and clients do not acknowledge, when
//! there is too little ([`SendBudget`] says how much each may take while there is some).
//!
//! Writers that found no room wait, and are served in the order in which they came, as others give
//! back. That ends well while clients acknowledge. A client that acknowledges nothing must not hold
//! memory for ever: a connection that has waited for [`PATIENCE`] and holds less than an equal
//! share takes the place of the one that was furthest above its share all that time. That one is
//! closed.
//!
//! One timer: when the first that waits has waited for too long.

use super::{Endpoint, Handle, touch};
use crate::connection::Connection;
use crate::streams::SendBudget;
use crate::time::{Duration, Instant};
use std::collections::VecDeque;

/// How long writers wait until others are closed for them.
const PATIENCE: Duration = Duration::from_secs(10);

/// The smallest amount that connections can work with.
const MIN_BUDGET: u64 = 64 * 1024;

/// What connections hold is noted when somebody begins to wait, but not more often than this.
const WATCH_INTERVAL: Duration = Duration::from_secs(2);

/// The memory of one endpoint, and who waits for it: each connection once at the most.
#[derive(Debug)]
pub(super) struct Memory {
    budget: SendBudget,
    /// In the order in which they are served, with the time up to which it was found that they have
    /// to wait.
    waiting: VecDeque<(Handle, Instant)>,
    /// When the first of them has waited for too long, or earlier.
    deadline: Option<Instant>,
    /// How much had come back when writers were served last; none if they are to be looked at.
    served_at: Option<u64>,
    /// When somebody was left waiting for whom there may be room, if others take less than they
    /// may.
    left_some: Option<Instant>,
    /// When it was noted last what each connection holds.
    watched_from: Option<Instant>,
    /// Whether that was since somebody waits, or little before.
    is_watched: bool,
}

/// What one connection has to do with the memory.
#[derive(Debug, Default)]
pub(super) struct Holding {
    /// It is among those that wait.
    waits: bool,
    /// What it held, and had given back, when that was noted.
    held: u64,
    freed: u64,
}

impl Holding {
    /// Bytes that it holds now and held then.
    fn stuck(&self, connection: &Connection) -> u64 {
        let freed = connection.account().freed() - self.freed;
        self.held.saturating_sub(freed)
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            budget: SendBudget::new(u64::MAX),
            waiting: VecDeque::new(),
            deadline: None,
            served_at: None,
            left_some: None,
            watched_from: None,
            is_watched: false,
        }
    }
}

impl Memory {
    pub(super) fn budget(&self) -> SendBudget {
        self.budget.clone()
    }

    pub(super) fn set_limit(&mut self, limit: u64) {
        self.budget.set_limit(limit.max(MIN_BUDGET));
        self.served_at = None;
    }

    /// When to look who waits for too long.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Notes whether a connection waits, after it did something.
    pub(super) fn note(
        &mut self,
        now: Instant,
        handle: Handle,
        connection: &Connection,
        holding: &mut Holding,
    ) {
        if connection.waits_for_budget() && !std::mem::replace(&mut holding.waits, true) {
            self.waiting.push_back((handle, now));
            if connection.account().has_room() {
                // It came back since.
                self.served_at = None;
            }
            self.deadline.get_or_insert(now + PATIENCE);
        }
    }

    /// Whether enough came back since the last time to look who can be served, or was not taken by
    /// those that could then.
    fn is_worth_a_look(&self, now: Instant) -> bool {
        let worthwhile = self.budget.worthwhile();
        let freed = self.budget.freed();
        let came_back = self.served_at.is_none_or(|at| freed - at >= worthwhile);
        let was_left = self.left_some.is_some_and(|at| now > at);
        let has_news = came_back || was_left;
        !self.waiting.is_empty() && has_news && self.budget.free() >= worthwhile
    }

    /// Whether somebody waits now and it was not noted lately who holds what.
    fn is_to_watch(&mut self, now: Instant) -> bool {
        if self.waiting.is_empty() || std::mem::replace(&mut self.is_watched, true) {
            return false;
        }
        let is_recent = |from: Instant| now < from + WATCH_INTERVAL;
        !self.watched_from.is_some_and(is_recent)
    }
}

impl Endpoint {
    /// Wakes writers as far as there is room, the first that came first; returns whether there were
    /// any. Who holds its share already goes on waiting.
    pub(super) fn serve_writers(&mut self) -> bool {
        if !self.memory.is_worth_a_look(self.clock) {
            return false;
        }
        self.memory.left_some = None;
        self.memory.served_at = Some(self.memory.budget.freed());
        let worthwhile = self.memory.budget.worthwhile();
        let mut left = self.memory.budget.free();
        let mut has_woken = false;
        for (handle, since) in std::mem::take(&mut self.memory.waiting) {
            let Some(member) = self.connections.get_mut(&handle) else {
                continue;
            };
            let waits = member.connection.waits_for_budget();
            let has_to_wait = waits && !member.connection.account().has_room();
            if left < worthwhile || has_to_wait {
                if !has_to_wait {
                    self.memory.left_some = Some(self.clock);
                }
                self.memory.waiting.push_back((handle, since));
                continue;
            }
            member.holding.waits = false;
            member.connection.on_budget();
            touch(member, handle, &mut self.dirty, &mut self.ready);
            left -= worthwhile;
            has_woken = true;
        }
        if self.memory.waiting.is_empty() {
            self.memory.deadline = None;
            self.memory.is_watched = false;
        }
        has_woken
    }

    /// Closes connections that keep everything from those that have waited for too long.
    pub(super) fn relieve_memory(&mut self, now: Instant) {
        if self.memory.deadline.is_none_or(|at| at > now) {
            return;
        }
        let wanted = self.wanted_memory(now);
        let share = self.memory.budget.share();
        let mut stuck: Vec<_> = self
            .connections
            .iter()
            .map(|(handle, member)| (member.holding.stuck(&member.connection), *handle))
            .filter(|(stuck, _)| *stuck > share)
            .collect();
        stuck.sort_unstable();
        while self.memory.budget.free() < wanted
            && let Some((_, handle)) = stuck.pop()
        {
            self.work(handle, |connection| connection.close_for_memory(now));
        }
        self.note_holdings(now);
        let is_waited_for = !self.memory.waiting.is_empty();
        self.memory.deadline = is_waited_for.then(|| now + PATIENCE);
        self.memory.served_at = None;
        self.settle();
    }

    /// What those lack that waited for too long. They wait anew.
    fn wanted_memory(&mut self, now: Instant) -> u64 {
        let budget = &self.memory.budget;
        let (share, worthwhile) = (budget.share(), budget.worthwhile());
        let mut wanted = 0;
        for (handle, since) in &mut self.memory.waiting {
            let Some(member) = self.connections.get(handle) else {
                continue;
            };
            if now >= *since + PATIENCE {
                *since = now;
                let lacks = share.saturating_sub(member.connection.account().held());
                wanted += lacks.min(worthwhile);
            }
        }
        wanted
    }

    /// When somebody begins to wait, it is watched from then on who gives something back.
    pub(super) fn watch_memory(&mut self) {
        if self.memory.is_to_watch(self.clock) {
            self.note_holdings(self.clock);
        }
    }

    fn note_holdings(&mut self, now: Instant) {
        self.memory.watched_from = Some(now);
        for member in self.connections.values_mut() {
            let account = member.connection.account();
            member.holding.held = account.held();
            member.holding.freed = account.freed();
        }
    }
}
