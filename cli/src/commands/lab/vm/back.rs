//! What comes back from a guest.

use super::guest;
use crate::failure::{Failure, Outcome};
use crate::output;
use anabranch_lab::machine::Machine as Examined;
use std::fs;
use std::path::Path;

/// Passes on what the command inside wrote to its standard output.
pub(super) fn stdout(results: &Path) -> Outcome {
    let path = results.join(guest::STDOUT);
    let bytes = fs::read(&path)
        .map_err(|error| Failure::io("what the virtual machine wrote did not come back", &error))?;
    output::raw(&bytes)
}

/// Moves the results of one target to where they belong, with the machine around the machine.
pub(super) fn results(results: &Path, inside: &str, folder: &Path, host: &Examined) -> Outcome {
    let from = inside.strip_prefix(guest::RESULTS).unwrap_or(inside);
    let from = results.join(from.trim_start_matches('/'));
    if !from.is_dir() {
        // It ended before it began with this target, and has said why.
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

/// Copies a folder with all that is in it over another one.
fn copy(from: &Path, to: &Path) -> Outcome {
    let failed = |error: std::io::Error| Failure::io(to.display(), &error);
    fs::create_dir_all(to).map_err(failed)?;
    for entry in fs::read_dir(from).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            // Under another name first, as all results are written.
            let partial = to.join(format!("{}.new", entry.file_name().to_string_lossy()));
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
        // Nothing came of another target.
        let none = root.path().join("none");
        super::results(&results, "/results/out/other", &none, &host).unwrap();
        assert!(!none.exists());
    }
}
