//! Sets of integers, kept as ranges.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of `u64`, stored as disjoint half-open ranges that do not touch.
///
/// Every operation takes time logarithmic in the number of ranges, plus the ranges it removes. A
/// set that shrinks keeps its memory for as long as one leaf of the tree holds it, so that growing
/// and shrinking at either end does not allocate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RangeSet {
    /// Start and end of each range.
    ranges: BTreeMap<u64, u64>,
    total: u64,
}

impl RangeSet {
    /// The empty set.
    pub const fn new() -> Self {
        Self {
            ranges: BTreeMap::new(),
            total: 0,
        }
    }

    /// Adds a range; returns how many integers were not in the set before.
    pub fn insert(&mut self, range: Range<u64>) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let (mut start, mut end) = (range.start, range.end);
        let mut covered = 0;
        if let Some((&before, &reach)) = self.ranges.range(..=start).next_back()
            && reach >= start
        {
            if reach >= end {
                return 0;
            }
            start = before;
            covered = reach - before;
        }
        while let Some((&next, &reach)) = self.ranges.range(start + 1..=end).next() {
            self.ranges.remove(&next);
            covered += reach - next;
            end = end.max(reach);
        }
        self.ranges.insert(start, end);
        let added = end - start - covered;
        self.total += added;
        added
    }

    /// Removes a range; returns how many integers of it were in the set.
    pub fn remove(&mut self, range: Range<u64>) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let mut removed = 0;
        if let Some((&before, &reach)) = self.ranges.range(..range.start).next_back()
            && reach > range.start
        {
            self.ranges.insert(before, range.start);
            removed += reach.min(range.end) - range.start;
            if reach > range.end {
                self.ranges.insert(range.end, reach);
            }
        }
        while let Some((&next, &reach)) = self.ranges.range(range.clone()).next() {
            self.ranges.remove(&next);
            removed += reach.min(range.end) - next;
            if reach > range.end {
                self.ranges.insert(range.end, reach);
                break;
            }
        }
        self.total -= removed;
        removed
    }

    /// Removes every member of `other`.
    pub fn subtract(&mut self, other: &Self) {
        for range in other.iter() {
            self.remove(range);
        }
    }

    /// Removes the lowest range.
    pub fn pop_first(&mut self) -> Option<Range<u64>> {
        let (start, end) = self.ranges.pop_first()?;
        self.total -= end - start;
        Some(start..end)
    }

    /// Removes everything.
    pub fn clear(&mut self) {
        self.ranges.clear();
        self.total = 0;
    }

    /// Whether `value` is in the set.
    pub fn contains(&self, value: u64) -> bool {
        self.range_at(value).is_some()
    }

    /// Whether every integer of `range` is in the set; true for an empty range.
    pub fn covers(&self, range: &Range<u64>) -> bool {
        range.is_empty()
            || self
                .range_at(range.start)
                .is_some_and(|at| at.end >= range.end)
    }

    /// The stored range that holds `value`.
    pub fn range_at(&self, value: u64) -> Option<Range<u64>> {
        let (&start, &end) = self.ranges.range(..=value).next_back()?;
        (end > value).then_some(start..end)
    }

    /// The lowest range.
    pub fn first(&self) -> Option<Range<u64>> {
        self.ranges
            .first_key_value()
            .map(|(&start, &end)| start..end)
    }

    /// The highest range.
    pub fn last(&self) -> Option<Range<u64>> {
        self.ranges
            .last_key_value()
            .map(|(&start, &end)| start..end)
    }

    /// All ranges, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Range<u64>> + '_ {
        self.ranges.iter().map(|(&start, &end)| start..end)
    }

    /// The parts of `within` that are in the set, ascending.
    pub fn overlap(&self, within: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let first = self
            .range_at(within.start)
            .map_or(within.start, |range| range.start);
        let upper = within.end.max(first);
        self.ranges
            .range(first..upper)
            .filter_map(move |(&start, &end)| {
                let part = start.max(within.start)..end.min(within.end);
                (!part.is_empty()).then_some(part)
            })
    }

    /// The parts of `within` that are not in the set, ascending.
    pub fn missing(&self, within: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let mut from = within.start;
        let end = within.end;
        self.overlap(within)
            .map(Some)
            .chain(std::iter::once(None))
            .filter_map(move |part| {
                let gap = from..part.as_ref().map_or(end, |part| part.start);
                from = part.map_or(end, |part| part.end);
                (!gap.is_empty()).then_some(gap)
            })
    }

    /// Number of ranges.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Number of integers in the set.
    pub const fn total(&self) -> u64 {
        self.total
    }
}

impl FromIterator<Range<u64>> for RangeSet {
    fn from_iter<I: IntoIterator<Item = Range<u64>>>(ranges: I) -> Self {
        let mut set = Self::new();
        for range in ranges {
            set.insert(range);
        }
        set
    }
}

#[cfg(test)]
mod tests;
