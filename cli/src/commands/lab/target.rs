//! What to run: scenario files, experiments of the papers, all of these, or the calibration.

use crate::args::lab::Grid;
use crate::args::sim::Change;
use crate::commands::sim;
use crate::failure::{Failure, Outcome};
use anabranch_lab::calibration;
use anabranch_lab::plan::{Changes, Plan, add_rivals};
use anabranch_lab::scenario::{Document, nearest};
use anabranch_papers::{Check, Experiment, all_experiments, experiments};
use anabranch_schedulers::Names;
use std::path::Path;
use std::sync::Arc;

/// The most repetitions of a quick run, since runs take real time.
const QUICK_RUNS: u64 = 3;

/// The word for all experiments.
const PAPERS: &str = "papers";

/// The word for the scenarios in which simulator and kernels must agree.
const CALIBRATION: &str = "calibration";

/// Something to run.
#[derive(Debug)]
pub(super) struct Target {
    /// Its runs.
    pub(super) plan: Arc<Plan>,
    /// The experiment whose statements are checked, and the contenders they are about.
    pub(super) experiment: Option<(Experiment, Vec<String>)>,
}

/// Finds the targets that were typed. `names` are the schedulers and controllers they may name.
pub(super) fn targets(
    words: &[String],
    change: &Change,
    grid: &Grid,
    names: &Arc<Names>,
) -> Outcome<Vec<Target>> {
    let mut targets = Vec::new();
    let mut chosen: Vec<&'static str> = Vec::new();
    for word in words {
        if is_file(word) {
            let plan = sim::plan(Path::new(word), change, names)?;
            targets.push(Target {
                plan: Arc::new(plan),
                experiment: None,
            });
            continue;
        }
        if word == CALIBRATION {
            for (file, text) in calibration::SCENARIOS {
                let plan = sim::plan_of((file, text), change, names)?;
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
                targets.push(of_experiment(experiment, change, grid, names)?);
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
    let names: Vec<String> = all.iter().flat_map(Experiment::names).collect();
    let names = names.iter().map(String::as_str);
    Err(match nearest(word, names.chain([PAPERS, CALIBRATION])) {
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

fn of_experiment(
    experiment: Experiment,
    change: &Change,
    grid: &Grid,
    names: &Arc<Names>,
) -> Outcome<Target> {
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
    let document = Document::parse(&file, scenario).map_err(Failure::usage)?;
    let mut document = document.with_names(Arc::clone(names));
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
    changes.sweep.extend(change.sweep.iter().cloned());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::lab::{Backend, Lab};
    use crate::args::{Cli, Command};
    use clap::Parser as _;
    use std::fs;
    use std::path::PathBuf;

    fn papers() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../lab/papers")
    }

    /// The pages of results of all papers.
    fn pages() -> Vec<PathBuf> {
        let folders = fs::read_dir(papers()).expect("the papers");
        let folders = folders.map(|entry| entry.expect("an entry").path().join("results"));
        let files = folders
            .filter_map(|folder| fs::read_dir(folder).ok())
            .flatten();
        let files = files.map(|entry| entry.expect("an entry").path());
        files
            .filter(|path| path.extension().is_some_and(|it| it == "md"))
            .collect()
    }

    fn resolved(words: &[&str]) -> Vec<Target> {
        let words = [&["anabranch", "lab", "expand"], words].concat();
        let cli = Cli::try_parse_from(&words).unwrap_or_else(|why| panic!("{words:?}: {why}"));
        let Command::Lab(Lab::Expand(args)) = cli.command else {
            panic!("{words:?}");
        };
        let found = targets(&args.targets, &args.change, &args.grid, &Arc::default());
        found.unwrap_or_else(|why| panic!("{words:?}: {why:?}"))
    }

    #[test]
    fn every_page_of_results_is_called_as_what_makes_it_again() {
        let pages = pages();
        for path in &pages {
            let stem = path.file_stem().and_then(|stem| stem.to_str());
            let stem = stem.expect("a name");
            let found = resolved(&[stem]);
            assert_eq!(found.len(), 1, "{stem}");
            assert_eq!(found[0].plan.name, stem);
        }
        assert!(pages.len() > 20, "{}", pages.len());
    }

    /// The commands in the shell blocks of a page, split into words.
    fn commands(text: &str) -> Vec<Vec<String>> {
        let joined = text.replace("\\\n", " ");
        let mut is_shell = false;
        let mut commands = Vec::new();
        for line in joined.lines() {
            if line.starts_with("```") {
                is_shell = line == "```sh";
            } else if is_shell && line.starts_with("anabranch ") {
                let words = line.split_whitespace();
                let words = words.map(|word| word.trim_matches('\'').to_owned());
                commands.push(words.collect());
            }
        }
        commands
    }

    #[test]
    fn what_the_page_of_results_says_to_repeat_them_is_understood() {
        let text = fs::read_to_string(papers().join("README.md")).expect("the page");
        let mut repeated = Vec::new();
        for words in commands(&text) {
            let cli = Cli::try_parse_from(&words).unwrap_or_else(|why| panic!("{words:?}: {why}"));
            let Command::Lab(command) = cli.command else {
                panic!("{words:?}");
            };
            let Lab::Run(args) = command else { continue };
            if args.backend == Backend::Sim {
                continue;
            }
            let found = targets(&args.targets, &args.change, &args.grid, &Arc::default());
            let found = found.unwrap_or_else(|why| panic!("{words:?}: {why:?}"));
            repeated.extend(found.into_iter().map(|target| target.plan.name.clone()));
        }
        // The page runs every experiment in kernels, except the one that is only about the
        // simulator's schedulers. This test notices a new one that the page leaves out.
        let all = all_experiments().into_iter();
        let missing = all
            .filter_map(|experiment| experiment.scenario_name())
            .filter(|name| !repeated.contains(name));
        assert_eq!(missing.collect::<Vec<_>>(), ["critical-guard"]);
    }
}
