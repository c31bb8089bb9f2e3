//! By which path acknowledgements return: that of the packets, unless the application wants another
//! or there is doubt about it.

use super::manager::{Manager, Slot};
use super::state::Path;
use crate::config::AckReturn;
use crate::time::Instant;
use anabranch_wire::PathId;
use smallvec::SmallVec;

/// Chooses the way back of acknowledgements.
#[derive(Debug)]
pub(crate) struct AckRoutes {
    rule: AckReturn,
    /// The path by which all return, with [`AckReturn::LowestRtt`].
    home: Option<PathId>,
}

impl AckRoutes {
    /// Nothing is chosen yet.
    pub(crate) fn new(rule: AckReturn) -> Self {
        Self { rule, home: None }
    }

    /// Whether acknowledgements go along with whatever leaves by their path.
    fn ride_along(&self) -> bool {
        self.rule == AckReturn::SamePath
    }

    /// RTTs have changed. A path that is hardly faster than the chosen one is left alone: to the
    /// peer another way back is another RTT.
    pub(crate) fn settle(&mut self, paths: &Manager) {
        if self.rule != AckReturn::LowestRtt {
            return;
        }
        let smoothed = |path: &Path| path.route().rtt().smoothed();
        let best = paths.control_path(None);
        let kept = self.home.filter(|home| {
            let own = paths.path(*home).map(smoothed);
            let much_slower = own > best.map(|best| smoothed(best) * 9 / 8);
            paths.works(*home) && !much_slower
        });
        self.home = kept.or(best.map(Path::id));
    }

    /// The path on which an acknowledgement that is due should travel.
    pub(crate) fn due(&self, now: Instant, paths: &Manager) -> Option<PathId> {
        let mut due = with_paths(paths).filter(|(_, path)| path.space().received().ack_due(now));
        due.find_map(|(slot, path)| self.route(now, paths, slot, path))
    }

    /// When an acknowledgement is due that can be sent at all, `now` at the earliest.
    pub(crate) fn deadline(&self, now: Instant, paths: &Manager) -> Option<Instant> {
        let due = with_paths(paths).filter_map(|(slot, path)| {
            // The cheap question first: few paths have an acknowledgement to send.
            let at = path.space().received().deadline()?;
            self.route(now, paths, slot, path).map(|_| at)
        });
        due.min().map(|at| at.max(now))
    }

    /// The paths whose acknowledgements a packet on `carrier` takes along.
    pub(crate) fn travelling_on(
        &self,
        now: Instant,
        paths: &Manager,
        carrier: PathId,
    ) -> SmallVec<[PathId; 4]> {
        let travels = |(slot, path): &(&Slot, &Path)| {
            path.space().received().has_unreported()
                && (path.id() == carrier && self.ride_along()
                    || self.route(now, paths, slot, path) == Some(carrier))
        };
        let travelling = with_paths(paths).filter(travels);
        travelling.map(|(slot, _)| slot.id()).collect()
    }

    /// Where the acknowledgement of a path travels.
    fn route(&self, now: Instant, paths: &Manager, slot: &Slot, path: &Path) -> Option<PathId> {
        let carrier = |id: PathId| paths.slot(id).filter(|slot| slot.takes_frames());
        let own = || carrier(slot.id()).map(Slot::id);
        if !paths.is_multipath() {
            return own();
        }
        let home = (!slot.is_closing() && path.is_healthy()).then_some(slot.id());
        let wanted = match self.rule {
            AckReturn::LowestRtt => self.home.filter(|id| paths.works(*id)),
            AckReturn::Path(id) if paths.works(id) => Some(id),
            AckReturn::SamePath | AckReturn::Path(_) => home,
            AckReturn::LowestId => {
                let mut open = paths.open();
                return open.find(|slot| slot.takes_frames()).map(Slot::id);
            }
        };
        let wanted = wanted.and_then(carrier).map(Slot::id);
        if wanted.is_some() && !path.liveness().takes_detour(now) {
            return wanted;
        }
        // A detour is worth it by a path that answers. Where none does, both sides may have doubts
        // about the one that works again: they learn of it only by answering there.
        let answers = |path: &&Path| path.liveness().pto_count() == 0;
        let best = paths.control_path(wanted).filter(answers);
        best.map(Path::id)
            .or_else(own)
            .or_else(|| paths.control_path(None).map(Path::id))
    }
}

/// Open and closing paths: what came on one that is given up is acknowledged elsewhere.
fn with_paths(paths: &Manager) -> impl Iterator<Item = (&Slot, &Path)> {
    let in_use = paths.in_use();
    in_use.filter_map(|slot| Some((slot, slot.path()?)))
}
