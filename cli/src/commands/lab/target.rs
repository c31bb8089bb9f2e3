//! What is to be run: scenario files, experiments of the papers, or all of these; the calibration.

use crate::args::lab::Grid;
use crate::args::sim::Change;
use crate::commands::sim;
use crate::failure::{Failure, Outcome};
use anabranch_lab::calibration;
use anabranch_lab::papers::{Check, Experiment, all_experiments, experiments};
use anabranch_lab::plan::{Changes, Plan, add_rivals};
use anabranch_lab::scenario::{Document, nearest};
use std::path::Path;
use std::sync::Arc;

/// Repetitions of a quick run at most: real time passes.
const QUICK_RUNS: u64 = 3;

/// The word for all experiments.
const PAPERS: &str = "papers";

/// The word for the scenarios in which simulator and kernels must agree.
const CALIBRATION: &str = "calibration";

/// Something to be run.
#[derive(Debug)]
pub(super) struct Target {
    /// Its runs.
    pub(super) plan: Arc<Plan>,
    /// The experiment whose statements are checked, and the contenders they are about.
    pub(super) experiment: Option<(Experiment, Vec<String>)>,
}

/// Understands what was typed.
pub(super) fn targets(words: &[String], change: &Change, grid: &Grid) -> Outcome<Vec<Target>> {
    let mut targets = Vec::new();
    let mut chosen: Vec<&'static str> = Vec::new();
    for word in words {
        if is_file(word) {
            let plan = sim::plan(Path::new(word), change)?;
            targets.push(Target {
                plan: Arc::new(plan),
                experiment: None,
            });
            continue;
        }
        if word == CALIBRATION {
            for (file, text) in calibration::SCENARIOS {
                let plan = sim::plan_of(file, text, change)?;
                targets.push(Target {
                    plan: Arc::new(plan),
                    experiment: None,
                });
            }
            continue;
        }
        for experiment in meant(word)? {
            let Check::Measured { scenario, .. } = experiment.check else {
                if word != PAPERS && !word.contains('*') {
                    return Err(worked_example(&experiment));
                }
                continue;
            };
            // Several names may stand for one scenario.
            if !chosen.contains(&scenario) {
                chosen.push(scenario);
                targets.push(of_experiment(experiment, change, grid)?);
            }
        }
    }
    Ok(targets)
}

fn is_file(word: &str) -> bool {
    let toml = Path::new(word)
        .extension()
        .is_some_and(|extension| extension == "toml");
    toml || word.contains('/') || Path::new(word).is_file()
}

fn meant(word: &str) -> Outcome<Vec<Experiment>> {
    if word == PAPERS {
        return Ok(experiments());
    }
    let all = all_experiments();
    let meant: Vec<Experiment> = all
        .iter()
        .copied()
        .filter(|experiment| experiment.is_meant_by(word))
        .collect();
    if !meant.is_empty() {
        return Ok(meant);
    }
    let failure = Failure::usage(format!(
        "there is no experiment `{word}`, and no file of that name"
    ));
    let ids = all.iter().flat_map(|experiment| experiment.ids).copied();
    Err(match nearest(word, ids.chain([PAPERS, CALIBRATION])) {
        Some(id) => failure.hint(format!(
            "did you mean `{id}`? `anabranch lab list` shows all"
        )),
        None => failure.hint("`anabranch lab list` shows all experiments"),
    })
}

fn worked_example(experiment: &Experiment) -> Failure {
    let name = experiment.name();
    let failure = Failure::usage(format!("`{name}` is a worked example without a network"));
    failure.hint(format!("anabranch sim papers {}", experiment.ids[0]))
}

fn of_experiment(experiment: Experiment, change: &Change, grid: &Grid) -> Outcome<Target> {
    let Check::Measured {
        scenario,
        quick,
        quick_set,
        quick_runs,
        ..
    } = experiment.check
    else {
        return Err(worked_example(&experiment));
    };
    let file = format!("{}.toml", experiment.name());
    let mut document = Document::parse(&file, scenario).map_err(Failure::usage)?;
    let own = Plan::make(&document, &Changes::default()).map_err(Failure::usage)?;
    if !grid.no_rivals {
        add_rivals(&mut document);
    }
    let owned = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        let pair = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        pairs.iter().map(pair).collect()
    };
    let mut changes = Changes {
        seed: change.seed,
        runs: change.runs,
        ..Changes::default()
    };
    if !grid.full {
        changes.set = owned(quick_set);
        changes.sweep = owned(quick);
        let repetitions = own.runs.iter().map(|run| run.repetition).max();
        let few = quick_runs.or(repetitions).unwrap_or(1).min(QUICK_RUNS);
        changes.runs = changes.runs.or(Some(few));
    }
    changes.set.extend(change.set.iter().cloned());
    let plan = Plan::make(&document, &changes).map_err(Failure::usage)?;
    let judged = if experiment.is_against_kernel() {
        &plan
    } else {
        &own
    };
    let contenders = judged
        .runs
        .iter()
        .map(|run| run.contender.clone())
        .collect::<std::collections::BTreeSet<String>>();
    Ok(Target {
        plan: Arc::new(plan),
        experiment: Some((experiment, contenders.into_iter().collect())),
    })
}
