//! Several files over one connection, a few at a time, and the directories they need. One failure
//! does not stop the others.

use super::Run;
use super::file::{self, refused};
use super::plan::{Job, Plan};
use crate::commands::transfer::{AT_ONCE, Tally};
use crate::failure::{Failure, Outcome};
use crate::output::progress::Progress;
use crate::output::units;
use crate::paths::Direction;
use crate::url::ServerUrl;
use futures_util::{StreamExt, stream};
use http::StatusCode;
use http::header::{self, HeaderMap};
use std::collections::BTreeSet;
use std::time::Instant;

/// Sends everything that is planned.
pub(super) async fn send(run: &Run<'_>, plan: Plan) -> Outcome {
    let started = Instant::now();
    let made = make_all(run, &plan.directories).await?;
    let total = plan.failed + plan.jobs.len() as u64;
    let mut jobs = plan.jobs;
    jobs.retain(|job| !made.lost.iter().any(|lost| job.url.path.starts_with(lost)));
    for job in &mut jobs {
        job.is_new = made.new.contains(directory_of(&job.url));
    }
    let progress = run.progress();
    let mut tally = Tally::of("put");
    let sent = send_all(run, &jobs, &progress, &mut tally).await;
    let samples = progress.finish();
    sent?;
    let failed = total - tally.files();
    let rows = samples.rows(Direction::Out, &run.session.labels);
    let duration = (started.elapsed(), run.connected);
    let lost = made.lost.len() as u64;
    tally.lost_directories(lost);
    tally.summary(run.session, run.talk, duration, failed, rows)?;
    if failed + lost == 0 {
        return Ok(());
    }
    let mut what = match units::counted(failed as usize, "file") {
        _ if failed == 0 => "not everything was sent".to_owned(),
        failed => format!("{failed} of {total} not sent"),
    };
    if lost > 0 {
        what = format!("{what}, directories not made: {lost}");
    }
    let hint = "give the same command again to go on: what the server has is not sent again";
    Err(Failure::failed(what).hint(hint))
}

async fn send_all(run: &Run<'_>, jobs: &[Job], progress: &Progress, tally: &mut Tally) -> Outcome {
    let mut under_way = stream::iter(jobs)
        .map(|job| async move {
            if run.is_over() {
                return (job, None);
            }
            (job, Some(file::send(run, job, progress).await))
        })
        .buffer_unordered(AT_ONCE);
    while let Some((job, sent)) = under_way.next().await {
        match sent {
            None => {}
            Some(Ok(report)) => tally.add(&report, run.talk)?,
            Some(Err(failure)) => failure.tell_of(&job.local.display().to_string()),
        }
    }
    Ok(())
}

/// What became of the directories, by path.
#[derive(Default)]
struct Made {
    /// Directories that were not there before.
    new: BTreeSet<String>,
    /// Directories that could not be made; already reported.
    lost: Vec<String>,
}

/// What became of one directory.
enum Place {
    New,
    There,
}

/// The path of the directory that a file goes into.
fn directory_of(url: &ServerUrl) -> &str {
    let end = url.path.rfind('/').map_or(0, |slash| slash + 1);
    &url.path[..end]
}

/// Makes directories and their parents. One failure does not stop the others.
async fn make_all(run: &Run<'_>, directories: &[ServerUrl]) -> Outcome<Made> {
    let mut made = Made::default();
    let mut under_way = stream::iter(directories)
        .map(async |url| (url, make(run, url).await))
        .buffer_unordered(AT_ONCE);
    while let Some((url, place)) = under_way.next().await {
        match place {
            Ok(Place::New) => drop(made.new.insert(url.path.clone())),
            Ok(Place::There) => {}
            Err(failure) if run.is_over() => return Err(failure),
            Err(failure) => {
                failure.tell_of(&url.request_path());
                made.lost.push(url.path.clone());
            }
        }
    }
    Ok(made)
}

/// Makes a directory.
async fn make(run: &Run<'_>, url: &ServerUrl) -> Outcome<Place> {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_LENGTH, 0.into());
    let (mut exchange, response) = run.session.ask("PUT", url, headers).await?;
    match response.status() {
        StatusCode::CREATED => Ok(Place::New),
        status if status.is_success() => Ok(Place::There),
        _ => Err(refused(run, url, &mut exchange, &response).await),
    }
}
