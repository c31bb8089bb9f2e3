//! Weighted round robin: bytes in stated proportions.
//!
//! With `mode=skip` the proportions hold only while no path is full: where windows are the limit,
//! they decide. `smooth` counts units and interleaves; `deficit` counts bytes and sends in runs.

use crate::toolkit::{Patience, Shares, leaves};
use anabranch_proto::sched::{
    Choice, Entry, ParamDoc, PathEvent, PathView, Reason, Scheduler, SendView,
};
use anabranch_proto::spec::{Params, SpecError};
use anabranch_proto::wire::PathId;

pub(crate) const ENTRY: Entry = Entry {
    name: "weighted",
    summary: "bytes in proportion to weights",
    params: &[
        ParamDoc {
            key: "weights",
            default: "each path's own",
            summary: "weights of the paths in the order they open, as 1/1/2",
        },
        ParamDoc {
            key: "mode",
            default: "skip",
            summary: "what a full path does: skip it or hold for it",
        },
        ParamDoc {
            key: "variant",
            default: "smooth",
            summary: "smooth: interleaved packets; deficit: runs of bytes",
        },
        ParamDoc {
            key: "quantum",
            default: "0",
            summary: "bytes per turn and unit of weight (deficit); at least one packet",
        },
    ],
    build: |params| Ok(Box::new(Weighted::from_params(params)?)),
};

/// Larger weights mean nothing that smaller ones could not say.
const WEIGHT_MAX: u32 = 1_000_000;

/// Shares traffic by weight.
#[derive(Debug, Default)]
pub(crate) struct Weighted {
    weights: Vec<u32>,
    /// The path that has each of the weights. It keeps it when others go, and the next path to open
    /// takes what a closed one leaves.
    holders: Vec<Option<PathId>>,
    hold: bool,
    by_deficit: bool,
    quantum: u64,
    /// What each path is owed: units times the sum of weights (smooth), bytes (deficit).
    shares: Shares,
    /// Whose turn it is (deficit).
    turn: Option<PathId>,
    patience: Patience,
}

impl Weighted {
    fn from_params(params: &mut Params) -> Result<Self, SpecError> {
        Ok(Self {
            hold: params.choice("mode", false, &[("skip", false), ("hold", true)])?,
            by_deficit: params.choice("variant", false, &[("smooth", false), ("deficit", true)])?,
            quantum: params.take_in("quantum", 0, 0..=1 << 30)?,
            ..Self::of(params)?
        })
    }

    /// The parameter `weights`, all else as usual.
    pub(super) fn of(params: &mut Params) -> Result<Self, SpecError> {
        let weights: Vec<u32> = params.list("weights")?;
        if let Some(bad) = weights
            .iter()
            .find(|weight| !(1..=WEIGHT_MAX).contains(*weight))
        {
            let expected = format!("weights from 1 to {WEIGHT_MAX}");
            return Err(params.bad_value("weights", &bad.to_string(), expected));
        }
        Ok(Self {
            holders: vec![None; weights.len()],
            weights,
            ..Self::default()
        })
    }

    /// The weight `path` has in the list, if there is one for it.
    fn listed(&mut self, view: &SendView<'_>, path: PathId) -> Option<u32> {
        let holds = |holder: &Option<PathId>| *holder == Some(path);
        let at = self.holders.iter().position(holds).or_else(|| {
            let is_gone = |id: PathId| view.path(id).is_none();
            let free = |holder: &Option<PathId>| holder.is_none_or(is_gone);
            let at = self.holders.iter().position(free)?;
            self.holders[at] = Some(path);
            Some(at)
        })?;
        self.weights.get(at).copied()
    }

    /// Learns new paths and new weights. New proportions start from nothing owed.
    fn refresh(&mut self, view: &SendView<'_>) {
        let mut changed = false;
        for (at, path) in view.paths.iter().enumerate() {
            let weight = self.listed(view, path.id).unwrap_or(path.weight);
            let weight = i64::from(weight.clamp(1, WEIGHT_MAX));
            changed |= self.shares.set_weight(view, at, path.id, weight);
        }
        if changed {
            self.shares.settle();
        }
    }

    fn smooth(&mut self, view: &SendView<'_>) -> Choice {
        self.shares
            .next(view, self.hold.then_some(&mut self.patience))
    }

    fn deficit(&mut self, view: &SendView<'_>) -> Choice {
        let packet = |path: &PathView| u64::from(path.max_datagram_size);
        let largest = view
            .paths
            .iter()
            .map(packet)
            .max()
            .unwrap_or(0)
            .max(view.unit.bytes);
        let quantum = self.quantum.max(largest).clamp(1, i64::MAX as u64 >> 32) as i64;
        let (leaves, strict) = (leaves(view), self.hold);
        let takes = |path: &&PathView| strict || !leaves(path);
        let mut candidates = view.candidates().filter(takes);
        let current = candidates.find(|path| Some(path.id) == self.turn);
        if let Some(choice) = current.and_then(|path| self.spend(view, path)) {
            return choice;
        }
        for path in view.ring(self.turn).filter(takes) {
            self.turn = Some(path.id);
            if let Some(share) = self.shares.of(path.id) {
                share.owed = share.owed.saturating_add(share.weight * quantum);
            }
            if let Some(choice) = self.spend(view, path) {
                return choice;
            }
        }
        view.no_room()
    }

    /// Sends on the path whose turn it is while it is owed enough. A path that cannot send forfeits
    /// what it is owed, or it would burst later.
    fn spend(&mut self, view: &SendView<'_>, path: &PathView) -> Option<Choice> {
        let packet = u64::from(path.max_datagram_size);
        let unit = if view.unit.bytes == 0 {
            packet
        } else {
            view.unit.bytes
        };
        let unit = unit.clamp(1, i64::MAX as u64 >> 32) as i64;
        let hold = self.hold;
        let share = self.shares.of(path.id)?;
        if share.owed < unit {
            return None;
        }
        if path.can_send(view.now) {
            share.owed -= unit;
            self.patience.end();
            return Some(Choice::send(path.id, Reason::Weight));
        }
        if hold {
            return Some(self.patience.wait_for(view, path, Reason::WaitForTurn));
        }
        share.owed = 0;
        None
    }
}

impl Scheduler for Weighted {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        self.refresh(view);
        if self.by_deficit {
            self.deficit(view)
        } else {
            self.smooth(view)
        }
    }

    fn on_event(&mut self, event: &PathEvent) {
        self.patience.on_event(event);
        if let PathEvent::Abandoned { path } | PathEvent::Doubted { path } = event {
            self.shares.forget(*path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Room, built, fresh, full, lost, packets, send};
    use anabranch_proto::sched::Decision;
    use proptest::prelude::*;

    #[test]
    fn smooth_shares_are_interleaved() {
        let mut weighted = built("weighted:weights=1/1/2");
        assert_eq!(
            packets(&mut *weighted, Room::of(&[99, 99, 99]), 8),
            "2 0 1 2 2 0 1 2"
        );
    }

    #[test]
    fn deficit_shares_come_in_runs() {
        let mut weighted = built("weighted:weights=1/3,variant=deficit");
        assert_eq!(
            packets(&mut *weighted, Room::of(&[99, 99]), 8),
            "0 1 1 1 0 1 1 1"
        );
    }

    #[test]
    fn deficit_counts_bytes() {
        let mut weighted = built("weighted:weights=1/1,variant=deficit");
        let paths = [PathView::new(0), PathView::new(1)];
        let mut bytes = [0_u64; 2];
        for turn in 0..300 {
            let mut view = fresh(&paths);
            view.unit.bytes = [100, 1200, 700][turn % 3];
            let Decision::Send(id) = weighted.select(&view).decision else {
                panic!("both paths are open")
            };
            bytes[id.0 as usize] += view.unit.bytes;
        }
        assert!(bytes[0].abs_diff(bytes[1]) <= 2 * 1200, "{bytes:?}");
    }

    #[test]
    fn a_full_path_is_skipped_or_held_for() {
        for variant in ["smooth", "deficit"] {
            let mut skip = built(&format!("weighted:weights=1/5,variant={variant}"));
            assert_eq!(packets(&mut *skip, Room::of(&[9, 0]), 3), "0 0 0");
        }
        let mut hold = built("weighted:weights=1/5,mode=hold");
        assert_eq!(packets(&mut *hold, Room::of(&[9, 0]), 1), "-");
        let mut hold = built("weighted:weights=1/5,mode=hold,variant=deficit");
        assert_eq!(packets(&mut *hold, Room::of(&[9, 0]), 2), "0 -");
    }

    #[test]
    fn lost_data_goes_to_a_path_that_has_not_carried_it() {
        for variant in ["smooth", "deficit"] {
            let mut weighted = built(&format!("weighted:weights=9/1,variant={variant}"));
            let paths = [PathView::new(0), PathView::new(1)];
            for _ in 0..5 {
                let choice = weighted.select(&lost(&paths, &[0]));
                assert_eq!(choice, send(1, Reason::Weight), "{variant}");
            }
            let stuffed = [PathView::new(0), full(1)];
            let choice = weighted.select(&lost(&stuffed, &[0]));
            assert_eq!(choice, send(0, Reason::Weight), "{variant}");
        }
    }

    #[test]
    fn a_path_keeps_its_weight_when_another_one_goes() {
        let mut weighted = built("weighted:weights=4/1/2");
        let three = [PathView::new(0), PathView::new(1), PathView::new(2)];
        weighted.select(&fresh(&three));
        let mut share = |paths: &[PathView]| {
            let mut sent = [0; 4];
            for _ in 0..paths.len() * 6 {
                let choice = weighted.select(&fresh(paths));
                let Decision::Send(id) = choice.decision else {
                    panic!("all paths are open")
                };
                sent[id.0 as usize] += 1;
            }
            sent
        };
        assert_eq!(share(&three[1..]), [0, 4, 8, 0]);
        let again = [three[1], three[2], PathView::new(3)];
        assert_eq!(share(&again)[3], 10, "it takes the weight that is free");
    }

    #[test]
    fn without_weights_the_paths_bring_their_own() {
        let mut weighted = built("weighted");
        let mut paths = [PathView::new(0), PathView::new(1)];
        paths[1].weight = 3;
        let mut sent = [0; 2];
        for _ in 0..8 {
            let choice = weighted.select(&fresh(&paths));
            sent[usize::from(choice.decision == Decision::Send(PathId(1)))] += 1;
        }
        assert_eq!(sent, [2, 6]);
    }

    #[test]
    fn a_weight_of_zero_is_refused_with_a_message() {
        let spec = "weighted:weights=1/0".parse().unwrap();
        let message = crate::builtin().build(&spec).unwrap_err().to_string();
        assert!(message.contains("weights from 1 to 1000000"), "{message}");
    }

    proptest! {
        #[test]
        fn open_paths_get_their_shares_in_every_cycle(
            weights in prop::collection::vec(1_u32..20, 1..8),
            deficit: bool,
        ) {
            let list: Vec<String> = weights.iter().map(ToString::to_string).collect();
            let variant = if deficit { "deficit" } else { "smooth" };
            let text = format!("weighted:weights={},variant={variant}", list.join("/"));
            let mut weighted = built(&text);
            let paths: Vec<PathView> = (0..weights.len() as u32).map(PathView::new).collect();
            let cycle: u32 = weights.iter().sum();
            for _ in 0..3 {
                let mut sent = vec![0; weights.len()];
                for _ in 0..cycle {
                    match weighted.select(&fresh(&paths)).decision {
                        Decision::Send(id) => sent[id.0 as usize] += 1,
                        other => prop_assert!(false, "{:?}", other),
                    }
                }
                prop_assert_eq!(&sent, &weights);
            }
        }
    }
}
