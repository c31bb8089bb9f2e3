//! The sending half of a stream (RFC 9000, section 3.1), and the order in which streams send.

use super::Release;
use super::budget::Account;
use super::send_buf::{Load, SendBuf};
use crate::sched::{ClassSet, MAX_CLASSES};
use crate::time::Instant;
use anabranch_wire::StreamId;
use std::cmp::Reverse;
use std::collections::BTreeSet;

#[derive(Debug, Default)]
pub(super) struct Send {
    pub(super) buf: SendBuf,
    /// The peer's limit on the offset.
    pub(super) max_data: u64,
    pub(super) priority: i32,
    /// The kind of traffic, for schedulers.
    pub(super) class: u8,
    /// Code and final size of a stream given up.
    pub(super) reset: Option<Reset>,
    /// The peer asked to stop, with this code.
    pub(super) stopped: Option<u64>,
    /// The application could not write and waits to be told.
    pub(super) wants_write: bool,
    /// The stream is in the connection's list of those that wait for space in the send buffer.
    pub(super) waits_for_space: bool,
    /// The limit at which the stream was last found blocked.
    pub(super) blocked_at: Option<u64>,
    /// What the totals of [`Ready`] include for this stream.
    load: Load,
    /// What the ages of [`Ready`] include for this stream.
    age: Option<Instant>,
    /// The stream's place in each queue of [`Ready`].
    turns: [Option<u64>; QUEUES],
}

/// A stream given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reset {
    pub(super) code: u64,
    pub(super) final_size: u64,
}

impl Send {
    pub(super) fn new(max_data: u64, release: Release) -> Self {
        Self {
            buf: SendBuf::new(release),
            max_data,
            ..Self::default()
        }
    }

    /// Whether the application may write more.
    pub(super) fn is_open(&self) -> bool {
        self.reset.is_none() && !self.buf.is_finished()
    }

    /// Bytes the application may still write before the peer raises the limit.
    pub(super) fn credit(&self) -> u64 {
        self.max_data.saturating_sub(self.buf.end())
    }

    /// Bytes the application may still write before some of those leave that wait to be sent, and
    /// how many may wait: `least`, or a quarter of what is under way.
    pub(super) fn unsent(&self, least: u64) -> (u64, u64) {
        let most = least.max(self.load.unacked / 4);
        (most.saturating_sub(self.load.above + self.load.free), most)
    }

    /// What the stream adds to the backlog. Only limits that fell, with a refusal of early data,
    /// leave less than was written.
    pub(super) fn load_now(&self) -> Load {
        let load = self.buf.load();
        Load {
            above: load
                .above
                .min(self.max_data.saturating_sub(self.buf.sent_end())),
            ..load
        }
    }

    /// Whether the peer's limit is below what was written under an earlier one.
    pub(super) fn is_overdrawn(&self) -> bool {
        self.reset.is_none() && self.buf.end() > self.max_data
    }

    /// Gives the stream up and frees its bytes.
    pub(super) fn reset(&mut self, code: u64) {
        self.reset = Some(Reset {
            code,
            final_size: self.buf.sent_end(),
        });
        self.buf.clear();
    }
}

/// Bytes to be sent again.
pub(super) const AGAIN: usize = 0;
/// Unsent bytes that take no connection credit.
pub(super) const FREE: usize = 1;
/// Unsent bytes that take connection credit.
pub(super) const ABOVE: usize = 2;
const QUEUES: usize = 3;

/// Streams by priority, the highest first, and by their turn.
type Queues = [BTreeSet<(Reverse<i32>, u64, StreamId)>; QUEUES];

/// What the streams of one class have.
#[derive(Debug, Default)]
struct OfClass {
    queues: Queues,
    unacked: u64,
}

impl OfClass {
    /// Whether anything waits that may be sent, with credit of the connection or without.
    fn waits(&self, has_credit: bool) -> bool {
        let any = |queue: usize| !self.queues[queue].is_empty();
        any(AGAIN) || any(FREE) || has_credit && any(ABOVE)
    }
}

/// Streams that have something to send, in the order they send it: by priority, the highest first,
/// and in turns among streams of the same priority.
///
/// There is a queue for each kind of bytes, so that the next stream is found at once even if all
/// others are blocked. Bytes to be sent again come first, then those that take no credit, then the
/// rest: the first two kinds are few, and somebody waits for them.
#[derive(Debug, Default)]
pub(super) struct Ready {
    queues: Queues,
    /// The same by class, once a stream has another class than the first.
    classes: Option<Box<[OfClass; MAX_CLASSES]>>,
    /// The number of the next turn given out.
    turn: u64,
    totals: Load,
    /// What of it is on a server's account.
    pub(super) account: Account,
    /// Streams with unacknowledged bytes, by when the oldest was first sent.
    ages: BTreeSet<(Instant, StreamId)>,
}

impl Ready {
    /// The sum over all streams.
    pub(super) fn totals(&self) -> &Load {
        &self.totals
    }

    /// The stream whose oldest unacknowledged byte is the oldest of all, and when it was sent.
    pub(super) fn oldest(&self) -> Option<(Instant, StreamId)> {
        self.ages.first().copied()
    }

    /// The stream of these classes whose turn it is.
    pub(super) fn first(&self, queue: usize, of: ClassSet) -> Option<StreamId> {
        let first = match &self.classes {
            Some(classes) if of != ClassSet::ALL => {
                let queues = of.iter().map(|class| &classes[usize::from(class)].queues);
                queues.filter_map(|queues| queues[queue].first()).min()
            }
            None if !of.contains(0) => None,
            _ => self.queues[queue].first(),
        };
        first.map(|entry| entry.2)
    }

    /// The streams of a queue in order; those of several classes, but not of all, one class after
    /// the other.
    pub(super) fn iter(
        &self,
        queue: usize,
        of: ClassSet,
    ) -> impl Iterator<Item = StreamId> + use<'_> {
        let by_class = self.classes.as_deref().filter(|_| of != ClassSet::ALL);
        let whole = by_class.is_none() && of.contains(0);
        let whole = whole.then_some(&self.queues[queue]);
        let parts = by_class.into_iter().flat_map(move |classes| {
            let classes = of.iter().map(|class| &classes[usize::from(class)]);
            classes.map(move |class| &class.queues[queue])
        });
        let queues = whole.into_iter().chain(parts);
        queues.flatten().map(|entry| entry.2)
    }

    /// Whether a stream ever had another class than the first.
    pub(super) fn has_classes(&self) -> bool {
        self.classes.is_some()
    }

    /// The classes with something to send, with credit of the connection or without.
    pub(super) fn waiting(&self, has_credit: bool) -> ClassSet {
        self.classes_that(|class| class.waits(has_credit))
    }

    /// The classes with unacknowledged bytes.
    pub(super) fn unacked(&self) -> ClassSet {
        self.classes_that(|class| class.unacked > 0)
    }

    fn classes_that(&self, is_one: impl Fn(&OfClass) -> bool) -> ClassSet {
        let classes = self.classes.as_deref().into_iter().flatten();
        let found = (0..).zip(classes).filter(|(_, class)| is_one(class));
        found.map(|(class, _)| class).collect()
    }

    /// Changes the class of a stream; returns whether it had another one.
    pub(super) fn set_class(&mut self, id: StreamId, send: &mut Send, class: u8) -> bool {
        if send.class == class {
            return false;
        }
        let (queues, unacked) = (&self.queues, self.totals.unacked);
        let classes = self.classes.get_or_insert_with(|| {
            let mut classes = Box::<[OfClass; MAX_CLASSES]>::default();
            classes[0] = OfClass {
                queues: queues.clone(),
                unacked,
            };
            classes
        });
        let old = usize::from(std::mem::replace(&mut send.class, class));
        let new = usize::from(class);
        for (queue, turn) in send.turns.iter().enumerate() {
            if let Some(turn) = *turn {
                let entry = (Reverse(send.priority), turn, id);
                classes[old].queues[queue].remove(&entry);
                classes[new].queues[queue].insert(entry);
            }
        }
        classes[old].unacked -= send.load.unacked;
        classes[new].unacked += send.load.unacked;
        true
    }

    /// Brings totals and queues up to date after any change to `send`.
    pub(super) fn refresh(&mut self, id: StreamId, send: &mut Send) {
        let new = send.load_now();
        let old = std::mem::replace(&mut send.load, new);
        let totals = &mut self.totals;
        totals.above = totals.above - old.above + new.above;
        totals.free = totals.free - old.free + new.free;
        totals.again = totals.again - old.again + new.again;
        totals.unacked = totals.unacked - old.unacked + new.unacked;
        totals.held = totals.held - old.held + new.held;
        totals.span = totals.span - old.span + new.span;
        self.account.set(totals.held);
        if let Some(classes) = &mut self.classes {
            let unacked = &mut classes[usize::from(send.class)].unacked;
            *unacked = *unacked - old.unacked + new.unacked;
        }
        self.note_age(id, send, new.unacked > 0);
        let amounts = [new.again, new.free, new.above];
        for (queue, amount) in amounts.into_iter().enumerate() {
            if (amount > 0) != send.turns[queue].is_some() {
                if amount > 0 {
                    self.enter(queue, id, send);
                } else {
                    self.leave(queue, id, send);
                }
            }
        }
    }

    fn note_age(&mut self, id: StreamId, send: &mut Send, has_unacked: bool) {
        let age = send.buf.oldest_sent().filter(|_| has_unacked);
        if age == send.age {
            return;
        }
        if let Some(old) = std::mem::replace(&mut send.age, age) {
            self.ages.remove(&(old, id));
        }
        if let Some(new) = age {
            self.ages.insert((new, id));
        }
    }

    /// Sends the stream to the end of the streams of its priority.
    pub(super) fn rotate(&mut self, id: StreamId, send: &mut Send) {
        if self.queues[ABOVE].len() > 1 && send.turns[ABOVE].is_some() {
            self.leave(ABOVE, id, send);
            self.enter(ABOVE, id, send);
        }
    }

    /// Changes the priority of a stream.
    pub(super) fn set_priority(&mut self, id: StreamId, send: &mut Send, priority: i32) {
        let present = send.turns.map(|turn| turn.is_some());
        for queue in (0..QUEUES).filter(|queue| present[*queue]) {
            self.leave(queue, id, send);
        }
        send.priority = priority;
        for queue in (0..QUEUES).filter(|queue| present[*queue]) {
            self.enter(queue, id, send);
        }
    }

    fn enter(&mut self, queue: usize, id: StreamId, send: &mut Send) {
        let entry = (Reverse(send.priority), self.turn, id);
        send.turns[queue] = Some(self.turn);
        self.queues[queue].insert(entry);
        if let Some(classes) = &mut self.classes {
            classes[usize::from(send.class)].queues[queue].insert(entry);
        }
        self.turn += 1;
    }

    fn leave(&mut self, queue: usize, id: StreamId, send: &mut Send) {
        if let Some(turn) = send.turns[queue].take() {
            let entry = (Reverse(send.priority), turn, id);
            self.queues[queue].remove(&entry);
            if let Some(classes) = &mut self.classes {
                classes[usize::from(send.class)].queues[queue].remove(&entry);
            }
        }
    }
}
