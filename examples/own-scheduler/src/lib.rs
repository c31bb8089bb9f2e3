//! A packet scheduler of one's own, written outside the engine and registered under its own name.
//!
//! `cheapest` keeps traffic off links that cost something for as long as the free ones keep up: it
//! sends on the cheapest path that answers within a limit on the RTT, and on the fastest path if
//! none does. `docs/writing-a-scheduler.md` explains each part.
//!
//! The program beside this library (`src/main.rs`) is the whole command `anabranch` with it:
//! `own-scheduler get URL --scheduler cheapest`, `own-scheduler lab run ...` and the rest.

use anabranch_proto::sched::{
    Choice, Entry, ParamDoc, Reason, Registry, Scheduler, SendView, lowest_rtt,
};
use anabranch_proto::time::Duration;

/// Chooses the cheapest path that is fast enough.
#[derive(Debug)]
pub struct Cheapest {
    /// The longest smoothed RTT that is fast enough.
    pub limit: Duration,
}

impl Scheduler for Cheapest {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        let fast_enough = view.ready().filter(|path| path.smoothed_rtt <= self.limit);
        match fast_enough.min_by_key(|path| (path.cost, path.smoothed_rtt, path.id)) {
            Some(path) => Choice::send(path.id, Reason::Other("cheapest")),
            None => lowest_rtt(view),
        }
    }
}

/// What users see of it: `--scheduler cheapest:limit-ms=80`.
pub const CHEAPEST: Entry = Entry {
    name: "cheapest",
    summary: "the lowest cost per byte among paths that are fast enough",
    params: &[ParamDoc {
        key: "limit-ms",
        default: "100",
        summary: "the longest RTT to accept",
    }],
    build: |params| {
        let limit = Duration::from_millis(params.take_in("limit-ms", 100, 1..=60_000)?);
        Ok(Box::new(Cheapest { limit }))
    },
};

/// The built-in schedulers and this one.
pub fn registry() -> Registry {
    let mut registry = anabranch_schedulers::builtin();
    registry.register(CHEAPEST);
    registry
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_proto::sched::{Backlog, Decision, PathView, Unit};
    use anabranch_proto::time::Instant;

    fn path(id: u32, rtt_ms: u64, cost: u32) -> PathView {
        PathView {
            smoothed_rtt: Duration::from_millis(rtt_ms),
            cost,
            ..PathView::new(id)
        }
    }

    fn full(path: PathView) -> PathView {
        PathView {
            bytes_in_flight: path.congestion_window,
            ..path
        }
    }

    fn ask(spec: &str, paths: &[PathView]) -> Choice {
        let mut scheduler = registry()
            .build(&spec.parse().expect("a spec"))
            .expect("a scheduler");
        let backlog = Backlog {
            unsent: 1_000_000,
            ..Backlog::default()
        };
        let unit = Unit {
            bytes: 1200,
            ..Unit::default()
        };
        scheduler.select(&SendView {
            now: Instant::ZERO,
            paths,
            backlog,
            unit,
            ..SendView::default()
        })
    }

    fn cheapest(id: u32) -> Choice {
        Choice::send(anabranch_proto::wire::PathId(id), Reason::Other("cheapest"))
    }

    #[test]
    fn the_free_path_is_preferred_while_it_is_fast_enough() {
        assert_eq!(
            ask("cheapest", &[path(0, 20, 5), path(1, 80, 0)]),
            cheapest(1)
        );
        assert_eq!(
            ask("cheapest:limit-ms=50", &[path(0, 20, 5), path(1, 80, 0)]),
            cheapest(0)
        );
    }

    #[test]
    fn what_the_free_path_cannot_take_is_paid_for() {
        assert_eq!(
            ask("cheapest", &[path(0, 20, 5), full(path(1, 80, 0))]),
            cheapest(0)
        );
    }

    #[test]
    fn the_fastest_is_used_if_none_is_fast_enough() {
        let choice = ask("cheapest", &[path(0, 300, 5), path(1, 400, 0)]);
        assert_eq!(choice.reason, Reason::LowestRtt);
    }

    #[test]
    fn full_paths_make_it_hold() {
        let choice = ask("cheapest", &[full(path(0, 20, 5)), full(path(1, 80, 0))]);
        assert_eq!(choice.decision, Decision::Hold { until: None });
    }

    #[test]
    fn it_stands_among_the_others_under_its_name() {
        let names: Vec<&str> = registry()
            .entries()
            .iter()
            .map(|entry| entry.name)
            .collect();
        assert!(names.contains(&"cheapest") && names.contains(&"min-rtt"));
        let typo = registry()
            .build(&"cheapst".parse().expect("a spec"))
            .expect_err("a typo");
        assert!(
            typo.to_string().contains("did you mean `cheapest`?"),
            "{typo}"
        );
        let zero = registry().build(&"cheapest:limit-ms=0".parse().expect("a spec"));
        let message = zero.expect_err("a limit of nothing").to_string();
        assert!(message.contains("expected from 1 to 60000"), "{message}");
    }
}
