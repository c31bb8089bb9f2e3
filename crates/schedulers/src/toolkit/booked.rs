//! Unsent data bound to paths: what a plan gives to a path that cannot send it yet.
//!
//! The engine has no queue per path, so nothing is queued: the data stays unsent, and other paths
//! skip it. That also makes it easy to take back: when a path goes, what was bound to it is the
//! head of the queue again.

use crate::toolkit::units::packet;
use crate::toolkit::{Patience, skip_limit};
use anabranch_proto::sched::{Choice, Decision, PathEvent, PathView, Reason, SendView, lowest_rtt};
use anabranch_proto::wire::PathId;
use anabranch_proto::wire::frame::PathStatus;
use smallvec::SmallVec;

/// Runs of data kept. A plan that needs more is given up.
const RUNS: usize = 64;

/// Which path each piece of the unsent data is bound to, from the oldest on.
#[derive(Debug, Default)]
pub struct Booked {
    runs: SmallVec<[Run; RUNS]>,
    total: u64,
}

#[derive(Debug, Clone, Copy)]
struct Run {
    path: PathId,
    bytes: u64,
}

impl Booked {
    /// Bytes bound to any path.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Bytes bound to `path`.
    pub fn of(&self, path: PathId) -> u64 {
        let own = self.runs.iter().filter(|run| run.path == path);
        own.fold(0, |sum, run| sum + run.bytes)
    }

    /// Binds what follows to `path`. If there is no room for that, everything is free again.
    pub fn push(&mut self, path: PathId, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let Some(total) = self.total.checked_add(bytes) else {
            self.clear();
            return;
        };
        if let Some(last) = self.runs.last_mut().filter(|last| last.path == path) {
            last.bytes += bytes;
        } else if self.runs.len() == RUNS {
            self.clear();
            return;
        } else {
            self.runs.push(Run { path, bytes });
        }
        self.total = total;
    }

    /// How many more runs there is room for.
    pub fn spare(&self) -> usize {
        RUNS - self.runs.len()
    }

    /// Frees what is bound to `path`.
    fn release(&mut self, path: PathId) {
        self.runs.retain(|run| run.path != path);
        for at in (1..self.runs.len()).rev() {
            self.merge(at);
        }
        self.total = self.runs.iter().map(|run| run.bytes).sum();
    }

    /// Frees everything.
    pub fn clear(&mut self) {
        self.runs.clear();
        self.total = 0;
    }

    /// Frees what lies beyond the first `unsent` bytes: it does not exist any more.
    pub fn truncate(&mut self, unsent: u64) {
        while self.total > unsent
            && let Some(last) = self.runs.last_mut()
        {
            let surplus = (self.total - unsent).min(last.bytes);
            last.bytes -= surplus;
            self.total -= surplus;
            if last.bytes == 0 {
                self.runs.pop();
            }
        }
    }

    /// Where the data of `path` begins: how many bytes bound to others lie before it.
    fn before(&self, path: PathId) -> Option<(usize, u64)> {
        let at = self.runs.iter().position(|run| run.path == path)?;
        let before = self.runs[..at].iter().map(|run| run.bytes).sum();
        Some((at, before))
    }

    /// Strikes off `bytes` that are sent, from the run at `from` on. A packet may take more than
    /// the run had left; the rest is what the next runs were to send.
    fn strike(&mut self, from: usize, mut bytes: u64) {
        while bytes > 0
            && let Some(run) = self.runs.get_mut(from)
        {
            let sent = run.bytes.min(bytes);
            run.bytes -= sent;
            bytes -= sent;
            self.total -= sent;
            if run.bytes == 0 {
                self.runs.remove(from);
            }
        }
        self.merge(from);
    }

    /// Merges the run at `at` with the one before it if both belong to one path.
    fn merge(&mut self, at: usize) {
        if let Some(before) = at.checked_sub(1)
            && let Some(run) = self.runs.get(at).copied()
            && self.runs[before].path == run.path
        {
            self.runs[before].bytes += run.bytes;
            self.runs.remove(at);
        }
    }

    /// What to do when all unsent data is bound to paths that cannot send: waits for the path of
    /// the oldest data, no longer than an acknowledgement takes.
    pub fn wait(&mut self, view: &SendView<'_>, patience: &mut Patience) -> Choice {
        while let Some(id) = self.runs.first().map(|run| run.path) {
            let Some(path) = view.candidates().find(|path| path.id == id) else {
                self.release(id);
                continue;
            };
            let choice = patience.wait_for(view, path, Reason::WaitForBetter);
            if let Decision::Send(id) = choice.decision
                && let Some(path) = view.path(id)
            {
                self.strike(0, packet(path));
            }
            return choice;
        }
        lowest_rtt(view)
    }

    /// Frees what is bound to a path that carries no data any more. Call it with every event.
    pub fn on_event(&mut self, event: &PathEvent) {
        match *event {
            PathEvent::Doubted { path }
            | PathEvent::Abandoned { path }
            | PathEvent::Status {
                path,
                status: PathStatus::Backup,
            } => self.release(path),
            _ => {}
        }
    }

    /// Sends on the ready path that holds the oldest bound data. `None` if nothing is bound to a
    /// path that can send.
    ///
    /// If more data would be skipped than [`skip_limit`] allows, the plan is dropped and the path
    /// sends the oldest data.
    pub fn serve(&mut self, view: &SendView<'_>) -> Option<Choice> {
        if self.runs.is_empty() {
            return None;
        }
        let mut earliest: Option<(u64, usize, &PathView)> = None;
        for path in view.ready() {
            if let Some((at, before)) = self.before(path.id)
                && earliest.is_none_or(|(least, ..)| before < least)
            {
                earliest = Some((before, at, path));
            }
        }
        let (before, at, path) = earliest?;
        if before > skip_limit(view, path) {
            self.clear();
            return Some(Choice::send(path.id, Reason::Planned));
        }
        self.strike(at, packet(path));
        Some(send_behind(path.id, before, Reason::Planned))
    }
}

/// Sends on `path` the data behind the first `skip` unsent bytes.
pub fn send_behind(path: PathId, skip: u64, reason: Reason) -> Choice {
    let decision = match skip {
        0 => Decision::Send(path),
        skip => Decision::SendAt { path, skip },
    };
    Choice { decision, reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{fresh, full};
    use proptest::prelude::*;

    #[test]
    fn the_oldest_data_of_a_free_path_goes_first() {
        let mut booked = Booked::default();
        booked.push(PathId(0), 3000);
        booked.push(PathId(1), 2400);
        booked.push(PathId(2), 1200);
        let paths = [full(0), PathView::new(1), PathView::new(2)];
        let mut next = || booked.serve(&fresh(&paths)).map(|choice| choice.decision);
        let behind = |path, skip| {
            let path = PathId(path);
            Some(Decision::SendAt { path, skip })
        };
        assert_eq!(next(), behind(1, 3000));
        assert_eq!(next(), behind(1, 3000));
        assert_eq!(next(), behind(2, 3000));
        assert_eq!(next(), None, "the rest waits for path 0");
        assert_eq!(booked.total(), 3000);
    }

    #[test]
    fn nothing_is_skipped_at_the_end_of_the_data() {
        let mut booked = Booked::default();
        booked.push(PathId(0), 3000);
        booked.push(PathId(1), 1200);
        let paths = [full(0), PathView::new(1)];
        let mut view = fresh(&paths);
        view.backlog.unsent = 3500;
        let choice = booked.serve(&view);
        assert_eq!(choice, Some(Choice::send(PathId(1), Reason::Planned)));
        assert_eq!(booked.total(), 0, "the plan is over");
    }

    #[test]
    fn data_bound_to_a_lost_path_is_free_again() {
        let mut booked = Booked::default();
        booked.push(PathId(0), 3000);
        booked.push(PathId(1), 1200);
        booked.push(PathId(0), 500);
        booked.release(PathId(0));
        assert_eq!((booked.total(), booked.of(PathId(0))), (1200, 0));
        let choice = booked.serve(&fresh(&[PathView::new(1)]));
        assert_eq!(choice, Some(Choice::send(PathId(1), Reason::Planned)));
    }

    proptest! {
        #[test]
        fn the_account_is_that_of_a_list_of_bytes(
            steps in prop::collection::vec((0_u8..6, 0_u32..3, 0_usize..4), 0..300),
        ) {
            let mut booked = Booked::default();
            // One entry per kilobyte.
            let mut naive: Vec<u32> = Vec::new();
            for (step, path, amount) in steps {
                let bytes = amount as u64 * 1000;
                match step {
                    0 => {
                        let runs = naive.chunk_by(|a, b| a == b).count();
                        let merges = naive.last() == Some(&path);
                        if runs == RUNS && !merges && amount > 0 {
                            naive.clear();
                        } else {
                            naive.extend(std::iter::repeat_n(path, amount));
                        }
                        booked.push(PathId(path), bytes);
                    }
                    1 => {
                        naive.drain(..amount.min(naive.len()));
                        booked.strike(0, bytes);
                    }
                    2 => {
                        naive.truncate(amount * 2);
                        booked.truncate(bytes * 2);
                    }
                    3 => {
                        naive.retain(|entry| *entry != path);
                        booked.release(PathId(path));
                    }
                    4 => {
                        let own = naive.iter().position(|entry| *entry == path);
                        if let Some(own) = own {
                            naive.drain(own..(own + amount).min(naive.len()));
                            let (at, _) = booked.before(PathId(path)).expect("bound");
                            booked.strike(at, bytes);
                        }
                    }
                    _ => {
                        let own = naive.iter().position(|entry| *entry == path);
                        let found = booked.before(PathId(path)).map(|(_, before)| before);
                        prop_assert_eq!(found, own.map(|at| at as u64 * 1000));
                    }
                }
                prop_assert_eq!(booked.total(), naive.len() as u64 * 1000);
                let own = naive.iter().filter(|entry| **entry == path).count();
                prop_assert_eq!(booked.of(PathId(path)), own as u64 * 1000);
                let first = booked.runs.first().map(|run| run.path.0);
                prop_assert_eq!(first, naive.first().copied());
            }
        }
    }
}
