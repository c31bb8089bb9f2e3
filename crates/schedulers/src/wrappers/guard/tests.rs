//! When paths go out, and when they come back.

use super::*;
use crate::tests::{at, built, fresh, send};
use anabranch_proto::path::{PathSet, PathState};
use anabranch_proto::sched::Reason;
use std::ops::RangeInclusive;

/// Megabytes per second of two paths, and what both achieve together.
#[derive(Clone, Copy)]
struct Rates {
    paths: [u64; 2],
    total: u64,
}

fn path(id: u32, rtt_ms: u64, rate: u64) -> PathView {
    PathView {
        smoothed_rtt: Duration::from_millis(rtt_ms),
        delivery_rate: rate * 1_000_000,
        last_ack: Some(Instant::FAR_FUTURE),
        ..PathView::new(id)
    }
}

struct Bench {
    guard: Box<dyn Scheduler>,
    ms: u64,
}

impl Bench {
    fn new(text: &str) -> Self {
        Self {
            guard: built(text),
            ms: 1,
        }
    }

    fn ask(&mut self, paths: &[PathView]) -> Choice {
        let mut view = fresh(paths);
        view.now = at(self.ms);
        self.guard.select(&view)
    }

    /// Lets bulk data flow for so many seconds; returns whether path 1 is left alone at the end.
    fn flow(&mut self, rates: Rates, seconds: u64) -> bool {
        let paths = [path(0, 20, rates.paths[0]), path(1, 50, rates.paths[1])];
        for _ in 0..seconds * 10 {
            self.ms += 100;
            self.ask(&paths);
            self.guard.on_event(&PathEvent::Acked {
                path: PathId(0),
                bytes: rates.total * 100_000,
                rtt: None,
            });
        }
        self.is_alone()
    }

    /// Lets bulk data flow until path 1 is left alone, or no longer is: after so many seconds.
    fn lasts(&mut self, rates: Rates, seconds: RangeInclusive<u64>, alone: bool) {
        let took = (1..=1000).find(|_| self.flow(rates, 1) == alone);
        let took = took.expect("a change");
        assert!(seconds.contains(&took), "{took} s, not {seconds:?}");
    }

    /// Path 0 is full: is path 1 used?
    fn is_alone(&mut self) -> bool {
        let full = PathView {
            bytes_in_flight: 12_000,
            ..path(0, 20, 0)
        };
        self.ask(&[full, path(1, 50, 0)]).reason == Reason::WaitForBetter
    }
}

const HARMFUL: Rates = Rates {
    paths: [40, 10],
    total: 36,
};
const USEFUL: Rates = Rates {
    paths: [40, 25],
    total: 60,
};

#[test]
fn a_path_that_does_harm_in_three_windows_goes_out() {
    let mut bench = Bench::new("guard+tail+min-rtt");
    assert!(!bench.flow(HARMFUL, 29));
    assert!(bench.flow(HARMFUL, 3));
}

#[test]
fn a_path_that_helps_stays() {
    let mut bench = Bench::new("guard+tail+min-rtt");
    assert!(!bench.flow(USEFUL, 120));
    assert!(!bench.flow(HARMFUL, 25));
    assert!(!bench.flow(USEFUL, 15), "three in a row it takes");
    assert!(!bench.flow(HARMFUL, 25));
}

/// Alone the first path does what it can.
const ALONE: Rates = Rates {
    paths: [40, 10],
    total: 40,
};

#[test]
fn it_comes_back_after_a_while_and_stays_out_twice_as_long_the_next_time() {
    let mut bench = Bench::new("guard+tail+min-rtt");
    for out in [30, 60, 120, 240, 480, 600, 600] {
        bench.lasts(HARMFUL, 29..=42, true);
        bench.lasts(ALONE, out - 1..=out + 1, false);
    }
    assert!(!bench.flow(USEFUL, 41), "three good windows");
    bench.lasts(HARMFUL, 29..=42, true);
    bench.lasts(ALONE, 29..=31, false);
}

#[test]
fn a_demotion_that_made_things_worse_is_taken_back() {
    let mut bench = Bench::new("guard+tail+min-rtt");
    assert!(bench.flow(HARMFUL, 31));
    let worse = Rates {
        paths: [40, 10],
        total: 30,
    };
    assert!(!bench.flow(worse, 11));
    assert!(!bench.flow(HARMFUL, 25), "and not repeated at once");
}

#[test]
fn pauses_and_application_limits_say_nothing() {
    let mut bench = Bench::new("guard+tail+min-rtt");
    for _ in 0..10 {
        assert!(!bench.flow(HARMFUL, 9));
        bench.ms += 2_000;
    }
    let mut bench = Bench::new("guard+tail+min-rtt");
    for _ in 0..600 {
        bench.ms += 100;
        let limited = |id, rate| PathView {
            app_limited: true,
            ..path(id, 20, rate)
        };
        bench.ask(&[limited(0, 40), limited(1, 10)]);
    }
    assert!(!bench.is_alone());
}

#[test]
fn a_delay_nobody_should_wait_for_puts_a_path_out_at_once() {
    let measured = |id, rtt, forward| PathView {
        forward_delay_us: Some(forward),
        ..path(id, rtt, 10)
    };
    let mut bench = Bench::new("guard+tail+min-rtt");
    bench.ms = 10;
    bench.ask(&[measured(0, 20, 5_000_000), measured(1, 50, 5_100_000)]);
    assert!(!bench.is_alone());
    bench.ms += 10;
    bench.ask(&[measured(0, 20, 5_000_000), measured(1, 50, 5_100_001)]);
    assert!(bench.is_alone());
    let mut bench = Bench::new("guard+tail+min-rtt");
    bench.ms = 10;
    bench.ask(&[path(0, 20, 90), path(1, 201, 11)]);
    assert!(!bench.is_alone(), "slow, but not thin");
    bench.ms += 10;
    bench.ask(&[path(0, 20, 100), path(1, 201, 11)]);
    assert!(bench.is_alone());
}

#[test]
fn a_demoted_path_is_probed_and_serves_when_no_other_answers() {
    let mut bench = Bench::new("guard+tail+min-rtt:guard.window-ms=1000");
    assert!(bench.flow(HARMFUL, 5));
    let quiet = PathView {
        last_ack: None,
        ..path(1, 50, 10)
    };
    let probe = Choice {
        decision: Decision::Duplicate(PathSet::from_iter([PathId(0), PathId(1)])),
        reason: Reason::Probe,
    };
    assert_eq!(bench.ask(&[path(0, 20, 40), quiet]), probe);
    bench.ms += 249;
    assert_eq!(
        bench.ask(&[path(0, 20, 40), quiet]).decision,
        Decision::Send(PathId(0))
    );
    bench.ms += 1;
    assert_eq!(bench.ask(&[path(0, 20, 40), quiet]), probe);
    let silent = PathView {
        state: PathState::Doubtful,
        ..path(0, 20, 40)
    };
    assert_eq!(bench.ask(&[silent, quiet]), send(1, Reason::OnlyPath));
}

#[test]
fn copies_are_no_goodput() {
    let mut bench = Bench::new("guard+copies+min-rtt");
    let paths = [path(0, 20, 40), path(1, 50, 10)];
    for _ in 0..320 {
        bench.ms += 100;
        for _ in 0..10 {
            bench.ask(&paths);
        }
        // 24 kB of 12 kB worth: 240 kB/s where one path alone does more than half of it.
        bench.guard.on_event(&PathEvent::Acked {
            path: PathId(0),
            bytes: 4_000_000,
            rtt: None,
        });
    }
    assert!(
        !bench.is_alone(),
        "40 MB/s less the copies is above the margin"
    );
    let mut bench = Bench::new("guard+copies+min-rtt");
    let slow = |id, rtt, rate| PathView {
        delivery_rate: rate,
        ..path(id, rtt, 0)
    };
    let paths = [slow(0, 20, 120_000), slow(1, 50, 120_000)];
    for _ in 0..320 {
        bench.ms += 100;
        for _ in 0..5 {
            bench.ask(&paths);
        }
        bench.guard.on_event(&PathEvent::Acked {
            path: PathId(0),
            bytes: 12_000,
            rtt: None,
        });
    }
    assert!(bench.is_alone(), "half of what arrives are copies");
}
