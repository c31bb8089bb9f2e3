//! Options, outputs and saved states of campaigns.

use super::child::grew;
use super::options::{Options, Parsed, parse};
use super::part::{cases_of, changes_of, failed_seeds};
use super::state::{Finding, MAX_FINDINGS, State};
use super::{build, table};
use std::path::Path;
use std::time::Duration;

fn options(words: &[&str]) -> Options {
    match parse(words) {
        Ok(Parsed::Run(options)) => options,
        other => panic!("{words:?}: {other:?}"),
    }
}

fn finding(replay: &str) -> Finding {
    Finding {
        part: "engine".to_owned(),
        what: "seed 7 failed".to_owned(),
        replay: replay.to_owned(),
        log: "a.log".to_owned(),
    }
}

#[test]
fn times_have_units_and_anything_else_is_refused() {
    assert_eq!(options(&[]).duration, Duration::from_secs(600));
    assert_eq!(options(&["--for", "90s"]).duration.as_secs(), 90);
    assert_eq!(options(&["--for=8h"]).duration.as_secs(), 8 * 3600);
    for wrong in [
        "",
        "10",
        "m",
        "-1m",
        "0s",
        "1.5h",
        "10 m",
        "9é",
        "99999999999999999h",
    ] {
        let error = parse(&["--for", wrong]).expect_err(wrong);
        assert!(error.contains("is no time"), "{error}");
    }
    for wrong in [&["--for"][..], &["--fresh=1"], &["--fast"], &["engine"]] {
        parse(wrong).expect_err("arguments that make no sense");
    }
    assert_eq!(parse(&["--for", "1m", "-h"]), Ok(Parsed::Help));
}

#[test]
fn parts_are_chosen_by_name_and_unknown_ones_are_named() {
    let names = ["frames", "params"].map(str::to_owned);
    let all = options(&[]).choose(&names).expect("all of them");
    assert_eq!(all, ["engine", "simulator", "flap", "frames", "params"]);
    let some = options(&["--only", "fuzz,engine,frames"]).choose(&names);
    assert_eq!(some.expect("known parts"), ["engine", "frames", "params"]);
    let error = options(&["--only=sim"])
        .choose(&names)
        .expect_err("unknown");
    assert!(
        error.contains("no part `sim`") && error.contains("simulator"),
        "{error}"
    );
}

#[test]
fn a_campaign_goes_on_where_it_was_and_a_broken_state_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    assert_eq!(State::load(folder.path()), Ok(State::default()));
    let mut state = State::default();
    state.part("engine").next = 300;
    state.add(finding("one"));
    state.add(finding("one"));
    assert_eq!(state.findings.len(), 1, "found before");
    state.save(&folder.path().join("deep")).expect("written");
    assert_eq!(State::load(&folder.path().join("deep")), Ok(state.clone()));
    for number in 0..2 * MAX_FINDINGS {
        state.add(finding(&number.to_string()));
    }
    assert_eq!(state.findings.len(), MAX_FINDINGS);
    std::fs::write(folder.path().join("state.json"), "{").expect("written");
    let error = State::load(folder.path()).expect_err("no state");
    assert!(error.contains("--fresh"), "{error}");
}

#[test]
fn what_worlds_and_targets_print_is_understood() {
    let text = "running 2 tests\nseed 31 failed\nseed 7 failed\nseed 7 failed\nseed x failed\n";
    assert_eq!(failed_seeds(text), [7, 31]);
    let done = "#8\tpulse\nstat::number_of_executed_units: 1234\nstat::x: 1";
    assert_eq!(cases_of(done), 1234);
    assert_eq!(
        cases_of("#512\tpulse  cov: 3\n#777\tNEW    cov: 9\nthread panicked"),
        777
    );
    assert_eq!(cases_of(""), 0);
    let flapped = "flap: the machine was late\nflap: seed 9, 81 changes in 33 s, 3 paths\n\
                   flap: seed 9, 102 changes in 40 s, 3 paths\n";
    assert_eq!(changes_of(flapped), 183);
    let messages = r#"{"profile":{"test":false},"target":{"name":"b"},"executable":"/a"}
        {"profile":{"test":true},"target":{"name":"b"},"executable":null}
        {"profile":{"test":true},"target":{"name":"b"},"executable":"/b"}
        {"profile":{"test":true},"target":{"name":"c"},"executable":"/c"}
        {"reason":"build-finished"}"#;
    let program = build::executable(messages, "b");
    assert_eq!(program.as_deref(), Some(Path::new("/b")));
    assert_eq!(build::executable(messages, "d"), None);
}

#[test]
fn memory_that_grows_throughout_is_told_from_memory_that_settles() {
    let grows: Vec<u64> = (0..200).map(|at| 100_000 + at * 2_000).collect();
    assert!(grew(&grows));
    let settles: Vec<u64> = (0..200).map(|at| 100_000 + at.min(60) * 4_000).collect();
    assert!(!grew(&settles));
    let breathes: Vec<u64> = (0..200).map(|at| 100_000 + at % 7 * 90_000).collect();
    assert!(!grew(&breathes));
    assert!(!grew(&grows[..40]), "too short to tell");
}

#[test]
fn the_table_has_a_row_for_each_part_and_the_commit() {
    let mut state = State::default();
    let part = state.part("engine");
    (part.cases, part.seconds, part.most_memory_kib) = (500, 100, 51_200);
    state.add(finding("one"));
    let text = table::render(&state, "abc1234");
    let rows: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(rows[1], ["engine", "500", "100", "5.0", "50", "1"]);
    assert_eq!(rows[2], ["commit", "abc1234"]);
}

#[test]
fn every_fuzz_target_is_a_part() {
    let names = build::names(&crate::root()).expect("fuzz targets");
    for known in ["connection", "frames", "packets", "params", "streams"] {
        assert!(names.iter().any(|name| name == known), "{names:?}");
    }
}
