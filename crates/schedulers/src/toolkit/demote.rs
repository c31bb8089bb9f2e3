//! Asks a scheduler while some paths are to be left alone: it sees them as backups.
//!
//! If it then finds no path that can send, though one that was
//! left alone could, the wait is bounded as any other: the rule against endless holds is that of
//! the whole connection and not of the view the scheduler was given.

use crate::toolkit::Patience;
use crate::toolkit::units::packet;
use anabranch_proto::path::MAX_OPEN_PATHS;
use anabranch_proto::sched::{
    Choice, Decision, PathEvent, PathView, Reason, Scheduler, SendView, UnitKind, rank,
};
use anabranch_proto::wire::frame::PathStatus;

/// Shows some paths as backups.
#[derive(Debug)]
pub struct Demoted {
    /// The snapshot a scheduler is shown, reused.
    paths: Vec<PathView>,
}

impl Default for Demoted {
    fn default() -> Self {
        Self {
            paths: Vec::with_capacity(MAX_OPEN_PATHS),
        }
    }
}

impl Demoted {
    /// `view` with every path that is `demoted` shown as a backup; `None` if there is none, or
    /// nothing else that is usable.
    pub fn show<'a>(
        &'a mut self,
        view: &SendView<'a>,
        demoted: impl Fn(&PathView) -> bool,
    ) -> Option<SendView<'a>> {
        let mut any = false;
        let mut rest = false;
        for path in view.paths.iter().filter(|path| path.is_usable()) {
            let left_alone = demoted(path);
            any |= left_alone;
            rest |= !left_alone;
        }
        if !any || !rest {
            return None;
        }
        self.paths.clear();
        self.paths.extend(view.paths.iter().map(|path| {
            let mut path = *path;
            if demoted(&path) {
                path.status = PathStatus::Backup;
            }
            path
        }));
        Some(SendView {
            paths: &self.paths,
            ..*view
        })
    }
}

/// Whether an answer holds only because the paths that were shown have no room, while others of
/// `view` have some. A scheduler's own waits end; this one would not.
pub fn lacks_room(view: &SendView<'_>, choice: &Choice) -> bool {
    let Decision::Hold { until } = choice.decision else {
        return false;
    };
    let is_own = until.is_some() && choice.reason != Reason::NoRoom;
    !is_own && view.ready().next().is_some()
}

/// Asks a scheduler as if some paths were backups.
#[derive(Debug, Default)]
pub struct Demoter {
    demoted: Demoted,
    patience: Patience,
}

impl Demoter {
    /// The answer of `inner` to `view` with every path that is `demoted` shown as a backup. If
    /// nothing usable is left, the view is shown as it is.
    pub fn ask(
        &mut self,
        inner: &mut dyn Scheduler,
        view: &SendView<'_>,
        demoted: impl Fn(&PathView) -> bool,
    ) -> Choice {
        let Some(shown) = self.demoted.show(view, demoted) else {
            self.patience.end();
            return inner.select(view);
        };
        let choice = inner.select(&shown);
        if !matches!(choice.decision, Decision::Hold { .. }) {
            self.patience.end();
            return choice;
        }
        if view.unit.kind == UnitKind::Idle || !lacks_room(view, &choice) {
            return choice;
        }
        let soonest = |path: &&PathView| {
            let paced = path.room() >= packet(path);
            (!paced, rank(path))
        };
        let best = shown.candidates().min_by_key(soonest);
        match best {
            Some(best) => self.patience.wait_for(view, best, Reason::WaitForBetter),
            None => choice,
        }
    }

    /// Call it with every event.
    pub fn on_event(&mut self, event: &PathEvent) {
        self.patience.on_event(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{at, fresh, full, send};
    use anabranch_proto::path::PathState;
    use anabranch_proto::sched::MinRtt;
    use anabranch_proto::time::Duration;
    use anabranch_proto::wire::PathId;

    fn ask(demoter: &mut Demoter, paths: &[PathView], demoted: u32, ms: u64) -> Choice {
        let mut view = fresh(paths);
        view.now = at(ms);
        let mut inner = MinRtt;
        demoter.ask(&mut inner, &view, |path| path.id == PathId(demoted))
    }

    #[test]
    fn a_path_left_alone_is_used_when_no_other_answers() {
        let mut demoter = Demoter::default();
        let paths = [PathView::new(0), PathView::new(1)];
        let choice = ask(&mut demoter, &paths, 0, 0);
        assert_eq!(choice, send(1, Reason::OnlyPath));
        let silent = PathView {
            state: PathState::Doubtful,
            ..paths[1]
        };
        let choice = ask(&mut demoter, &[paths[0], silent], 0, 0);
        assert_eq!(choice, send(0, Reason::OnlyPath));
    }

    #[test]
    fn a_full_rest_is_waited_for_but_not_for_ever() {
        let mut demoter = Demoter::default();
        let busy = PathView {
            smoothed_rtt: Duration::from_millis(40),
            ..full(1)
        };
        let paths = [PathView::new(0), busy];
        let waiting = Choice::hold_until(at(40), Reason::WaitForBetter);
        assert_eq!(ask(&mut demoter, &paths, 0, 0), waiting);
        let after = ask(&mut demoter, &paths, 0, 40);
        assert_eq!(after.decision, Decision::Send(PathId(0)));
    }
}
