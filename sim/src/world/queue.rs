//! What happens next: events in order of time and, at the same time, of their submission.

use anabranch_proto::time::Instant;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Something that happens at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Happening {
    /// One direction of a link is to be polled.
    Line(u32),
    /// A process wanted to be woken.
    Wake(u32),
    /// An entry of the script.
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

    /// When the next event is.
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
