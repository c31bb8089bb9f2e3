//! Several files over one connection, a few at a time. One failure does not stop the others.

use super::Run;
use super::claims::Claims;
use super::file::{self, Broken};
use super::listing;
use super::plan::{Job, Place, Plan, make};
use crate::commands::transfer::{AT_ONCE, Tally};
use crate::failure::{Failure, Outcome};
use crate::files::MAX_DEPTH;
use crate::files::listing::Entry;
use crate::files::naming::is_safe;
use crate::output::{self, units};
use crate::paths::Direction;
use crate::url::ServerUrl;
use futures_util::StreamExt;
use futures_util::stream;
use http::HeaderMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The most files and directories that one command fetches.
const MAX_ENTRIES: usize = 1_000_000;

/// Files to fetch.
#[derive(Debug, Default)]
pub(super) struct Batch {
    jobs: Vec<Job>,
    /// Files that cannot be fetched, already reported.
    failed: u64,
    /// Files and directories found in listings.
    found: usize,
    claims: Claims,
}

/// A directory not yet looked into.
struct Pending {
    url: ServerUrl,
    local: PathBuf,
    depth: usize,
}

impl Batch {
    pub(super) fn of(jobs: Vec<Job>) -> Self {
        Self {
            jobs,
            ..Self::default()
        }
    }

    /// Finds the files at and below `urls`, and makes directories for them.
    pub(super) async fn walk(run: &Run<'_>, plan: &Plan, urls: &[ServerUrl]) -> Outcome<Self> {
        let mut batch = Self {
            claims: plan.claims()?,
            ..Self::default()
        };
        for url in urls {
            let directory = if url.file_name().is_none() {
                Some(url.clone())
            } else {
                let asked = run.or_stopped(run.session.ask("HEAD", url, HeaderMap::new()));
                match asked.await {
                    Ok((_, response)) => listing::instead(&response, url),
                    Err(failure) => {
                        batch.skip(run, &url.request_path(), failure)?;
                        continue;
                    }
                }
            };
            match directory {
                Some(found) => {
                    let root = plan.directory(url);
                    make(&root, &root)?;
                    batch.walk_below(run, found, root).await?;
                }
                None => batch.jobs.push(plan.job(url)),
            }
        }
        Ok(batch)
    }

    async fn walk_below(&mut self, run: &Run<'_>, url: ServerUrl, root: PathBuf) -> Outcome {
        let mut pending = vec![Pending {
            url,
            local: root.clone(),
            depth: 0,
        }];
        while let Some(directory) = pending.pop() {
            let listed = run.or_stopped(listing::fetch(run, &directory.url));
            let entries = match listed.await {
                Ok(entries) => entries,
                Err(failure) => {
                    self.skip(run, &directory.url.request_path(), failure)?;
                    continue;
                }
            };
            for entry in &entries {
                self.count()?;
                let local = match self.local(&directory.local, entry) {
                    Ok(local) => local,
                    Err(why) => {
                        let path = directory.url.request_path();
                        self.fail(&format!("{path}{}", entry.name), &why);
                        continue;
                    }
                };
                let mut url = directory.url.clone();
                url.path.push_str(&entry.name);
                if entry.bytes.is_some() {
                    let place = Place::File(local);
                    self.jobs.push(Job { url, place });
                } else if directory.depth + 1 == MAX_DEPTH {
                    let why = format!("more than {MAX_DEPTH} directories within each other");
                    self.fail(&url.request_path(), &why);
                } else if let Err(failure) = make(&root, &local) {
                    self.fail(&url.request_path(), failure.what());
                } else {
                    let depth = directory.depth + 1;
                    pending.push(Pending { url, local, depth });
                }
            }
        }
        Ok(())
    }

    /// Counts one more file or directory.
    fn count(&mut self) -> Outcome {
        if self.found == MAX_ENTRIES {
            let what = format!("there are more than {MAX_ENTRIES} files and directories");
            return Err(Failure::failed(what).hint("fetch one directory at a time"));
        }
        self.found += 1;
        Ok(())
    }

    /// The local path of an entry, or why it cannot have one.
    fn local(&mut self, directory: &Path, entry: &Entry) -> Result<PathBuf, String> {
        let name = entry.name.strip_suffix('/').unwrap_or(&entry.name);
        if entry.escaped {
            return Err("its name is no UTF-8 text: give it another one on the server".into());
        }
        if !is_safe(name) {
            return Err("this is no name of a file".into());
        }
        let local = directory.join(name);
        self.claims.claim(&local)?;
        Ok(local)
    }

    /// Reports a failure and goes on, unless everything else would fail too.
    fn skip(&mut self, run: &Run<'_>, what: &str, failure: Failure) -> Outcome {
        if is_over(run) {
            return Err(failure);
        }
        self.fail(what, failure.what());
        Ok(())
    }

    fn fail(&mut self, what: &str, why: &str) {
        let printable = |c: char| if c.is_control() { '?' } else { c };
        let what: String = what.chars().map(printable).collect();
        output::say(format!("error: {what}: not fetched: {why}"));
        self.failed += 1;
    }

    /// Fetches the files.
    pub(super) async fn fetch(mut self, run: &Run<'_>, connected: Duration) -> Outcome {
        let jobs = std::mem::take(&mut self.jobs);
        let total = jobs.len() as u64 + self.failed;
        let progress = run.progress();
        // Files on stdout must follow one another.
        let to_stdout = jobs.iter().any(|job| job.place == Place::Stdout);
        let at_once = if to_stdout { 1 } else { AT_ONCE };
        let started = Instant::now();
        let mut tally = Tally::of("get");
        let result = {
            let progress = &progress;
            let mut under_way = stream::iter(&jobs)
                .map(|job| async move {
                    // Downloads in progress end by themselves and keep what they have.
                    if is_over(run) {
                        return (job, None);
                    }
                    (job, Some(file::fetch(run, job, progress).await))
                })
                .buffer_unordered(at_once);
            let mut result = Ok(());
            while let Some((job, done)) = under_way.next().await {
                match done.map(|done| done.map_err(Broken::into_failure)) {
                    None => {}
                    Some(Ok(report)) => result = tally.add(&report, run.talk),
                    Some(Err(Failure::PipeClosed)) => result = Err(Failure::PipeClosed),
                    Some(Err(failure)) => failure.tell_of(&job.url.request_path()),
                }
                if result.is_err() {
                    break;
                }
            }
            result
        };
        let samples = progress.finish();
        result?;
        let failed = total - tally.files();
        let rows = samples.rows(Direction::In, &run.session.labels);
        let durations = (started.elapsed(), connected);
        tally.summary(run.session, run.talk, durations, failed, rows)?;
        if failed == 0 {
            return Ok(());
        }
        let failed = units::counted(failed as usize, "file");
        let failure = Failure::failed(format!("{failed} of {total} not fetched"));
        Err(failure.hint("give the same command again to go on: what is here already is kept"))
    }
}

/// Whether further files would fail too, so that they need not be tried.
fn is_over(run: &Run<'_>) -> bool {
    *run.stopped.borrow() || run.session.connection.close_reason().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str) -> Entry {
        Entry {
            name: name.into(),
            bytes: None,
            escaped: false,
        }
    }

    #[test]
    fn names_that_lead_elsewhere_or_are_needed_are_refused() {
        let mut batch = Batch::default();
        let here = Path::new("d");
        for name in ["a", "b.part", "...", "sub/"] {
            batch.local(here, &entry(name)).unwrap();
        }
        for name in [
            "..",
            ".",
            "",
            "a/b",
            "../x",
            "a.part",
            "a.part.etag",
            "../",
            "/",
            "a/b/",
            "b",
            "a",
            "sub",
            "x\ny",
        ] {
            batch.local(here, &entry(name)).unwrap_err();
        }
        let escaped = Entry {
            escaped: true,
            ..entry("%FF")
        };
        let refused = batch.local(here, &escaped).unwrap_err();
        assert!(refused.contains("UTF-8"), "{refused}");
    }

    #[test]
    fn directories_count_like_files() {
        let mut batch = Batch {
            found: MAX_ENTRIES - 1,
            ..Batch::default()
        };
        batch.count().unwrap();
        batch.count().unwrap_err();
    }
}
