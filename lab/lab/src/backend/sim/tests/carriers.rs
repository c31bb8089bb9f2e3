//! TCP, bonds, and background traffic.

use super::*;
use anabranch_sim::Direction;
use std::sync::Arc;

fn with(extra: &str) -> Outcome {
    run(&(TWO.to_owned() + extra))
}

fn flow(text: &str, extra: &str) -> Outcome {
    run(&(TWO.replace("kind = \"bulk\"\nbytes = \"4MB\"", text) + extra))
}

#[test]
fn tcp_fills_the_first_of_its_paths() {
    let outcome = with("[transport]\nkind = \"tcp\"\n");
    assert_eq!(outcome.status, Status::Ok, "{}", outcome.reason);
    assert_eq!(outcome.bytes, 4_000_000);
    let goodput = outcome.goodput_bps.unwrap();
    assert!((8e6..9.7e6).contains(&goodput), "{goodput}");
    assert!(outcome.paths[0].delivered_bytes > 4_000_000);
    assert_eq!(outcome.paths[1].sent_bytes, 0);
    assert_eq!(outcome.handshake_s.map(|time| time > 0.02), Some(true));
    let whole = outcome.series.iter().filter(|bin| bin.path == 0);
    let total: u64 = whole.map(|bin| bin.goodput_bytes).sum();
    assert_eq!(total, 4_000_000, "the bins hold every byte");
    let second = with("[transport]\nkind = \"tcp\"\npaths = [\"b\"]\n");
    assert!(second.goodput_bps.unwrap() < 5e6);
}

#[test]
fn a_bond_takes_paths_in_turn_or_by_weights_and_mlppp_by_their_rates() {
    let share = |kind: &str| {
        let text = format!("[transport]\nsack = true\nkind = {kind}\n");
        let outcome = with(&text);
        assert_eq!(outcome.status, Status::Ok, "{kind}: {}", outcome.reason);
        assert_eq!(outcome.bytes, 4_000_000);
        (
            outcome.paths[0].share.unwrap(),
            outcome.goodput_bps.unwrap(),
        )
    };
    let (turns, _) = share("\"bonding\"");
    assert!((0.45..0.55).contains(&turns), "{turns}");
    let (weights, _) = share("\"bonding\"\nscheduler = \"weighted:weights=2/1\"");
    assert!((0.63..0.7).contains(&weights), "{weights}");
    for kind in ["\"mlppp\"", "\"mlppp\"\nchunk = \"500B\""] {
        let (fragments, goodput) = share(kind);
        assert!((0.6..0.73).contains(&fragments), "{kind}: {fragments}");
        assert!(goodput > 10.5e6, "{kind}: {goodput}");
    }
}

#[test]
fn files_and_requests_over_tcp_are_timed_one_after_the_other() {
    let tcp = "[transport]\nkind = \"tcp\"\n";
    for way in ["forward", "backward"] {
        let files = flow(
            &format!("kind = \"files\"\ncount = 5\nsize = \"20kB\"\ndirection = \"{way}\""),
            tcp,
        );
        assert_eq!((files.status, files.units), (Status::Ok, 5), "{way}");
        assert_eq!(files.bytes, 100_000);
        let time = files.unit_p50_s.unwrap();
        assert!((0.016..0.2).contains(&time), "{way}: {time}");
        let requests = flow(
            &format!(
                "kind = \"requests\"\ncount = 4\nsize = \"200B\"\nanswer = \"50kB\"\n\
                 every = \"10ms\"\ndirection = \"{way}\""
            ),
            tcp,
        );
        assert_eq!((requests.status, requests.units), (Status::Ok, 4), "{way}");
        assert_eq!(requests.bytes, 200_000);
        // The last request was due after 30 ms and had to wait for the others.
        let time = requests.unit_p99_s.unwrap();
        assert!(time > 0.13, "{way}: {time}");
    }
    let datagrams = "kind = \"datagrams\"\nsize = \"1000B\"\nrate = \"1Mbit/s\"\nduration = \"2s\"";
    let refused = flow(datagrams, tcp);
    assert_eq!(refused.status, Status::Unsupported);
    assert!(refused.reason.contains("datagrams"));
}

#[test]
fn tcp_for_a_given_time_is_measured_after_its_warm_up() {
    let text = "kind = \"bulk\"\nduration = \"10s\"\nwarm-up = \"2s\"";
    let outcome = flow(text, "[transport]\nkind = \"tcp\"\n");
    assert_eq!(outcome.status, Status::Ok, "{}", outcome.reason);
    let goodput = outcome.goodput_bps.unwrap();
    assert!((9e6..9.8e6).contains(&goodput), "{goodput}");
    assert!(outcome.completion_s.is_none());
}

#[test]
fn traffic_beside_a_flow_takes_its_part_and_is_not_counted() {
    let text = "kind = \"bulk\"\nduration = \"10s\"\nwarm-up = \"2s\"";
    let alone = "[transport]\npaths = [\"a\"]\n[repeat]\nruns = 1\n";
    let free = flow(text, alone).goodput_bps.unwrap();
    let kinds = [
        ("kind = \"udp\"\nrate = \"5Mbit/s\"\nsize = \"1000B\"", 5e6),
        ("kind = \"tcp\"\ncongestion = \"cubic\"", 1.5e6),
        ("kind = \"web\"\nsize = \"1MB\"\npause = \"200ms\"", 1e6),
    ];
    for (kind, takes) in kinds {
        let beside = format!("[[background]]\npath = \"a\"\n{kind}\n{alone}");
        let outcome = flow(text, &beside);
        assert_eq!(outcome.status, Status::Ok, "{kind}: {}", outcome.reason);
        let goodput = outcome.goodput_bps.unwrap();
        assert!(goodput < free - takes * 0.8, "{kind}: {goodput} of {free}");
        assert!(goodput > 1e6, "{kind}: {goodput}");
        // Its own rate is known too: the flow lacks about what it got, less headers.
        let [piece] = &outcome.background[..] else {
            panic!("{kind}: {:?}", outcome.background);
        };
        let got = piece.goodput_bps.unwrap();
        assert!(kind.contains(&format!("\"{}\"", piece.kind)), "{piece:?}");
        assert!(
            got > takes * 0.8 && got < free - goodput * 0.9,
            "{kind}: {got} of {free}"
        );
        assert!(got * 10.0 / 8.0 > 0.8 * piece.bytes as f64, "{piece:?}");
        let sent = outcome.paths[0].sent_bytes as f64;
        let own = outcome.bytes as f64;
        assert!((1.0..1.2).contains(&(sent / own)), "{kind}: {sent} {own}");
        // Data from the other side does not disturb this flow.
        let other = flow(
            text,
            &beside.replace(alone, &format!("direction = \"backward\"\n{alone}")),
        );
        let goodput = other.goodput_bps.unwrap();
        assert!(goodput > free * 0.85, "{kind}: {goodput} of {free}");
    }
    let stopped = "[[background]]\npath = \"a\"\nkind = \"udp\"\n\
         rate = \"5Mbit/s\"\nsize = \"1000B\"\nstop = \"2s\"\n";
    let outcome = flow(text, &(stopped.to_owned() + alone));
    let goodput = outcome.goodput_bps.unwrap();
    assert!(goodput > free * 0.95, "{goodput} of {free}");
    // It is judged by the time in which it sent.
    let got = outcome.background[0].goodput_bps.unwrap();
    assert!((4e6..5.1e6).contains(&got), "{got}");
}

/// A path over a link that other hosts use too.
const FURTHER: &str = r#"
format = 1
name = "further"
stop = "60s"
singles = false
[[node]]
name = "r1"
[[node]]
name = "r2"
[[node]]
name = "neighbour"
kind = "host"
[[node]]
name = "far"
kind = "host"
[[link]]
name = "access"
ends = ["client", "r1"]
[[link]]
name = "shared"
ends = ["r1", "r2"]
forward = { rate = "10Mbit/s", delay = "10ms", queue = "50ms" }
backward = { like = "forward" }
[[link]]
name = "exit"
ends = ["r2", "server"]
[[link]]
name = "near"
ends = ["neighbour", "r1"]
forward = { rate = "100Mbit/s" }
[[link]]
name = "end"
ends = ["r2", "far"]
forward = { rate = "100Mbit/s" }
[[path]]
name = "a"
client = "access"
server = "exit"
[[flow]]
kind = "bulk"
duration = "10s"
warm-up = "2s"
[transport]
kind = "tcp"
[repeat]
runs = 1
"#;

/// Runs a scenario; returns the bytes that each link carried forward, by name, and the outcome.
fn carried(text: &str) -> (impl Fn(&str) -> u64, Outcome) {
    let document = Document::parse("t.toml", text).unwrap();
    let plan = Plan::make(&document, &Changes::default()).unwrap();
    let scenario = Arc::clone(&plan.runs[0].scenario);
    let (mut built, names) = (Built::of(&scenario, plan.runs[0].seed), Names::default());
    let mut contest = tcp::install(&mut built, &names).unwrap();
    background::install(&mut built, &names).unwrap();
    let progress = drive(&mut built, &mut contest);
    let bytes: Vec<u64> = built
        .links
        .iter()
        .map(|link| {
            let stats = |way| built.world.link_stats(*link, way).bytes_out;
            stats(Direction::Forward) + stats(Direction::Backward)
        })
        .collect();
    let outcome = contest.outcome(&mut built, &progress);
    let network = scenario.network.clone();
    let of = move |name: &str| bytes[network.link_named(name).unwrap()];
    (of, outcome)
}

#[test]
fn traffic_between_further_hosts_takes_its_part_of_the_shared_link_alone() {
    let (_, free) = carried(FURTHER);
    let free = free.goodput_bps.unwrap();
    for (kind, takes) in [
        ("kind = \"udp\"\nrate = \"5Mbit/s\"\nsize = \"1000B\"", 5e6),
        ("kind = \"tcp\"\ncongestion = \"cubic\"", 1.5e6),
        ("kind = \"web\"\nsize = \"1MB\"\npause = \"200ms\"", 1e6),
    ] {
        for ends in [
            "ends = [\"neighbour\", \"far\"]",
            "ends = [\"far\", \"neighbour\"]\ndirection = \"backward\"",
        ] {
            let beside = format!("{FURTHER}[[background]]\n{kind}\n{ends}\n");
            let (bytes, outcome) = carried(&beside);
            assert_eq!(outcome.status, Status::Ok, "{beside}: {}", outcome.reason);
            let goodput = outcome.goodput_bps.unwrap();
            assert!(
                goodput < free - takes * 0.8,
                "{beside}: {goodput} of {free}"
            );
            assert!(goodput > 1e6, "{beside}: {goodput}");
            // The client's and the server's own links carry the flow alone: data one way,
            // acknowledgements the other, and no more bytes than the flow counts as its own.
            let (sent, own) = (outcome.paths[0].sent_bytes, outcome.bytes);
            assert!((own..own * 6 / 5).contains(&sent), "{beside}: {sent} {own}");
            for link in ["access", "exit"] {
                let carried = bytes(link);
                assert!(carried < sent * 11 / 10, "{beside}: {link} {carried}");
            }
            let other = bytes("near");
            assert!(other as f64 > takes * 0.8, "{beside}: {other}");
            let shared = bytes("shared");
            // Nothing is lost behind the shared link.
            let both = bytes("exit") + bytes("end");
            assert!(shared.abs_diff(both) < 50_000, "{beside}: {shared} {both}");
        }
    }
}

#[test]
fn the_engine_shares_with_further_hosts_too_and_flows_the_other_way_leave_it_alone() {
    let engine = FURTHER.replace("kind = \"tcp\"\n[repeat]", "[repeat]");
    let free = run(&engine).goodput_bps.unwrap();
    let with = |direction: &str| {
        let beside = "[[background]]\nkind = \"udp\"\nrate = \"5Mbit/s\"\nsize = \"1000B\"\n\
                      ends = [\"neighbour\", \"far\"]\n";
        let outcome = run(&format!("{engine}{beside}direction = \"{direction}\"\n"));
        assert_eq!(outcome.status, Status::Ok, "{}", outcome.reason);
        let sent = outcome.paths[0].sent_bytes as f64 / outcome.bytes as f64;
        assert!((1.0..1.2).contains(&sent), "{sent}");
        outcome.goodput_bps.unwrap()
    };
    let forward = with("forward");
    assert!(forward < free - 4e6 && forward > 1e6, "{forward} of {free}");
    let backward = with("backward");
    assert!(backward > free * 0.95, "{backward} of {free}");
}

#[test]
fn a_nat_lets_traffic_beside_the_flows_pass_that_does_not_cross_it_or_is_udp_from_inside() {
    // The neighbour and the client are behind the NAT; `r2` is in front of it.
    let nat = FURTHER
        .replace("name = \"r1\"\n", "name = \"r1\"\nkind = \"nat\"\n")
        .replace("kind = \"tcp\"\n[repeat]", "[repeat]")
        .replace("duration = \"10s\"\nwarm-up = \"2s\"", "bytes = \"100kB\"");
    let udp = "kind = \"udp\"\nrate = \"1Mbit/s\"\nsize = \"1000B\"";
    let tcp = "kind = \"tcp\"";
    for (kind, ends, passes) in [
        (udp, "[\"neighbour\", \"far\"]", true),
        (
            udp,
            "[\"neighbour\", \"far\"]\ndirection = \"backward\"",
            false,
        ),
        (
            udp,
            "[\"far\", \"neighbour\"]\ndirection = \"backward\"",
            true,
        ),
        (tcp, "[\"neighbour\", \"far\"]", false),
        (tcp, "[\"far\", \"server\"]", true),
        (tcp, "[\"neighbour\", \"client\"]", true),
    ] {
        let outcome = run(&format!("{nat}[[background]]\n{kind}\nends = {ends}\n"));
        let expected = if passes {
            Status::Ok
        } else {
            Status::Unsupported
        };
        assert_eq!(
            outcome.status, expected,
            "{kind} {ends}: {}",
            outcome.reason
        );
        assert_eq!(
            outcome.reason.contains("from inside"),
            !passes,
            "{}",
            outcome.reason
        );
    }
}

#[test]
fn a_first_window_of_two_packets_and_no_pacing_show() {
    let first = |settings: &str| {
        let text = format!("[transport]\npaths = [\"a\"]\n{settings}[record]\nseries = \"10ms\"\n");
        let outcome = with(&text);
        assert_eq!(outcome.status, Status::Ok, "{}", outcome.reason);
        // The round trip after the handshake and the one after it.
        let bins = outcome.series.iter().filter(|bin| bin.path == 1);
        let bins: Vec<_> = bins.filter(|bin| bin.sent_bytes > 0).take(6).collect();
        let highest = bins.iter().map(|bin| bin.cwnd_bytes).min().unwrap();
        (highest, outcome.trace_hash)
    };
    let (usual, _) = first("");
    let (two, _) = first("initial-window = 2\n");
    assert!(two < 3000 && usual > 10_000, "{two} {usual}");
    let (reno, _) = first("initial-window = 2\ncongestion = \"new-reno\"\n");
    assert!(reno < 3000, "{reno}");
    // Forty packets at once, or ten and the rest spread out by pacing.
    let paced = first("initial-window = 40\n").1;
    assert_ne!(first("initial-window = 40\npacing = false\n").1, paced);
    assert_eq!(first("initial-window = 40\npacing = true\n").1, paced);
}

#[test]
fn without_protection_a_run_takes_the_same_course() {
    let (real, none) = (with(""), with("[transport]\nprotection = false\n"));
    assert_eq!(none.status, Status::Ok, "{}", none.reason);
    assert_eq!(real.trace_hash, none.trace_hash);
}

#[test]
fn qlog_is_written_for_both_ends_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let text = TWO.to_owned() + "[record]\nqlog = true\n";
    let document = Document::parse("t.toml", &text).unwrap();
    let plan = Plan::make(&document, &Changes::default()).unwrap();
    let sim = Sim::default().qlog(folder.path().to_owned());
    let outcome = sim.run(&plan.runs[0]);
    assert_eq!(outcome.status, Status::Ok, "{}", outcome.reason);
    assert_eq!(outcome.trace_hash, run(TWO).trace_hash);
    assert!(
        outcome.reseq_peak_bytes.unwrap() > 0,
        "the probe saw it too"
    );
    let files = std::fs::read_dir(folder.path().join(&plan.runs[0].id)).unwrap();
    let mut names = Vec::new();
    for file in files {
        let path = file.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.lines().count() > 1000 && text.ends_with('\n'));
        names.push(path.file_name().unwrap().to_str().unwrap().to_owned());
    }
    names.sort_unstable();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(names[0].ends_with("_client.sqlog") && names[1].ends_with("_server.sqlog"));
    let nowhere = Sim::default().run(&plan.runs[0]);
    assert_eq!(nowhere.status, Status::Unsupported, "{}", nowhere.reason);
}
