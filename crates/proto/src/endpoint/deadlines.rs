//! When connections want to be woken, the earliest first.

use super::Handle;
use crate::time::Instant;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

/// Entries that may be out of date in a small heap. In a large one, half of all may be, before they
/// are removed.
const FEW: usize = 64;

/// A heap of deadlines. Nearly every packet changes one, so that a change has to be cheap: on top
/// of the heap an entry is replaced; elsewhere it stays, out of date, until it comes to the top. An
/// entry counts if its connection is armed for just that time.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    heap: BinaryHeap<Reverse<(Instant, Handle)>>,
    /// Entries that are out of date, at most.
    stale: usize,
}

impl Deadlines {
    /// A connection is armed for the time `new` instead of `old`.
    pub(super) fn change(&mut self, handle: Handle, old: Option<Instant>, new: Option<Instant>) {
        if let Some(old) = old {
            match self.heap.peek_mut() {
                Some(mut top) if top.0 == (old, handle) => {
                    match new {
                        Some(new) => top.0 = (new, handle),
                        None => drop(PeekMut::pop(top)),
                    }
                    return;
                }
                _ => self.stale += 1,
            }
        }
        if let Some(new) = new {
            self.heap.push(Reverse((new, handle)));
        }
    }

    /// The earliest deadline, if `armed` tells for which time a connection is armed.
    pub(super) fn first(
        &mut self,
        armed: impl Fn(Handle) -> Option<Instant>,
    ) -> Option<(Instant, Handle)> {
        if self.stale > FEW.max(self.heap.len() / 2) {
            let mut entries = std::mem::take(&mut self.heap).into_vec();
            entries.retain(|Reverse((at, handle))| armed(*handle) == Some(*at));
            entries.sort_unstable();
            // A connection may be armed for a time that it was armed for before.
            entries.dedup();
            self.heap = entries.into();
            self.stale = 0;
        }
        while let Some(&Reverse((at, handle))) = self.heap.peek() {
            if armed(handle) == Some(at) {
                return Some((at, handle));
            }
            self.heap.pop();
            self.stale = self.stale.saturating_sub(1);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    proptest! {
        #[test]
        fn the_first_deadline_is_that_of_a_sorted_set(
            changes in prop::collection::vec((0..6_u32, prop::option::of(0..9_u64)), 1..2000),
        ) {
            let mut deadlines = Deadlines::default();
            let mut armed = BTreeMap::new();
            for (handle, at) in changes {
                let (handle, at) = (Handle(handle), at.map(Instant::from_nanos));
                let old = armed.get(&handle).copied().flatten();
                if old != at {
                    deadlines.change(handle, old, at);
                    armed.insert(handle, at);
                }
                let all = armed.iter().filter_map(|(handle, at)| Some(((*at)?, *handle)));
                let first = all.collect::<BTreeSet<_>>().first().copied();
                let found = deadlines.first(|handle| armed.get(&handle).copied().flatten());
                prop_assert_eq!(found, first);
                prop_assert!(deadlines.heap.len() <= 2 * FEW + 2 * 6, "it does not grow");
            }
        }
    }
}
