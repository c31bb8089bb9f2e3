//! `anabranch sim`: scenarios in virtual time.

mod conform;
mod merge;
pub(super) mod papers;
mod promise;
mod run;
pub(super) mod show;

use crate::args::sim::{Change, Expand, Sim};
use crate::failure::{Failure, Outcome};
use crate::output;
use crate::output::table::Table;
use crate::output::units;
use anabranch_lab::plan::{Changes, Plan};
use anabranch_lab::scenario::{Document, TEMPLATE};
use anabranch_schedulers::Names;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::sync::Arc;

/// Runs the command.
pub(crate) async fn run(command: &Sim, names: &Arc<Names>, quiet: bool) -> Outcome {
    match command {
        Sim::Run(args) => run::run(args, names, quiet).await,
        Sim::Merge(args) => merge::run(args, names),
        Sim::New { file } => new(file.as_deref()),
        Sim::Expand(args) => expand(args, names),
        Sim::Papers(args) => papers::run(args, names, quiet).await,
        Sim::Conform(args) => conform::run(args, names, quiet).await,
        Sim::Promise(args) => promise::run(args, names, quiet).await,
    }
}

fn new(file: Option<&Path>) -> Outcome {
    let Some(path) = file else {
        return output::raw(TEMPLATE.as_bytes());
    };
    // An existing file may hold hours of somebody's work: it is not overwritten.
    let made = OpenOptions::new().write(true).create_new(true).open(path);
    match made.and_then(|mut file| file.write_all(TEMPLATE.as_bytes())) {
        Ok(()) => {
            output::say(format!("run it with: anabranch sim run {}", path.display()));
            Ok(())
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let failure = Failure::usage(format!("{} is there already", path.display()));
            Err(failure.hint("choose another name"))
        }
        Err(error) => Err(Failure::usage(format!("{}: {error}", path.display()))),
    }
}

/// Reads and expands a scenario.
pub(super) fn plan(file: &Path, change: &Change, names: &Arc<Names>) -> Outcome<Plan> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        let failure = Failure::usage(format!("{}: {error}", file.display()));
        failure.hint("`anabranch sim new FILE` writes a scenario to begin with")
    })?;
    plan_of((&file.display().to_string(), &text), change, names)
}

/// Expands a scenario, given by the name of its file and the text in it.
pub(super) fn plan_of(
    (file, text): (&str, &str),
    change: &Change,
    names: &Arc<Names>,
) -> Outcome<Plan> {
    let document = Document::parse(file, text).map_err(Failure::usage)?;
    let document = document.with_names(Arc::clone(names));
    let changes = Changes {
        set: change.set.clone(),
        sweep: change.sweep.clone(),
        seed: change.seed,
        runs: change.runs,
    };
    Plan::make(&document, &changes).map_err(Failure::usage)
}

fn expand(args: &Expand, names: &Arc<Names>) -> Outcome {
    let plan = plan(&args.file, &args.change, names)?;
    list_runs(&plan, args.listing.json)
}

/// Lists the runs of a plan.
pub(super) fn list_runs(plan: &Plan, json: bool) -> Outcome {
    if json {
        for run in &plan.runs {
            let swept: serde_json::Map<String, serde_json::Value> = run
                .swept
                .iter()
                .map(|(key, value)| (key.clone(), value.as_str().into()))
                .collect();
            output::json(&serde_json::json!({
                "run_id": run.id,
                "contender": run.contender,
                "single": run.single,
                "repetition": run.repetition,
                "seed": run.seed.to_string(),
                "swept": swept,
            }))?;
        }
        return Ok(());
    }
    let mut table = Table::new(&["run", "contender", ">repetition", ">seed", "swept"]);
    for run in &plan.runs {
        let swept: Vec<String> = run
            .swept
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        table.row([
            run.id.clone(),
            run.contender.clone(),
            run.repetition.to_string(),
            run.seed.to_string(),
            swept.join(" "),
        ]);
    }
    output::data(table)?;
    output::say(units::counted(plan.runs.len(), "run"));
    Ok(())
}
