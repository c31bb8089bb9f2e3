//! Scenarios that run.

mod calls;
mod carriers;
mod flows;
mod tunnel;

use super::*;
use crate::plan::{Changes, Plan};
use crate::scenario::{Document, TEMPLATE};

const TWO: &str = r#"
format = 1
name = "two"
stop = "60s"
singles = false
[[path]]
name = "a"
forward = { rate = "10Mbit/s", delay = "10ms", queue = "50ms" }
backward = { like = "forward" }
[[path]]
name = "b"
forward = { rate = "5Mbit/s", delay = "20ms", queue = "50ms" }
backward = { like = "forward" }
[[flow]]
kind = "bulk"
bytes = "4MB"
"#;

fn run(text: &str) -> Outcome {
    let document = Document::parse("t.toml", text).unwrap();
    let plan = Plan::make(&document, &Changes::default()).unwrap();
    assert_eq!(plan.runs.len(), 1);
    Sim::default().run(&plan.runs[0])
}

#[test]
fn a_bulk_transfer_uses_both_paths_and_says_so() {
    let outcome = run(TWO);
    assert_eq!(outcome.status, Status::Ok, "{}", outcome.reason);
    assert_eq!(outcome.bytes, 4_000_000);
    let goodput = outcome.goodput_bps.unwrap();
    assert!((9e6..15e6).contains(&goodput), "{goodput}");
    assert_eq!(outcome.paths.len(), 2);
    for path in &outcome.paths {
        assert!(path.share.unwrap() > 0.2, "{path:?}");
        assert!(path.owd_mean_s.unwrap() >= 0.010);
    }
    let total: u64 = outcome
        .series
        .iter()
        .filter(|bin| bin.path == 0)
        .map(|bin| bin.goodput_bytes)
        .sum();
    assert_eq!(total, 4_000_000, "the bins hold every byte");
    assert!(outcome.reasons.iter().map(|(_, count)| count).sum::<u64>() > 1000);
}

#[test]
fn the_contenders_of_the_template_differ() {
    let document = Document::parse("template.toml", TEMPLATE).unwrap();
    let plan = Plan::make(&document, &Changes::default()).unwrap();
    let first: Vec<_> = plan.runs.iter().filter(|run| run.repetition == 1).collect();
    let sim = Sim::default();
    let mut took: Vec<_> = first.iter().map(|run| sim.run(run).completion_s).collect();
    assert!(took.iter().all(Option::is_some), "{took:?}");
    took.sort_by(|a, b| a.partial_cmp(b).unwrap());
    took.dedup();
    assert_eq!(took.len(), first.len(), "{took:?}");
}

#[test]
fn the_same_run_gives_the_same_outcome() {
    let lossy = TWO.replace("queue = \"50ms\"", "queue = \"50ms\", loss = \"0.5%\"")
        + "[repeat]\nruns = 1\n";
    let (mut first, mut second) = (run(&lossy), run(&lossy));
    (first.wall_s, second.wall_s) = (0.0, 0.0);
    assert_eq!(first, second);
    assert_ne!(first.trace_hash, run(TWO).trace_hash);
}

#[test]
fn a_download_flows_backward() {
    let outcome = run(&TWO.replace(
        "bytes = \"4MB\"",
        "bytes = \"4MB\"\ndirection = \"backward\"",
    ));
    assert_eq!(outcome.status, Status::Ok, "{}", outcome.reason);
    assert_eq!(outcome.bytes, 4_000_000);
    assert!(
        outcome.paths[0].sent_bytes > 1_000_000,
        "{:?}",
        outcome.paths[0]
    );
}

#[test]
fn a_flow_of_given_duration_is_measured_after_its_warm_up() {
    let outcome = run(&TWO.replace("bytes = \"4MB\"", "duration = \"10s\"\nwarm-up = \"2s\""));
    assert_eq!(outcome.status, Status::Ok, "{}", outcome.reason);
    let goodput = outcome.goodput_bps.unwrap();
    assert!((12.5e6..14.9e6).contains(&goodput), "{goodput}");
    assert!(outcome.completion_s.is_none());
}

#[test]
fn one_path_alone_is_limited_to_its_rate() {
    let outcome = run(&(TWO.to_owned() + "[transport]\npaths = [\"b\"]\n"));
    assert_eq!(outcome.status, Status::Ok, "{}", outcome.reason);
    assert!(outcome.goodput_bps.unwrap() < 5e6);
    assert_eq!(outcome.paths[0].sent_bytes, 0);
}

#[test]
fn files_requests_and_datagrams_are_timed() {
    let flow = |text: &str| run(&TWO.replace("kind = \"bulk\"\nbytes = \"4MB\"", text));
    let files = flow("kind = \"files\"\ncount = 5\nsize = \"20kB\"");
    assert_eq!(
        (files.status, files.units),
        (Status::Ok, 5),
        "{}",
        files.reason
    );
    assert!(files.unit_p50_s.unwrap() > 0.016);
    let requests = flow(
        "kind = \"requests\"\ncount = 4\nsize = \"200B\"\nanswer = \"50kB\"\nevery = \"200ms\"",
    );
    assert_eq!(
        (requests.status, requests.units),
        (Status::Ok, 4),
        "{}",
        requests.reason
    );
    assert_eq!(requests.bytes, 200_000);
    let datagrams = flow(
        "kind = \"datagrams\"\nsize = \"1000B\"\nrate = \"1Mbit/s\"\nduration = \"2s\"\n\
             deadline = \"100ms\"",
    );
    assert_eq!(datagrams.status, Status::Ok, "{}", datagrams.reason);
    assert!(
        (240..=251).contains(&datagrams.units),
        "{}",
        datagrams.units
    );
}

#[test]
fn a_run_that_the_user_ends_does_not_go_on_to_its_end() {
    let forever = TWO.replace("bytes = \"4MB\"", "duration = \"50s\"");
    let tcp = format!("{forever}[transport]\nkind = \"tcp\"\n");
    for text in [forever, tcp] {
        let document = Document::parse("t.toml", &text).unwrap();
        let plan = Plan::make(&document, &Changes::default()).unwrap();
        let sim = Sim::default().halt(Arc::new(AtomicBool::new(true)));
        let outcome = sim.run(&plan.runs[0]);
        assert!(sim.was_broken_off());
        assert!(outcome.bytes < 1_000_000, "{} bytes", outcome.bytes);
    }
}

#[test]
fn a_stripe_deals_chunks_over_connections() {
    let striped = TWO.to_owned()
        + "[transport]\nprofile = \"stripe\"\nconnections = 2\nchunk = \"5kB\"\n\
             scheduler = \"weighted:weights=2/1\"\n";
    let outcome = run(&striped);
    assert_eq!(outcome.status, Status::Ok, "{}", outcome.reason);
    assert_eq!(outcome.bytes, 4_000_000);
    let share = outcome.paths[0].share.unwrap();
    assert!((0.6..0.73).contains(&share), "{share}");
}

#[test]
fn a_silent_path_is_survived_and_a_limit_of_time_is_a_timeout() {
    let cut = TWO.to_owned() + "[[event]]\nat = \"1s\"\npath = \"a\"\ndown = \"both\"\n";
    let outcome = run(&cut);
    assert_eq!(
        (outcome.status, outcome.bytes),
        (Status::Ok, 4_000_000),
        "{}",
        outcome.reason
    );
    let short = run(&TWO.replace("60s", "1s"));
    assert_eq!(short.status, Status::Timeout);
    assert!(short.bytes > 0 && short.completion_s.is_none());
}

#[test]
fn a_sender_that_no_packet_reaches_ends_in_a_timeout() {
    let backward = "bytes = \"4MB\"\ndirection = \"backward\"";
    let cut = |path| format!("[[event]]\nat = \"0s\"\npath = \"{path}\"\ndown = \"both\"\n");
    let unplugged = TWO.replace("bytes = \"4MB\"", backward) + &cut("a") + &cut("b");
    let outcome = run(&unplugged.replace("60s", "2s"));
    let expected = (Status::Timeout, 0);
    assert_eq!(
        (outcome.status, outcome.bytes),
        expected,
        "{}",
        outcome.reason
    );
    assert_eq!(outcome.handshake_s, None);
}

#[test]
fn events_change_rates_and_keep_what_earlier_ones_changed() {
    let slower = TWO.to_owned()
        + "[[event]]\nat = \"0s\"\npath = \"a\"\nset = { rate = \"1Mbit/s\" }\n[[event]]\n\
             at = \"10ms\"\npath = \"a\"\nset = { delay = \"1ms\" }\n";
    let goodput = run(&slower).goodput_bps.unwrap();
    assert!((4e6..6e6).contains(&goodput), "{goodput}");
}

#[test]
fn what_the_simulator_cannot_do_is_a_row_with_its_reason() {
    let outcome = run(&(TWO.to_owned() + "[transport]\nkind = \"mptcp\"\n"));
    assert_eq!(outcome.status, Status::Unsupported);
    assert!(outcome.reason.contains("kernel"));
    let beside = "[[background]]\nkind = \"tcp\"\ncongestion = \"bbr\"\npath = \"a\"\n";
    let outcome = run(&(TWO.to_owned() + beside));
    assert_eq!(outcome.status, Status::Unsupported);
    assert!(outcome.reason.contains("BBR"), "{}", outcome.reason);
}

#[test]
fn what_would_never_end_its_first_instant_is_refused() {
    const BARE: &str = "format = 1\nname = \"bare\"\nstop = \"5s\"\nsingles = false\n\
        [[path]]\nname = \"a\"\n[[flow]]\nkind = \"bulk\"\nduration = \"100ms\"\n";
    const TCP: &str = "[transport]\nkind = \"tcp\"\n";
    let path = |lines: &str| BARE.replace("[[flow]]", &format!("{lines}\n[[flow]]"));
    let delayed = path("backward = { delay = \"5ms\" }");
    let bare_too = "[[path]]\nname = \"b\"\n";
    let beside = |kind: &str| {
        let only = "[transport]\npaths = [\"a\"]\n[repeat]\nruns = 1\n";
        format!("{delayed}{bare_too}[[background]]\npath = \"b\"\nkind = {kind}\n{only}")
    };
    let ended = "[[event]]\nat = \"100ms\"\npath = \"a\"\nset = { delay = \"0s\" }\n";
    for (text, refused) in [
        (BARE.to_owned(), true),
        (BARE.to_owned() + TCP, true),
        (delayed.clone(), false),
        (delayed.clone() + ended, true),
        (delayed.clone() + bare_too, true),
        (delayed.clone() + bare_too + TCP, false),
        (beside("\"tcp\""), true),
        (beside("\"web\"\nsize = \"1kB\"\npause = \"0s\""), true),
        (beside("\"web\"\nsize = \"1kB\"\npause = \"1ms\""), false),
        (path("backward = { rate = \"1Mbit/s\" }"), false),
        // A flow that ends by itself also does so in no time.
        (
            BARE.replace("duration = \"100ms\"", "bytes = \"1MB\""),
            false,
        ),
    ] {
        let outcome = run(&text);
        let expected = if refused {
            Status::Unsupported
        } else {
            Status::Ok
        };
        assert_eq!(outcome.status, expected, "{text}: {}", outcome.reason);
        assert_eq!(outcome.reason.contains("`rate`"), refused, "{text}");
    }
}

#[test]
fn a_cellular_link_carries_its_mean_rate() {
    let cellular = TWO.replace(
        "forward = { rate = \"10Mbit/s\", delay = \"10ms\", queue = \"50ms\" }\n\
             backward = { like = \"forward\" }\n[[path]]",
        "forward = { cellular = { slot = \"10ms\", rate = [\"5Mbit/s\", \"15Mbit/s\"], stall \
             = \"0.1%\", stall-time = [\"5ms\", \"10ms\"] }, delay = \"10ms\" }\n\
             backward = { delay = \"10ms\" }\n[[path]]",
    ) + "[transport]\npaths = [\"a\"]\n[repeat]\nruns = 1\n";
    let outcome = run(&cellular);
    assert_eq!(outcome.status, Status::Ok, "{}", outcome.reason);
    let goodput = outcome.goodput_bps.unwrap();
    assert!((6e6..10e6).contains(&goodput), "{goodput}");
}
