//! `anabranch lab vm prepare`, and which parts of virtual machines are here.

use super::failure;
use crate::args::lab::Prepare;
use crate::failure::{Failure, Outcome};
use crate::output;
use crate::output::table::Table;
use anabranch_vm::{Acceleration, Image, Kernel, Machine, Requirement, requirements};
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::task::spawn_blocking;

/// A kernel that does nothing should be done with that after this time; otherwise it hangs.
const TRIAL: Duration = Duration::from_secs(600);

/// A part that virtual machines need, and whether it is here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    /// What it is.
    pub(crate) name: &'static str,
    /// Whether it is here.
    pub(crate) ok: bool,
    /// What was found.
    pub(crate) found: String,
    /// How to get it.
    pub(crate) remedy: &'static str,
}

/// The parts that virtual machines need, as found here.
pub(crate) fn parts() -> Vec<Part> {
    let missing = missing();
    let programs = Part {
        name: "VM: programs",
        ok: missing.is_empty(),
        found: match missing.as_slice() {
            [] => "qemu, busybox, kmod".to_owned(),
            some => format!("no {}", names(some, |one| one.program)),
        },
        remedy: "apt-get install qemu-system-x86 busybox-static kmod",
    };
    let kernel = Kernel::default_folder().and_then(|folder| Kernel::find(&folder));
    let remembered = kernel.as_ref().ok().and_then(Kernel::remembered);
    let prepared = Part {
        name: "VM: kernel",
        ok: kernel.is_ok(),
        found: match &kernel {
            Ok(kernel) => format!("Linux {}", kernel.release()),
            Err(_) => "none is prepared".to_owned(),
        },
        remedy: "for --in-vm: anabranch lab vm prepare",
    };
    let processor = Part {
        name: "VM: KVM",
        ok: remembered == Some(Acceleration::Hardware),
        found: match (remembered, Path::new("/dev/kvm").exists()) {
            (_, false) => "no /dev/kvm",
            (Some(Acceleration::Hardware), true) => "works",
            (Some(Acceleration::Software), true) => "there, but does not work",
            (_, true) => "not tried yet: `anabranch lab vm prepare` does",
        }
        .to_owned(),
        remedy: "not needed: software does, with a clock of its own that counts instructions",
    };
    vec![programs, prepared, processor]
}

/// The required programs that are not installed.
pub(super) fn missing() -> Vec<Requirement> {
    let all = requirements().into_iter();
    all.filter(|one| one.found.is_none()).collect()
}

/// The failure of a command that needs these programs.
pub(super) fn not_installed(missing: &[Requirement]) -> Failure {
    let failure = Failure::usage(format!(
        "a virtual machine needs programs that are not installed: {}",
        names(missing, |one| one.program).replace(' ', ", ")
    ));
    failure.hint(format!(
        "on a Debian machine: apt-get install {}",
        names(missing, |one| one.package)
    ))
}

fn names(all: &[Requirement], of: impl Fn(&Requirement) -> &'static str) -> String {
    all.iter().map(of).collect::<Vec<_>>().join(" ")
}

/// Runs the command.
pub(super) async fn run(args: &Prepare, quiet: bool) -> Outcome {
    let again = args.again;
    let work = spawn_blocking(move || prepare(again, quiet));
    let done = tokio::select! {
        done = work => done,
        // A partial download is in a folder that is removed, or that the next start replaces.
        () = crate::commands::interrupted() => return Err(Failure::failed("interrupted")),
    };
    let (kernel, way, took) =
        done.map_err(|error| Failure::failed(format!("it ended badly: {error}")))??;
    if args.listing.json {
        return output::json(&serde_json::json!({
            "kernel": kernel.release(),
            "folder": kernel.folder(),
            "acceleration": way.name(),
            "start_s": took.as_secs_f64(),
        }));
    }
    let mut table = Table::new(&["what", "found"]);
    table.row(["kernel".into(), format!("Linux {}", kernel.release())]);
    table.row(["kept in".into(), kernel.folder().display().to_string()]);
    let by = match way {
        Acceleration::Hardware => "the processor (kvm)",
        _ => "software (tcg); its clock counts its instructions",
    };
    table.row(["run by".into(), by.into()]);
    table.row([
        "starts within".into(),
        format!("{:.1} s", took.as_secs_f64()),
    ]);
    output::data(table)
}

fn prepare(again: bool, quiet: bool) -> Outcome<(Kernel, Acceleration, Duration)> {
    let say = |text: &str| {
        if !quiet {
            output::say(text);
        }
    };
    let missing = missing();
    if !missing.is_empty() {
        return Err(not_installed(&missing));
    }
    let folder = Kernel::default_folder().map_err(failure)?;
    let kernel = match Kernel::find(&folder) {
        Ok(kernel) if !again => {
            say("there is a kernel already; --again fetches it again");
            kernel
        }
        _ => Kernel::prepare(&folder, &mut |text| say(text)).map_err(failure)?,
    };
    say("starting it once");
    // What was found out earlier may be out of date.
    kernel.remember(Acceleration::Auto).map_err(failure)?;
    let image = Image::new(&["true"]);
    let machine = Machine {
        limit: TRIAL,
        ..Machine::default()
    };
    let began = Instant::now();
    let end = machine
        .run(&kernel, &image, &mut |line| say(line))
        .map_err(failure)?;
    let took = began.elapsed();
    if end.code != 0 {
        let code = end.code;
        return Err(Failure::failed(format!(
            "it starts, but `true` ends with exit code {code}"
        )));
    }
    kernel.remember(end.acceleration).map_err(failure)?;
    Ok((kernel, end.acceleration, took))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_installed_is_told_in_one_go() {
        let requirement = |program, package| Requirement {
            program,
            package,
            found: None,
        };
        let missing = [
            requirement("qemu-system-x86_64", "qemu-system-x86"),
            requirement("busybox", "busybox-static"),
        ];
        let report = not_installed(&missing).report().unwrap();
        assert!(report.contains("qemu-system-x86_64, busybox"), "{report}");
        assert!(
            report.contains("apt-get install qemu-system-x86 busybox-static"),
            "{report}"
        );
    }

    #[test]
    fn parts_are_told_whether_they_are_there_or_not() {
        let parts = parts();
        assert_eq!(
            parts.iter().map(|part| part.name).collect::<Vec<_>>(),
            ["VM: programs", "VM: kernel", "VM: KVM"]
        );
        assert!(parts.iter().all(|part| !part.found.is_empty()));
    }
}
