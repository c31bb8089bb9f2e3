//! What ranges must do.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn set(ranges: &[(u64, u64)]) -> RangeSet {
    ranges.iter().map(|(start, end)| *start..*end).collect()
}

fn list(ranges: impl Iterator<Item = Range<u64>>) -> Vec<(u64, u64)> {
    ranges.map(|range| (range.start, range.end)).collect()
}

#[test]
fn ranges_that_touch_become_one() {
    assert_eq!(list(set(&[(0, 5), (10, 15), (5, 10)]).iter()), [(0, 15)]);
    assert_eq!(list(set(&[(5, 10), (0, 5)]).iter()), [(0, 10)]);
}

#[test]
fn a_range_removed_from_the_middle_leaves_both_ends() {
    let mut ranges = set(&[(0, 10)]);
    assert_eq!(ranges.remove(3..7), 4);
    assert_eq!(list(ranges.iter()), [(0, 3), (7, 10)]);
    assert_eq!(ranges.total(), 6);
}

#[test]
fn missing_parts_are_the_gaps() {
    let ranges = set(&[(2, 4), (6, 8)]);
    assert_eq!(list(ranges.missing(0..10)), [(0, 2), (4, 6), (8, 10)]);
    assert_eq!(list(ranges.missing(3..7)), [(4, 6)]);
    assert_eq!(ranges.missing(6..8).count(), 0);
}

#[test]
fn a_set_without_another_keeps_what_only_it_has() {
    let mut ranges = set(&[(0, 10), (20, 30)]);
    ranges.subtract(&set(&[(5, 25), (29, 40)]));
    assert_eq!(list(ranges.iter()), [(0, 5), (25, 29)]);
}

#[derive(Debug, Clone)]
enum Op {
    Insert(Range<u64>),
    Remove(Range<u64>),
    PopFirst,
}

fn some_range() -> impl Strategy<Value = Range<u64>> {
    (0..120u64, 0..30u64).prop_map(|(start, length)| start..start + length)
}

fn some_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => some_range().prop_map(Op::Insert),
        4 => some_range().prop_map(Op::Remove),
        1 => Just(Op::PopFirst),
    ]
}

proptest! {
    #[test]
    fn a_range_set_behaves_like_a_set_of_integers(
        ops in prop::collection::vec(some_op(), 1..60),
        window in some_range(),
    ) {
        let mut model = BTreeSet::new();
        let mut ranges = RangeSet::new();
        for op in ops {
            match op {
                Op::Insert(range) => {
                    let added = range.clone().filter(|value| model.insert(*value)).count();
                    prop_assert_eq!(ranges.insert(range), added as u64);
                }
                Op::Remove(range) => {
                    let removed = range.clone().filter(|value| model.remove(value)).count();
                    prop_assert_eq!(ranges.remove(range), removed as u64);
                }
                Op::PopFirst => {
                    for value in ranges.pop_first().unwrap_or(0..0) {
                        prop_assert_eq!(model.pop_first(), Some(value));
                    }
                }
            }
            prop_assert_eq!(ranges.total(), model.len() as u64);
            let stored: Vec<_> = ranges.iter().collect();
            prop_assert!(stored.windows(2).all(|pair| pair[0].end < pair[1].start));
            prop_assert_eq!(stored.into_iter().flatten().collect::<BTreeSet<_>>(), model.clone());
        }
        let inside: Vec<u64> = ranges.overlap(window.clone()).flatten().collect();
        let outside: Vec<u64> = ranges.missing(window.clone()).flatten().collect();
        let (has, lacks): (Vec<u64>, _) = window.clone().partition(|value| model.contains(value));
        prop_assert_eq!(ranges.covers(&window), lacks.is_empty());
        prop_assert_eq!(inside, has);
        prop_assert_eq!(outside, lacks);
        for value in 0..150 {
            prop_assert_eq!(ranges.contains(value), model.contains(&value));
        }
    }
}
