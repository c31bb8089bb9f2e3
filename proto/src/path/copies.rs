//! How far a path is with copying what the others carry.

use crate::wire::PathId;

/// Where to look for the next packet to copy, for each other path.
///
/// What was looked at and not worth a copy never becomes so but by a loss: it was acknowledged, or
/// this path carried it, or enough others do. So the packets of a window are looked at once, and
/// not once for each acknowledgement.
#[derive(Debug, Default)]
pub(crate) struct Copies(Vec<Front>);

#[derive(Debug)]
struct Front {
    of: PathId,
    /// Packets below this number were copied.
    copied: u64,
    /// Packets below this one were not worth it...
    passed: u64,
    /// ... after this many losses.
    losses: u64,
}

impl Copies {
    /// The number of the first packet of `of` that may be worth a copy, now that stream data was
    /// lost `losses` times.
    pub(crate) fn first(&self, of: PathId, losses: u64) -> u64 {
        match self.known(of) {
            Some(front) if front.losses == losses => front.copied.max(front.passed),
            _ => self.copied(of),
        }
    }

    /// Up to where packets of `of` were copied.
    pub(crate) fn copied(&self, of: PathId) -> u64 {
        self.known(of).map_or(0, |front| front.copied)
    }

    /// No packet of `of` below number `pn` is worth a copy.
    pub(crate) fn pass(&mut self, of: PathId, pn: u64, losses: u64) {
        let front = self.front(of);
        (front.passed, front.losses) = (pn, losses);
    }

    /// Packets of `of` below number `pn` were copied.
    pub(crate) fn on_copied(&mut self, of: PathId, pn: u64) {
        self.front(of).copied = pn;
    }

    /// That path is given up: nothing of it is left to copy.
    pub(crate) fn forget(&mut self, of: PathId) {
        self.0.retain(|front| front.of != of);
    }

    fn known(&self, of: PathId) -> Option<&Front> {
        self.0.iter().find(|front| front.of == of)
    }

    fn front(&mut self, of: PathId) -> &mut Front {
        let known = self.0.iter().position(|front| front.of == of);
        let index = known.unwrap_or_else(|| {
            self.0.push(Front {
                of,
                copied: 0,
                passed: 0,
                losses: 0,
            });
            self.0.len() - 1
        });
        &mut self.0[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHER: PathId = PathId(1);

    #[test]
    fn what_was_not_worth_a_copy_is_looked_at_again_after_a_loss_only() {
        let mut copies = Copies::default();
        assert_eq!(copies.first(OTHER, 0), 0);
        copies.pass(OTHER, 7, 0);
        assert_eq!(copies.first(OTHER, 0), 7);
        assert_eq!(copies.first(OTHER, 1), 0);
    }

    #[test]
    fn a_path_that_is_given_up_leaves_nothing_behind() {
        let mut copies = Copies::default();
        for id in 0..1000 {
            copies.pass(PathId(id), 7, 0);
            copies.forget(PathId(id));
        }
        assert!(copies.0.is_empty());
    }

    #[test]
    fn what_was_copied_is_not_looked_at_again() {
        let mut copies = Copies::default();
        copies.on_copied(OTHER, 4);
        copies.pass(OTHER, 7, 0);
        assert_eq!(copies.first(OTHER, 3), 4);
        assert_eq!(copies.first(PathId(2), 0), 0);
    }
}
