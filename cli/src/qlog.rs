//! Where `--qlog` writes traces: into a directory of the user's choice.

use crate::failure::{Failure, Outcome};
use anabranch_proto::event::ObserverFactory;
use anabranch_qlog::{Folder, WhenSlow};
use std::path::Path;
use std::sync::OnceLock;

/// The directory of this process: a command has one at most.
static FOLDER: OnceLock<Folder> = OnceLock::new();

/// Traces each connection to its own file in `directory`, which is created if needed. A slow disk
/// costs records, which is reported, but never time.
///
/// # Errors
///
/// The directory cannot be created.
pub(crate) fn into_directory(directory: &Path) -> Outcome<ObserverFactory> {
    let folder = Folder::create(directory, "anabranch", WhenSlow::Drop).map_err(|error| {
        let what = format!("cannot make {error}");
        Failure::usage(what).hint("choose another directory with `--qlog DIR`")
    })?;
    Ok(FOLDER.get_or_init(|| folder).observers())
}

/// Waits until all records so far are written.
pub(crate) fn flush() {
    if let Some(folder) = FOLDER.get() {
        folder.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_cannot_be_made_is_told_at_once() {
        let failure = into_directory(Path::new("/proc/no/logs")).unwrap_err();
        assert!(failure.report().unwrap().contains("--qlog"));
    }
}
