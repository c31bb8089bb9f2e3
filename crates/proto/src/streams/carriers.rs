//! Which paths carried stream bytes that were sent more than once.
//!
//! Bytes sent once on one path, the bulk of all, have no entry: their path is that of the packet
//! they travel in. An entry appears when bytes are lost, taken from a doubtful path or copied, and
//! goes when they are acknowledged.

use crate::path::PathSet;
use anabranch_wire::PathId;
use std::collections::BTreeMap;
use std::ops::Range;

/// The paths of one range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Paths {
    /// Every path that carried the bytes.
    pub(super) ever: PathSet,
    /// Those whose packet is neither declared lost nor given up.
    pub(super) live: PathSet,
}

impl Paths {
    /// The bytes went out on `path`.
    pub(super) fn on_sent(&mut self, path: PathId) {
        self.ever.insert(path);
        self.live.insert(path);
    }

    /// The copy on `path` no longer counts.
    pub(super) fn on_lost(&mut self, path: PathId) {
        self.ever.insert(path);
        self.live = self.live.iter().filter(|live| *live != path).collect();
    }
}

/// A map from disjoint ranges to [`Paths`].
#[derive(Debug, Default)]
pub(super) struct Carriers {
    /// Keyed by the start of the range.
    entries: BTreeMap<u64, Entry>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    end: u64,
    paths: Paths,
}

impl Carriers {
    /// The entry that holds `offset`: where it ends and its paths.
    pub(super) fn at(&self, offset: u64) -> Option<(u64, &Paths)> {
        let (_, entry) = self.entries.range(..=offset).next_back()?;
        (entry.end > offset).then_some((entry.end, &entry.paths))
    }

    /// Where the first entry behind `offset` begins; `u64::MAX` if there is none.
    pub(super) fn next_start(&self, offset: u64) -> u64 {
        self.entries
            .range(offset..)
            .next()
            .map_or(u64::MAX, |(&start, _)| start)
    }

    /// Changes the paths of `range` by `change`, which is called for each part that has the same
    /// paths throughout; a part without an entry gets an empty one first.
    pub(super) fn update(
        &mut self,
        range: Range<u64>,
        mut change: impl FnMut(Range<u64>, &mut Paths),
    ) {
        self.split(range.start);
        self.split(range.end);
        let mut at = range.start;
        while at < range.end {
            let next = self.entries.range(at..).next().map(|(&start, _)| start);
            if next != Some(at) {
                let end = next.map_or(range.end, |next| next.min(range.end));
                self.entries.insert(
                    at,
                    Entry {
                        end,
                        paths: Paths::default(),
                    },
                );
            }
            let entry = self
                .entries
                .get_mut(&at)
                .expect("it was there or was just inserted");
            change(at..entry.end, &mut entry.paths);
            let end = entry.end;
            self.join(at);
            at = end;
        }
        self.join(range.end);
    }

    /// Forgets the paths of `range`.
    pub(super) fn remove(&mut self, range: Range<u64>) {
        if self.entries.is_empty() || range.is_empty() {
            return;
        }
        self.split(range.start);
        self.split(range.end);
        while let Some((&start, _)) = self.entries.range(range.clone()).next() {
            self.entries.remove(&start);
        }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.entries.clear();
    }

    /// Makes sure that no entry begins before `at` and ends behind it.
    fn split(&mut self, at: u64) {
        if let Some((_, entry)) = self.entries.range_mut(..at).next_back()
            && entry.end > at
        {
            let tail = *entry;
            entry.end = at;
            self.entries.insert(at, tail);
        }
    }

    /// Merges the entry that starts at `at` into the one before, if they touch and say the same.
    /// Runs of lost or copied packets would otherwise stay one entry each.
    fn join(&mut self, at: u64) {
        let Some(entry) = self.entries.get(&at).copied() else {
            return;
        };
        if let Some((_, before)) = self.entries.range_mut(..at).next_back()
            && before.end == at
            && before.paths == entry.paths
        {
            before.end = entry.end;
            self.entries.remove(&at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SPAN: u64 = 60;

    proptest! {
        #[test]
        fn carriers_behave_like_a_pair_of_sets_for_each_byte(
            ops in prop::collection::vec((0..50u64, 1..10u64, 0..3u32, 0..3u8), 1..40),
        ) {
            let mut carriers = Carriers::default();
            let mut model: Vec<Option<Paths>> = vec![None; SPAN as usize];
            for (start, length, path, kind) in ops {
                let range = start..start + length;
                let path = PathId(path);
                let change = |paths: &mut Paths| match kind {
                    0 => paths.on_sent(path),
                    _ => paths.on_lost(path),
                };
                for slot in &mut model[range.start as usize..range.end as usize] {
                    match kind {
                        2 => *slot = None,
                        _ => change(slot.get_or_insert_default()),
                    }
                }
                match kind {
                    2 => carriers.remove(range),
                    _ => carriers.update(range, |_, paths| change(paths)),
                }
                for (at, expected) in model.iter().enumerate() {
                    let found = carriers.at(at as u64).map(|(_, paths)| *paths);
                    prop_assert_eq!(found, *expected, "at {}", at);
                }
            }
        }
    }

    #[test]
    fn neighbours_with_the_same_paths_share_an_entry() {
        let mut carriers = Carriers::default();
        for start in (0..100).step_by(10) {
            carriers.update(start..start + 10, |_, paths| paths.on_lost(PathId(1)));
        }
        assert_eq!(carriers.entries.len(), 1);
        assert_eq!(carriers.at(0).map(|(end, _)| end), Some(100));
    }
}
