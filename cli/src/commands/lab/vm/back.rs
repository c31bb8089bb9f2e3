//! Brings results back from a guest.

use super::guest;
use crate::failure::{Failure, Outcome};
use crate::output;
use anabranch_lab::machine::Machine as Examined;
use std::fs;
use std::path::{Path, PathBuf};

/// Passes on what the command inside wrote to its standard output.
pub(super) fn stdout(results: &Path) -> Outcome {
    let path = results.join(guest::STDOUT);
    let bytes = fs::read(&path)
        .map_err(|error| Failure::io("what the virtual machine wrote did not come back", &error))?;
    output::raw(&bytes)
}

/// Brings everything back: first the output, which needs no room on the disk, then the results of
/// each target, even if another target's are missing. `complete` says whether everything came out
/// of the guest. The first failure is returned and the others are printed.
pub(super) fn all(
    from: &Path,
    folders: &[(String, PathBuf)],
    host: &Examined,
    complete: Outcome,
) -> Outcome {
    let targets = folders.iter();
    let targets = targets.map(|(inside, folder)| results(from, inside, folder, host));
    let written = std::iter::once(stdout(from));
    let outcomes: Vec<Outcome> = written.chain(targets).chain([complete]).collect();
    let (closed, failures): (Vec<Failure>, Vec<Failure>) = outcomes
        .into_iter()
        .filter_map(Result::err)
        .partition(|failure| matches!(failure, Failure::PipeClosed));
    // A closed pipe matters least.
    let mut failures = failures.into_iter().chain(closed);
    let Some(first) = failures.next() else {
        return Ok(());
    };
    for other in failures {
        if let Some(report) = other.report() {
            output::say(report);
        }
    }
    Err(first)
}

/// Copies the results of one target to their place and adds the host to `machine.json`.
pub(super) fn results(results: &Path, inside: &str, folder: &Path, host: &Examined) -> Outcome {
    let from = inside.strip_prefix(guest::RESULTS).unwrap_or(inside);
    let from = results.join(from.trim_start_matches('/'));
    if !from.is_dir() {
        // The guest ended before it began with this target, and has said why.
        return Ok(());
    }
    copy(&from, folder)?;
    let file = folder.join("machine.json");
    let failed = |error: &std::io::Error| Failure::io(file.display(), error);
    let text = match fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(&error)),
    };
    let parsed = serde_json::from_str::<Examined>(&text);
    let mut machine = parsed.map_err(|error| {
        Failure::failed(format!(
            "{}: not what was expected: {error}",
            file.display()
        ))
    })?;
    machine.host = Some(Box::new(host.clone()));
    let value = serde_json::to_value(&machine).unwrap_or_default();
    fs::write(&file, format!("{value:#}\n")).map_err(|error| failed(&error))
}

/// Copies a folder and everything in it over another one.
fn copy(from: &Path, to: &Path) -> Outcome {
    let failed = |error: std::io::Error| Failure::io(to.display(), &error);
    fs::create_dir_all(to).map_err(failed)?;
    for entry in fs::read_dir(from).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let target = to.join(entry.file_name());
        let kind = entry.file_type().map_err(failed)?;
        if kind.is_dir() {
            copy(&entry.path(), &target)?;
        } else if kind.is_file() {
            // Copied under another name first, like all results. Nothing else uses that name, since
            // others may write here too. What is neither folder nor file, such as a link, is not a
            // result.
            let partial = to.join(format!("{}.back", entry.file_name().to_string_lossy()));
            fs::copy(entry.path(), &partial).map_err(failed)?;
            fs::rename(&partial, &target).map_err(failed)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_that_cannot_be_brought_back_takes_no_other_with_it() {
        let root = tempfile::tempdir().unwrap();
        let results = root.path().join("results");
        for target in ["out/a", "out/b"] {
            fs::create_dir_all(results.join(target)).unwrap();
            fs::write(results.join(target).join("runs.csv"), target).unwrap();
        }
        std::os::unix::fs::symlink("/dev/zero", results.join("out/b/endless")).unwrap();
        fs::write(results.join(guest::STDOUT), "").unwrap();
        // A file where a folder should be.
        fs::write(root.path().join("a"), "").unwrap();
        let folders =
            ["a", "b"].map(|name| (format!("{}/{name}", guest::OUT), root.path().join(name)));
        let failed = all(&results, &folders, &Examined::default(), Ok(())).unwrap_err();
        assert!(failed.what().contains(&folders[0].1.display().to_string()));
        let second = |name: &str| fs::read_to_string(root.path().join("b").join(name));
        assert_eq!(second("runs.csv").unwrap(), "out/b");
        assert!(second("endless").is_err());
        let lost = Err(Failure::failed("some are lost"));
        let lost = all(&results, &folders[1..], &Examined::default(), lost);
        assert_eq!(lost.unwrap_err().what(), "some are lost");
    }

    #[test]
    fn results_come_over_earlier_ones_and_know_the_machine_around() {
        let root = tempfile::tempdir().unwrap();
        let (results, here) = (root.path().join("results"), root.path().join("here"));
        fs::create_dir_all(results.join("out/parts")).unwrap();
        fs::create_dir_all(here.join("parts")).unwrap();
        fs::write(here.join("parts/old.json"), "old").unwrap();
        fs::write(here.join("runs.csv"), "before").unwrap();
        fs::write(results.join("out/parts/new.json"), "new").unwrap();
        fs::write(results.join("out/runs.csv"), "after").unwrap();
        let inside = Examined {
            vm: Some("tcg".into()),
            ..Examined::default()
        };
        let text = serde_json::to_string(&inside).unwrap();
        fs::write(results.join("out/machine.json"), text).unwrap();
        let host = Examined {
            cores: 64,
            ..Examined::default()
        };
        super::results(&results, guest::OUT, &here, &host).unwrap();
        let text = |name: &str| fs::read_to_string(here.join(name)).unwrap();
        assert_eq!(text("parts/old.json") + &text("parts/new.json"), "oldnew");
        assert_eq!(text("runs.csv"), "after");
        let machine: Examined = serde_json::from_str(&text("machine.json")).unwrap();
        assert_eq!(machine.vm.as_deref(), Some("tcg"));
        assert_eq!(machine.host.unwrap().cores, 64);
        // Another target has no results.
        let none = root.path().join("none");
        super::results(&results, "/results/out/other", &none, &host).unwrap();
        assert!(!none.exists());
    }
}
