//! `anabranch lab list`: the experiments of the papers, and what can run them.

use crate::args::Listing;
use crate::failure::Outcome;
use crate::output;
use crate::output::table::{Table, lines};
use anabranch_lab::backend::netns;
use anabranch_lab::papers::{Check, Experiment, all_experiments};
use anabranch_vm::Kernel;
use std::collections::BTreeSet;

/// What can run an experiment.
struct Reach {
    sim: bool,
    /// What of it real kernels cannot do here; nothing if they can do all of it, or `None` if there
    /// is no network in it.
    netns: Option<Vec<String>>,
    /// Whether the kernel of a virtual machine can do what this one cannot.
    in_vm: bool,
}

/// Runs the command.
pub(super) fn run(args: &Listing) -> Outcome {
    let all = all_experiments();
    let kernel = super::vm::prepared();
    let kernel = kernel.as_ref();
    if args.json {
        for experiment in &all {
            let reach = reach(experiment, kernel);
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
    let width = output::width();
    let mut table = Table::new(&["experiment", "source", "about", "sim", "netns"]);
    for experiment in &all {
        let reach = reach(experiment, kernel);
        table.row([
            experiment.names().into_iter().next().unwrap_or_default(),
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
    output::data(table.within(width))?;
    let names: Vec<Vec<String>> = all.iter().map(Experiment::names).collect();
    output::data(format!("\n{}", other_names(&names, width)))
}

/// By what else experiments are asked for. Each line says of which one, so that whoever searches
/// for a name finds that too.
fn other_names(names: &[Vec<String>], width: usize) -> Table {
    let mut table = Table::new(&["experiment", "other names"]);
    let longest = names.iter().filter(|names| names.len() > 1);
    let longest = longest.map(|names| names[0].len()).max().unwrap_or(0);
    let room = width.saturating_sub(longest.max("experiment".len()) + 2);
    for names in names {
        if let [first, others @ ..] = names.as_slice()
            && !others.is_empty()
        {
            for line in lines(&others.join(" "), room) {
                table.row([first.clone(), line]);
            }
        }
    }
    table
}

fn reach(experiment: &Experiment, kernel: Option<&Kernel>) -> Reach {
    if let Check::Exact(_) = experiment.check {
        return Reach {
            sim: true,
            netns: None,
            in_vm: false,
        };
    }
    // A scenario this build does not understand is told when it is run.
    let Ok(Some(plan)) = experiment.plan(false) else {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_other_names_says_whose_they_are_and_fits() {
        let names = [
            vec!["alone".to_owned()],
            ["short", "short-A", "short-B", "short-C", "short-D"]
                .map(str::to_owned)
                .to_vec(),
        ];
        let text = other_names(&names, 30).to_string();
        assert_eq!(
            text.lines().collect::<Vec<_>>(),
            [
                "experiment  other names",
                "short       short-A short-B",
                "short       short-C short-D",
            ]
        );
    }
}
