//! Linger: bursts go to the path whose queue drains first at its pace, as Linux MPTCP sends.
//!
//! Linux, `net/mptcp/protocol.c`. There a burst is queued on a path beyond its window; here it is
//! a run of the stream set aside for the path, and paths that are free take what comes after the
//! runs of those that are full. No path is given more than another window on top of its own; when
//! the best one has that, the others wait for it: it never falls back to a slower one. The rule
//! sees rates alone: of two paths that drain alike it does not know which one is longer.

use crate::toolkit::units::{packet, size};
use crate::toolkit::{Patience, PerPath, delivered_rate, send_behind, skip_credit};
use anabranch_proto::sched::{
    Choice, Entry, PathEvent, PathView, Reason, Scheduler, SendView, UnitKind, lowest_rtt,
};
use anabranch_proto::wire::PathId;
use smallvec::SmallVec;

pub(crate) const ENTRY: Entry = Entry {
    name: "linger",
    summary: "bursts of 64 kB to the path whose queue drains first, as in Linux",
    params: &[],
    build: |_| Ok(Box::new(Linger::default())),
};

/// Bytes of a burst in Linux.
const BURST: u64 = 65_428;

/// Runs planned ahead.
const RUNS_MAX: usize = 32;

/// Plans bursts.
#[derive(Debug, Default)]
pub(crate) struct Linger {
    /// Runs of the unsent stream bytes, the oldest first.
    runs: SmallVec<[Run; RUNS_MAX]>,
    /// Average pace of each path, in bytes per second.
    paces: PerPath<u64>,
    patience: Patience,
}

/// A stretch of bytes set aside for a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    path: PathId,
    bytes: u64,
}

impl Linger {
    fn planned(&self, path: PathId) -> u64 {
        let runs = self.runs.iter().filter(|run| run.path == path);
        runs.fold(0, |sum, run| sum + run.bytes)
    }

    fn pace_now(path: &PathView) -> u64 {
        let pace = if path.pacing_rate > 0 {
            path.pacing_rate
        } else {
            delivered_rate(path)
        };
        pace.max(1)
    }

    /// Microseconds until all that `path` holds is sent at its pace.
    fn drain(&self, path: &PathView) -> u128 {
        let held = size(path.bytes_in_flight) + size(path.queued) + size(self.planned(path.id));
        let pace = self.paces.get(path.id).copied().unwrap_or(0);
        let pace = if pace == 0 {
            Self::pace_now(path)
        } else {
            pace
        };
        held * 1_000_000 / u128::from(pace)
    }

    /// Drops runs of paths that carry nothing now, and what is planned beyond what waits.
    fn trim(&mut self, view: &SendView<'_>) {
        let mut left = view.backlog.unsent;
        for run in &mut self.runs {
            if view.candidates().all(|path| path.id != run.path) {
                run.bytes = 0;
            }
            run.bytes = run.bytes.min(left);
            left -= run.bytes;
        }
        self.runs.retain(|run| run.bytes > 0);
    }

    /// The first run whose path can send: its place and the bytes before it.
    fn first_open(&self, view: &SendView<'_>) -> Option<(usize, u64)> {
        let mut skip = 0;
        for (at, run) in self.runs.iter().enumerate() {
            if view
                .path(run.path)
                .is_some_and(|path| path.can_send(view.now))
            {
                return Some((at, skip));
            }
            skip += run.bytes;
        }
        None
    }

    /// Sets one more burst aside. `Err` with the path to wait for if there is nothing to set aside
    /// or no room on the path that should have it.
    fn plan<'a>(&mut self, view: &SendView<'a>) -> Result<(), Option<&'a PathView>> {
        let ahead = self.runs.iter().fold(0, |sum: u64, run| sum + run.bytes);
        let left = view.backlog.unsent.saturating_sub(ahead);
        if left == 0 || self.runs.len() == RUNS_MAX {
            return Err(self.runs.first().and_then(|run| view.path(run.path)));
        }
        let measured = |path: &&PathView| !path.smoothed_rtt.is_zero();
        let candidates = view.candidates().filter(measured);
        let best = candidates.min_by_key(|path| (self.drain(path), path.id));
        let best = best.ok_or(None)?;
        let space = best
            .congestion_window
            .saturating_mul(2)
            .saturating_sub(best.bytes_in_flight)
            .saturating_sub(best.queued)
            .saturating_sub(self.planned(best.id));
        let bytes = BURST.min(left).min(space);
        if bytes < packet(best).min(left) {
            return Err(Some(best));
        }
        let held = size(best.bytes_in_flight) + size(best.queued) + size(self.planned(best.id));
        let now = Self::pace_now(best);
        let pace = self.paces.entry(view, best.id, || now);
        let average = (u128::from(*pace) * held + u128::from(now) * size(bytes))
            / (held + size(bytes)).max(1);
        *pace = u64::try_from(average).unwrap_or(u64::MAX);
        match self.runs.last_mut() {
            Some(last) if last.path == best.id => last.bytes += bytes,
            _ => self.runs.push(Run {
                path: best.id,
                bytes,
            }),
        }
        Ok(())
    }

    fn carry_out(&mut self, view: &SendView<'_>, at: usize, skip: u64) -> Choice {
        let run = &mut self.runs[at];
        let path = run.path;
        run.bytes = run.bytes.saturating_sub(view.unit.bytes.max(1));
        if run.bytes == 0 {
            self.runs.remove(at);
        }
        self.patience.end();
        send_behind(path, skip, Reason::Planned)
    }
}

fn is_any_measured(view: &SendView<'_>) -> bool {
    view.ready().any(|path| !path.smoothed_rtt.is_zero())
}

impl Scheduler for Linger {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        if view.ready().next().is_none() || view.unit.kind != UnitKind::Fresh {
            return lowest_rtt(view);
        }
        self.trim(view);
        // Every plan either gives the open path a run or fills a full one: paths times runs at
        // most.
        for _ in 0..=RUNS_MAX {
            if let Some((at, skip)) = self.first_open(view) {
                let oldest = self.runs.first().and_then(|run| view.path(run.path));
                return match oldest {
                    Some(oldest) if skip > skip_credit(view) => {
                        self.patience.wait_for(view, oldest, Reason::WaitForBetter)
                    }
                    _ => self.carry_out(view, at, skip),
                };
            }
            match self.plan(view) {
                Ok(()) => {}
                // What is not measured is used when nothing that is can be.
                Err(Some(best)) if !best.can_send(view.now) && is_any_measured(view) => {
                    return self.patience.wait_for(view, best, Reason::WaitForBetter);
                }
                Err(_) => break,
            }
        }
        self.patience.end();
        lowest_rtt(view)
    }

    fn on_event(&mut self, event: &PathEvent) {
        self.patience.on_event(event);
        self.paces.on_event(event);
        if let PathEvent::Abandoned { path } | PathEvent::Doubted { path } = event {
            self.runs.retain(|run| run.path != *path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{fresh, send};
    use anabranch_proto::sched::Decision;
    use anabranch_proto::time::Duration;

    /// A path that holds so many kB of its 100 kB window and paces so many kB per millisecond.
    fn path(id: u32, held_kb: u64, pace: u64) -> PathView {
        PathView {
            smoothed_rtt: Duration::from_millis(20),
            congestion_window: 100_000,
            bytes_in_flight: held_kb * 1000,
            pacing_rate: pace * 1_000_000,
            max_datagram_size: 1000,
            ..PathView::new(id)
        }
    }

    #[test]
    fn the_queue_that_drains_first_gets_the_burst() {
        let paths = [path(0, 30, 10), path(1, 10, 2)];
        let mut linger = Linger::default();
        assert_eq!(linger.drain(&paths[0]), 3000);
        assert_eq!(linger.drain(&paths[1]), 5000);
        assert_eq!(linger.select(&fresh(&paths)), send(0, Reason::Planned));
    }

    #[test]
    fn a_burst_stays_on_its_path() {
        let mut linger = Linger::default();
        let mut paths = [path(0, 0, 10), path(1, 0, 9)];
        for sent in 0..BURST / 1200 {
            assert_eq!(
                linger.select(&fresh(&paths)),
                send(0, Reason::Planned),
                "{sent}"
            );
            paths[0].bytes_in_flight += 1200;
        }
    }

    #[test]
    fn a_free_path_takes_what_comes_after_the_burst_of_a_full_one() {
        let mut linger = Linger::default();
        let full = path(0, 100, 100);
        let free = path(1, 11, 10);
        let choice = linger.select(&fresh(&[full, free]));
        let Decision::SendAt { path: id, skip } = choice.decision else {
            panic!("{choice:?}")
        };
        assert_eq!(id, PathId(1));
        assert_eq!(skip, BURST);
        let reopened = path(0, 50, 100);
        assert_eq!(
            linger.select(&fresh(&[reopened, free])),
            send(0, Reason::Planned),
            "the run is still its own"
        );
    }

    #[test]
    fn data_far_ahead_never_takes_more_than_half_the_credit() {
        let paths = [path(0, 100, 100), path(1, 11, 10)];
        let ask = |credit| {
            let mut view = fresh(&paths);
            view.backlog.credit = credit;
            Linger::default().select(&view)
        };
        assert_eq!(ask(2 * BURST).reason, Reason::Planned);
        assert_eq!(ask(2 * BURST - 1).reason, Reason::WaitForBetter);
    }

    #[test]
    fn what_was_planned_for_a_lost_path_goes_elsewhere_at_once() {
        let mut linger = Linger::default();
        linger.select(&fresh(&[path(0, 100, 100), path(1, 90, 10)]));
        linger.on_event(&PathEvent::Doubted { path: PathId(0) });
        assert!(linger.runs.iter().all(|run| run.path != PathId(0)));
        assert_eq!(
            linger.select(&fresh(&[path(1, 90, 10)])),
            send(1, Reason::Planned)
        );
    }

    #[test]
    fn it_waits_rather_than_use_a_slower_path() {
        let mut linger = Linger::default();
        // The fast path drains 200 kB in 2 ms, the slow one needs 50 for what it has.
        let paths = [path(0, 100, 100), path(1, 50, 1)];
        let choice = linger.select(&fresh(&paths));
        assert_eq!(choice.reason, Reason::WaitForBetter);
    }

    #[test]
    fn the_end_of_the_stream_is_not_planned_past() {
        let mut linger = Linger::default();
        let paths = [path(0, 100, 100), path(1, 0, 99)];
        let mut view = fresh(&paths);
        view.backlog.unsent = 500;
        assert_eq!(linger.select(&view), send(1, Reason::Planned));
        assert!(linger.runs.is_empty());
    }

    #[test]
    fn bytes_are_split_in_proportion_to_pace() {
        let mut linger = Linger::default();
        let mut paths = [path(0, 0, 3), path(1, 0, 1)];
        let mut sent = [0_u64; 2];
        for step in 0..400_000_u64 {
            // Each path delivers at its pace: 3 kB and 1 kB per millisecond, in steps of 100 us.
            for (path, bytes) in paths.iter_mut().zip([300, 100]) {
                path.bytes_in_flight = path.bytes_in_flight.saturating_sub(bytes);
            }
            let mut view = fresh(&paths);
            view.now = crate::tests::at(0) + Duration::from_micros(step * 100);
            view.unit.bytes = 1000;
            let choice = linger.select(&view);
            let (Decision::Send(id) | Decision::SendAt { path: id, .. }) = choice.decision else {
                continue;
            };
            sent[id.0 as usize] += 1000;
            paths[id.0 as usize].bytes_in_flight += 1000;
        }
        let ratio = sent[0] as f64 / sent[1] as f64;
        assert!((2.7..3.3).contains(&ratio), "{sent:?}");
    }
}
