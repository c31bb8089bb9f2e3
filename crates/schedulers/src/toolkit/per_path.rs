//! What a scheduler keeps about each path, without allocating.

use anabranch_proto::path::MAX_OPEN_PATHS;
use anabranch_proto::sched::{PathEvent, SendView};
use anabranch_proto::wire::PathId;
use smallvec::SmallVec;

/// A value for each of a few paths. Paths that are gone make room for new ones.
#[derive(Debug, Clone)]
pub struct PerPath<T>(SmallVec<[(PathId, T); MAX_OPEN_PATHS]>);

/// The position in `list` of the item for which `is_own` is true. `guess` is tried first: lists
/// about paths mostly have the order of the view.
pub fn position<T>(list: &[T], guess: usize, is_own: impl Fn(&T) -> bool) -> Option<usize> {
    if list.get(guess).is_some_and(&is_own) {
        return Some(guess);
    }
    list.iter().position(is_own)
}

impl<T> Default for PerPath<T> {
    fn default() -> Self {
        Self(SmallVec::new())
    }
}

impl<T> PerPath<T> {
    /// The value of path `id`.
    pub fn get(&self, id: PathId) -> Option<&T> {
        self.0
            .iter()
            .find(|(of, _)| *of == id)
            .map(|(_, value)| value)
    }

    /// The value of path `id`, to be changed.
    pub fn get_mut(&mut self, id: PathId) -> Option<&mut T> {
        let mut items = self.0.iter_mut();
        items.find(|(of, _)| *of == id).map(|(_, value)| value)
    }

    /// The value of path `id`, made by `new` if there is none.
    pub fn entry(&mut self, view: &SendView<'_>, id: PathId, new: impl FnOnce() -> T) -> &mut T {
        if let Some(at) = self.0.iter().position(|(of, _)| *of == id) {
            return &mut self.0[at].1;
        }
        if self.0.len() == MAX_OPEN_PATHS {
            self.0.retain(|(of, _)| view.path(*of).is_some());
            self.0.truncate(MAX_OPEN_PATHS - 1);
        }
        let at = self.0.len();
        self.0.push((id, new()));
        &mut self.0[at].1
    }

    /// All paths with their values, in the order in which they were first seen.
    pub fn iter(&self) -> impl Iterator<Item = &(PathId, T)> {
        self.0.iter()
    }

    /// All paths with their values, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut (PathId, T)> {
        self.0.iter_mut()
    }

    /// Forgets path `id`.
    pub fn remove(&mut self, id: PathId) {
        self.0.retain(|(of, _)| *of != id);
    }

    /// Forgets a path that is gone. Call it with every event.
    pub fn on_event(&mut self, event: &PathEvent) {
        if let PathEvent::Abandoned { path } = event {
            self.remove(*path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fresh;
    use anabranch_proto::sched::PathView;

    #[test]
    fn values_stay_with_their_paths_and_never_outgrow_the_limit() {
        let mut values = PerPath::default();
        for first in 0..50_u32 {
            let paths: Vec<PathView> = (first..first + 16).map(PathView::new).collect();
            let view = fresh(&paths);
            for path in &paths {
                *values.entry(&view, path.id, || 0) += 1;
            }
            assert_eq!(values.iter().count(), MAX_OPEN_PATHS);
            let oldest = values.get(PathId(first)).copied();
            assert_eq!(oldest, Some(first.min(15) + 1), "seen in each view so far");
        }
        values.on_event(&PathEvent::Abandoned { path: PathId(60) });
        assert_eq!(values.get(PathId(60)), None);
    }
}
