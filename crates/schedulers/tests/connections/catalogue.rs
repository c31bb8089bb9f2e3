//! Every scheduler of the catalogue over unequal paths, in the engine.

#![allow(
    clippy::print_stdout,
    reason = "measurements are shown beside their bounds"
)]

use crate::pair::{MBIT, Pair, Way};
use crate::specs::ALL;
use anabranch_proto::config::TransportConfig;
use anabranch_proto::path::PathOptions;
use anabranch_proto::sched::SchedulerFactory;
use anabranch_proto::wire::PathId;
use anabranch_proto::wire::frame::PathStatus;
use anabranch_schedulers::{RECOMMENDED, builtin};
use std::collections::BTreeMap;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

fn config(spec: &str) -> TransportConfig {
    let spec = spec.parse().expect("a specification");
    let scheduler = SchedulerFactory::new(&builtin(), &spec).expect("a scheduler");
    TransportConfig {
        scheduler,
        ..TransportConfig::default()
    }
}

fn equal() -> Vec<Way> {
    let way = |index| Way::new(index).rate(20 * MBIT).queue_ms(50);
    vec![way(1), way(2)]
}

/// Stream bytes sent for the first time, by path, on the client.
fn shares(pair: &mut Pair) -> BTreeMap<PathId, u64> {
    let connection = pair.client_conn();
    let ids: Vec<PathId> = connection.paths().collect();
    let of = |id| {
        connection
            .path_stats(id)
            .map_or(0, |path| path.counters.fresh_bytes)
    };
    ids.into_iter().map(|id| (id, of(id))).collect()
}

fn worlds() -> Vec<(&'static str, Vec<Way>)> {
    let way = |index, rate| Way::new(index).rate(rate * MBIT).queue_ms(50);
    vec![
        ("equal", vec![way(1, 20), way(2, 20)]),
        ("rates 10:1", vec![way(1, 20), way(2, 2)]),
        ("delays 10:1", vec![way(1, 20), way(2, 20).delay(100)]),
        ("one lossy", vec![way(1, 20), way(2, 20).loss(20)]),
    ]
}

/// The name in a specification, without wrappers and parameters.
fn name(spec: &str) -> &str {
    let chain = spec.split(':').next().unwrap_or(spec);
    chain.rsplit('+').next().unwrap_or(chain)
}

#[test]
fn every_scheduler_delivers_the_same_bytes_over_unequal_paths() {
    let names = builtin();
    for entry in names.entries() {
        let tested = ALL.iter().any(|spec| name(spec) == entry.name);
        assert!(tested, "{} is not tested", entry.name);
    }
    for &spec in ALL {
        for (name, ways) in worlds() {
            let mut pair = Pair::connected(ways, config(spec));
            for to_server in [true, false] {
                let took = pair.transfer(to_server, 1_000_000, LIMIT);
                println!("{spec:40} {name:12} upload {to_server}: {took:?}");
            }
        }
    }
}

#[test]
fn round_robin_that_holds_shares_packets_equally() {
    let way = |index, rate| Way::new(index).rate(rate * MBIT).queue_ms(50);
    let mut pair = Pair::connected(vec![way(1, 20), way(2, 5)], config("round-robin:mode=hold"));
    let seen = pair.watch(false);
    pair.transfer(true, 2_000_000, LIMIT);
    let seen = seen.lock().expect("no panic");
    let mut lead: i64 = 0;
    let mut widest = 0;
    for (path, _) in &seen.order {
        lead += if *path == PathId::ZERO { 1 } else { -1 };
        widest = widest.max(lead.abs());
    }
    let lost: u64 = seen.lost.values().sum();
    assert!(
        lead.abs() <= 1 + lost as i64,
        "{lead} packets more on path 0, {lost} lost"
    );
    if lost == 0 {
        assert!(widest <= 1, "path 0 was {widest} packets ahead");
    }
}

#[test]
fn weights_decide_the_shares() {
    for spec in [
        "weighted:mode=hold,weights=1/3",
        "weighted:mode=hold,weights=1/3,variant=deficit",
    ] {
        let mut pair = Pair::connected(equal(), config(spec));
        let before = shares(&mut pair);
        pair.transfer(true, 4_000_000, LIMIT);
        let after = shares(&mut pair);
        let sent = |id| (after[&PathId(id)] - before[&PathId(id)]) as f64;
        let share = sent(1) / (sent(0) + sent(1));
        assert!((share - 0.75).abs() < 0.02, "{spec}: {share:.3} on path 1");
    }
}

#[test]
fn weights_of_paths_decide_where_none_are_given() {
    let mut pair = Pair::connected(equal(), config("weighted:mode=hold"));
    let options = PathOptions {
        weight: 4,
        ..PathOptions::default()
    };
    pair.client_conn()
        .set_path_options(PathId(0), options)
        .expect("a path");
    pair.transfer(true, 4_000_000, LIMIT);
    let after = shares(&mut pair);
    let share = after[&PathId(0)] as f64 / 4_000_000.0;
    assert!((share - 0.8).abs() < 0.02, "{share:.3} on path 0");
}

#[test]
fn redundant_copies_are_counted_and_cost_no_time() {
    let mut best = Pair::connected(equal()[..1].to_vec(), config("tail+min-rtt"));
    let single = best.transfer(true, 2_000_000, LIMIT);
    let mut pair = Pair::connected(equal(), config("redundant"));
    let took = pair.transfer(true, 2_000_000, LIMIT);
    pair.run_for(Duration::from_millis(300));
    let duplicates = pair.server_conn().stats().streams.duplicate_bytes;
    println!("redundant {took:?}, single {single:?}, duplicates {duplicates}");
    // 64 kB take 26 ms on one path.
    assert!(
        took <= single + Duration::from_millis(26),
        "{took:?}, alone {single:?}"
    );
    assert!(
        (1_600_000..2_100_000).contains(&duplicates),
        "{duplicates} bytes came twice"
    );
}

#[test]
fn redundancy_hides_the_loss_of_one_path() {
    let way = |index| Way::new(index).rate(20 * MBIT).queue_ms(50);
    let mut pair = Pair::connected(vec![way(1), way(2).loss(50)], config("redundant"));
    let took = pair.transfer(true, 2_000_000, LIMIT);
    assert!(took < Duration::from_millis(1150), "{took:?}");
}

#[test]
fn a_lower_priority_stands_by_until_the_higher_path_fails() {
    let mut pair = Pair::connected(equal(), config("priority"));
    let options = PathOptions {
        priority: 5,
        ..PathOptions::default()
    };
    pair.client_conn()
        .set_path_options(PathId(1), options)
        .expect("a path");
    let before = shares(&mut pair);
    pair.transfer(true, 1_000_000, LIMIT);
    assert_eq!(shares(&mut pair)[&PathId(0)], before[&PathId(0)]);
    pair.ways[1].set_open(false);
    pair.transfer(true, 1_000_000, LIMIT);
    let after = shares(&mut pair);
    assert!(
        after[&PathId(0)] > before[&PathId(0)] + 800_000,
        "{after:?}"
    );
}

#[test]
fn a_backup_path_carries_data_only_while_no_other_answers() {
    for spec in [
        "tail+min-rtt",
        "round-robin",
        "weighted",
        "priority:mode=strict",
        "redundant",
    ] {
        let mut pair = Pair::connected(equal(), config(spec));
        // The client tells the server, and holds itself to it.
        let backup = PathStatus::Backup;
        pair.client_conn()
            .set_path_status(PathId(1), backup)
            .expect("a path");
        pair.run_for(Duration::from_millis(200));
        for server in [false, true] {
            let seen = pair.watch(server);
            let before = seen.lock().expect("no panic").stream_bytes.clone();
            pair.transfer(!server, 500_000, LIMIT);
            let after = seen.lock().expect("no panic").stream_bytes.clone();
            assert_eq!(
                after.get(&PathId(1)),
                before.get(&PathId(1)),
                "{spec} used the backup, server {server}"
            );
        }
        pair.ways[0].set_open(false);
        pair.transfer(true, 500_000, Duration::from_secs(4));
        pair.transfer(false, 500_000, Duration::from_secs(4));
    }
}

#[test]
fn a_chunk_goes_to_one_path_as_a_whole() {
    for (chunk, spec) in [
        (500, "round-robin:mode=hold"),
        (1400, "round-robin:mode=hold"),
        (5_000, "round-robin:mode=hold"),
        (65_536, "round-robin:mode=hold"),
        (5_000, "weighted:mode=hold,weights=1/3"),
        (65_536, "tail+min-rtt"),
    ] {
        let mut config = config(spec);
        config.chunk = Some(chunk);
        let mut pair = Pair::connected(equal(), config);
        let seen = pair.watch(false);
        pair.transfer(true, 2_000_000, LIMIT);
        let seen = seen.lock().expect("no panic");
        let lost: u64 = seen.lost.values().sum();
        if lost > 0 || spec == "tail+min-rtt" {
            println!("chunk {chunk}: {lost} lost");
            continue;
        }
        let mut per_path: BTreeMap<PathId, u64> = BTreeMap::new();
        for (path, bytes) in &seen.order {
            *per_path.entry(*path).or_default() += bytes;
        }
        let share = per_path[&PathId(1)] as f64 / 2_000_000.0;
        let wanted = if spec.starts_with("weighted") {
            0.75
        } else {
            0.5
        };
        println!("chunk {chunk} {spec}: {share:.3}");
        let tolerance = 0.01 + 2.0 * chunk as f64 / 2_000_000.0;
        assert!(
            (share - wanted).abs() < tolerance,
            "chunk {chunk} {spec}: {share:.3}"
        );
    }
}

#[test]
fn two_equal_paths_carry_at_least_1_8_times_as_much_as_one() {
    for spec in ["tail+min-rtt", "round-robin", "weighted"] {
        let mut one = Pair::connected(equal()[..1].to_vec(), config(spec));
        let single = one.transfer(true, 6_000_000, LIMIT).as_secs_f64();
        let mut two = Pair::connected(equal(), config(spec));
        let double = two.transfer(true, 6_000_000, LIMIT).as_secs_f64();
        assert!(
            single / double > 1.8,
            "{spec}: {single:.2} s alone, {double:.2} s with two"
        );
    }
}

#[test]
fn what_is_recommended_is_never_slower_than_the_best_path_alone() {
    let length = 6_000_000;
    let way = |index, (rate, delay): (u64, u64)| {
        Way::new(index).rate(rate * MBIT).delay(delay).queue_ms(100)
    };
    let took = |ways| Pair::connected(ways, config(RECOMMENDED)).transfer(true, length, LIMIT);
    let mut alone: BTreeMap<(u64, u64), Duration> = BTreeMap::new();
    let mut failures = Vec::new();
    for rates in [(20, 20), (20, 10), (20, 2), (2, 20), (20, 1)] {
        for delays in [(10, 10), (10, 20), (10, 100), (100, 10), (10, 250)] {
            let kinds = [(rates.0, delays.0), (rates.1, delays.1)];
            let single = |kind| {
                *alone
                    .entry(kind)
                    .or_insert_with(|| took(vec![way(1, kind)]))
            };
            let best = kinds.map(single).into_iter().min().expect("two ways");
            let both = took(vec![way(1, kinds[0]), way(2, kinds[1])]);
            let ratio = best.as_secs_f64() / both.as_secs_f64();
            println!("rates {rates:?} delays {delays:?}: best {best:?}, both {both:?}: {ratio:.2}");
            if ratio < 0.95 {
                failures.push((rates, delays, ratio));
            }
        }
    }
    assert!(failures.is_empty(), "{failures:?}");
}
