//! TCP, bonds, and what runs beside the flows.

use super::*;

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
        // The last one was wanted after 30 ms and had to wait for the others.
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
        let sent = outcome.paths[0].sent_bytes as f64;
        let own = outcome.bytes as f64;
        assert!((1.0..1.2).contains(&(sent / own)), "{kind}: {sent} {own}");
        // What comes from the other side leaves this one alone.
        let other = flow(
            text,
            &beside.replace(alone, &format!("direction = \"backward\"\n{alone}")),
        );
        let goodput = other.goodput_bps.unwrap();
        assert!(goodput > free * 0.85, "{kind}: {goodput} of {free}");
    }
    let stopped = "[[background]]\npath = \"a\"\nkind = \"udp\"\n\
         rate = \"5Mbit/s\"\nsize = \"1000B\"\nstop = \"2s\"\n";
    let goodput = flow(text, &(stopped.to_owned() + alone))
        .goodput_bps
        .unwrap();
    assert!(goodput > free * 0.95, "{goodput} of {free}");
}

#[test]
fn a_first_window_of_two_packets_and_no_pacing_show() {
    let first = |settings: &str| {
        let text = format!("[transport]\npaths = [\"a\"]\n{settings}[record]\nseries = \"10ms\"\n");
        let outcome = with(&text);
        assert_eq!(outcome.status, Status::Ok, "{}", outcome.reason);
        // The round trip after the handshake and the next one.
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
    // Forty packets at once, or ten and the rest one by one.
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
