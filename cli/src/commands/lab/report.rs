//! `anabranch lab report`: results as one page with plots.

use crate::args::report::Report;
use crate::failure::{Failure, Outcome};
use crate::output;
use crate::output::units;
use anabranch_report::{PageOptions, ReportError, page};
use anabranch_schedulers::Names;
use std::sync::Arc;
use tokio::task::spawn_blocking;

/// Runs the command.
pub(super) async fn run(args: &Report, names: &Arc<Names>, quiet: bool) -> Outcome {
    let out = args.out.as_ref().or(args.folders.first());
    let options = PageOptions {
        out: out.cloned().unwrap_or_default(),
        only: args.only.clone(),
        no_png: args.no_png,
        names: Arc::clone(names),
    };
    let folders = args.folders.clone();
    let plots = options.out.join("plots");
    let work = spawn_blocking(move || page(&folders, &options));
    let written = work
        .await
        .map_err(|error| Failure::failed(format!("no report: {error}")))?;
    let written = written.map_err(|error| failure(&error))?;
    for remark in &written.remarks {
        output::say(remark);
    }
    match &written.page {
        Some(page) => output::data(page.display())?,
        None => {
            for figure in &written.figures {
                output::data(plots.join(format!("{figure}-178mm.svg")).display())?;
            }
        }
    }
    if !quiet {
        let verb = if written.figures.len() == 1 {
            "is"
        } else {
            "are"
        };
        let figures = units::counted(written.figures.len(), "figure");
        output::say(format!("{figures} {verb} in {}", plots.display()));
    }
    Ok(())
}

/// What went wrong, with the right exit code.
pub(super) fn failure(error: &ReportError) -> Failure {
    let failure = if error.is_usage() {
        Failure::usage(error)
    } else {
        Failure::failed(error)
    };
    match error.hint() {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}
