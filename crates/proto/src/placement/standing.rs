//! Answers that need not be asked for again: a batch of datagrams takes one question and not one
//! for each packet.

use super::{Job, Load, Placement, Sight, Task};
use crate::path::PathSet;
use crate::sched::{Choice, ClassSet, Decision, UnitKind};

/// What a [steady](crate::sched::Scheduler::is_steady) scheduler said about fresh data.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standing {
    job: Job,
    choice: Choice,
}

impl Placement {
    /// Packets are written anew: since the last ones, more may have happened than that they left.
    pub(crate) fn begin(&mut self) {
        self.standing = None;
    }

    /// Keeps an answer that led to `job`, if it is one that stands. A connection whose data has
    /// classes, chunks or mechanisms is asked for more than a path.
    pub(super) fn note_standing(&mut self, sight: &Sight<'_>, job: Option<Job>, choice: Choice) {
        let is_plain = |job: &Job| {
            matches!(
                job.task,
                Task::Data(Load::Waiting {
                    first: UnitKind::Fresh,
                    class: 0,
                    skip: 0,
                    also: PathSet::EMPTY,
                    overtakes: false,
                    beyond: false,
                    ..
                })
            )
        };
        let stands = self.scheduler.is_steady()
            && matches!(choice.decision, Decision::Send(_))
            && self.chunk.is_none()
            && self.mechanisms.is_none()
            && !sight.streams.has_classes();
        let job = job.filter(is_plain).filter(|_| stands);
        self.standing = job.map(|job| Standing { job, choice });
    }

    /// The job that the scheduler's answer leads to once more, if it still stands: fresh data is
    /// next again, and the path has room.
    pub(super) fn stand(&mut self, sight: &Sight<'_>) -> Option<Job> {
        let Standing { job, choice } = self.standing?;
        let is_next = sight.paths.ready(job.path, sight.now).is_some()
            && sight.streams.next_unit_of(ClassSet::of(0)).kind == UnitKind::Fresh;
        if !is_next {
            self.standing = None;
            return None;
        }
        self.count(choice, sight.is_watched);
        Some(job)
    }
}
