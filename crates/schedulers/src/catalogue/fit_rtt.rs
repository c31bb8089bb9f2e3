//! Lowest RTT first among the paths that are fit: those that do not recover from loss, or whose RTT
//! is below a limit, as its parameters ask. Full ones are waited for.

use crate::toolkit::{Patience, leaves};
use anabranch_proto::sched::{
    Choice, Entry, ParamDoc, PathEvent, PathView, Reason, Scheduler, SendView, lowest_rtt, rank,
};
use anabranch_proto::spec::{Params, SpecError};
use anabranch_proto::time::Duration;

pub(crate) const ENTRY: Entry = Entry {
    name: "fit-rtt",
    summary: "the lowest smoothed RTT of the paths that are fit; waits for one that is full",
    params: &[
        ParamDoc {
            key: "limit-ms",
            default: "0",
            summary: "fit is an RTT below this, and the first such path is taken; 0 for any",
        },
        ParamDoc {
            key: "skip-recovery",
            default: "false",
            summary: "true: a path that recovers from loss is not fit, while another one does not",
        },
    ],
    build: |params| Ok(Box::new(FitRtt::from_params(params)?)),
};

/// Chooses the lowest smoothed RTT of paths that are fit.
#[derive(Debug)]
pub(crate) struct FitRtt {
    limit: Option<Duration>,
    skip_recovery: bool,
    patience: Patience,
}

impl FitRtt {
    fn from_params(params: &mut Params) -> Result<Self, SpecError> {
        let limit_ms: u64 = params.take_in("limit-ms", 0, 0..=60_000)?;
        Ok(Self {
            limit: (limit_ms > 0).then(|| Duration::from_millis(limit_ms)),
            skip_recovery: params.flag("skip-recovery")?,
            patience: Patience::default(),
        })
    }
}

impl Scheduler for FitRtt {
    /// The lowest RTT of the paths that are fit, or the first one below the limit. Full ones are
    /// waited for; if there is none, every path is as good as it was.
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        if self.limit.is_none() && !self.skip_recovery {
            return lowest_rtt(view);
        }
        let fit = |path: &&PathView| {
            let is_below = |limit| !path.smoothed_rtt.is_zero() && path.smoothed_rtt < limit;
            !(self.skip_recovery && path.in_recovery) && self.limit.is_none_or(is_below)
        };
        let leaves = leaves(view);
        let open = view.ready().filter(fit);
        let chosen = match self.limit {
            Some(_) => open.min_by_key(|path| (leaves(path), path.id)),
            None => open.min_by_key(|path| (leaves(path), rank(path))),
        };
        if let Some(path) = chosen {
            self.patience.end();
            return Choice::send(path.id, Reason::LowestRtt);
        }
        match view.candidates().filter(fit).min_by_key(|path| rank(path)) {
            Some(best) if view.ready().next().is_some() => {
                return self.patience.wait_for(view, best, Reason::WaitForBetter);
            }
            Some(_) => {}
            None => self.patience.end(),
        }
        lowest_rtt(view)
    }

    fn on_event(&mut self, event: &PathEvent) {
        self.patience.on_event(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{at, built, fresh, lost, path, send};
    use anabranch_proto::sched::MinRtt;

    #[test]
    fn a_wait_does_not_outlive_a_packet_that_was_sent_meanwhile() {
        let mut fit_rtt = built("fit-rtt:limit-ms=30");
        let full = |rtt| PathView {
            bytes_in_flight: PathView::new(0).congestion_window,
            ..path(0, rtt, 0)
        };
        let ask = |scheduler: &mut dyn Scheduler, ms, rtt| {
            let mut view = fresh(&[]);
            let paths = [full(rtt), path(1, 50, 1)];
            (view.now, view.paths) = (at(ms), &paths);
            scheduler.select(&view)
        };
        let waits = |choice: Choice| choice.reason == Reason::WaitForBetter;
        assert!(waits(ask(&mut *fit_rtt, 1, 20)));
        let sent = ask(&mut *fit_rtt, 15, 40);
        assert_eq!(sent, send(1, Reason::Spill), "none is fit");
        let again = ask(&mut *fit_rtt, 500, 20);
        assert!(waits(again), "a new wait, not the end of the first");
    }

    #[test]
    fn lost_data_goes_to_a_path_that_has_not_carried_it() {
        for text in ["fit-rtt:limit-ms=100", "fit-rtt:skip-recovery=true"] {
            let ask = |a, b| built(text).select(&lost(&[a, b], &[0]));
            let first = |id| send(id, Reason::LowestRtt);
            assert_eq!(ask(path(0, 20, 1), path(1, 50, 1)), first(1), "{text}");
            assert_eq!(ask(path(0, 20, 1), path(1, 50, 0)), first(0), "{text}");
        }
    }

    #[test]
    fn the_first_path_below_a_limit_is_used_and_waited_for() {
        let ask = |paths: &[PathView]| built("fit-rtt:limit-ms=60").select(&fresh(paths));
        let (near, far) = (path(1, 20, 1), path(2, 90, 1));
        let first = ask(&[path(0, 50, 1), near, far]);
        assert_eq!(first, send(0, Reason::LowestRtt), "in order of IDs");
        assert_eq!(ask(&[path(0, 60, 1), near]), send(1, Reason::LowestRtt));
        let wait = ask(&[path(1, 20, 0), far]);
        assert_eq!(wait, Choice::hold_until(at(20), Reason::WaitForBetter));
        assert_eq!(ask(&[far, path(3, 80, 1)]), send(3, Reason::LowestRtt));
        let mut patient = built("fit-rtt:limit-ms=60");
        let paths = [path(1, 20, 0), far];
        let answers = [0, 19, 20].map(|ms| {
            let mut view = fresh(&paths);
            view.now = at(ms);
            patient.select(&view)
        });
        assert_eq!(answers, [wait, wait, send(2, Reason::Spill)]);
    }

    #[test]
    fn a_path_in_recovery_is_left_out_while_another_one_is_not() {
        let ask = |paths: &[PathView]| built("fit-rtt:skip-recovery=true").select(&fresh(paths));
        let recovering = |path| PathView {
            in_recovery: true,
            ..path
        };
        let near = recovering(path(0, 20, 1));
        assert_eq!(ask(&[near, path(1, 50, 1)]), send(1, Reason::LowestRtt));
        let wait = Choice::hold_until(at(50), Reason::WaitForBetter);
        assert_eq!(ask(&[near, path(1, 50, 0)]), wait);
        let both = [near, recovering(path(1, 50, 1))];
        assert_eq!(ask(&both), send(0, Reason::LowestRtt));
        let choice = MinRtt.select(&fresh(&[near, path(1, 50, 1)]));
        assert_eq!(choice, send(0, Reason::LowestRtt), "unless asked for");
    }
}
