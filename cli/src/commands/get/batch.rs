//! Several files over one connection, a few at a time. One that fails does not keep the others.

use super::Run;
use super::file::{self, Broken, ask};
use super::listing;
use super::plan::{Job, Place, Plan, is_safe, make};
use crate::commands::transfer::{ConnectionReport, FileReport, Summary};
use crate::failure::{Failure, Outcome};
use crate::files::listing::Entry;
use crate::output::{self, units};
use crate::paths::{Direction, Samples};
use crate::url::ServerUrl;
use futures_util::StreamExt;
use futures_util::stream;
use http::HeaderMap;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Files fetched at a time: enough that small ones do not wait for each other's round trips, and
/// fewer than our servers answer at a time.
const AT_ONCE: usize = 4;

/// Files that one command fetches at most.
const MAX_FILES: usize = 1_000_000;

/// Directories within each other at most.
const MAX_DEPTH: usize = 64;

/// Files to fetch.
#[derive(Debug, Default)]
pub(super) struct Batch {
    jobs: Vec<Job>,
    /// Files that cannot be fetched, told already.
    failed: u64,
}

/// A directory that was not looked into yet.
struct Pending {
    url: ServerUrl,
    local: PathBuf,
    depth: usize,
}

impl Batch {
    pub(super) fn of(jobs: Vec<Job>) -> Self {
        Self { jobs, failed: 0 }
    }

    /// Finds the files at and below `urls`, and makes directories for them.
    pub(super) async fn walk(run: &Run<'_>, plan: &Plan, urls: &[ServerUrl]) -> Outcome<Self> {
        let mut batch = Self::default();
        for url in urls {
            let directory = if url.file_name().is_none() {
                Some(url.clone())
            } else {
                let (_, response) = ask(run, "HEAD", url, HeaderMap::new()).await?;
                listing::instead(&response, url)
            };
            match directory {
                Some(found) => {
                    let root = plan.directory(url);
                    make(&root, &root)?;
                    batch.walk_below(run, found, root).await?;
                }
                None => batch.jobs.push(plan.job(url)?),
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
            let entries = tokio::select! {
                entries = listing::fetch(run, &directory.url) => entries?,
                () = run.stopped() => return Err(Failure::failed("interrupted")),
            };
            let names: BTreeSet<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
            for entry in &entries {
                if let Some(why) = refusal(entry, &names) {
                    self.fail(
                        &format!("{}{}", directory.url.request_path(), entry.name),
                        &why,
                    );
                    continue;
                }
                let name = entry.name.trim_end_matches('/');
                let mut url = directory.url.clone();
                url.path.push_str(&entry.name);
                let local = directory.local.join(name);
                if entry.bytes.is_some() {
                    let place = Place::File(local);
                    self.jobs.push(Job { url, place });
                } else if directory.depth + 1 == MAX_DEPTH {
                    let why = format!("more than {MAX_DEPTH} directories within each other");
                    self.fail(&url.request_path(), &why);
                } else {
                    make(&root, &local)?;
                    let depth = directory.depth + 1;
                    pending.push(Pending { url, local, depth });
                }
            }
            if self.jobs.len() > MAX_FILES {
                let what = format!("there are more than {MAX_FILES} files");
                return Err(Failure::failed(what).hint("fetch one directory at a time"));
            }
        }
        Ok(())
    }

    fn fail(&mut self, what: &str, why: &str) {
        let printable = |c: char| if c.is_control() { '?' } else { c };
        let what: String = what.chars().map(printable).collect();
        output::say(format!("error: {what}: not fetched: {why}"));
        self.failed += 1;
    }

    /// Fetches them.
    pub(super) async fn fetch(mut self, run: &Run<'_>, connected: Duration) -> Outcome {
        let jobs = std::mem::take(&mut self.jobs);
        let total = jobs.len() as u64 + self.failed;
        let progress = run.progress();
        // What goes to stdout goes there one after the other.
        let to_stdout = jobs.iter().any(|job| job.place == Place::Stdout);
        let at_once = if to_stdout { 1 } else { AT_ONCE };
        let started = Instant::now();
        let mut tally = Tally::default();
        let result = {
            let progress = &progress;
            let mut under_way = stream::iter(&jobs)
                .map(|job| async move {
                    // Those under way end by themselves then, and keep what they have.
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
                    Some(Ok(report)) => result = tally.add(run, &report),
                    Some(Err(Failure::PipeClosed)) => result = Err(Failure::PipeClosed),
                    Some(Err(failure)) => {
                        let text = failure.report().unwrap_or_default();
                        let text = text.trim_start_matches("error: ");
                        output::say(format!("error: {}: {text}", job.url.request_path()));
                    }
                }
                if result.is_err() {
                    break;
                }
            }
            result
        };
        let samples = progress.finish();
        result?;
        let failed = total - tally.files;
        tally.summary(run, started.elapsed(), connected, failed, &samples)?;
        if failed == 0 {
            return Ok(());
        }
        let failed = units::counted(failed as usize, "file");
        let failure = Failure::failed(format!("{failed} of {total} not fetched"));
        Err(failure.hint("give the same command again to go on: what is here already is kept"))
    }
}

/// Whether further files need not be tried: they would fail alike.
fn is_over(run: &Run<'_>) -> bool {
    *run.stopped.borrow() || run.session.connection.close_reason().is_some()
}

/// Why an entry of a directory is not fetched, if it is not.
fn refusal(entry: &Entry, names: &BTreeSet<&str>) -> Option<String> {
    let name = entry.name.strip_suffix('/').unwrap_or(&entry.name);
    if !is_safe(name) {
        return Some("this is no name of a file".into());
    }
    let whole = name.strip_suffix(".part")?;
    let whole = whole.strip_suffix(".etag").unwrap_or(whole);
    let taken = names.contains(whole);
    taken.then(|| format!("while {whole} is fetched this name is needed for it"))
}

/// What was done so far.
#[derive(Debug, Default)]
struct Tally {
    files: u64,
    unchanged: u64,
    bytes: u64,
}

impl Tally {
    fn add(&mut self, run: &Run<'_>, report: &FileReport) -> Outcome {
        self.files += 1;
        self.unchanged += u64::from(report.unchanged);
        self.bytes += report.bytes - report.resumed_from;
        if run.args.report.json {
            output::json(report)?;
        } else if !run.quiet && !run.args.recursive {
            report.say();
        }
        Ok(())
    }

    fn summary(
        &self,
        run: &Run<'_>,
        duration: Duration,
        connected: Duration,
        failed: u64,
        samples: &Samples,
    ) -> Outcome {
        let rows = samples.rows(Direction::In, &run.session.labels);
        let summary = Summary {
            command: "get",
            files: self.files,
            unchanged: self.unchanged,
            failed,
            bytes: self.bytes,
            seconds: units::json_seconds(duration),
            goodput_bps: units::rate(self.bytes, duration).round(),
            connection: ConnectionReport::of(run.session, connected, rows),
        };
        if !run.quiet {
            summary.say();
        }
        if run.args.report.json {
            output::json(&summary)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_elsewhere_or_are_needed_are_refused() {
        let entry = |name: &str, bytes| Entry {
            name: name.into(),
            bytes,
        };
        let names: BTreeSet<&str> = ["a", "a.part", "a.etag.part", "b.part"].into();
        for name in ["..", ".", "", "a/b", "../x", "a.part", "a.etag.part"] {
            assert!(refusal(&entry(name, Some(1)), &names).is_some(), "{name}");
        }
        for name in ["../", "/", "a/b/"] {
            assert!(refusal(&entry(name, None), &names).is_some(), "{name}");
        }
        for name in ["a", "b.part", "..."] {
            assert!(refusal(&entry(name, Some(1)), &names).is_none(), "{name}");
        }
        assert!(refusal(&entry("d/", None), &names).is_none());
    }
}
