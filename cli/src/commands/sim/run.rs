//! `anabranch sim run`: runs a scenario and shows the results.

use super::{plan, show};
use crate::args::sim::Run;
use crate::commands::campaign::{self, How};
use crate::failure::{Failure, Outcome};
use crate::output;
use crate::output::units;
use anabranch_lab::backend::sim::Sim;
use anabranch_lab::campaign::{Order, Results};
use anabranch_lab::plan::Plan;
use anabranch_lab::repeat::{Difference, differences};
use anabranch_lab::report::Report;
use anabranch_lab::results::{Part, Store, json_lines, tables, without_clock};
use anabranch_schedulers::Names;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// How plans are run in the simulator.
#[derive(Debug, Clone, Copy)]
pub(super) struct Way<'a> {
    /// The schedulers and congestion controllers there are.
    pub(super) names: &'a Arc<Names>,
    /// Runs at a time; 0 means one per core.
    pub(super) jobs: u32,
    /// Whether to show no progress.
    pub(super) quiet: bool,
    /// Set by the first signal: no further run begins.
    pub(super) stop: &'a Arc<AtomicBool>,
}

/// Runs the command.
pub(super) async fn run(args: &Run, names: &Arc<Names>, quiet: bool) -> Outcome {
    let plan = plan(&args.file, &args.change, names)?;
    let plan = Arc::new(match args.shard {
        Some(shard) => plan.shard(shard),
        None => plan,
    });
    if args.out.is_none() && plan.runs.iter().any(|run| run.scenario.record.qlog) {
        let failure = Failure::usage("the scenario records qlog, and there is no place for it");
        return Err(failure.hint("--out DIR keeps results, --set record.qlog=false records none"));
    }
    let store = match &args.out {
        Some(folder) => {
            let opened = Store::open(folder, &plan.name, &plan.expanded, "sim");
            Some(opened.map_err(Failure::usage)?)
        }
        None => None,
    };
    let way = Way {
        names,
        jobs: args.jobs,
        quiet,
        stop: &Arc::default(),
    };
    let results = carry_out(&plan, store.clone(), way).await?;
    if let Some(store) = &store {
        let written = if args.no_clock {
            store.write_tables(&without_clock(&results.parts), args.parquet)
        } else {
            store.write_tables(&results.parts, args.parquet)
        };
        written.map_err(Failure::failed)?;
    }
    if args.json {
        let mut lines = Vec::new();
        let table = &tables(results.parts.iter())[0];
        json_lines(table, &mut lines).map_err(|error| Failure::io("cannot write JSON", &error))?;
        output::raw(&lines)?;
    }
    let report = report_of(args, &plan, &results.parts);
    if args.json {
        show::say_troubles(&report);
    } else {
        show::report(&report)?;
    }
    if let Some(store) = &store {
        output::say(format!("results are in {}", store.folder().display()));
    }
    if results.missing > 0 {
        let failure = Failure::failed(format!(
            "interrupted: {}",
            units::runs_not(results.missing, "started")
        ));
        return Err(match store {
            Some(_) => failure.hint("the same command goes on where it stopped"),
            None => failure.hint("with --out a second run goes on where the first one stopped"),
        });
    }
    if args.twice {
        let found = again(&plan, &results.parts, way).await?;
        same_twice(&found)?;
    }
    if report.is_good() {
        Ok(())
    } else {
        Err(Failure::failed("a run failed or a check does not hold"))
    }
}

/// The report of what was run. Checks are about all runs together, so that those of a shard are
/// left to `sim merge`.
fn report_of(args: &Run, plan: &Plan, parts: &[Part]) -> Report {
    let mut report = Report::of(plan, parts);
    if args.shard.is_some() {
        report.checks.clear();
    }
    report
}

/// Repeats the first runs of a plan and returns how their traces differ.
pub(super) async fn again(
    plan: &Arc<Plan>,
    parts: &[Part],
    way: Way<'_>,
) -> Outcome<Vec<Difference>> {
    let beginning = Arc::new(plan.beginning());
    let results = carry_out(&beginning, None, way).await?;
    if results.missing > 0 {
        return Err(Failure::failed("interrupted"));
    }
    Ok(differences(parts, &results.parts))
}

/// Fails if there are differences, after naming them.
pub(super) fn same_twice(found: &[Difference]) -> Outcome {
    for difference in found {
        output::say(difference);
    }
    let what = match found.len() {
        0 => return Ok(()),
        1 => "a run of the same seed did something else the second time".to_owned(),
        count => format!("{count} runs of the same seed did something else the second time"),
    };
    let hint =
        "something in it depends on more than the scenario and its seed: a clock, an address";
    Err(Failure::failed(what).hint(hint))
}

/// Runs a plan in the simulator with a progress bar. The first signal ends it after the current
/// runs, a second one at once.
pub(super) async fn carry_out(
    plan: &Arc<Plan>,
    store: Option<Store>,
    way: Way<'_>,
) -> Outcome<Results> {
    let mut backend = Sim::new(Arc::clone(way.names));
    if let Some(store) = &store {
        backend = backend.qlog(store.folder().join("qlog"));
    }
    let how = How {
        backend: Arc::new(backend),
        jobs: way.jobs,
        order: Order::Plan,
        stop: Arc::clone(way.stop),
        abort: None,
        quiet: way.quiet,
        talk: false,
    };
    campaign::carry_out(plan, store, how).await
}
