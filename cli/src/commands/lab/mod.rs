//! `anabranch lab`: scenarios in real kernels.

mod agent;
mod compare;
mod host;
mod kept;
mod list;
mod report;
mod run;
mod status;
mod target;
mod validate;
pub(crate) mod vm;

use crate::args::lab::{Expand, Lab};
use crate::commands::{sim, wait_for};
use crate::failure::{Failure, Outcome};
use crate::output;
use crate::trust::own_identity;
use anabranch_lab::backend::netns;
use anabranch_schedulers::Names;
use std::path::Path;
use std::sync::Arc;

/// Runs the command.
pub(crate) fn run(command: &Lab, names: &Arc<Names>, quiet: bool) -> Outcome {
    match command {
        Lab::List(args) => list::run(args, names),
        Lab::Run(args) => wait_for(run::run(args, names, quiet)),
        Lab::Expand(args) => expand(args, names),
        Lab::Status { folder, json } => status::run(folder, *json),
        Lab::Report(args) => wait_for(report::run(args, names, quiet)),
        Lab::Compare(args) => wait_for(compare::run(args, names, quiet)),
        Lab::Clean => clean(),
        Lab::Validate(args) => wait_for(validate::run(args, quiet)),
        Lab::Vm(command) => wait_for(vm::run(command, quiet)),
        // It has its own runtime, on one thread.
        Lab::Agent(args) => agent::run(args, names, quiet),
        Lab::Key { identity } => key(identity.as_deref()),
    }
}

/// Prints the key by which agents on other machines know this one.
fn key(identity: Option<&Path>) -> Outcome {
    output::data(own_identity(identity)?.fingerprint())
}

fn expand(args: &Expand, names: &Arc<Names>) -> Outcome {
    for target in target::targets(&args.targets, &args.change, &args.grid, names)? {
        sim::list_runs(&target.plan, args.listing.json)?;
    }
    Ok(())
}

fn clean() -> Outcome {
    essentials()?;
    let removed = netns::clean();
    for name in &removed {
        output::data(name)?;
    }
    if removed.is_empty() {
        output::say("nothing was left");
    }
    Ok(())
}

/// Fails with the first missing part that every lab needs.
fn essentials() -> Outcome {
    let missing = netns::parts()
        .into_iter()
        .find(|part| part.essential && !part.ok);
    match missing {
        None => Ok(()),
        Some(part) => {
            let failure = Failure::usage(format!("{}: {}", part.name, part.found));
            Err(failure.hint(part.remedy))
        }
    }
}
