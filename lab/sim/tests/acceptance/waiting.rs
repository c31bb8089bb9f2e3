//! Schedulers that may wait for a better path.

use crate::trial::{LOWEST_RTT, Link, Trial, at, link, median, queued};
use anabranch_sim::app::File;

/// RTTs of 20 ms and `ratio` times 20 ms. Queues of 20 ms: if queues made up most of the window,
/// schedulers that take window per RTT for the rate would be misled.
fn apart(ratio: u64) -> [Link; 2] {
    [
        queued(6.0, 10, 10, 20),
        queued(3.0, 10 * ratio, 10 * ratio, 20),
    ]
}

#[test]
fn blest_is_blocked_for_less_time_by_a_small_window() {
    let blocked = |name: &str| {
        let outcome = Trial::on(&[link(6.0, 10, 10), link(3.0, 60, 60)])
            .window(100_000)
            .run(name);
        let blocked = outcome.totals.blocked;
        blocked.receive_window.as_secs_f64()
    };
    let (own, base) = (blocked("blest"), blocked(LOWEST_RTT));
    assert!(own < 0.7 * base, "{own} {base}");
}

#[test]
fn blest_is_the_lowest_rtt_where_no_window_limits() {
    let hash = |name: &str| {
        // Queues that hold everything: data that is lost BLEST sends again on another path than the
        // other.
        let links = [queued(6.0, 10, 10, 3000), queued(3.0, 30, 30, 3000)];
        let trial = Trial::on(&links).window(64 << 20).bytes(1_000_000);
        let trial = trial.sender(|config| config.streams.send_buffer = 64 << 20);
        let mut running = trial.start(name);
        running.run_until(at(4000));
        running.world().trace_hash()
    };
    assert_eq!(hash("blest"), hash(LOWEST_RTT));
}

/// Bursts with pauses; returns the mean time of a burst.
fn bursts(scheduler: &str, links: &[Link], bytes: u64) -> f64 {
    let files = (0..12).map(|index| File::new(at(500 + 600 * index), bytes));
    Trial::on(links)
        .files(files.collect())
        .run(scheduler)
        .mean_file()
}

#[test]
fn ecf_ends_bursts_earlier_where_rtts_differ_and_changes_nothing_where_they_do_not() {
    // At a ratio of 3 the two schedulers are alike, so the limit there says only that waiting costs
    // little. Whether the last packets of a burst find room depends on single packets, hence
    // several lengths.
    for (ratio, limit) in [(3, 1.03), (6, 1.0), (10, 1.0)] {
        for bytes in [50_000, 100_000] {
            let ratios = [0, 2_000, 4_000, 6_000, 8_000].map(|more| {
                let of = |name: &str| bursts(name, &apart(ratio), bytes + more);
                of("ecf") / of(LOWEST_RTT)
            });
            let middle = median(ratios.to_vec());
            assert!(middle < limit, "1:{ratio}, {bytes}: {ratios:?}");
        }
    }
    let equal = [link(5.0, 10, 10), link(5.0, 10, 10)];
    let (own, base) = (
        bursts("ecf", &equal, 100_000),
        bursts(LOWEST_RTT, &equal, 100_000),
    );
    assert!((own / base - 1.0).abs() < 0.05, "{own} {base}");
}

#[test]
fn short_streams_beside_a_long_one_end_no_later_if_each_stream_is_looked_at() {
    let short = |name: &str| {
        let mut files = vec![File::new(at(0), 3_000_000)];
        files.extend((0..20).map(|index| File::new(at(600 + 100 * index), 10_000)));
        let outcome = Trial::on(&apart(6)).files(files).run(name);
        let short = &outcome.files[1..];
        let sum: f64 = short.iter().map(|time| time.unwrap().as_secs_f64()).sum();
        sum / short.len() as f64
    };
    let (own, plain) = (short("sa-ecf"), short("ecf"));
    assert!(own <= plain, "{own} {plain}");
}

#[test]
fn sttf_ends_short_transfers_no_later_and_long_ones_as_early_as_turns() {
    for bytes in [10_000, 40_000, 100_000] {
        let (own, base) = (
            bursts("sttf", &apart(5), bytes),
            bursts(LOWEST_RTT, &apart(5), bytes),
        );
        assert!(own <= base * 1.005, "{bytes}: {own} {base}");
    }
    let of = |name: &str| {
        Trial::on(&apart(2))
            .bytes(50_000_000)
            .start(name)
            .goodput(1000, 3000)
    };
    let ratio = of("sttf") / of("round-robin");
    assert!((ratio - 1.0).abs() <= 0.05, "{ratio}");
}
