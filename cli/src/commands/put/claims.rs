//! The names that one command gives on the server. A file shares its name with nothing else.

use super::plan::Job;
use crate::failure::{Failure, Outcome};
use crate::url::ServerUrl;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Refuses to overwrite one file with another, or to put a file where a directory is needed.
/// Directories that get the same name are merged.
pub(super) fn check(jobs: &[Job], directories: &[(PathBuf, ServerUrl)]) -> Outcome {
    let mut files: BTreeMap<String, &Path> = BTreeMap::new();
    for job in jobs {
        if let Some(first) = files.insert(place(&job.url), &job.local) {
            return Err(refusal(&job.local, first, &job.url));
        }
    }
    for (local, url) in directories {
        if let Some(first) = files.get(&place(url)) {
            return Err(refusal(local, first, url));
        }
    }
    Ok(())
}

/// A path as the server resolves it, without the slash that marks a directory.
fn place(url: &ServerUrl) -> String {
    let mut names = Vec::new();
    for name in url.path.split('/') {
        match name {
            "" | "." => {}
            ".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    names.join("/")
}

fn refusal(local: &Path, first: &Path, url: &ServerUrl) -> Failure {
    let what = format!(
        "{} cannot become {}: {} does, which is another one",
        local.display(),
        url.request_path(),
        first.display(),
    );
    Failure::usage(what).hint("send one of them by a command of its own, under another name")
}
