//! Words for the paths of a connection: how many there can be, whether one can be counted on, and
//! small sets of them.

use anabranch_wire::PathId;

/// The most paths one connection keeps open at a time.
pub const MAX_OPEN_PATHS: usize = 16;

/// Whether a path can be counted on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum PathState {
    /// Validated and answering.
    #[default]
    Active,
    /// Potentially failed: it went silent, so it is probed but carries no data (RFC 7829).
    Doubtful,
}

/// A small set of paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PathSet {
    ids: [u32; MAX_OPEN_PATHS],
    length: u8,
}

impl PathSet {
    /// The set of no paths.
    pub const EMPTY: Self = Self {
        ids: [0; MAX_OPEN_PATHS],
        length: 0,
    };

    /// Adds a path; returns whether it is in the set afterwards (a full set takes no more).
    pub fn insert(&mut self, id: PathId) -> bool {
        if self.contains(id) {
            return true;
        }
        let Some(slot) = self.ids.get_mut(usize::from(self.length)) else {
            return false;
        };
        *slot = id.0;
        self.length += 1;
        true
    }

    /// Whether the path is in the set.
    pub fn contains(&self, id: PathId) -> bool {
        self.ids[..usize::from(self.length)].contains(&id.0)
    }

    /// Number of paths.
    pub fn len(&self) -> usize {
        usize::from(self.length)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The paths, in order of insertion.
    pub fn iter(&self) -> impl Iterator<Item = PathId> + '_ {
        self.ids[..usize::from(self.length)]
            .iter()
            .map(|id| PathId(*id))
    }
}

impl FromIterator<PathId> for PathSet {
    fn from_iter<I: IntoIterator<Item = PathId>>(ids: I) -> Self {
        let mut set = Self::EMPTY;
        for id in ids {
            set.insert(id);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_path_set_keeps_what_fits(ids in prop::collection::vec(0_u32..30, 0..40)) {
            let set: PathSet = ids.iter().copied().map(PathId).collect();
            let mut naive: Vec<u32> = Vec::new();
            for id in ids {
                if !naive.contains(&id) && naive.len() < MAX_OPEN_PATHS {
                    naive.push(id);
                }
            }
            let kept: Vec<u32> = set.iter().map(|id| id.0).collect();
            prop_assert_eq!(kept, naive);
        }
    }
}
