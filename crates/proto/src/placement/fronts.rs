//! How far each path is with copying what the others carry.

use anabranch_wire::PathId;

/// Where to look for the next packet to copy, for each path and each other one.
///
/// What was looked at and not worth a copy never becomes so but by a loss: it was acknowledged, or
/// this path carries it, or enough others do. So the packets of a window are looked at once, and
/// not once for each acknowledgement.
#[derive(Debug, Default)]
pub(super) struct Fronts(Vec<(PathId, Vec<Front>)>);

#[derive(Debug)]
struct Front {
    of: PathId,
    /// Packets below this number were not worth it...
    passed: u64,
    /// ... after this many losses.
    losses: u64,
}

impl Fronts {
    /// The number of the first packet of `of` that may be worth a copy on `path`, now that stream
    /// data was lost `losses` times.
    pub(super) fn first(&self, path: PathId, of: PathId, losses: u64) -> u64 {
        match self.known(path, of) {
            Some(front) if front.losses == losses => front.passed,
            _ => 0,
        }
    }

    /// No packet of `of` below number `pn` is worth a copy on `path`.
    pub(super) fn pass(&mut self, path: PathId, of: PathId, pn: u64, losses: u64) {
        let front = self.front(path, of);
        (front.passed, front.losses) = (pn, losses);
    }

    /// That path is given up: nothing is left to copy of it or on it.
    pub(super) fn forget(&mut self, gone: PathId) {
        self.0.retain(|(path, _)| *path != gone);
        for (_, fronts) in &mut self.0 {
            fronts.retain(|front| front.of != gone);
        }
    }

    fn known(&self, path: PathId, of: PathId) -> Option<&Front> {
        let (_, fronts) = self.0.iter().find(|(id, _)| *id == path)?;
        fronts.iter().find(|front| front.of == of)
    }

    fn front(&mut self, path: PathId, of: PathId) -> &mut Front {
        let at = self.0.iter().position(|(id, _)| *id == path);
        let at = at.unwrap_or_else(|| {
            self.0.push((path, Vec::new()));
            self.0.len() - 1
        });
        let fronts = &mut self.0[at].1;
        let known = fronts.iter().position(|front| front.of == of);
        let at = known.unwrap_or_else(|| {
            fronts.push(Front {
                of,
                passed: 0,
                losses: 0,
            });
            fronts.len() - 1
        });
        &mut fronts[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: PathId = PathId(0);
    const OTHER: PathId = PathId(1);

    #[test]
    fn what_was_not_worth_a_copy_is_looked_at_again_after_a_loss_only() {
        let mut fronts = Fronts::default();
        assert_eq!(fronts.first(OWN, OTHER, 0), 0);
        fronts.pass(OWN, OTHER, 7, 0);
        assert_eq!(fronts.first(OWN, OTHER, 0), 7);
        assert_eq!(fronts.first(OWN, OTHER, 1), 0);
        assert_eq!(fronts.first(OTHER, OWN, 0), 0, "the other way round");
    }

    #[test]
    fn a_path_that_is_given_up_leaves_nothing_behind() {
        let mut fronts = Fronts::default();
        for id in 1..1000 {
            fronts.pass(OWN, PathId(id), 7, 0);
            fronts.pass(PathId(id), OWN, 7, 0);
            fronts.forget(PathId(id));
        }
        assert_eq!(fronts.0.len(), 1);
        assert!(fronts.0[0].1.is_empty());
    }
}
