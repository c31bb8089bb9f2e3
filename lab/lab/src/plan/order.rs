//! The order of runs on a machine that changes over time.

use super::Plan;
use anabranch_sim::{Dice, Seed};
use std::collections::BTreeMap;

impl Plan {
    /// The runs in blocks, as positions in [`Plan::runs`]. A block is one repetition of one swept
    /// point, with its contenders in an order that `seed` decides. All points of a repetition come
    /// before the next repetition, so drift over the hours affects all contenders and points alike,
    /// and an interrupted campaign has some results for each of them.
    pub fn blocks(&self, seed: u64) -> Vec<Vec<usize>> {
        let mut blocks: BTreeMap<(u64, usize), Vec<usize>> = BTreeMap::new();
        let mut point = 0;
        for (at, run) in self.runs.iter().enumerate() {
            if at > 0 && self.runs[at - 1].swept != run.swept {
                point += 1;
            }
            blocks.entry((run.repetition, point)).or_default().push(at);
        }
        let shuffled = |(index, mut block): (usize, Vec<usize>)| {
            let mut dice = Dice::new(Seed(seed).derive("order", index as u64));
            // The Fisher-Yates shuffle, from the end.
            for last in (1..block.len()).rev() {
                block.swap(last, dice.below(last as u64 + 1) as usize);
            }
            block
        };
        blocks.into_values().enumerate().map(shuffled).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::plan::{Changes, Plan};
    use crate::scenario::{Document, TEMPLATE};
    use std::collections::BTreeSet;

    #[test]
    fn blocks_hold_each_run_once_with_all_contenders_of_a_repetition_together() {
        let document = Document::parse("t", TEMPLATE).unwrap();
        let plan = Plan::make(&document, &Changes::default()).unwrap();
        let blocks = plan.blocks(1);
        let all: BTreeSet<usize> = blocks.iter().flatten().copied().collect();
        assert_eq!(all.len(), plan.runs.len());
        assert_eq!(blocks.iter().map(Vec::len).sum::<usize>(), plan.runs.len());
        let repetitions = blocks.iter().map(|block| {
            let first = &plan.runs[block[0]];
            let same = |at: &usize| {
                let run = &plan.runs[*at];
                run.repetition == first.repetition && run.swept == first.swept
            };
            assert!(block.iter().all(same));
            first.repetition
        });
        let repetitions: Vec<u64> = repetitions.collect();
        assert!(repetitions.is_sorted(), "{repetitions:?}");
    }

    #[test]
    fn the_order_within_blocks_follows_from_the_seed_and_differs_between_them() {
        let document = Document::parse("t", TEMPLATE).unwrap();
        let changes = Changes {
            runs: Some(20),
            ..Changes::default()
        };
        let plan = Plan::make(&document, &changes).unwrap();
        assert_eq!(plan.blocks(7), plan.blocks(7));
        let names = |block: &Vec<usize>| -> Vec<&str> {
            let name = |at: &usize| plan.runs[*at].contender.as_str();
            block.iter().map(name).collect()
        };
        let orders: BTreeSet<Vec<&str>> = plan.blocks(7).iter().map(names).collect();
        assert!(orders.len() > 2, "{orders:?}");
    }
}
