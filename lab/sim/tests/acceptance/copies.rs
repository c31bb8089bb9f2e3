//! Schedulers that send copies.

use crate::trial::{LOWEST_RTT, Link, Outcome, Trial, at, jittery, link, lossy};
use anabranch_sim::app::File;

/// Sends a file that fits one packet every 20 ms.
fn single_packets(links: &[Link], scheduler: &str) -> Outcome {
    let files = (0..120).map(|index| File::new(at(500 + 20 * index), 900));
    Trial::on(links).files(files.collect()).run(scheduler)
}

fn slowest(outcome: &Outcome) -> f64 {
    let times = outcome.files.iter().map(|time| time.unwrap().as_secs_f64());
    times.fold(0.0, f64::max)
}

#[test]
fn with_copies_on_all_paths_no_packet_of_a_thin_flow_is_later_than_by_the_best_path() {
    let good = link(4.0, 20, 20);
    let links = [jittery(good.clone(), 15), jittery(link(4.0, 25, 25), 15)];
    let both = single_packets(&links, "redundant");
    for alone in 0..2 {
        let one = single_packets(&links[alone..=alone], LOWEST_RTT);
        assert!(both.mean_file() <= one.mean_file());
    }
    let lossy = [lossy(good.clone(), 0.05), lossy(good, 0.05)];
    let (both, one) = (
        single_packets(&lossy, "redundant"),
        single_packets(&lossy[..1], LOWEST_RTT),
    );
    assert!(slowest(&both) < slowest(&one));
    assert!(both.mean_file() < one.mean_file());
}

#[test]
fn copies_within_a_budget_never_exceed_it() {
    let links = [
        lossy(link(5.0, 10, 10), 0.05),
        lossy(link(5.0, 30, 30), 0.05),
    ];
    for budget in [0.0, 0.02, 0.05] {
        for name in ["critical-redundant", "deadline-redundant"] {
            let files = (0..150)
                .map(|index| File::new(at(20 * index), 4000))
                .collect();
            let trial = Trial::on(&links).files(files);
            let outcome = trial.run(&format!("{name}:budget={budget}"));
            let sent: u64 = outcome.paths.iter().map(|path| path.sent.fresh_bytes).sum();
            // A burst of sixteen packets is allowed before any budget has accumulated.
            let allowed = if budget > 0.0 {
                budget * sent as f64 * 1.05 + 16.0 * 1500.0
            } else {
                0.0
            };
            assert_eq!(outcome.copied() > 0, budget > 0.0, "{name} {budget}");
            assert!(
                outcome.copied() as f64 <= allowed,
                "{name} {budget}: {}",
                outcome.copied()
            );
        }
    }
}

#[test]
fn few_copies_shorten_the_slowest_of_short_streams_on_lossy_paths() {
    let links = [
        lossy(link(5.0, 20, 20), 0.05),
        lossy(link(5.0, 25, 25), 0.05),
    ];
    let base = single_packets(&links, LOWEST_RTT);
    let own = single_packets(&links, "critical-redundant:budget=1");
    assert!(own.mean_file() < base.mean_file());
}

#[test]
fn copies_follow_a_difference_of_rtts() {
    let copied = |second: u64| {
        let links = [link(5.0, 10, 10), link(5.0, second, second)];
        single_packets(&links, "adaptive-redundant:threshold-ms=50").copied()
    };
    let (alike, different) = (copied(15), copied(80));
    assert!(different > 50_000 && alike < 5_000, "{alike} {different}");
}

#[test]
fn idle_paths_repeat_the_tail_only_when_nothing_new_waits() {
    let links = [link(5.0, 10, 10), link(5.0, 30, 30)];
    let thin = single_packets(&links, "copies+min-rtt:copies.mode=idle");
    let mut bulk = Trial::on(&links)
        .bytes(50_000_000)
        .start("copies+min-rtt:copies.mode=idle");
    bulk.run_until(at(2000));
    let bulk = bulk.outcome();
    assert!(thin.copied() > 50_000);
    assert_eq!(bulk.copied(), 0);
}
