//! Turns in proportion to weights, one packet at a time.
//!
//! Every contender earns its weight per packet and the one that is owed most pays for all of them,
//! so that the turns of a path are spread evenly.

use crate::toolkit::{Patience, leaves, position};
use anabranch_proto::path::MAX_OPEN_PATHS;
use anabranch_proto::sched::{Choice, PathView, Reason, SendView};
use anabranch_proto::wire::PathId;
use smallvec::SmallVec;

/// The shares of all paths.
#[derive(Debug, Default)]
pub struct Shares {
    list: SmallVec<[Share; MAX_OPEN_PATHS]>,
}

/// What one path is owed, in packets times the sum of weights, or in a unit that the owner chooses.
#[derive(Debug, Clone, Copy)]
pub struct Share {
    /// The path that has the share.
    pub path: PathId,
    /// What the path earns with every packet that any contender sends.
    pub weight: i64,
    /// What the path has earned and not paid with packets of its own.
    pub owed: i64,
    /// Whether the path takes part in the decision that is being made.
    contends: bool,
}

impl Shares {
    /// Sets the weight of a path, the share of which is most likely at `guess`; returns whether it
    /// had another one before.
    pub fn set_weight(
        &mut self,
        view: &SendView<'_>,
        guess: usize,
        path: PathId,
        weight: i64,
    ) -> bool {
        let list = &mut self.list[..];
        if let Some(at) = position(list, guess, |share| share.path == path) {
            return std::mem::replace(&mut list[at].weight, weight) != weight;
        }
        if self.list.len() >= MAX_OPEN_PATHS {
            self.list.retain(|share| view.path(share.path).is_some());
        }
        self.list.push(Share {
            path,
            weight,
            owed: 0,
            contends: false,
        });
        false
    }

    /// Clears all debts.
    pub fn settle(&mut self) {
        self.list.iter_mut().for_each(|share| share.owed = 0);
    }

    /// The share of `path`, if it has one.
    pub fn of(&mut self, path: PathId) -> Option<&mut Share> {
        self.list.iter_mut().find(|share| share.path == path)
    }

    /// Drops the share of `path`. Call it when the path is gone.
    pub fn forget(&mut self, path: PathId) {
        self.list.retain(|share| share.path != path);
    }

    /// The path whose turn it is. Skips full paths, or waits for them if there is `patience`.
    pub fn next(&mut self, view: &SendView<'_>, patience: Option<&mut Patience>) -> Choice {
        let hold = patience.is_some();
        // Strict turns are kept whatever is sent.
        let leaves = leaves(view);
        let contends = |path: &&PathView| hold || path.can_send(view.now) && !leaves(path);
        let list = &mut self.list[..];
        let mut most: Option<(i64, usize, &PathView)> = None;
        let mut sum: i64 = 0;
        let mut guess = 0;
        for path in view.candidates().filter(contends) {
            let Some(at) = position(list, guess, |share| share.path == path.id) else {
                continue;
            };
            guess = at + 1;
            let share = &mut list[at];
            share.contends = true;
            sum = sum.saturating_add(share.weight);
            let owed = share.owed.saturating_add(share.weight);
            if most.is_none_or(|(best, ..)| owed > best) {
                most = Some((owed, at, path));
            }
        }
        let Some((_, winner, path)) = most else {
            return view.no_room();
        };
        let waits = hold && !path.can_send(view.now);
        for share in &mut *list {
            if std::mem::take(&mut share.contends) && !waits {
                share.owed = share.owed.saturating_add(share.weight);
            }
        }
        if let Some(patience) = patience {
            if waits {
                return patience.wait_for(view, path, Reason::WaitForTurn);
            }
            patience.end();
        }
        list[winner].owed = list[winner].owed.saturating_sub(sum);
        Choice::send(path.id, Reason::Weight)
    }
}
