//! `anabranch lab vm` and `--in-vm`: the laboratory under another kernel.
//!
//! ```text
//! prepare   fetches a kernel and tries it once
//! guest     what goes into the machine, and what it runs: this program with the same words
//! words     translates words and paths between here and inside
//! back      brings the results back
//! ```

mod back;
mod guest;
mod prepare;
mod words;

pub(crate) use prepare::{Part, parts};

use super::run::RESULTS;
use super::target::Target;
use crate::args::lab::{Backend, InVm, Run, Vm};
use crate::failure::{Failure, Outcome};
use crate::output;
use anabranch_lab::backend::netns;
use anabranch_lab::machine::Machine as Examined;
use anabranch_lab::plan::Plan;
use anabranch_lab::scenario::Scenario;
use anabranch_vm::{Acceleration, Control, End, Error, Image, Kernel, Machine};
use guest::Guest;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::spawn_blocking;

/// A machine is taken to hang if it takes this many times as long as its runs should. With software
/// emulation on a busy host, a run takes about five times as long as expected.
const SLOWER: u32 = 40;

/// Time allowed for everything but runs: the machine's start, and the validation of links.
const AT_LEAST: Duration = Duration::from_secs(3600);

/// Runs the command.
pub(super) async fn run(command: &Vm, quiet: bool) -> Outcome {
    match command {
        Vm::Prepare(args) => prepare::run(args, quiet).await,
    }
}

/// `lab validate --in-vm`.
pub(super) async fn validate(how: InVm, quiet: bool) -> Outcome {
    let kernel = kernel()?;
    let guest = Guest::new(&kernel)?;
    let words = words::inside(&typed()?, &guest.files, None);
    let end = go(how, kernel, guest.image(&words), AT_LEAST, quiet, &[]).await?;
    back::stdout(end.results())?;
    complete(&end)?;
    ended(end.code)
}

/// `lab run --in-vm`.
pub(super) async fn run_targets(args: &Run, how: InVm, targets: &[Target], quiet: bool) -> Outcome {
    if args.backend == Backend::Sim {
        let failure = Failure::usage("the simulator needs no virtual machine");
        return Err(failure.hint("leave out --in-vm, or --backend sim"));
    }
    if args.backend == Backend::Host {
        let failure = Failure::usage("links that exist are not those of a virtual machine");
        return Err(failure.hint("leave out --in-vm, or --backend host"));
    }
    let known = prepared();
    for target in targets {
        refuse(&target.plan, known.as_ref())?;
    }
    let kernel = kernel()?;
    let folders = folders(args, targets);
    let mut guest = Guest::new(&kernel)?;
    for (target, (inside, folder)) in targets.iter().zip(&folders) {
        check_kernel(folder, kinds(how))?;
        guest.add_contenders(&target.plan)?;
        guest.add_results(inside, folder)?;
    }
    for word in &args.targets {
        guest.add_scenario(word)?;
    }
    let words = words::inside(&typed()?, &guest.files, Some(guest::OUT));
    let runs = targets.iter().flat_map(|target| &target.plan.runs);
    let time: Duration = runs.map(|run| netns::expected_time(&run.scenario)).sum();
    let limit = AT_LEAST + time * SLOWER;
    let end = go(how, kernel, guest.image(&words), limit, quiet, &folders).await?;
    back::all(
        end.results(),
        &folders,
        &Examined::examine(),
        complete(&end),
    )?;
    ended(end.code)
}

/// Fails if something that was left in the machine did not come out of it.
fn complete(end: &End) -> Outcome {
    let lost = |why| Failure::failed(format!("not all results came out of the machine: {why}"));
    end.lost().map_or(Ok(()), |why| {
        Err(lost(why).hint("the same command does what is missing"))
    })
}

/// Where the results of each target go: inside the guest, and here.
fn folders(args: &Run, targets: &[Target]) -> Vec<(String, PathBuf)> {
    let several = targets.len() > 1;
    let folder = |target: &Target| {
        let name = &target.plan.name;
        let here = match &args.out {
            Some(out) if several => out.join(name),
            Some(out) => out.clone(),
            None => Path::new(RESULTS).join("in-vm").join(name),
        };
        let inside = if several {
            format!("{}/{name}", guest::OUT)
        } else {
            guest::OUT.to_owned()
        };
        (inside, here)
    };
    targets.iter().map(folder).collect()
}

/// Refuses what no kernel can do, before anything is set up.
fn refuse(plan: &Plan, kernel: Option<&Kernel>) -> Outcome {
    let refusals: Vec<Option<String>> = plan
        .runs
        .iter()
        .map(|run| refusal(&run.scenario, kernel))
        .collect();
    match refusals.first() {
        Some(Some(what)) if refusals.iter().all(Option::is_some) => Err(Failure::usage(format!(
            "{}: no run can be done in the virtual machine either: {what}",
            plan.name
        ))),
        _ => Ok(()),
    }
}

/// What of a scenario even a virtual machine cannot do. A kernel that is yet to be fetched is
/// assumed to have everything that distribution kernels have.
pub(super) fn refusal(scenario: &Scenario, kernel: Option<&Kernel>) -> Option<String> {
    netns::refusal_under(scenario, &|module| {
        kernel.is_none_or(|kernel| kernel.has(module))
    })
}

/// The prepared kernel, if there is one.
pub(super) fn prepared() -> Option<Kernel> {
    let folder = Kernel::default_folder().ok()?;
    Kernel::find(&folder).ok()
}

/// What `machine.json` may say if results come from the machine asked for.
fn kinds(how: InVm) -> &'static [Option<&'static str>] {
    match how {
        // Which one it becomes is known only inside, where it is compared again.
        InVm::Auto => &[Some("kvm"), Some("tcg")],
        InVm::Kvm => &[Some("kvm")],
        InVm::Tcg => &[Some("tcg")],
    }
}

/// Refuses to mix results from a virtual machine with results from outside, or from under another
/// clock. `fitting` lists what may have run the earlier ones.
pub(super) fn check_kernel(folder: &Path, fitting: &[Option<&str>]) -> Outcome {
    let text = std::fs::read_to_string(folder.join("machine.json"));
    let before = text
        .ok()
        .and_then(|text| serde_json::from_str::<Examined>(&text).ok());
    match before {
        Some(before) if !fitting.contains(&before.vm.as_deref()) => {
            let (where_it_was, hint) = match &before.vm {
                None => (
                    "outside of a virtual machine".to_owned(),
                    "choose another --out".to_owned(),
                ),
                Some(kind) => (
                    format!("in a virtual machine ({kind})"),
                    format!("choose another --out, or go on with --in-vm={kind}"),
                ),
            };
            let failure = Failure::usage(format!(
                "{} holds results measured {where_it_was}",
                folder.display()
            ));
            Err(failure.hint(hint))
        }
        _ => Ok(()),
    }
}

/// What was typed, without the program.
fn typed() -> Outcome<Vec<String>> {
    std::env::args_os()
        .skip(1)
        .map(|word| {
            word.into_string().map_err(|word| {
                Failure::usage(format!("`{}` is not text: expected UTF-8", word.display()))
            })
        })
        .collect()
}

fn kernel() -> Outcome<Kernel> {
    let missing = prepare::missing();
    if !missing.is_empty() {
        return Err(prepare::not_installed(&missing));
    }
    let folder = Kernel::default_folder().map_err(failure)?;
    Kernel::find(&folder).map_err(failure)
}

/// Why a machine failed, with a hint.
#[allow(
    clippy::needless_pass_by_value,
    reason = "it stands where errors are mapped"
)]
fn failure(error: Error) -> Failure {
    match error {
        Error::NoKernel(_) | Error::NotAKernel { .. } | Error::NoModule { .. } => {
            Failure::usage(&error).hint("anabranch lab vm prepare --again")
        }
        Error::Missing { .. } => Failure::usage(&error),
        Error::Stopped => Failure::failed("interrupted: runs of the virtual machine were lost")
            .hint("the same command goes on where results were last brought back"),
        _ => Failure::failed(&error),
    }
}

fn ended(code: i32) -> Outcome {
    let failure = format!("it ended with exit code {code} in the virtual machine");
    match code {
        0 => Ok(()),
        2 => Err(Failure::usage(failure)),
        _ => Err(Failure::failed(failure)),
    }
}

/// Runs a guest. The first signal ends its command after the current run, the second ends it at
/// once, and the third stops the machine.
async fn go(
    how: InVm,
    kernel: Kernel,
    image: Image,
    limit: Duration,
    quiet: bool,
    folders: &[(String, PathBuf)],
) -> Outcome<End> {
    let control = Control::default();
    let machine = Machine {
        acceleration: match how {
            InVm::Auto => Acceleration::Auto,
            InVm::Kvm => Acceleration::Hardware,
            InVm::Tcg => Acceleration::Software,
        },
        limit,
        control: control.clone(),
        ..Machine::default()
    };
    if !quiet {
        let release = kernel.release();
        output::say(format!("starting a virtual machine with Linux {release}"));
    }
    let folders = folders.to_vec();
    let work = spawn_blocking(move || {
        machine.run(&kernel, &image, &mut |line| {
            output::say(words::outside(line, &folders));
        })
    });
    tokio::pin!(work);
    let heard = |kind| signal(kind).map_err(|error| Failure::io("cannot hear signals", &error));
    let mut interrupt = heard(SignalKind::interrupt())?;
    let mut terminate = heard(SignalKind::terminate())?;
    let mut asked = 0;
    let end = loop {
        tokio::select! {
            end = &mut work => break end,
            _ = interrupt.recv() => {
                asked += 1;
                if asked > 2 {
                    control.stop();
                } else {
                    control.interrupt();
                }
            }
            _ = terminate.recv() => {
                // Breaks off the current run, but brings back what there is.
                asked += 2;
                control.interrupt();
                control.interrupt();
            }
        }
    };
    let end = end.map_err(|error| Failure::failed(format!("it ended badly: {error}")))?;
    end.map_err(failure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_another_kernel_are_not_mixed_in() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        assert!(
            check_kernel(path, kinds(InVm::Auto)).is_ok() && check_kernel(path, &[None]).is_ok()
        );
        let keep = |vm: Option<&str>| {
            let machine = Examined {
                vm: vm.map(ToOwned::to_owned),
                ..Examined::default()
            };
            let text = serde_json::to_string(&machine).unwrap();
            std::fs::write(path.join("machine.json"), text).unwrap();
        };
        keep(None);
        assert!(check_kernel(path, &[None]).is_ok());
        let refused = check_kernel(path, kinds(InVm::Auto)).unwrap_err();
        assert!(refused.what().contains("outside of"), "{refused:?}");
        keep(Some("tcg"));
        assert!(check_kernel(path, kinds(InVm::Auto)).is_ok());
        let refused = check_kernel(path, &[None]).unwrap_err();
        assert!(refused.report().unwrap().contains("--in-vm"), "{refused:?}");
        assert!(
            check_kernel(path, kinds(InVm::Kvm)).is_err(),
            "another clock"
        );
    }

    #[test]
    fn exit_codes_are_those_of_the_command_inside() {
        assert!(ended(0).is_ok());
        assert!(matches!(ended(1), Err(Failure::Failed(_))));
        assert!(matches!(ended(2), Err(Failure::Usage(_))));
        assert!(matches!(ended(137), Err(Failure::Failed(_))));
    }

    #[test]
    fn a_kernel_that_is_missing_is_told_with_the_command_that_gets_it() {
        let failure = failure(Error::NoKernel("/somewhere".into()));
        assert!(matches!(failure, Failure::Usage(_)));
        let report = failure.report().unwrap();
        assert!(
            report.contains("/somewhere") && report.contains("lab vm prepare"),
            "{report}"
        );
    }
}
