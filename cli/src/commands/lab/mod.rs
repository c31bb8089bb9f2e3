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
use crate::commands::sim;
use crate::failure::{Failure, Outcome};
use crate::output;
use crate::trust::own_identity;
use anabranch_lab::backend::netns;
use std::path::Path;

pub(crate) use agent::run as agent;

/// Runs the command.
pub(crate) async fn run(command: &Lab, quiet: bool) -> Outcome {
    match command {
        Lab::List(args) => list::run(args),
        Lab::Run(args) => run::run(args, quiet).await,
        Lab::Expand(args) => expand(args),
        Lab::Status { folder, json } => status::run(folder, *json),
        Lab::Report(args) => report::run(args, quiet).await,
        Lab::Compare(args) => compare::run(args, quiet).await,
        Lab::Clean => clean(),
        Lab::Validate(args) => validate::run(args, quiet).await,
        Lab::Vm(command) => vm::run(command, quiet).await,
        Lab::Agent(args) => agent::run(args, quiet),
        Lab::Key { identity } => key(identity.as_deref()),
    }
}

/// Prints the key by which agents on other machines know this one.
fn key(identity: Option<&Path>) -> Outcome {
    output::data(own_identity(identity)?.fingerprint())
}

fn expand(args: &Expand) -> Outcome {
    for target in target::targets(&args.targets, &args.change, &args.grid)? {
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
