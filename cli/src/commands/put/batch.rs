//! Several files over one connection, a few at a time, and the directories they need. One that
//! fails does not keep the others.

use super::Run;
use super::file::{self, refused};
use super::plan::{Job, Plan};
use crate::commands::transfer::{Talk, Tally};
use crate::failure::{Failure, Outcome};
use crate::output::progress::Progress;
use crate::output::units;
use crate::paths::Direction;
use crate::url::ServerUrl;
use futures_util::{StreamExt, TryStreamExt, stream};
use http::header::{self, HeaderMap};
use http::{Response, StatusCode};
use std::time::Instant;

/// Requests at a time: enough that small files do not wait for each other's round trips, and fewer
/// than our servers answer at a time.
const AT_ONCE: usize = 4;

/// Sends everything that is planned.
pub(super) async fn send(run: &Run<'_>, plan: Plan) -> Outcome {
    let started = Instant::now();
    let lost = make_all(run, &plan.directories).await?;
    let total = plan.failed + plan.jobs.len() as u64;
    let mut jobs = plan.jobs;
    jobs.retain(|job| !lost.iter().any(|lost| job.url.path.starts_with(&lost.path)));
    let progress = run.progress();
    let mut tally = Tally::of("put");
    let sent = send_all(run, &jobs, &progress, &mut tally).await;
    let samples = progress.finish();
    sent?;
    let failed = total - tally.files();
    let rows = samples.rows(Direction::Out, &run.session.labels);
    let duration = (started.elapsed(), run.connected);
    tally.summary(run.session, talk(run), duration, failed, rows)?;
    let lost = lost.len() as u64;
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

fn talk(run: &Run<'_>) -> Talk {
    Talk {
        json: run.args.report.json,
        quiet: run.quiet,
        each: !run.args.recursive,
    }
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
            Some(Ok(report)) => tally.add(&report, talk(run))?,
            Some(Err(failure)) => failure.tell_of(&job.local.display().to_string()),
        }
    }
    Ok(())
}

/// Makes directories, and those they are in; returns those that have no place on the server.
async fn make_all(run: &Run<'_>, directories: &[ServerUrl]) -> Outcome<Vec<ServerUrl>> {
    let made = stream::iter(directories)
        .map(|url| make(run, url))
        .buffer_unordered(AT_ONCE);
    made.try_filter_map(async |lost| Ok(lost))
        .try_collect()
        .await
}

/// Makes a directory; returns it if it alone cannot be made.
async fn make(run: &Run<'_>, url: &ServerUrl) -> Outcome<Option<ServerUrl>> {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_LENGTH, 0.into());
    let mut exchange = run.session.request("PUT", url, headers).await?;
    // A server may have answered already and want no more: then its answer counts.
    let _ = exchange.finish().await;
    let answered = exchange.recv_response().await;
    let response: Response<()> = answered.map_err(|error| run.session.broken(&error))?;
    if response.status().is_success() {
        return Ok(None);
    }
    let failure = refused(run, url, &mut exchange, &response).await;
    match response.status() {
        // Something else has its name, or nothing may have it.
        StatusCode::CONFLICT | StatusCode::NOT_FOUND => {
            failure.tell_of(&url.request_path());
            Ok(Some(url.clone()))
        }
        _ => Err(failure),
    }
}
