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
