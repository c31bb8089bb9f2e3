//! `anabranch lab list`: the experiments of the papers and what can run them.

use crate::args::Listing;
use crate::commands::experiments;
use crate::failure::Outcome;
use crate::output;
use crate::output::table::Table;
use anabranch_lab::backend::netns;
use anabranch_papers::{Check, Experiment, all_experiments};
use anabranch_schedulers::Names;
use anabranch_vm::Kernel;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What can run an experiment.
struct Reach {
    sim: bool,
    /// What of it real kernels cannot do here: empty if they can do all of it, `None` if it has no
    /// network.
    netns: Option<Vec<String>>,
    /// Whether the kernel of a virtual machine can do what this kernel cannot.
    in_vm: bool,
}

/// Runs the command.
pub(super) fn run(args: &Listing, names: &Arc<Names>) -> Outcome {
    let all = all_experiments();
    let kernel = super::vm::prepared();
    let kernel = kernel.as_ref();
    if args.json {
        for experiment in &all {
            let reach = reach(experiment, kernel, names);
            output::json(&serde_json::json!({
                "ids": experiment.ids,
                "scenario": experiment.scenario_name(),
                "source": experiment.source,
                "about": experiment.about,
                "sim": reach.sim,
                "netns": reach.netns.as_ref().is_some_and(Vec::is_empty),
                "in_vm": reach.in_vm,
                "missing": reach.netns.unwrap_or_default(),
            }))?;
        }
        return Ok(());
    }
    let mut table = Table::new(&["experiment", "source", "about", "sim", "netns"]);
    for experiment in &all {
        let reach = reach(experiment, kernel, names);
        table.row([
            experiments::name(experiment),
            experiment.source.into(),
            experiment.about.into(),
            if reach.sim { "yes" } else { "no" }.into(),
            match reach.netns {
                None => "worked example".into(),
                Some(missing) if missing.is_empty() => "yes".into(),
                Some(missing) if reach.in_vm => format!("in the VM: {}", missing.join("; ")),
                Some(missing) => format!("no: {}", missing.join("; ")),
            },
        ]);
    }
    experiments::print(table, &all)
}

fn reach(experiment: &Experiment, kernel: Option<&Kernel>, names: &Arc<Names>) -> Reach {
    if let Check::Exact(_) = experiment.check {
        return Reach {
            sim: true,
            netns: None,
            in_vm: false,
        };
    }
    // A scenario that this build does not understand is reported when it is run.
    let Ok(Some(plan)) = experiment.plan(false, names) else {
        return Reach {
            sim: false,
            netns: Some(vec!["its scenario is not understood".into()]),
            in_vm: false,
        };
    };
    let runs = || plan.runs.iter().filter(|run| !run.single);
    let missing: BTreeSet<String> = runs()
        .filter_map(|run| netns::refusal(&run.scenario))
        .collect();
    Reach {
        sim: true,
        in_vm: runs().all(|run| super::vm::refusal(&run.scenario, kernel).is_none()),
        netns: Some(missing.into_iter().collect()),
    }
}
