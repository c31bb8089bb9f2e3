//! Sets of integers, kept as ranges.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of `u64`, stored as disjoint half-open ranges that do not touch.
///
/// Every operation takes time logarithmic in the number of ranges, plus the ranges it removes. The
/// lowest range lies apart: most sets have no other, and need no tree. A set that shrinks keeps its
/// memory for as long as one leaf of the tree holds it, so that growing and shrinking at either end
/// does not allocate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RangeSet {
    /// Start and end of the lowest range.
    lowest: Option<(u64, u64)>,
    /// Start and end of each other range.
    others: BTreeMap<u64, u64>,
    total: u64,
}

impl RangeSet {
    /// The empty set.
    pub(crate) const fn new() -> Self {
        Self {
            lowest: None,
            others: BTreeMap::new(),
            total: 0,
        }
    }

    /// Adds a range; returns how many integers were not in the set before.
    pub(crate) fn insert(&mut self, range: Range<u64>) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let (start, end) = (range.start, range.end);
        let added = match &mut self.lowest {
            None => {
                self.lowest = Some((start, end));
                end - start
            }
            Some((low, reach)) if end < *low => {
                self.others.insert(*low, *reach);
                (*low, *reach) = (start, end);
                end - start
            }
            Some((low, reach)) if start <= *reach => {
                let mut covered = *reach - *low;
                (*low, *reach) = (start.min(*low), end.max(*reach));
                while let Some(next) = self.others.first_entry().filter(|next| next.key() <= reach)
                {
                    let (start, end) = next.remove_entry();
                    covered += end - start;
                    *reach = end.max(*reach);
                }
                *reach - *low - covered
            }
            Some(_) => self.insert_above(start, end),
        };
        self.total += added;
        added
    }

    /// Adds a range that lies above the lowest one without touching it.
    fn insert_above(&mut self, mut start: u64, mut end: u64) -> u64 {
        let mut covered = 0;
        if let Some((&before, &reach)) = self.others.range(..=start).next_back()
            && reach >= start
        {
            if reach >= end {
                return 0;
            }
            start = before;
            covered = reach - before;
        }
        while let Some((&next, &reach)) = self.others.range(start + 1..=end).next() {
            self.others.remove(&next);
            covered += reach - next;
            end = end.max(reach);
        }
        self.others.insert(start, end);
        end - start - covered
    }

    /// Removes a range; returns how many integers of it were in the set.
    pub(crate) fn remove(&mut self, range: Range<u64>) -> u64 {
        let Some((low, reach)) = self.lowest else {
            return 0;
        };
        if range.is_empty() || range.end <= low {
            return 0;
        }
        let mut removed = 0;
        if range.end > reach {
            removed += self.remove_above(&range);
        }
        if range.start < reach {
            let (left, right) = (low..range.start, range.end..reach);
            removed += range.end.min(reach) - range.start.max(low);
            self.lowest = match (left.is_empty(), right.is_empty()) {
                (true, true) => self.others.pop_first(),
                (true, false) => Some((right.start, right.end)),
                (false, is_last) => {
                    if !is_last {
                        self.others.insert(right.start, right.end);
                    }
                    Some((left.start, left.end))
                }
            };
        }
        self.total -= removed;
        removed
    }

    /// Removes a range from all but the lowest one.
    fn remove_above(&mut self, range: &Range<u64>) -> u64 {
        let mut removed = 0;
        if let Some((&before, &reach)) = self.others.range(..range.start).next_back()
            && reach > range.start
        {
            self.others.insert(before, range.start);
            removed += reach.min(range.end) - range.start;
            if reach > range.end {
                self.others.insert(range.end, reach);
            }
        }
        while let Some((&next, &reach)) = self.others.range(range.clone()).next() {
            self.others.remove(&next);
            removed += reach.min(range.end) - next;
            if reach > range.end {
                self.others.insert(range.end, reach);
                break;
            }
        }
        removed
    }

    /// Removes every member of `other`.
    pub(crate) fn subtract(&mut self, other: &Self) {
        for range in other.iter() {
            self.remove(range);
        }
    }

    /// Removes the lowest range.
    pub(crate) fn pop_first(&mut self) -> Option<Range<u64>> {
        let (start, end) = self.lowest.take()?;
        self.lowest = self.others.pop_first();
        self.total -= end - start;
        Some(start..end)
    }

    /// Removes everything.
    pub(crate) fn clear(&mut self) {
        self.lowest = None;
        self.others.clear();
        self.total = 0;
    }

    /// Whether `value` is in the set.
    pub(crate) fn contains(&self, value: u64) -> bool {
        self.range_at(value).is_some()
    }

    /// Whether every integer of `range` is in the set; true for an empty range.
    pub(crate) fn covers(&self, range: &Range<u64>) -> bool {
        range.is_empty()
            || self
                .range_at(range.start)
                .is_some_and(|at| at.end >= range.end)
    }

    /// The stored range that holds `value`.
    pub(crate) fn range_at(&self, value: u64) -> Option<Range<u64>> {
        let (start, end) = self.lowest.filter(|(start, _)| *start <= value)?;
        if value < end {
            return Some(start..end);
        }
        let (&start, &end) = self.others.range(..=value).next_back()?;
        (end > value).then_some(start..end)
    }

    /// The lowest range.
    pub(crate) fn first(&self) -> Option<Range<u64>> {
        self.lowest.map(|(start, end)| start..end)
    }

    /// The highest range.
    pub(crate) fn last(&self) -> Option<Range<u64>> {
        let last = self.others.last_key_value();
        let last = last.map(|(&start, &end)| (start, end)).or(self.lowest);
        last.map(|(start, end)| start..end)
    }

    /// All ranges, ascending.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = Range<u64>> + '_ {
        let others = self.others.iter().map(|(&start, &end)| start..end);
        self.first().into_iter().chain(others)
    }

    /// The parts of `within` that are in the set, ascending.
    pub(crate) fn overlap(&self, within: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let before = self.others.range(..=within.start).next_back();
        let from = before.map_or(within.start, |(&start, _)| start);
        let others = self.others.range(from..within.end.max(from));
        let others = others.map(|(&start, &end)| (start, end));
        self.lowest
            .into_iter()
            .chain(others)
            .filter_map(move |(start, end)| {
                let part = start.max(within.start)..end.min(within.end);
                (!part.is_empty()).then_some(part)
            })
    }

    /// The parts of `within` that are not in the set, ascending.
    pub(crate) fn missing(&self, within: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
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
    pub(crate) fn len(&self) -> usize {
        self.others.len() + usize::from(self.lowest.is_some())
    }

    /// Number of integers in the set.
    pub(crate) const fn total(&self) -> u64 {
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
