//! Every experiment is present, and every file expands into a plan.

use super::data::Worst;
use super::*;
use anabranch_lab::backend::sim::refusal;
use std::collections::BTreeSet;

/// The index of the project's catalogue of experiments.
const IDS: &[&str] = &[
    "bth-concurrency",
    "bth-duplicate",
    "bth-paths",
    "bth-chunk-size",
    "bth-chunk-count",
    "nitk-lowrtt",
    "nitk-roundrobin",
    "nitk-blest",
    "nitk-table1",
    "critical-fig1",
    "critical-fig2",
    "critical-fig3-trace",
    "critical-fig4-trace",
    "critical-s1",
    "critical-s2",
    "critical-s3a",
    "critical-s3b",
    "aveiro-lbd",
    "aveiro-shaped",
    "aveiro-mptcp",
    "aveiro-mptcp-sim",
    "aveiro-small-files",
    "bremen-delay-validation",
    "bremen-estimator",
    "bremen-selector-1",
    "bremen-selector-2",
    "bremen-H1",
    "bremen-H12",
    "bremen-router-A",
    "bremen-router-C",
    "bremen-router-G",
    "bremen-simple-A",
    "bremen-simple-F",
    "bremen-extended-A",
    "bremen-extended-E",
    "bremen-rcvbuf",
    "bremen-dd-outlook",
    "bremen-intelligent-dd",
];

#[test]
fn every_experiment_of_the_catalogue_is_there_once() {
    let experiments = experiments();
    for id in IDS {
        let count = experiments
            .iter()
            .filter(|experiment| experiment.is_meant_by(id))
            .count();
        assert_eq!(count, 1, "{id}");
    }
    let ids: Vec<&&str> = experiments
        .iter()
        .flat_map(|experiment| experiment.ids)
        .collect();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len());
}

#[test]
fn the_name_of_a_scenario_means_its_experiment_alone() {
    for experiment in all_experiments() {
        let Some(name) = experiment.scenario_name() else {
            continue;
        };
        let plan = experiment.plan(false, &Arc::default()).unwrap().unwrap();
        assert_eq!(plan.name, name);
        let all = all_experiments().into_iter();
        let meant: Vec<String> = all
            .filter(|other| other.is_meant_by(&name))
            .map(|other| other.name())
            .collect();
        assert_eq!(meant, [experiment.name()], "{name}");
        assert!(experiment.names().contains(&name));
    }
}

#[test]
fn every_scenario_file_unfolds_quick_and_full_into_runs_the_simulator_can_do() {
    for experiment in experiments() {
        for full in [false, true] {
            let plan = experiment.plan(full, &Arc::default());
            let plan = plan.unwrap_or_else(|mistake| panic!("{}: {mistake}", experiment.name()));
            let measured = matches!(experiment.check, Check::Measured { .. });
            assert_eq!(plan.is_some(), measured, "{}", experiment.name());
            for run in plan.iter().flat_map(|plan| &plan.runs) {
                let refused = refusal(&run.scenario).map(|outcome| outcome.reason);
                assert_eq!(refused, None, "{}: {}", experiment.name(), run.contender);
            }
        }
    }
}

#[test]
fn without_results_nothing_holds() {
    for experiment in experiments() {
        if let Check::Measured { judge, .. } = experiment.check {
            let statements = judge(&Data::new(&[]));
            assert!(!statements.is_empty());
            for statement in statements {
                assert_ne!(statement.verdict, Verdict::Holds, "{statement:?}");
            }
        }
    }
}

#[test]
fn the_page_of_the_papers_lists_every_statement_and_no_other() {
    let page = Expected::parse(include_str!("../../../docs/papers.md")).unwrap();
    let mut all = Vec::new();
    for experiment in experiments() {
        match experiment.check {
            // Verdicts need results; the list of statements does not.
            Check::Measured { judge, .. } => all.extend(judge(&Data::new(&[]))),
            Check::Exact(_) => all.extend(experiment.judge(&Data::new(&[]))),
        }
    }
    let differences = page.differences(&all);
    let listing = |text: &&String| text.ends_with("not listed") || text.ends_with("not judged");
    let wrong: Vec<&String> = differences.iter().filter(listing).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(all.len() > 90, "{}", all.len());
}

#[test]
fn by_configured_delays_the_fifth_papers_schedulers_prefer_what_it_says() {
    let delays: [&[(&str, &str)]; 3] = [
        &[
            ("bpd1", "10ms"),
            ("bpd1", "40ms"),
            ("bpd1", "60ms"),
            ("bpd1", "250ms"),
        ],
        &[("fpd2", "20ms")],
        &[("fpd2", "10ms")],
    ];
    let parts: Vec<anabranch_lab::results::Part> = delays
        .iter()
        .flat_map(|values| values.iter())
        .map(|(key, value)| anabranch_lab::results::Part {
            swept: vec![(format!("parameters.{key}"), (*value).to_owned())],
            ..anabranch_lab::results::Part::default()
        })
        .collect();
    let mut found = 0;
    for experiment in experiments() {
        if let Check::Measured { judge, .. } = experiment.check {
            let statements = judge(&Data::new(&parts)).into_iter();
            for statement in statements.filter(|one| one.text.contains("prefer subflow")) {
                assert_eq!(statement.verdict, Verdict::Told, "{statement:?}");
                found += 1;
            }
        }
    }
    assert_eq!(found, 4);
}

#[test]
fn patterns_mean_what_they_match() {
    let meant = |pattern: &str| {
        experiments()
            .iter()
            .filter(|e| e.is_meant_by(pattern))
            .count()
    };
    assert_eq!(meant("critical-s*"), 4);
    assert_eq!(meant("bremen-H7"), 1);
    assert_eq!(meant("nothing"), 0);
    assert_eq!(meant("*"), experiments().len());
}

#[test]
fn what_takes_little_time_holds_in_every_build() {
    const FAST: [&str; 9] = [
        "critical-fig1",
        "critical-fig2",
        "critical-fig3-trace",
        "critical-fig4-trace",
        "bremen-estimator",
        "bremen-selector-1",
        "bremen-rcvbuf",
        "bremen-dd-outlook",
        "bremen-delay-validation",
    ];
    let backend = anabranch_lab::backend::sim::Sim::default();
    let fast = |experiment: &Experiment| FAST.iter().any(|id| experiment.is_meant_by(id));
    for experiment in experiments().into_iter().filter(fast) {
        let parts = experiment
            .plan(false, &Arc::default())
            .unwrap()
            .map(|plan| {
                let campaign = anabranch_lab::campaign::Campaign::default();
                campaign.run(&plan, &backend, &|_| {}).unwrap().parts
            });
        let statements = experiment.judge(&Data::new(&parts.unwrap_or_default()));
        assert!(!statements.is_empty(), "{}", experiment.name());
        for statement in statements {
            assert_eq!(statement.verdict, Verdict::Holds, "{statement:?}");
        }
    }
}

#[test]
fn guard_and_growing_windows_keep_multipath_above_one_path_where_fixed_ones_do_not() {
    let text = include_str!("../critical/critical-guard.toml");
    let document = Document::parse("critical-guard.toml", text).unwrap();
    let points = concat!(
        r#"[{ "parameters.main-rtt" = ["50ms", "20ms"], "#,
        r#""parameters.other-rtt" = ["100ms", "80ms"] }]"#
    );
    let changes = Changes {
        set: vec![("flow.1.duration".into(), "15s".into())],
        sweep: vec![("zip".into(), points.into())],
        runs: None,
        seed: None,
    };
    let plan = Plan::make(&document, &changes).unwrap();
    assert_eq!(plan.runs.len(), 16);
    let backend = anabranch_lab::backend::sim::Sim::default();
    let campaign = anabranch_lab::campaign::Campaign::default();
    let parts = campaign.run(&plan, &backend, &|_| {}).unwrap().parts;
    let experiments = experiments();
    let guard = experiments
        .iter()
        .find(|one| one.is_meant_by("critical-guard"));
    let statements = guard.unwrap().judge(&Data::new(&parts));
    let verdicts = statements.iter().map(|one| (&*one.number, one.verdict));
    let expected = [
        ("G1", Verdict::Holds),
        ("G2", Verdict::Holds),
        ("G3", Verdict::Holds),
        ("G4", Verdict::Told),
        ("G5", Verdict::Told),
    ];
    assert_eq!(verdicts.collect::<Vec<_>>(), expected, "{statements:?}");
}

#[test]
fn experiments_against_the_kernel_unfold_and_are_only_told_without_one() {
    let backend = anabranch_lab::backend::sim::Sim::default();
    for experiment in rivals::EXPERIMENTS {
        let plan = experiment.plan(false, &Arc::default()).unwrap().unwrap();
        let engine = plan.runs.iter().filter(|run| run.contender == "engine");
        assert!(engine.count() > 0, "{}", experiment.name());
        for run in &plan.runs {
            assert_eq!(refusal(&run.scenario).map(|outcome| outcome.reason), None);
        }
    }
    let cut = rivals::EXPERIMENTS
        .iter()
        .find(|one| one.is_meant_by("rivals-cut"));
    let Check::Measured {
        scenario, judge, ..
    } = cut.unwrap().check
    else {
        panic!("it is measured");
    };
    let document = Document::parse("rivals-cut.toml", scenario).unwrap();
    let changes = Changes {
        runs: Some(1),
        ..Changes::default()
    };
    let plan = Plan::make(&document, &changes).unwrap();
    let campaign = anabranch_lab::campaign::Campaign::default();
    let parts = campaign.run(&plan, &backend, &|_| {}).unwrap().parts;
    let statements = judge(&Data::new(&parts));
    assert_eq!(statements.len(), 3);
    for statement in &statements {
        assert_eq!(statement.verdict, Verdict::Told, "{statement:?}");
        let ours = &statement.ours;
        assert!(
            ours.ends_with("no rival here") && !ours.contains("miss"),
            "{ours}"
        );
    }
    let seconds = |statement: &Statement| {
        let (seconds, _) = statement.ours.split_once(' ').unwrap();
        seconds.parse::<f64>().unwrap()
    };
    let (pause, back) = (seconds(&statements[0]), seconds(&statements[1]));
    assert!((0.02..0.5).contains(&pause), "{pause}: one probe time-out");
    assert!(
        (0.0..2.5).contains(&back),
        "{back}: the path is found again"
    );
}

#[test]
fn runs_that_are_invalid_say_nothing_about_a_statement() {
    use anabranch_lab::results::{Outcome, Part, Status};
    let part = |status, goodput_bps| Part {
        contender: "engine".to_owned(),
        outcome: Outcome {
            status,
            goodput_bps: Some(goodput_bps),
            ..Outcome::default()
        },
        ..Part::default()
    };
    let parts = [part(Status::Ok, 2e6), part(Status::Invalid, 8e6)];
    let data = Data::new(&parts);
    assert_eq!(data.goodputs("engine", &[]), [2.0]);
    assert!(Data::new(&parts[1..]).goodput("engine", &[]).is_nan());
}

#[test]
fn a_statement_of_what_was_not_measured_neither_holds_nor_does_not() {
    let verdict = |ours: &str| Statement::new(("id", "T1"), "", "", ours, false).verdict;
    assert_eq!(verdict("1.2, -"), Verdict::Missing);
    assert_eq!(verdict("8KiB -, 16KiB 1.0"), Verdict::Missing);
    assert_eq!(verdict("-0.1, 1/-"), Verdict::Fails);
    let mut worst = Worst::default();
    worst.add(f64::NAN, "there", false);
    assert_eq!(
        worst.statement(("id", "T1"), "", "").verdict,
        Verdict::Missing
    );
    worst.add(1.0, "here", true);
    assert_eq!(
        worst.statement(("id", "T1"), "", "").verdict,
        Verdict::Missing
    );
    worst.add(0.5, "elsewhere", false);
    assert_eq!(
        worst.statement(("id", "T1"), "", "").verdict,
        Verdict::Fails
    );
}
