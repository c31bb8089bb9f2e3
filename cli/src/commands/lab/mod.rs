//! `anabranch lab`: results of experiments.

mod compare;
mod report;

use crate::args::lab::Lab;
use crate::failure::Outcome;

/// Runs the command.
pub(crate) async fn run(command: &Lab, quiet: bool) -> Outcome {
    match command {
        Lab::Report(args) => report::run(args, quiet).await,
        Lab::Compare(args) => compare::run(args, quiet).await,
    }
}
