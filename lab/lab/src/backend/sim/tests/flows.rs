//! Several flows, and what is counted of them.

use super::*;
use crate::stats::quantile;

fn flows(text: &str) -> Outcome {
    run(&TWO.replace("[[flow]]\nkind = \"bulk\"\nbytes = \"4MB\"\n", text))
}

const UP: &str = "[[flow]]\nkind = \"bulk\"\nbytes = \"2MB\"\n";
const DOWN: &str = "[[flow]]\nkind = \"bulk\"\nbytes = \"2MB\"\ndirection = \"backward\"\n";

#[test]
fn flows_in_both_directions_are_counted_in_both() {
    let both = flows(&format!("{UP}{DOWN}"));
    assert_eq!(both.status, Status::Ok, "{}", both.reason);
    assert_eq!(both.bytes, 4_000_000);
    let up = flows(UP).goodput_bps.unwrap();
    let goodput = both.goodput_bps.unwrap();
    assert!(goodput > 1.5 * up, "{goodput} {up}");
    let whole = both.series.iter().filter(|bin| bin.path == 0);
    assert_eq!(whole.map(|bin| bin.goodput_bytes).sum::<u64>(), 4_000_000);
    let other = flows(&format!("{DOWN}{UP}"));
    assert_eq!(other.bytes, 4_000_000);
    // Files and requests of both directions count as units.
    let files = "[[flow]]\nkind = \"files\"\ncount = 3\nsize = \"20kB\"\n";
    let requests = "[[flow]]\nkind = \"requests\"\ncount = 4\nsize = \"200B\"\n\
                    answer = \"10kB\"\nevery = \"50ms\"\ndirection = \"backward\"\n";
    let units = flows(&format!("{files}{requests}"));
    assert_eq!((units.units, units.bytes), (7, 100_000));
    assert!(units.unit_times.is_empty(), "nobody has asked for them");
    let each = flows(&format!("{files}{requests}[record]\nunits = true\n"));
    assert_eq!(each.unit_times.len(), 7);
    assert_eq!(quantile(&each.unit_times, 0.5), units.unit_p50_s);
    assert_eq!(each.trace_hash, units.trace_hash);
}

const CALL: &str = "[[flow]]\nkind = \"datagrams\"\nsize = \"500B\"\nrate = \"400kbit/s\"\n\
                    duration = \"2s\"\nstart = \"1s\"\n";

#[test]
fn flows_of_datagrams_are_counted_each_for_itself() {
    let one = flows(CALL);
    assert_eq!(one.status, Status::Ok, "{}", one.reason);
    let two = flows(&format!("{CALL}{CALL}deadline = \"500ms\"\n"));
    assert_eq!(two.status, Status::Ok, "{}", two.reason);
    // Datagrams in flight at the end are late; all others are in time.
    let tail = 2 * 6;
    assert!(one.units >= 190, "{}", one.units);
    assert!(two.units >= 2 * one.units - tail, "{}", two.units);
    assert!(two.late_units <= tail, "{}", two.late_units);
    assert_eq!(two.units + two.late_units, 400);
}

#[test]
fn what_the_file_says_of_datagrams_reaches_the_engine() {
    let call = "[[flow]]\nkind = \"datagrams\"\nsize = \"1000B\"\nrate = \"3Mbit/s\"\n\
                 duration = \"2s\"\ndeadline = \"60ms\"\n";
    let hash = |extra: &str, transport: &str| {
        let outcome = flows(&format!("{call}{extra}[transport]\n{transport}\n"));
        assert_eq!(outcome.status, Status::Ok, "{}", outcome.reason);
        (outcome.trace_hash, outcome.paths[1].share.unwrap())
    };
    // Only critical datagrams are copied.
    let redundant = "scheduler = \"critical-redundant\"";
    assert_ne!(
        hash("", redundant).0,
        hash("critical = true\n", redundant).0
    );
    // This scheduler keeps flows apart.
    let affine = "scheduler = \"affinity\"";
    let (one, many) = (hash("flows = 1\n", affine), hash("flows = 50\n", affine));
    assert_ne!(one.0, many.0);
}

#[test]
fn a_stripe_of_anything_but_one_file_is_refused() {
    let stripe = "[transport]\nprofile = \"stripe\"\n";
    let timed = "[[flow]]\nkind = \"bulk\"\nduration = \"5s\"\n";
    for text in [
        format!("{UP}{UP}"),
        format!("{UP}{DOWN}"),
        timed.into(),
        CALL.into(),
    ] {
        let outcome = flows(&(text + stripe));
        assert_eq!(outcome.status, Status::Unsupported);
        assert!(outcome.reason.contains("stripe"), "{}", outcome.reason);
    }
    assert_eq!(flows(&format!("{DOWN}{stripe}")).bytes, 2_000_000);
}

#[test]
fn columns_of_paths_and_series_hold_what_was_measured() {
    let lossy = TWO.replace("queue = \"50ms\"", "queue = \"50ms\", loss = \"1%\"")
        + "[repeat]\nruns = 1\n[transport]\nreceive-buffer = \"256KiB\"\n";
    let outcome = run(&lossy);
    assert_eq!(outcome.status, Status::Ok, "{}", outcome.reason);
    let again: u64 = outcome
        .paths
        .iter()
        .filter_map(|path| path.retransmitted_bytes)
        .sum();
    assert_eq!(Some(again), outcome.retransmitted_bytes);
    for (index, path) in outcome.paths.iter().enumerate() {
        assert!(path.lost_bytes.unwrap() > 0, "{path:?}");
        assert!(path.acked_bytes.unwrap() > 500_000, "{path:?}");
        let bins = outcome
            .series
            .iter()
            .filter(|bin| bin.path == index as u32 + 1);
        let acked: u64 = bins.filter_map(|bin| bin.acked_bytes).sum();
        assert_eq!(path.acked_bytes, Some(acked));
    }
    let whole: Vec<_> = outcome.series.iter().filter(|bin| bin.path == 0).collect();
    let most =
        |of: fn(&crate::results::Bin) -> Option<u64>| whole.iter().filter_map(|b| of(b)).max();
    assert!(most(|bin| bin.send_buffer_bytes).unwrap() > 100_000);
    assert!(most(|bin| bin.receive_buffer_bytes).unwrap() <= 256 * 1024);
    assert_eq!(most(|bin| bin.reseq_runs), outcome.reseq_peak_runs);
    let blocked: f64 = whole.iter().filter_map(|bin| bin.blocked_send_s).sum();
    assert!((blocked - outcome.blocked_send_s.unwrap()).abs() < 1e-6);
}

#[test]
fn the_mean_of_waiting_bytes_does_not_depend_on_the_bins() {
    let mean = |bin: &str| run(&format!("{TWO}[record]\nseries = {bin}\n")).reseq_mean_bytes;
    assert!(mean("\"10ms\"").unwrap() > 0.0);
    assert_eq!(mean("\"10ms\""), mean("\"1s\""));
}

#[test]
fn a_decision_can_be_read_from_its_row() {
    let decisions = |flow: &str, scheduler: &str| {
        let text =
            format!("{flow}[record]\ndecisions = true\n[transport]\nscheduler = \"{scheduler}\"\n");
        flows(&text).decisions
    };
    let call = CALL.replace("500B", "1000B") + "critical = true\n";
    let copied = decisions(&call, "critical-redundant");
    let copied = copied.iter().filter(|row| row.decision == "duplicate");
    let copied: Vec<_> = copied.collect();
    assert!(!copied.is_empty());
    assert!(copied.iter().all(|row| row.paths == [1, 2]), "{copied:?}");
    // A scheduler that sends data out of order reports how far behind it starts.
    let names = Names::default();
    let mut all = names.schedulers.entries().iter();
    let skipped = all.find_map(|entry| {
        let mut rows = decisions(UP, entry.name);
        rows.retain(|row| row.decision == "send-at");
        (!rows.is_empty()).then_some(rows)
    });
    let skipped = skipped.expect("some scheduler sends out of order");
    for row in skipped {
        assert!(row.skip.is_some() && row.paths.len() == 1, "{row:?}");
    }
}

#[test]
fn a_fade_narrows_a_link_bit_by_bit() {
    let alone = "[transport]\npaths = [\"a\"]\n";
    let fade = "[[event]]\nat = \"0s\"\npath = \"a\"\n\
                fade = { to = \"1Mbit/s\", over = \"4s\", steps = 10 }\n";
    let free = run(&format!("{TWO}{alone}")).completion_s.unwrap();
    let faded = run(&format!("{TWO}{alone}{fade}")).completion_s.unwrap();
    // Falling from 10 to 1 Mbit/s, the link carries 22 Mbit in 4 s; at 1 Mbit/s the other 10 and
    // the headers take another ten seconds.
    assert!(
        free < 5.0 && (12.0..20.0).contains(&faded),
        "{faded} {free}"
    );
}

#[test]
fn a_download_through_a_nat_tells_of_the_queue_behind_it() {
    let text = r#"
format = 1
name = "nat"
stop = "60s"
singles = false
[[node]]
name = "gateway"
kind = "nat"
[[link]]
name = "access"
ends = ["client", "gateway"]
forward = { rate = "4Mbit/s", delay = "5ms", queue = "50ms" }
backward = { like = "forward" }
[[link]]
name = "core"
ends = ["gateway", "server"]
forward = { delay = "5ms" }
backward = { delay = "5ms" }
[[path]]
name = "one"
client = "access"
server = "core"
[[flow]]
kind = "bulk"
bytes = "2MB"
direction = "backward"
"#;
    let outcome = run(text);
    assert_eq!(outcome.status, Status::Ok, "{}", outcome.reason);
    let path = &outcome.paths[0];
    assert!(path.sent_bytes > 2_000_000, "{path:?}");
    assert!(path.queue_max_bytes.unwrap() > 10_000, "{path:?}");
    assert!(path.lost_queue.unwrap() > 0, "{path:?}");
}

#[test]
fn datagrams_come_in_order_if_the_scenario_has_them_wait_and_no_longer_than_it_says() {
    // Round robin over paths of 10 and 60 ms: ten later datagrams overtake every second one.
    let paths = TWO.replace("delay = \"20ms\"", "delay = \"60ms\"");
    assert_ne!(paths, TWO);
    let with = |extra: &str| {
        let flow = format!("{CALL}{extra}[transport]\nscheduler = \"round-robin\"\n");
        run(&paths.replace("[[flow]]\nkind = \"bulk\"\nbytes = \"4MB\"\n", &flow))
    };
    let plain = with("");
    assert_eq!(plain.status, Status::Ok, "{}", plain.reason);
    assert!(plain.reordered_units.unwrap() > 50, "{plain:?}");
    let ordered = with("resequence = \"200ms\"\n");
    assert_eq!(ordered.status, Status::Ok, "{}", ordered.reason);
    assert_eq!(ordered.reordered_units, Some(0));
    // Datagrams of the fast path wait for those of the slow one.
    assert!(ordered.unit_p50_s > plain.unit_p50_s);
    assert!(
        ordered.unit_p95_s.unwrap() < 0.12,
        "{:?}",
        ordered.unit_p95_s
    );
    // A wait that is too short is given up, and later datagrams are passed on all the same.
    let short = with("resequence = \"5ms\"\n");
    assert!(short.reordered_units.unwrap() > 50);
    assert!(short.unit_p50_s < ordered.unit_p50_s);
}
