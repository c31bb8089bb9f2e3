//! The next events: in order of time and, for equal times, of their submission.

use anabranch_proto::time::Instant;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// An event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Happening {
    /// One direction of a link has to be polled.
    Line(u32),
    /// A process asked to be woken.
    Wake(u32),
    /// An entry of the script is due.
    Change(u32),
}

/// The ordered queue.
#[derive(Debug, Default)]
pub(super) struct Queue {
    heap: BinaryHeap<Reverse<(Instant, u64, Happening)>>,
    submitted: u64,
}

impl Queue {
    pub(super) fn push(&mut self, at: Instant, what: Happening) {
        self.submitted += 1;
        self.heap.push(Reverse((at, self.submitted, what)));
    }

    /// The time of the next event.
    pub(super) fn next_time(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, _, _))| *at)
    }

    pub(super) fn pop(&mut self) -> Option<(Instant, Happening)> {
        self.heap.pop().map(|Reverse((at, _, what))| (at, what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_times_come_in_the_order_of_submission() {
        let mut queue = Queue::default();
        let (early, late) = (Instant::from_nanos(1), Instant::from_nanos(2));
        queue.push(late, Happening::Line(9));
        queue.push(early, Happening::Wake(5));
        queue.push(early, Happening::Line(1));
        queue.push(late, Happening::Line(0));
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        let expected = [
            (early, Happening::Wake(5)),
            (early, Happening::Line(1)),
            (late, Happening::Line(9)),
            (late, Happening::Line(0)),
        ];
        assert_eq!(order, expected);
    }
}
