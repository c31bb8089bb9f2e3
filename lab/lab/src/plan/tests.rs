//! The runs that a file expands into.

use super::*;
use crate::scenario::TEMPLATE;
use std::collections::BTreeSet;

const FILE: &str = r#"
format = 1
name = "sweep"
stop = "10s"
[parameters]
rtt = "50ms"
[[path]]
name = "a"
forward = { rate = "1Mbit/s", delay = "=rtt / 2", loss = "1%" }
[[path]]
name = "b"
forward = { rate = "1Mbit/s", delay = "=rtt / 2" }
[[flow]]
kind = "bulk"
bytes = "1MB"
[contenders]
anabranch = { scheduler = ["min-rtt", "round-robin"] }
[sweep]
"parameters.rtt" = { from = "50ms", to = "100ms", step = "25ms" }
"path.a.forward.rate" = ["1Mbit/s", "2Mbit/s"]
[repeat]
runs = 2
"#;

fn plan(text: &str, changes: &Changes) -> Result<Plan, Mistake> {
    Plan::make(&Document::parse("f.toml", text)?, changes)
}

#[test]
fn sweeps_contenders_and_repetitions_multiply() {
    let plan = plan(FILE, &Changes::default()).unwrap();
    // 3 delays, 2 rates, 2 schedulers and 2 paths alone, 2 repetitions.
    assert_eq!(plan.runs.len(), 3 * 2 * 4 * 2);
    assert_eq!(
        plan.contenders,
        ["anabranch min-rtt", "anabranch round-robin"]
    );
    assert_eq!(plan.swept, ["parameters.rtt", "path.a.forward.rate"]);
    let delays: BTreeSet<_> = plan
        .runs
        .iter()
        .map(|run| run.scenario.network.links[0].forward.link.delay.as_micros())
        .collect();
    assert_eq!(
        delays.into_iter().collect::<Vec<_>>(),
        [25_000, 37_500, 50_000]
    );
    assert_eq!(plan.runs[0].swept[0].1, "50ms");
    let ids: BTreeSet<_> = plan.runs.iter().map(|run| &run.id).collect();
    assert_eq!(ids.len(), plan.runs.len(), "ids are unique");
}

#[test]
fn a_sweep_may_come_from_the_command_line() {
    let (before, _) = FILE.split_once("[sweep]").unwrap();
    for values in ["10ms,30ms, 90ms", "[\"10ms\", \"30ms\", \"90ms\"]"] {
        let changes = Changes {
            sweep: vec![("path.a.*.delay".to_owned(), values.to_owned())],
            runs: Some(1),
            ..Changes::default()
        };
        let swept = plan(before, &changes).unwrap();
        assert_eq!(swept.swept, ["path.a.*.delay"]);
        let values: BTreeSet<_> = swept.runs.iter().map(|run| &run.swept[0].1).collect();
        let expected = ["10ms", "30ms", "90ms"].map(str::to_owned);
        assert_eq!(values, expected.iter().collect());
    }
    // They replace the file's values.
    let changes = Changes {
        sweep: vec![("path.a.forward.rate".to_owned(), "3Mbit/s".to_owned())],
        ..Changes::default()
    };
    let swept = plan(FILE, &changes).unwrap();
    assert_eq!(swept.runs.len(), 3 * 4 * 2);
}

#[test]
fn contenders_of_one_repetition_share_a_seed_and_others_do_not() {
    let plan = plan(FILE, &Changes::default()).unwrap();
    let first = &plan.runs[0];
    for run in &plan.runs {
        let same = run.swept == first.swept && run.repetition == first.repetition;
        assert_eq!(
            run.seed == first.seed,
            same,
            "{} {:?}",
            run.contender,
            run.swept
        );
    }
}

#[test]
fn the_same_file_gives_the_same_ids_and_a_change_gives_others() {
    let ids = |changes: &Changes| {
        let plan = plan(FILE, changes).unwrap();
        plan.runs
            .into_iter()
            .map(|run| run.id)
            .collect::<BTreeSet<_>>()
    };
    let default = ids(&Changes::default());
    assert_eq!(default, ids(&Changes::default()));
    let set = |key: &str, value: &str| Changes {
        set: vec![(key.into(), value.into())],
        ..Changes::default()
    };
    assert!(default.is_disjoint(&ids(&set("path.b.forward.rate", "3Mbit/s"))));
    let more = Changes {
        runs: Some(3),
        ..Changes::default()
    };
    assert!(
        ids(&more).is_superset(&default),
        "more repetitions keep those that are there"
    );
}

#[test]
fn the_expanded_file_stands_for_the_same_runs_without_the_command_line() {
    let ids = |plan: &Plan| -> Vec<String> { plan.runs.iter().map(|run| run.id.clone()).collect() };
    let changes = Changes {
        set: vec![("path.b.forward.rate".into(), "3Mbit/s".into())],
        sweep: vec![("parameters.rtt".into(), "[\"80ms\"]".into())],
        seed: Some(i64::MAX as u64),
        runs: Some(5),
    };
    let without = FILE.replace("[repeat]\nruns = 2\n", "");
    for text in [FILE, &without] {
        let first = plan(text, &changes).unwrap();
        assert_eq!(first.runs.len(), 2 * 4 * 5);
        let again = plan(&first.expanded, &Changes::default()).unwrap();
        assert_eq!(ids(&first), ids(&again));
    }
}

/// The file with the rates of both paths in lists that advance together.
fn with_zip() -> String {
    FILE.replace(
        "\"path.a.forward.rate\" = [\"1Mbit/s\", \"2Mbit/s\"]",
        "[[sweep.zip]]\n\"path.a.forward.rate\" = [\"1Mbit/s\", \"2Mbit/s\"]\n\
             \"path.b.forward.rate\" = [\"4Mbit/s\", \"3Mbit/s\"]",
    )
}

#[test]
fn lists_in_a_zip_advance_together() {
    let text = with_zip();
    let plan = plan(&text, &Changes::default()).unwrap();
    assert_eq!(plan.runs.len(), 3 * 2 * 4 * 2);
    for run in &plan.runs {
        assert_eq!(run.scenario.sum_of_rates(), Some(5_000_000));
    }
}

#[test]
fn a_sweep_from_the_command_line_replaces_a_list_that_advances_with_others() {
    let text = with_zip();
    let sums = |keys: &[&str]| -> BTreeSet<_> {
        let sweep = |key: &&str| ((*key).to_owned(), "5Mbit/s".to_owned());
        let changes = Changes {
            sweep: keys.iter().map(sweep).collect(),
            ..Changes::default()
        };
        let plan = plan(&text, &changes).unwrap();
        plan.runs
            .iter()
            .map(|run| run.scenario.sum_of_rates())
            .collect()
    };
    let (a, b) = ("path.a.forward.rate", "path.b.forward.rate");
    assert_eq!(
        sums(&[a]),
        BTreeSet::from([Some(8_000_000), Some(9_000_000)])
    );
    assert_eq!(sums(&[a, b]), BTreeSet::from([Some(10_000_000)]));
}

#[test]
fn a_value_that_a_sweep_replaces_cannot_be_set() {
    let set = |key: &str| Changes {
        set: vec![(key.to_owned(), "3Mbit/s".to_owned())],
        ..Changes::default()
    };
    for key in [
        "parameters.rtt",
        "path.a.forward.rate",
        "path.1.forward.rate",
    ] {
        let message = plan(FILE, &set(key)).unwrap_err().to_string();
        assert!(message.contains("use --sweep"), "{key}: {message}");
    }
    // It counts for the other path.
    plan(FILE, &set("path.*.forward.rate")).unwrap();
    // It counts for neither.
    let message = plan(&with_zip(), &set("path.*.forward.rate"));
    let message = message.unwrap_err().to_string();
    assert!(
        message.contains("use --sweep path.*.forward.rate="),
        "{message}"
    );
}

#[test]
fn a_sweep_of_the_first_key_keeps_the_runs_that_the_file_has_too() {
    let ids = |changes: &Changes| -> BTreeSet<String> {
        let plan = plan(FILE, changes).unwrap();
        plan.runs.into_iter().map(|run| run.id).collect()
    };
    let some = Changes {
        sweep: vec![("parameters.rtt".to_owned(), "50ms,100ms".to_owned())],
        ..Changes::default()
    };
    assert!(ids(&some).is_subset(&ids(&Changes::default())));
}

#[test]
fn what_says_which_runs_there_are_cannot_be_swept() {
    for key in ["repeat.runs", "contenders.anabranch.scheduler", "singles"] {
        let changes = Changes {
            sweep: vec![(key.to_owned(), "1,2".to_owned())],
            ..Changes::default()
        };
        let message = plan(FILE, &changes).unwrap_err().to_string();
        assert!(message.contains("cannot be swept"), "{key}: {message}");
    }
}

#[test]
fn a_parameter_that_another_given_value_names_is_one() {
    let changes = Changes {
        set: vec![("path.b.forward.delay".to_owned(), "=way * 2".to_owned())],
        sweep: vec![("parameters.way".to_owned(), "10ms,20ms".to_owned())],
        ..Changes::default()
    };
    plan(FILE, &changes).unwrap();
}

#[test]
fn a_sweep_from_the_command_line_knows_the_files_by_any_name() {
    let sweep = |key: &str| Changes {
        sweep: vec![(key.to_owned(), "3Mbit/s".to_owned())],
        ..Changes::default()
    };
    for key in ["path.1.forward.rate", "path.*.forward.rate"] {
        let swept = plan(FILE, &sweep(key)).unwrap();
        assert_eq!(swept.swept, ["parameters.rtt", key]);
    }
    let all = FILE.replace("\"path.a.forward.rate\"", "\"path.*.forward.rate\"");
    let message = plan(&all, &sweep("path.a.forward.rate")).unwrap_err();
    let message = message.to_string();
    assert!(message.contains("has some of the same values"), "{message}");
}

#[test]
fn a_parameter_from_the_command_line_is_one_of_the_files() {
    let given = vec![("parameters.rtt2".to_owned(), "70ms".to_owned())];
    let set = Changes {
        set: given.clone(),
        ..Changes::default()
    };
    let sweep = Changes {
        sweep: given,
        ..Changes::default()
    };
    for changes in [set, sweep] {
        let message = plan(FILE, &changes).unwrap_err().to_string();
        assert!(message.contains("no such parameter"), "{message}");
        assert!(message.contains("did you mean `rtt`"), "{message}");
    }
}

#[test]
fn a_scenario_without_chance_runs_once() {
    let text = FILE
        .replace(", loss = \"1%\"", "")
        .replace("[repeat]\nruns = 2", "");
    let plan = plan(&text, &Changes::default()).unwrap();
    assert_eq!(plan.runs.len(), 3 * 2 * 4);
}

#[test]
fn mistakes_in_sweeps_and_contenders_name_their_line() {
    let cases = [
        ("step = \"25ms\"", "step = \"1Mbit/s\"", "of one kind"),
        ("step = \"25ms\"", "stap = \"25ms\"", "`step` is missing"),
        ("[\"1Mbit/s\", \"2Mbit/s\"]", "[\"1Mb\"]", "f.toml:20"),
        (
            "path.a.forward.rate",
            "path.c.forward.rate",
            "`c` leads nowhere",
        ),
        (
            "\"round-robin\"]",
            "\"round-robbin\"]",
            "did you mean `round-robin`",
        ),
        ("runs = 2", "run = 2", "did you mean `runs`"),
        ("runs = 2", "runs = 0", "from 1 to"),
        (
            "anabranch = {",
            "anabranch = { shceduler = 1,",
            "did you mean `scheduler`",
        ),
    ];
    for (good, bad, expected) in cases {
        let message = plan(&FILE.replace(good, bad), &Changes::default())
            .unwrap_err()
            .to_string();
        assert!(message.contains(expected), "{bad}: {message}");
    }
}

#[test]
fn the_template_unfolds() {
    let plan = plan(TEMPLATE, &Changes::default()).unwrap();
    assert_eq!(plan.contenders.len(), 3);
    assert_eq!(plan.runs.len(), (3 + 2) * 5);
}
