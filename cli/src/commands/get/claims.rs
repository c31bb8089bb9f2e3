//! The names that one command needs: those of the files, and two more beside each file while it is
//! fetched.

use crate::files::partial::{note_of, part_of, target_of};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The targets so far; none of them gets in another's way.
#[derive(Debug, Default, Clone)]
pub(super) struct Claims(BTreeSet<PathBuf>);

impl Claims {
    /// Claims the name of a target, or says why it is not available.
    pub(super) fn claim(&mut self, target: &Path) -> Result<(), String> {
        if self.0.contains(target) {
            return Err("two would get this name".into());
        }
        let needed = [part_of(target), note_of(target)];
        if let Some(taken) = needed.iter().find(|name| self.0.contains(*name)) {
            return Err(format!("{} is needed while it is fetched", taken.display()));
        }
        let other = target_of(target);
        if let Some(other) = other.filter(|other| self.0.contains(other)) {
            let other = other.display();
            return Err(format!("this name is needed while {other} is fetched"));
        }
        self.0.insert(target.into());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_targets_need_one_name() {
        for (one, other) in [("a", "a"), ("a", "a.part"), ("d/a", "d/a.part.etag")] {
            for (first, second) in [(one, other), (other, one)] {
                let mut claims = Claims::default();
                claims.claim(Path::new(first)).unwrap();
                claims.claim(Path::new(second)).unwrap_err();
            }
        }
        let mut claims = Claims::default();
        for name in [
            "a",
            "b",
            "d/a",
            "a.etag",
            "b.part.part",
            "a.etag.part.x",
            "a.d/b",
        ] {
            claims.claim(Path::new(name)).unwrap();
        }
    }

    #[test]
    fn parts_and_notes_never_share_a_name() {
        for (one, other) in [("a", "a.etag"), ("a", "a.part"), ("a", "a.etag.part")] {
            assert_ne!(note_of(Path::new(one)), part_of(Path::new(other)));
            assert_ne!(part_of(Path::new(one)), note_of(Path::new(other)));
        }
    }
}
