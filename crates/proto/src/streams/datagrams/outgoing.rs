//! The datagrams that wait to be sent: a queue for each class, with one bound over all.

use super::{DatagramOptions, OVERHEAD};
use crate::sched::ClassSet;
use crate::time::Instant;
use bytes::Bytes;
use smallvec::SmallVec;
use std::collections::VecDeque;

/// One that waits.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) data: Bytes,
    pub(super) options: DatagramOptions,
    /// Its place in the order in which all of them came.
    pub(super) turn: u64,
    /// Until when it may be sent again, if it was sent.
    pub(super) until: Option<Instant>,
}

/// What waits. The oldest goes first, within a class and among the classes that may send.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// By class; the first is always there, the others once they are used.
    classes: SmallVec<[VecDeque<Item>; 1]>,
    turn: u64,
    bytes: usize,
    cost: usize,
    limit: usize,
}

impl Outgoing {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            classes: SmallVec::from_iter([VecDeque::new()]),
            turn: 0,
            bytes: 0,
            cost: 0,
            limit,
        }
    }

    /// Whether one of `length` bytes stays within the limit. One always does.
    pub(super) fn has_space(&self, length: usize) -> bool {
        self.is_empty() || self.cost + length + OVERHEAD <= self.limit
    }

    pub(super) fn is_empty(&self) -> bool {
        self.cost == 0
    }

    /// Whether at least half of the room is free.
    pub(super) fn is_half_free(&self) -> bool {
        self.cost <= self.limit / 2
    }

    /// Bytes of all payloads.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a class beside the first was ever used.
    pub(super) fn has_classes(&self) -> bool {
        self.classes.len() > 1
    }

    /// The classes of what waits.
    pub(super) fn waiting(&self) -> ClassSet {
        let queues = (0..).zip(&self.classes);
        let waiting = queues.filter(|(_, queue)| !queue.is_empty());
        waiting.map(|(class, _)| class).collect()
    }

    pub(super) fn push(&mut self, data: Bytes, options: DatagramOptions) {
        let class = usize::from(options.class);
        if class >= self.classes.len() {
            self.classes.resize_with(class + 1, VecDeque::new);
        }
        self.bytes += data.len();
        self.cost += data.len() + OVERHEAD;
        let turn = self.turn;
        self.turn += 1;
        self.classes[class].push_back(Item {
            data,
            options,
            turn,
            until: None,
        });
    }

    /// Puts one back that was sent, before what came after it.
    pub(super) fn put_back(&mut self, item: Item) {
        let Some(queue) = self.classes.get_mut(usize::from(item.options.class)) else {
            return;
        };
        self.bytes += item.data.len();
        self.cost += item.data.len() + OVERHEAD;
        let at = queue.partition_point(|other| other.turn < item.turn);
        queue.insert(at, item);
    }

    /// The oldest of these classes.
    pub(super) fn front(&self, of: ClassSet) -> Option<&Item> {
        if let [only] = &self.classes[..] {
            return only.front().filter(|_| of.contains(0));
        }
        let queues = (0..).zip(&self.classes);
        let queues = queues.filter(|(class, _)| of.contains(*class));
        let fronts = queues.filter_map(|(_, queue)| queue.front());
        fronts.min_by_key(|item| item.turn)
    }

    /// Takes the oldest of a class.
    pub(super) fn pop(&mut self, class: u8) -> Option<Item> {
        let item = self.classes.get_mut(usize::from(class))?.pop_front()?;
        self.bytes -= item.data.len();
        self.cost -= item.data.len() + OVERHEAD;
        Some(item)
    }

    /// Drops those at the front of their class that are late, and tells of each.
    pub(super) fn drop_late(&mut self, now: Instant, mut dropped: impl FnMut(&Item)) {
        for class in 0..self.classes.len() {
            let late = |queue: &VecDeque<Item>| {
                let front = queue.front();
                front.is_some_and(|item| item.options.is_late(now))
            };
            while late(&self.classes[class]) {
                self.pop(class as u8).iter().for_each(&mut dropped);
            }
        }
    }

    /// Drops what `keep` refuses; returns how many that were.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&Item) -> bool) -> u64 {
        let mut dropped = 0;
        for queue in &mut self.classes {
            dropped += queue.len();
            queue.retain(&mut keep);
            dropped -= queue.len();
        }
        let items = || self.classes.iter().flatten();
        let bytes: usize = items().map(|item| item.data.len()).sum();
        let cost = bytes + items().count() * OVERHEAD;
        (self.bytes, self.cost) = (bytes, cost);
        dropped as u64
    }

    /// The first deadline.
    pub(super) fn earliest_deadline(&self) -> Option<Instant> {
        let items = self.classes.iter().flatten();
        items.filter_map(|item| item.options.deadline).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(class: u8) -> DatagramOptions {
        DatagramOptions {
            class,
            ..DatagramOptions::default()
        }
    }

    proptest! {
        #[test]
        fn classes_behave_like_one_queue_from_which_some_are_taken_out_of_turn(
            ops in prop::collection::vec((0..8u8, 0..40usize, any::<u8>()), 1..80),
        ) {
            let mut outgoing = Outgoing::new(1000);
            let mut model: Vec<(u8, usize)> = Vec::new();
            for (class, length, mask) in ops {
                let cost: usize = model.iter().map(|(_, length)| length + OVERHEAD).sum();
                prop_assert_eq!(outgoing.cost, cost);
                prop_assert_eq!(outgoing.bytes(), cost - model.len() * OVERHEAD);
                let room = model.is_empty() || cost + length + OVERHEAD <= 1000;
                prop_assert_eq!(outgoing.has_space(length), room);
                if mask % 3 > 0 && room {
                    outgoing.push(Bytes::from(vec![0; length]), of(class));
                    model.push((class, length));
                } else if mask % 7 == 0 {
                    outgoing.retain(|item| item.options.class != class);
                    model.retain(|(other, _)| *other != class);
                } else {
                    let asked: ClassSet = (0..8).filter(|bit| mask >> bit & 1 == 1).collect();
                    let at = model.iter().position(|(class, _)| asked.contains(*class));
                    let expected = at.map(|at| model.remove(at));
                    let front = outgoing.front(asked).map(|item| item.options.class);
                    let found = front.and_then(|class| outgoing.pop(class));
                    let found = found.map(|item| (item.options.class, item.data.len()));
                    prop_assert_eq!(found, expected);
                }
                let classes: ClassSet = model.iter().map(|(class, _)| *class).collect();
                prop_assert_eq!(outgoing.waiting(), classes);
                prop_assert_eq!(outgoing.is_empty(), model.is_empty());
            }
        }
    }
}
