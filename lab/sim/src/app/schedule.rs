//! A queue of items that wait for their starting times.

use anabranch_proto::time::Instant;
use std::collections::VecDeque;

#[derive(Debug)]
struct Entry<T> {
    at: Instant,
    /// Whether the host was already woken up for it, or need not be.
    passed: bool,
    item: T,
}

/// Items in order of their earliest starting times.
///
/// When its time has come, an item may still have to wait for a free slot or a stream. It then
/// waits for an event of the connection and no longer asks for a timer.
#[derive(Debug)]
pub(super) struct Schedule<T> {
    entries: VecDeque<Entry<T>>,
}

impl<T> Schedule<T> {
    /// Schedules `items`, each at the time that `at` returns for it.
    pub(super) fn new(mut items: Vec<T>, at: impl Fn(&T) -> Instant) -> Self {
        items.sort_by_key(&at);
        let entries = items.into_iter().map(|item| Entry::new(at(&item), item));
        Self {
            entries: entries.collect(),
        }
    }

    /// Adds an item, after those of the same time.
    pub(super) fn add(&mut self, at: Instant, item: T) {
        let place = self.entries.partition_point(|other| other.at <= at);
        self.entries.insert(place, Entry::new(at, item));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether the first item may begin.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.entries.front().is_some_and(|entry| entry.at <= now)
    }

    /// Takes the first item.
    pub(super) fn pop(&mut self) -> Option<T> {
        self.entries.pop_front().map(|entry| entry.item)
    }

    /// The host was woken up at `now`: items that are already due ask for no further timer.
    pub(super) fn pass(&mut self, now: Instant) {
        for entry in &mut self.entries {
            if entry.at > now {
                break;
            }
            entry.passed = true;
        }
    }

    /// When the host has to be woken up next.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        let mut waiting = self.entries.iter().filter(|entry| !entry.passed);
        waiting.next().map(|entry| entry.at)
    }
}

impl<T> Entry<T> {
    fn new(at: Instant, item: T) -> Self {
        let passed = at == Instant::ZERO;
        Self { at, passed, item }
    }
}
