//! What every scheduler must do.

use crate::trial::{Link, Running, Trial, at, link, millis};
use anabranch_proto::path::PathOptions;
use anabranch_proto::time::Duration;
use anabranch_proto::wire::PathId;
use anabranch_schedulers::Names;
use anabranch_sim::LinkChange;
use anabranch_sim::app::File;
use anabranch_sim::scene::FIRST;

/// Every registered scheduler, and modes whose decisions differ from those of the default.
fn schedulers() -> Vec<String> {
    let names = Names::default();
    let plain = names.schedulers.entries().iter().map(|entry| entry.name);
    let modes = [
        "round-robin:mode=hold",
        "weighted:mode=hold",
        "weighted:variant=deficit",
        "priority:mode=strict",
        "fdps-like:mode=dpsaf",
        "atsss:mode=load-balancing",
        "guard+tail+min-rtt",
        "tail+min-rtt",
    ];
    plain.chain(modes).map(str::to_owned).collect()
}

/// Schedulers that by their nature carry no more than one path does, because they copy everything
/// to each path.
const COPIES_ALL: &[&str] = &["redundant"];

/// Endless load: one stream, or several for schedulers that keep each stream on one path.
fn endless(links: &[Link], scheduler: &str) -> Running {
    let trial = Trial::on(links);
    let trial = if scheduler.starts_with("affinity") {
        let file = File::new(at(300), 50_000_000);
        trial.files(vec![file; 2 * links.len()])
    } else {
        trial.bytes(50_000_000)
    };
    trial.start(scheduler)
}

fn figures(all: &[(String, f64)]) -> String {
    let lines = all
        .iter()
        .map(|(name, value)| format!("{name}: {value:.3}"));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn two_equal_paths_carry_nearly_twice_as_much_and_all_schedulers_the_same() {
    let mut failed = Vec::new();
    // Schedulers that plan ahead put up to a window of each path out of order. The measurement is
    // long so that what still waits for its turn at its end is little in comparison.
    let goodput = |mut running: Running| running.goodput(600, 8600);
    // Where a queue holds only fifteen packets, plans based on windows are off by up to a tenth.
    for (rate, least, spread) in [(3.0, 1.75, 0.1), (5.0, 1.8, 0.05)] {
        let one = goodput(endless(&[link(rate, 10, 10)], "tail+min-rtt"));
        let links = [link(rate, 10, 10), link(rate, 10, 10)];
        let lowest_rtt = goodput(endless(&links, "tail+min-rtt"));
        assert!(lowest_rtt >= 1.8 * one, "{lowest_rtt} of {one}");
        for name in schedulers() {
            if COPIES_ALL.contains(&&*name) {
                continue;
            }
            let two = goodput(endless(&links, &name));
            // It waits for the path it prefers: docs/schedulers-acceptance.md.
            let spread = if name == "edpf-like" { 0.12 } else { spread };
            if two < least * one || (two / lowest_rtt - 1.0).abs() > spread {
                failed.push((format!("{name} at {rate} Mbit/s"), two / one));
            }
        }
    }
    assert!(failed.is_empty(), "{}", figures(&failed));
}

#[test]
fn a_single_path_is_filled() {
    let mut failed = Vec::new();
    for name in schedulers() {
        let share = endless(&[link(3.0, 10, 10)], &name).goodput(500, 1500) / 3e6;
        if share < 0.9 {
            failed.push((name, share));
        }
    }
    assert!(failed.is_empty(), "{}", figures(&failed));
}

#[test]
fn eight_paths_are_filled() {
    let mut failed = Vec::new();
    let links = vec![link(1.0, 10, 10); 8];
    for name in schedulers() {
        let paths = if COPIES_ALL.contains(&&*name) {
            1.0
        } else {
            8.0
        };
        let share = endless(&links, &name).goodput(700, 1900) / (paths * 1e6);
        if share < 0.8 {
            failed.push((name, share));
        }
    }
    assert!(failed.is_empty(), "{}", figures(&failed));
}

/// The current probe time-out of a path: RFC 9002, section 6.2.1.
fn pto(running: &Running, path: u32) -> Duration {
    let connection = running.client().connection(FIRST).unwrap();
    let stats = connection.path_stats(PathId(path)).unwrap();
    stats.smoothed_rtt + (stats.rttvar * 4).max(millis(1)) + millis(25)
}

/// How long progress pauses when a path dies at `dies_at` milliseconds, and how long it may pause.
/// That is two probe time-outs of that path, plus one of the other path if it loses packets
/// meanwhile, since one of them may be the copy that everything waits for. The path comes back a
/// second later.
fn stall(scheduler: &str, rate: f64, dies: usize, dies_at: u64) -> (Duration, Duration) {
    let trial = Trial::on(&[link(rate, 10, 10), link(rate, 15, 15)])
        .bytes(50_000_000)
        .change(at(dies_at), dies, LinkChange::Up(false))
        .change(at(dies_at + 1000), dies, LinkChange::Up(true));
    let trial = if scheduler.starts_with("affinity") {
        trial.files(vec![File::new(at(300), 50_000_000); 4])
    } else {
        trial
    };
    let lost = |running: &Running| {
        let connection = running.client().connection(FIRST).unwrap();
        let other = connection.path_stats(PathId(1 - dies as u32)).unwrap();
        other.counters.lost_packets
    };
    let mut running = trial.start(scheduler);
    running.run_until(at(dies_at));
    let (mut most, other) = (
        2 * pto(&running, dies as u32),
        pto(&running, 1 - dies as u32),
    );
    let lost_before = lost(&running);
    running.pause = Duration::ZERO;
    running.run_until(at(dies_at) + most);
    if lost(&running) > lost_before {
        most += other;
    }
    running.run_until(at(dies_at + 1900));
    let before = running.carried(dies);
    running.run_until(at(dies_at + 2300));
    // Flows that moved to the other path stay there: only new flows would come back.
    assert!(
        scheduler.starts_with("affinity") || running.carried(dies) > before,
        "{scheduler}: path {dies} of {rate} Mbit/s is used again"
    );
    (running.pause, most)
}

#[test]
fn a_path_that_dies_and_returns_stalls_nothing_for_more_than_two_probe_timeouts() {
    let mut failed = Vec::new();
    for name in schedulers() {
        for (rate, dies) in [(3.0, 0), (3.0, 1), (5.0, 0), (5.0, 1)] {
            for dies_at in [1000, 1010, 1020, 1030] {
                let (stall, most) = stall(&name, rate, dies, dies_at);
                if stall > most {
                    failed.push((
                        format!("{name} at {rate} Mbit/s without path {dies} from {dies_at} ms"),
                        stall.as_secs_f64() / most.as_secs_f64(),
                    ));
                }
            }
        }
    }
    assert!(failed.is_empty(), "{}", figures(&failed));
}

#[test]
fn what_one_seed_gives_it_gives_again() {
    let run = || {
        let options = PathOptions::default();
        let trial = Trial::on(&[link(5.0, 10, 10), link(5.0, 10, 10)]).options(&[options; 2]);
        let mut running = trial.seed(7).bytes(200_000).start("tail+min-rtt");
        running.run_until(at(1000));
        running.world().trace_hash()
    };
    assert_eq!(run(), run());
}
