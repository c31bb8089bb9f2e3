//! Outcomes of made-up reports.

use super::*;
use crate::hosts::UnitTime;
use crate::results::Decided;
use crate::scenario::Document;

const TWO_PATHS: &str = r#"
format = 1
name = "two"
stop = "60s"

[[path]]
name = "first"
forward = { rate = "8Mbit/s", delay = "10ms" }

[[path]]
name = "second"
forward = { rate = "8Mbit/s", delay = "10ms" }
"#;

fn scenario(rest: &str) -> Scenario {
    let text = format!("{TWO_PATHS}\n{rest}");
    let document = Document::parse("two.toml", &text).unwrap();
    Scenario::read(&document).unwrap_or_else(|mistake| panic!("{mistake}"))
}

const BULK: &str = "[[flow]]\nkind = \"bulk\"\nbytes = \"1MB\"\n";

fn started(started_ns: u64) -> HostReport {
    HostReport {
        started_ns,
        ..HostReport::default()
    }
}

#[test]
fn times_are_counted_from_the_clients_start_on_one_clock() {
    let scenario = scenario(BULK);
    let client = started(5_000_000_000);
    let server = HostReport {
        received_bytes: 1_000_000,
        counted_bytes: 1_000_000,
        counted_s: Some([0.0, 2.0]),
        last_byte_s: Some(2.0),
        // Began half a second after the client, on a clock that is 100 s ahead.
        ..started(105_500_000_000)
    };
    let server = HostReport {
        clock_ahead_ns: Some(100_000_000_000),
        ..server
    };
    let outcome = merge(&scenario, Way::Forward, &client, &server, &[]);
    assert_eq!(outcome.status, Status::Ok);
    assert_eq!(outcome.completion_s, Some(2.5));
    assert_eq!(outcome.goodput_bps, Some(4_000_000.0));
}

#[test]
fn an_error_of_either_host_fails_the_run_and_a_cut_is_a_timeout() {
    let scenario = scenario(BULK);
    let cut = HostReport {
        timed_out: true,
        ..started(0)
    };
    let broken = HostReport {
        error: "no route".to_owned(),
        ..started(0)
    };
    let outcome = merge(&scenario, Way::Forward, &cut, &started(0), &[]);
    assert_eq!(outcome.status, Status::Timeout);
    assert_eq!(outcome.completion_s, None);
    let outcome = merge(&scenario, Way::Forward, &cut, &broken, &[]);
    assert_eq!(
        (outcome.status, outcome.reason.as_str()),
        (Status::Failed, "server: no route")
    );
}

#[test]
fn datagrams_are_late_by_times_with_the_clocks_put_right() {
    let flow = "[[flow]]\nkind = \"datagrams\"\nsize = \"100B\"\nrate = \"80kbit/s\"\n\
                duration = \"1s\"\ndeadline = \"50ms\"\n";
    let scenario = scenario(flow);
    let unit = |unit, took_s| UnitTime {
        flow: 0,
        unit,
        took_s,
    };
    let client = HostReport {
        sent_units: vec![(0, 4)],
        ..started(0)
    };
    let server = HostReport {
        units: vec![unit(0, 0.130), unit(1, 0.149), unit(2, 0.151)],
        clock_ahead_ns: Some(100_000_000),
        ..started(0)
    };
    let outcome = merge(&scenario, Way::Forward, &client, &server, &[]);
    assert_eq!((outcome.units, outcome.late_units), (3, 2));
    assert_eq!(outcome.sent_units, Some(4));
    let p50 = outcome.unit_p50_s.unwrap();
    assert!((p50 - 0.049).abs() < 1e-9, "{p50}");
}

#[test]
fn paths_are_those_of_the_scenario_and_links_know_best_what_was_lost() {
    let scenario = scenario(&format!("{BULK}[transport]\npaths = [\"second\"]\n"));
    let client = HostReport {
        paths: vec![PathReport {
            sent_bytes: 900,
            lost_declared: Some(3),
            srtt_s: Some((0.02, 0.03)),
            ..PathReport::default()
        }],
        decisions: vec![Decided {
            path: Some(1),
            ..Decided::default()
        }],
        series: vec![HostBin {
            t_s: 0.1,
            path: 1,
            sent_bytes: 900,
            ..HostBin::default()
        }],
        ..started(0)
    };
    let server = HostReport {
        paths: vec![PathReport {
            received_bytes: 800,
            ..PathReport::default()
        }],
        series: vec![HostBin {
            // The receiver's bins end a little later.
            t_s: 0.104,
            path: 1,
            received_bytes: 800,
            ..HostBin::default()
        }],
        ended_s: Some(1.0),
        ..started(0)
    };
    let outcome = merge(&scenario, Way::Forward, &client, &server, &[]);
    let [idle, used] = &outcome.paths[..] else {
        panic!("two paths");
    };
    assert_eq!((idle.sent_bytes, idle.share), (0, Some(0.0)));
    assert_eq!((used.sent_bytes, used.delivered_bytes), (900, 800));
    assert_eq!((used.lost_declared, used.srtt_p95_s), (Some(3), Some(0.03)));
    assert_eq!(outcome.decisions[0].path, Some(2));
    let bin = &outcome.series[0];
    assert_eq!(
        (bin.path, bin.sent_bytes, bin.delivered_bytes),
        (2, 900, 800)
    );
    let carried = Carried {
        sent_bytes: 1000,
        delivered_bytes: 500_000,
        lost_queue: Some(7),
        ..Carried::default()
    };
    let link = LinkTotals {
        forward: carried,
        ..LinkTotals::default()
    };
    let links = [LinkTotals::default(), link];
    let outcome = merge(&scenario, Way::Forward, &client, &server, &links);
    let used = &outcome.paths[1];
    assert_eq!((used.sent_bytes, used.lost_queue), (1000, Some(7)));
    assert_eq!(used.utilisation, Some(0.5));
}

#[test]
fn multipath_tcp_that_was_none_is_invalid() {
    let scenario = scenario(&format!("{BULK}[transport]\nkind = \"mptcp\"\n"));
    let client = |kernel: &str| HostReport {
        kernel: kernel.to_owned(),
        ..started(0)
    };
    let server = HostReport {
        last_byte_s: Some(3.0),
        ..started(0)
    };
    let status = |kernel: &str, server: &HostReport| {
        merge(&scenario, Way::Forward, &client(kernel), server, &[]).status
    };
    assert_eq!(status("subflows=2 fallback=no", &server), Status::Ok);
    assert_eq!(status("subflows=2 fallback=yes", &server), Status::Invalid);
    assert_eq!(status("subflows=1 fallback=no", &server), Status::Invalid);
    let short = HostReport {
        last_byte_s: Some(0.3),
        ..started(0)
    };
    assert_eq!(status("subflows=1 fallback=no", &short), Status::Ok);
}

/// Bins of 100 ms of the connection up to the second `end`, each with the bytes since the one
/// before at 1 byte a microsecond. In turn, ticks are 0, 1 and 2 times `late` milliseconds late;
/// those in `missed` are left out. The last sample comes at `end`.
fn ticking(end: f64, late: f64, missed: &[usize]) -> Vec<HostBin> {
    let ticks = (1..).map(|nth| (nth, nth as f64 / 10.0 + late / 1e3 * (nth % 3) as f64));
    let ticks = ticks.take_while(|(_, t_s)| *t_s < end);
    let times = ticks.filter(|(nth, _)| !missed.contains(nth));
    let mut before = 0;
    let times: Vec<f64> = times.map(|(_, t_s)| t_s).chain([end]).collect();
    let mut bins = Vec::new();
    for t_s in times {
        let total = (t_s * 1e6).round() as u64;
        bins.push(HostBin {
            t_s,
            sent_bytes: total - before,
            goodput_bytes: total - before,
            cwnd_bytes: 7,
            ..HostBin::default()
        });
        before = total;
    }
    bins
}

/// Merges the series of two hosts, the receiver having started `lag` milliseconds later.
fn joined(sender: &[HostBin], receiver: &[HostBin], lag: u64) -> Vec<Bin> {
    let scenario = scenario(&format!("{BULK}[record]\nseries = \"100ms\"\n"));
    let client = HostReport {
        series: sender.to_vec(),
        ..started(5_000_000_000)
    };
    let server = HostReport {
        received_bytes: receiver.iter().map(|row| row.goodput_bytes).sum(),
        series: receiver.to_vec(),
        ..started(5_000_000_000 + lag * 1_000_000)
    };
    let outcome = merge(&scenario, Way::Forward, &client, &server, &[]);
    let goodput: u64 = outcome.series.iter().map(|bin| bin.goodput_bytes).sum();
    assert_eq!(goodput, outcome.bytes);
    let sent: u64 = outcome.series.iter().map(|bin| bin.sent_bytes).sum();
    let all: u64 = sender.iter().map(|row| row.sent_bytes).sum();
    assert_eq!(sent, all);
    outcome.series
}

#[test]
fn every_byte_is_in_one_bin_whenever_each_side_ends() {
    let ends = [1.9, 1.9951, 2.000_52, 2.0024, 2.04, 2.0499, 2.06, 2.3];
    for sender_end in ends {
        for receiver_end in ends {
            for lag in [0, 2, 49, 50, 51, 130] {
                for late in [0.5, 2.0] {
                    let sender = ticking(sender_end, late, &[]);
                    let receiver = ticking(receiver_end, late / 2.0, &[]);
                    let bins = joined(&sender, &receiver, lag);
                    let ends: Vec<f64> = bins.iter().map(|bin| bin.t_s).collect();
                    let short = ends.windows(2).find(|pair| pair[1] - pair[0] < 0.045);
                    assert_eq!(short, None, "{sender_end} {receiver_end} {lag} {late}");
                    // Only the bins at the ends may hold the bytes of two.
                    let most = bins[1..15].iter().map(|bin| bin.goodput_bytes).max();
                    assert!(most < Some(110_000), "{most:?} {lag}");
                }
            }
        }
    }
}

#[test]
fn last_samples_right_after_a_tick_belong_to_its_bin() {
    // A recorded case: both hosts ended within 3 ms of the last tick.
    let bins = joined(&ticking(2.0024, 0.25, &[]), &ticking(2.0018, 0.25, &[]), 0);
    assert_eq!(bins.len(), 20);
    let last = bins[19];
    assert_eq!((last.t_s, last.cwnd_bytes), (2.0024, 7));
    assert_eq!((last.sent_bytes, last.goodput_bytes), (102_150, 101_550));
}

#[test]
fn what_arrives_in_a_tick_the_sender_missed_or_after_its_end_is_kept() {
    let full = ticking(2.0, 0.0, &[]);
    let bins = joined(&ticking(2.0, 0.0, &[7, 8]), &full, 0);
    assert_eq!(bins.len(), 18);
    assert_eq!((bins[6].t_s, bins[6].goodput_bytes), (0.9, 300_000));
    let bins = joined(&full, &ticking(2.0, 0.0, &[7, 8]), 0);
    let around: Vec<u64> = bins[5..9].iter().map(|bin| bin.goodput_bytes).collect();
    assert_eq!(around, [100_000, 0, 0, 300_000]);
    let bins = joined(&ticking(1.5, 0.0, &[]), &full, 0);
    assert_eq!(bins.len(), 20);
    let last = bins[19];
    assert_eq!((last.t_s, last.sent_bytes, last.cwnd_bytes), (2.0, 0, 7));
    assert_eq!(last.goodput_bytes, 100_000);
}
