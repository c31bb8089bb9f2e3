//! Turns in proportion to weights, one packet at a time.
//!
//! Every contender earns its weight per packet and the one that is owed most pays for all of them,
//! so that the turns of a path are spread evenly.

use super::placing::leaves;
use super::{Choice, MAX_OPEN_PATHS, PathView, Patience, Reason, SendView};
use anabranch_wire::PathId;
use smallvec::SmallVec;

/// The shares of all paths.
#[derive(Debug, Default)]
pub(super) struct Shares {
    list: SmallVec<[Share; MAX_OPEN_PATHS]>,
}

/// What one path is owed: packets times the sum of weights, or whatever its owner counts in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Share {
    pub(super) path: PathId,
    pub(super) weight: i64,
    pub(super) owed: i64,
}

impl Shares {
    /// Sets a weight; returns whether the path had another one before.
    pub(super) fn set_weight(&mut self, view: &SendView<'_>, path: PathId, weight: i64) -> bool {
        if let Some(share) = self.of(path) {
            return std::mem::replace(&mut share.weight, weight) != weight;
        }
        if self.list.len() >= MAX_OPEN_PATHS {
            self.list.retain(|share| view.path(share.path).is_some());
        }
        self.list.push(Share {
            path,
            weight,
            owed: 0,
        });
        false
    }

    /// Nobody is owed anything any more.
    pub(super) fn settle(&mut self) {
        self.list.iter_mut().for_each(|share| share.owed = 0);
    }

    pub(super) fn of(&mut self, path: PathId) -> Option<&mut Share> {
        self.list.iter_mut().find(|share| share.path == path)
    }

    pub(super) fn forget(&mut self, path: PathId) {
        self.list.retain(|share| share.path != path);
    }

    /// Whose turn it is. Full paths are passed over, or held for with `patience`.
    pub(super) fn next(&mut self, view: &SendView<'_>, patience: Option<&mut Patience>) -> Choice {
        let hold = patience.is_some();
        // Strict turns are kept whatever is sent.
        let leaves = leaves(view);
        let contends = |path: &&PathView| hold || path.can_send(view.now) && !leaves(path);
        let contenders = || view.candidates().filter(contends);
        let mut most: Option<(i64, &PathView)> = None;
        let mut sum: i64 = 0;
        for path in contenders() {
            let Some(share) = self.of(path.id) else {
                continue;
            };
            sum = sum.saturating_add(share.weight);
            let owed = share.owed.saturating_add(share.weight);
            if most.is_none_or(|(best, _)| owed > best) {
                most = Some((owed, path));
            }
        }
        let Some((_, path)) = most else {
            return view.no_room();
        };
        if let Some(patience) = patience {
            if !path.can_send(view.now) {
                return patience.wait_for(view, path, Reason::WaitForTurn);
            }
            patience.end();
        }
        for contender in contenders() {
            if let Some(share) = self.of(contender.id) {
                share.owed = share.owed.saturating_add(share.weight);
                if contender.id == path.id {
                    share.owed = share.owed.saturating_sub(sum);
                }
            }
        }
        Choice::send(path.id, Reason::Weight)
    }
}
