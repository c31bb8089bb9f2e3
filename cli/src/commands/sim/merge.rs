//! `anabranch sim merge`: folders of results of one scenario as one.

use super::show;
use crate::args::sim::Merge;
use crate::failure::{Failure, Outcome};
use crate::output;
use crate::output::units;
use anabranch_lab::campaign::binary_hash;
use anabranch_lab::plan::{Changes, Plan};
use anabranch_lab::report::Report;
use anabranch_lab::results::{Store, common_scenario, gathered, without_clock};
use anabranch_lab::scenario::Document;
use anabranch_schedulers::Names;
use std::sync::Arc;

/// Runs the command.
pub(super) fn run(args: &Merge, names: &Arc<Names>) -> Outcome {
    let (file, text) = common_scenario(&args.folders).map_err(Failure::usage)?;
    let document = Document::parse(&file.display().to_string(), &text).map_err(Failure::usage)?;
    let document = document.with_names(Arc::clone(names));
    let plan = Plan::make(&document, &Changes::default()).map_err(Failure::usage)?;
    let parts = gathered(&plan, &args.folders, &binary_hash()).map_err(Failure::failed)?;
    let opened = Store::open(&args.out, &plan.name, &plan.expanded, "sim");
    let store = opened.map_err(Failure::usage)?;
    store
        .complete(&plan.files, &parts)
        .and_then(|()| store.write_tables(&without_clock(&parts), args.parquet))
        .map_err(Failure::failed)?;
    let (all, there) = (plan.runs.len(), parts.len());
    output::say(format!(
        "{} of {} are in {}",
        there,
        units::counted(all, "run"),
        args.out.display()
    ));
    if there < all {
        let failure = Failure::failed(format!("{} missing", units::counted(all - there, "run")));
        return Err(failure.hint(
            "carry out the other shards, by this version of the program; the same command then \
             goes on",
        ));
    }
    let report = Report::of(&plan, &parts);
    show::report(&report)?;
    if report.is_good() {
        Ok(())
    } else {
        Err(Failure::failed("a run failed or a check does not hold"))
    }
}
