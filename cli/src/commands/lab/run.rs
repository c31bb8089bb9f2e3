//! `anabranch lab run`: runs the targets and shows their results.

use super::host::{self, Real};
use super::kept;
use super::target::{Target, targets};
use crate::args::lab::{Backend as Which, LinkLayer, Run};
use crate::commands::campaign::{self, How};
use crate::commands::sim::{papers, show};
use crate::failure::{Failure, Outcome};
use crate::output;
use crate::output::units;
use anabranch_agent::Local;
use anabranch_lab::backend::host::{self as real, RealHosts};
use anabranch_lab::backend::netns::{self, Burden, Launch, Links, Netns};
use anabranch_lab::backend::sim::Sim;
use anabranch_lab::backend::{Backend, Conduct};
use anabranch_lab::campaign::{Order, Results};
use anabranch_lab::hosts::{Host, HostError};
use anabranch_lab::machine::Machine;
use anabranch_lab::plan::Plan;
use anabranch_lab::report::Report;
use anabranch_lab::results::{Part, Status, Store, json_lines, tables};
use anabranch_lab::scenario::Scenario;
use anabranch_papers::{Data, Statement, Verdict};
use anabranch_schedulers::Names;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Where results go by default.
pub(super) const RESULTS: &str = "lab-results";

/// A campaign that takes longer than this says so before it begins.
const LONG: Duration = Duration::from_secs(60);

/// Starts this program as agents.
#[derive(Debug)]
struct Agents;

impl Launch for Agents {
    fn launch(&self, name: &str, command: Command) -> Result<Box<dyn Host>, HostError> {
        Ok(Box::new(Local::start(name, command)?))
    }
}

/// Runs the command.
pub(super) async fn run(args: &Run, names: &Arc<Names>, quiet: bool) -> Outcome {
    let targets = targets(&args.targets, &args.change, &args.grid, names)?;
    host::check_options(args, args.backend == Which::Host)?;
    if let Some(how) = args.inside.in_vm {
        return super::vm::run_targets(args, how, &targets, quiet).await;
    }
    let machine = Machine::examine();
    let mut real = None;
    if args.backend == Which::Host {
        for target in &targets {
            all_refused(&target.plan, real::refusal)?;
        }
        real = Some(host::prepare(args, &targets, quiet).await?);
        if let Some(warning) = machine.warning() {
            output::say(format!("warning: {warning}"));
        }
    }
    if args.backend == Which::Netns {
        super::essentials()?;
        for target in &targets {
            check(&target.plan, &machine)?;
        }
        for name in netns::clean() {
            output::say(format!(
                "removed {name}, left by a laboratory that was killed"
            ));
        }
        if let Some(warning) = machine.warning() {
            output::say(format!("warning: {warning}"));
        }
    }
    let several = targets.len() > 1;
    for target in &targets {
        let folder = folder(args, &target.plan, several);
        super::vm::check_kernel(&folder, &[machine.vm.as_deref()])?;
        kept::check(&folder, &target.plan, args.backend, real.as_ref())?;
    }
    let mut good = true;
    for target in &targets {
        let folder = folder(args, &target.plan, several);
        if several || target.experiment.is_some() {
            output::say(format!(
                "{}: results go to {}",
                target.plan.name,
                folder.display()
            ));
        }
        good &= one(
            args,
            names,
            target,
            &folder,
            (&machine, real.as_ref()),
            quiet,
        )
        .await?;
    }
    if good {
        Ok(())
    } else {
        let failure = Failure::failed("a run did not end well, or a check does not hold");
        Err(failure.hint("the same command runs again what did not end well"))
    }
}

/// Refuses a plan if none of its runs can be done.
fn all_refused(plan: &Plan, refusal: impl Fn(&Scenario) -> Option<String>) -> Outcome {
    let refusals: Vec<Option<String>> =
        plan.runs.iter().map(|run| refusal(&run.scenario)).collect();
    if let Some(Some(what)) = refusals.first()
        && refusals.iter().all(Option::is_some)
    {
        let failure = Failure::usage(format!("{}: no run can be done here: {what}", plan.name));
        return Err(failure.hint("`anabranch doctor` tells what this machine has"));
    }
    Ok(())
}

/// Refuses what this machine cannot do at all, before anything is set up.
fn check(plan: &Plan, machine: &Machine) -> Outcome {
    all_refused(plan, netns::refusal)?;
    let shown = |rate: u64| units::bit_rate(rate as f64);
    match netns::burden(plan, machine.cores) {
        Burden::Light => Ok(()),
        Burden::Heavy(rate) => {
            output::say(format!(
                "warning: {}: links carry {} in sum: runs in which they are late are marked \
                 invalid",
                plan.name,
                shown(rate)
            ));
            Ok(())
        }
        Burden::TooMuch(rate) => {
            let failure = Failure::usage(format!(
                "{}: links would carry {} in sum, far beyond {}",
                plan.name,
                shown(rate),
                units::counted(machine.cores, "core")
            ));
            Err(failure.hint("lower the rates, or run it in the simulator: --backend sim"))
        }
    }
}

fn folder(args: &Run, plan: &Plan, several: bool) -> PathBuf {
    match &args.out {
        Some(folder) if several => folder.join(&plan.name),
        Some(folder) => folder.clone(),
        None => Path::new(RESULTS).join(&plan.name),
    }
}

/// Runs one target; returns whether all went well.
async fn one(
    args: &Run,
    names: &Arc<Names>,
    target: &Target,
    folder: &Path,
    (machine, real): (&Machine, Option<&Real>),
    quiet: bool,
) -> Outcome<bool> {
    let plan = &target.plan;
    let backend = kept::name(args.backend);
    let store = Store::open(folder, &plan.name, &plan.expanded, backend);
    let store = store.map_err(Failure::usage)?;
    keep_beside(folder, plan, args.backend, machine, real)?;
    announce(args, plan, quiet);
    let (abort, stop) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let blocks = Order::Blocks {
        seed: args.change.seed.unwrap_or(1),
        warm_up: args.warm_up,
    };
    let mut called = None;
    let (backend, order): (Arc<dyn Backend>, Order) = match args.backend {
        Which::Sim => {
            let sim = Sim::new(Arc::clone(names)).qlog(folder.join("qlog"));
            (Arc::new(sim), Order::Plan)
        }
        Which::Netns => (Arc::new(netns(args, folder, &abort)), blocks),
        Which::Host => {
            let real = real.expect("the peer was called before");
            let conduct = conduct(folder, &abort);
            let hosts = RealHosts::new(real.reach(), real.roads.clone(), conduct);
            let hosts = Arc::new(hosts.stop(Arc::clone(&stop)));
            called = Some(Arc::clone(&hosts));
            (hosts, blocks)
        }
    };
    let how = How {
        backend,
        jobs: 0,
        order,
        stop: Arc::clone(&stop),
        abort: (args.backend != Which::Sim).then(|| Arc::clone(&abort)),
        quiet,
        talk: true,
    };
    let results = campaign::carry_out(plan, Some(store.clone()), how).await?;
    let written = store.write_tables(&results.parts, args.parquet);
    written.map_err(Failure::failed)?;
    let good = tell(args, target, &results)?;
    say_disturbances(folder, &results);
    output::say(format!("results are in {}", folder.display()));
    if let Some(why) = called.and_then(|hosts| hosts.why_given_up()) {
        return Err(gone(&why, results.missing));
    }
    if results.missing > 0 || stop.load(Ordering::Relaxed) {
        let failure = Failure::failed(format!(
            "interrupted: {}",
            units::runs_not(results.missing, "done")
        ));
        return Err(failure.hint("the same command goes on where it stopped"));
    }
    let unsupported = |part: &Part| part.outcome.status == Status::Unsupported;
    if !results.parts.is_empty() && results.parts.iter().all(unsupported) {
        let failure = Failure::usage(format!("{}: no run could be done here", plan.name));
        return Err(failure.hint("the reasons are above; `anabranch doctor` tells what is there"));
    }
    Ok(good)
}

/// A campaign that ended because the peer no longer answers.
fn gone(why: &str, missing: usize) -> Failure {
    let left = match missing {
        0 => String::new(),
        left => format!("; {}", units::runs_not(left, "done")),
    };
    let failure = Failure::failed(format!("the peer does not come back: {why}{left}"));
    failure.hint(
        "start `anabranch lab agent --listen` there again; the same command then goes on where it \
         stopped, and runs again what failed",
    )
}

/// What to keep beside the results in `folder`.
fn conduct(folder: &Path, abort: &Arc<AtomicBool>) -> Conduct {
    Conduct {
        qlog: Some(folder.join("qlog")),
        notes_file: Some(folder.join("notes.jsonl")),
        abort: Arc::clone(abort),
    }
}

fn netns(args: &Run, folder: &Path, abort: &Arc<AtomicBool>) -> Netns {
    // The running program, even if its file has been replaced, and from within `ip netns exec`.
    let program = format!("/proc/{}/exe", std::process::id());
    let agent = [&program, "lab", "agent"].map(str::to_owned).to_vec();
    let links = match args.links {
        LinkLayer::Auto => Links::Auto,
        LinkLayer::Emulator => Links::Emulator,
        LinkLayer::Kernel => Links::Kernel,
        LinkLayer::KernelInHosts => Links::KernelInHosts,
    };
    let netns = Netns::new(agent, Box::new(Agents), conduct(folder, abort))
        .tunnel(program)
        .links(links);
    if args.pcap {
        netns.pcap(folder.join("pcap"))
    } else {
        netns
    }
}

/// Saves what is needed to interpret the results.
fn keep_beside(
    folder: &Path,
    plan: &Plan,
    backend: Which,
    machine: &Machine,
    real: Option<&Real>,
) -> Outcome {
    let runs: Vec<serde_json::Value> = plan
        .runs
        .iter()
        .map(|run| {
            serde_json::json!({
                "run_id": run.id,
                "contender": run.contender,
                "repetition": run.repetition,
            })
        })
        .collect();
    let plan = serde_json::json!({ "name": plan.name, "runs": runs });
    let mut machine = serde_json::to_value(machine).unwrap_or_default();
    if let Some(facts) = machine.as_object_mut() {
        facts.insert("backend".to_owned(), kept::name(backend).into());
        if let Some(real) = real {
            facts.insert("peer".to_owned(), real.facts());
        }
    }
    for (name, value) in [("plan.json", plan), ("machine.json", machine)] {
        let path = folder.join(name);
        let text = format!("{value:#}\n");
        std::fs::write(&path, text)
            .map_err(|error| Failure::io(format!("cannot write {}", path.display()), &error))?;
    }
    Ok(())
}

fn announce(args: &Run, plan: &Plan, quiet: bool) {
    if args.backend == Which::Sim || quiet {
        return;
    }
    let time: Duration = plan
        .runs
        .iter()
        .filter(|run| match args.backend {
            Which::Host => real::refusal(&run.scenario).is_none(),
            _ => netns::refusal(&run.scenario).is_none(),
        })
        .map(|run| netns::expected_time(&run.scenario))
        .sum();
    if time > LONG {
        let minutes = time.as_secs().div_ceil(60);
        output::say(format!(
            "{}: {}, about {minutes} min if none was done before",
            plan.name,
            units::counted(plan.runs.len(), "run")
        ));
    }
}

/// Shows the results; returns whether all of them are good.
fn tell(args: &Run, target: &Target, results: &Results) -> Outcome<bool> {
    if args.json {
        let mut lines = Vec::new();
        let table = &tables(results.parts.iter())[0];
        json_lines(table, &mut lines).map_err(|error| Failure::io("cannot write JSON", &error))?;
        output::raw(&lines)?;
    }
    let report = Report::of(&target.plan, &results.parts);
    if args.json {
        show::say_troubles(&report);
    } else {
        show::report(&report)?;
    }
    if results.missing == 0
        && let Some((experiment, contenders)) = &target.experiment
    {
        // Statements are about the paper's contenders, not about the rivals added here.
        let own = |part: &&Part| contenders.contains(&part.contender);
        let parts: Vec<Part> = results.parts.iter().filter(own).cloned().collect();
        let statements = experiment.judge(&Data::new(&parts));
        if !args.json {
            output::data(format!("\n{}", papers::table(&statements)))?;
        }
        say_statements(&statements);
    }
    // A run that this machine cannot do says so in its row and is not a failure.
    let bad = results
        .parts
        .iter()
        .filter(|part| !matches!(part.outcome.status, Status::Ok | Status::Unsupported));
    Ok(bad.count() == 0 && report.checks_hold())
}

fn say_statements(statements: &[Statement]) {
    let count = |verdict: Verdict| statements.iter().filter(|s| s.verdict == verdict).count();
    output::say(format!(
        "of the paper's statements {} held here, {} did not, {} lacked figures",
        count(Verdict::Holds),
        count(Verdict::Fails),
        count(Verdict::Missing)
    ));
}

/// Says in how many runs something else kept the machine busy.
fn say_disturbances(folder: &Path, results: &Results) {
    let text = std::fs::read_to_string(folder.join("notes.jsonl")).unwrap_or_default();
    let busy = text.lines().filter_map(|line| {
        let note: serde_json::Value = serde_json::from_str(line).ok()?;
        let id = note["run_id"].as_str()?.to_owned();
        let ours = results.parts.iter().any(|part| part.run_id == id);
        let disturbed = note["others_cores"]
            .as_f64()
            .is_some_and(|cores| cores > 0.25)
            || note["other_labs"].as_u64().is_some_and(|labs| labs > 0);
        (ours && disturbed).then_some(id)
    });
    let busy = busy.collect::<std::collections::BTreeSet<String>>().len();
    if busy > 0 {
        output::say(format!(
            "warning: during {busy} of {} the machine was busy with other things; \
             notes.jsonl says how much",
            units::counted(results.parts.len(), "run")
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_is_gone_is_no_interruption_and_what_to_do_is_told() {
        let told = gone("server cannot be reached: 192.0.2.9:4433", 3);
        let told = told.report().unwrap();
        for part in ["192.0.2.9:4433", "; 3 runs", "lab agent --listen"] {
            assert!(told.contains(part), "{told}");
        }
        let told = gone("nobody", 0).report().unwrap();
        assert!(
            !told.contains("not done") && !told.contains("interrupted"),
            "{told}"
        );
    }
}
