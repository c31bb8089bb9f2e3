//! Schedulers that share the load by turns, weights, rates and windows.

use crate::trial::{LOWEST_RTT, Trial, at, link};
use anabranch_sim::app::File;

/// The slack that one packet makes, in bytes: the most a packet carries.
const PACKET: u64 = 1472;

/// A light load: one packet every 5 ms, for a second and a half.
fn thin() -> Vec<File> {
    (0..300)
        .map(|index| File::new(at(200 + 5 * index), 1000))
        .collect()
}

#[test]
fn strict_turns_give_every_path_the_same_bytes() {
    for k in [1, 4] {
        let links = [link(6.0, 10, 10), link(2.0, 20, 20)];
        let trial = Trial::on(&links).bytes(50_000_000);
        let mut running = trial.start(&format!("round-robin:mode=hold,k={k}"));
        running.run_until(at(1000));
        let before = [running.carried(0), running.carried(1)];
        running.run_until(at(3000));
        let sent = [
            running.carried(0) - before[0],
            running.carried(1) - before[1],
        ];
        assert!(sent[0].abs_diff(sent[1]) <= k * PACKET, "{k}: {sent:?}");
    }
}

#[test]
fn turns_that_skip_full_paths_are_as_fast_as_the_lowest_rtt() {
    let links = [link(6.0, 10, 10), link(2.0, 20, 20)];
    let of = |name| {
        Trial::on(&links)
            .bytes(50_000_000)
            .start(name)
            .goodput(1000, 3000)
    };
    let ratio = of("round-robin") / of(LOWEST_RTT);
    assert!((ratio - 1.0).abs() <= 0.05, "{ratio}");
}

#[test]
fn static_weights_are_kept_while_no_path_is_full() {
    for (spec, weights) in [
        ("weighted", [1, 3]),
        ("weighted", [2, 1]),
        ("weighted:variant=deficit", [1, 3]),
    ] {
        let links = [link(50.0, 10, 10), link(50.0, 20, 20)];
        let trial = Trial::on(&links).files(thin()).weights(&weights);
        let mut running = trial.start(spec);
        running.run_until(at(500));
        let before = [running.carried(0), running.carried(1)];
        running.run_until(at(1600));
        let sent = [
            running.carried(0) - before[0],
            running.carried(1) - before[1],
        ];
        let share = sent[1] as f64 / (sent[0] + sent[1]) as f64;
        let wanted = f64::from(weights[1]) / f64::from(weights[0] + weights[1]);
        assert!((share - wanted).abs() < 0.02, "{spec}: {share} of {wanted}");
    }
}

#[test]
fn dynamic_weights_use_nine_tenths_of_paths_of_any_ratio() {
    for ratio in [1.0, 2.0, 5.0, 10.0] {
        let rates = [5.0, 5.0 / ratio];
        let links = rates.map(|rate| link(rate, 10, 10));
        let mut running = Trial::on(&links)
            .bytes(50_000_000)
            .start("dynamic-weighted-like");
        let share = running.goodput(1000, 3000) / ((rates[0] + rates[1]) * 1e6);
        assert!(share >= 0.9, "1:{ratio}: {share}");
    }
}

#[test]
fn fragments_of_equal_delay_take_the_time_of_all_rates_together() {
    for fragments in ["unequal", "equal"] {
        let spec = format!("mlppp-like:fragments={fragments}");
        let links = [link(6.0, 10, 10), link(2.0, 10, 10)];
        let mut running = Trial::on(&links).bytes(50_000_000).start(&spec);
        // Headers and tags take up part of every packet.
        let share = running.goodput(1000, 3000) / 8e6;
        assert!(share >= 0.9, "{fragments}: {share}");
    }
}

#[test]
fn fragments_are_never_later_than_the_best_path_alone() {
    for delay in [10, 40, 100] {
        let alone = Trial::on(&[link(6.0, 10, 10)]).run(LOWEST_RTT).seconds();
        let links = [link(6.0, 10, 10), link(2.0, delay, delay)];
        let both = Trial::on(&links).run("mlppp-like").seconds();
        assert!(
            both <= alone * 1.02,
            "{delay} ms: {both} s, alone {alone} s"
        );
    }
}

#[test]
fn linger_splits_as_the_paths_pace() {
    for rates in [[4.0, 4.0], [6.0, 2.0], [6.0, 1.0]] {
        let links = rates.map(|rate| link(rate, 10, 10));
        let mut running = Trial::on(&links).bytes(50_000_000).start("linger");
        running.run_until(at(1000));
        let before = [running.carried(0), running.carried(1)];
        running.run_until(at(3000));
        let [first, second] = [
            running.carried(0) - before[0],
            running.carried(1) - before[1],
        ];
        let share = second as f64 / (first + second) as f64;
        let wanted = rates[1] / (rates[0] + rates[1]);
        assert!((share - wanted).abs() < 0.05, "{share} of {wanted}");
    }
}

#[test]
fn free_windows_tell_apart_rates_but_not_delays() {
    let mean = |name, links: &[_]| {
        let files = (0..60).map(|index| File::new(at(500 + 50 * index), 25_000));
        Trial::on(links)
            .files(files.collect())
            .run(name)
            .mean_file()
    };
    let rates = [link(8.0, 10, 10), link(1.0, 10, 10)];
    let own = mean("cwnd-aware-like", &rates);
    let (skip, hold) = (
        mean("round-robin", &rates),
        mean("round-robin:mode=hold", &rates),
    );
    // Turns that skip full paths track the free windows just as well.
    assert!(own <= skip && own < 0.9 * hold, "{own} {skip} {hold}");
    let delays = [link(8.0, 10, 10), link(8.0, 60, 60)];
    let (own, skip) = (
        mean("cwnd-aware-like", &delays),
        mean("round-robin", &delays),
    );
    assert!(own > 0.95 * skip, "{own} {skip}");
}
