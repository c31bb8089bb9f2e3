//! Schedulers that predict arrivals. Those that use forward delays learn them from timestamps.

use crate::trial::{LOWEST_RTT, Link, Outcome, Trial, at, link};
use anabranch_sim::app::File;

/// Equal rates and forward delays of 10 and 50 ms: the paths of the fifth paper.
fn apart() -> [Link; 2] {
    [link(4.0, 10, 10), link(4.0, 50, 10)]
}

/// A transfer without queues, so that delays are exactly as configured.
fn bulk(links: &[Link], scheduler: &str) -> Outcome {
    Trial::on(links)
        .timestamps()
        .shaped(&[3.8, 3.8])
        .run(scheduler)
}

#[test]
fn planned_arrivals_wait_less_for_earlier_data_than_with_the_lowest_rtt() {
    let lowest_rtt = bulk(&apart(), LOWEST_RTT);
    let turns = bulk(&apart(), "round-robin");
    let (base, turns) = (lowest_rtt.wait_ms(), turns.wait_ms());
    let mut failed = Vec::new();
    for (name, limit) in [
        ("idd-like", 0.7),
        ("osia-like", 1.0),
        ("fdps-like", 1.0),
        ("ods-like", 1.0),
    ] {
        let own = bulk(&apart(), name);
        let wait = own.wait_ms();
        if wait > limit * base || wait >= turns {
            failed.push((name, wait));
        }
    }
    assert!(failed.is_empty(), "{failed:?}, lowest RTT {base}");
}

#[test]
fn otias_brings_less_out_of_order_than_the_lowest_rtt() {
    // Bursts that fit one window, so that the effect of queues on RTTs plays no part.
    let late = |name: &str| {
        let links = [link(4.0, 10, 10), link(4.0, 50, 50)];
        let files = (0..30).map(|index| File::new(at(1500 + 100 * index), 40_000));
        let trial = Trial::on(&links).files(files.collect()).packets();
        trial.run(name).out_of_order(at(1500))
    };
    let (own, base) = (late("otias"), late(LOWEST_RTT));
    assert!(own < base, "{own} {base}");
}

#[test]
fn choosing_the_data_for_a_path_pays_when_delays_or_rates_differ() {
    let time = |links: &[Link], name: &str, window: u64| {
        let trial = Trial::on(links).window(window).timestamps();
        trial.run(name).seconds()
    };
    let delays = [link(4.0, 10, 10), link(4.0, 80, 10)];
    let rates = [link(6.0, 10, 10), link(1.5, 10, 10)];
    for links in [delays, rates] {
        for window in [64_000, 1_000_000] {
            let (own, naive) = (
                time(&links, "ods-like", window),
                time(&links, "round-robin", window),
            );
            assert!(own <= 1.005 * naive, "{window}: {own} {naive}");
        }
    }
}

#[test]
fn the_earliest_delivery_of_a_light_load_is_by_the_path_of_the_least_delay() {
    let files = (0..100).map(|index| File::new(at(500 + 10 * index), 1000));
    // The first path has the longer backward delay.
    let links = [link(4.0, 10, 80), link(4.0, 30, 10)];
    let trial = Trial::on(&links).timestamps().files(files.collect());
    let share = trial.run("edpf-like:probe=0").share(0);
    assert!(share > 0.97, "{share}");
}
