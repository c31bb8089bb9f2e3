//! `anabranch get`: fetches files and directories, or lists a directory.
//!
//! | module | does |
//! |---|---|
//! | [`plan`] | which files there are to fetch, and where each of them goes |
//! | [`mod@file`] | one file: resume, receive, verify, rename |
//! | [`present`] | whether a file that is here already is the server's |
//! | [`stdout`] | one file to stdout |
//! | [`listing`] | a directory: listed, or walked recursively |
//! | [`batch`] | several files over one connection |
//! | [`claims`] | makes sure that no two files need the same name |

mod batch;
mod claims;
mod file;
mod listing;
mod plan;
mod present;
mod stdout;

use self::batch::Batch;
use self::plan::{Place, Plan};
use super::interrupted;
use super::transfer::{ConnectionReport, Talk, Tell, Transfer};
use crate::args::Get;
use crate::failure::{Failure, Outcome};
use crate::files::partial::PartFile;
use crate::limit::Limit;
use crate::output;
use crate::output::progress::Progress;
use crate::paths::Direction;
use crate::session::{Options, Session};
use crate::tuning::Sending;
use crate::url::ServerUrl;
use anabranch_schedulers::Names;
use http::HeaderMap;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::time::sleep;

/// Further signals within this time belong to the same interruption: `timeout` and supervisors
/// signal a process and then its group.
const SAME_INTERRUPT: Duration = Duration::from_millis(500);

/// Runs the command.
pub(crate) async fn run(args: &Get, names: &Names, quiet: bool) -> Outcome {
    let (stop, stopped) = watch::channel(false);
    let tell = |transfer: &Transfer| transfer.tell(quiet, args.moving.report.json);
    let work = fetch(args, names, quiet, &tell, &stopped);
    tokio::pin!(work);
    tokio::select! {
        result = &mut work => return result,
        () = interrupted() => {}
    }
    // Every download in progress keeps what it has and ends. A second interruption does not wait
    // for that.
    stop.send_replace(true);
    let again = async {
        sleep(SAME_INTERRUPT).await;
        interrupted().await;
    };
    tokio::select! {
        result = &mut work => result,
        () = again => Err(Failure::failed("interrupted twice: ended at once")),
    }
}

/// Fetches what is asked for, until it is done or `stop` is set. A single file is told to `tell`.
pub(crate) async fn fetch(
    args: &Get,
    names: &Names,
    quiet: bool,
    tell: Tell<'_>,
    stop: &watch::Receiver<bool>,
) -> Outcome {
    let sending = args.moving.tuning.resolve(names)?;
    let plan = Plan::new(args)?;
    plan.check_targets(plan.urls())?;
    let asked = Asked {
        args,
        sending: &sending,
        quiet,
        plan: &plan,
        tell,
    };
    all_servers(asked, stop).await
}

/// What was asked for.
#[derive(Clone, Copy)]
struct Asked<'a> {
    args: &'a Get,
    sending: &'a Sending,
    quiet: bool,
    plan: &'a Plan,
    tell: Tell<'a>,
}

/// Works through the servers in turn. A failure is reported and does not stop the others.
async fn all_servers(asked: Asked<'_>, stop: &watch::Receiver<bool>) -> Outcome {
    let mut result = Ok(());
    for group in asked.plan.by_server() {
        let done = with_session(asked, group, stop).await;
        result = match (result, done) {
            (result, Ok(())) => result,
            (Ok(()), failed) => failed,
            (failed, Err(Failure::PipeClosed)) => return failed,
            (Err(before), failed) => {
                output::say(before.report().unwrap_or_default());
                failed
            }
        };
        if *stop.borrow() || matches!(result, Err(Failure::PipeClosed)) {
            break;
        }
    }
    result
}

/// Fetches files from one server over a connection of its own.
async fn with_session(
    asked: Asked<'_>,
    urls: &[ServerUrl],
    stop: &watch::Receiver<bool>,
) -> Outcome {
    let Asked {
        args,
        quiet,
        plan,
        tell,
        ..
    } = asked;
    let Some(first) = urls.first() else {
        return Ok(());
    };
    let mut stopped = stop.clone();
    let started = Instant::now();
    let session = tokio::select! {
        session = open(asked, first) => session?,
        _ = stopped.wait_for(|stopped| *stopped) => {
            return Err(Failure::failed("interrupted while connecting"));
        }
    };
    let connected = started.elapsed();
    let limit = Limit::new(args.moving.limit_rate);
    let run = Run {
        args,
        talk: Talk {
            json: args.moving.report.json,
            quiet,
            each: !args.recursive,
        },
        session: &session,
        limit: &limit,
        stopped,
        tell,
    };
    let result = run.fetch(plan, urls, connected).await;
    session.close().await;
    result
}

async fn open(asked: Asked<'_>, url: &ServerUrl) -> Outcome<Session> {
    let args = asked.args;
    let options = Options {
        early: early(args, asked.plan, url),
        ..Options::of(&args.moving, asked.sending, asked.quiet)
    };
    Session::open(url, &options).await
}

/// The header fields of the first request, if it is known before connecting.
fn early(args: &Get, plan: &Plan, url: &ServerUrl) -> Option<HeaderMap> {
    if args.recursive || !plan.is_single() {
        return None;
    }
    if url.file_name().is_none() {
        return Some(listing::headers());
    }
    let point = match plan.job(url).place {
        Place::Stdout => None,
        // A file that is here already is compared first.
        Place::File(target) if !args.force && target.symlink_metadata().is_ok() => return None,
        Place::File(target) => PartFile::look(&target),
    };
    Some(file::headers(args, point.as_ref()))
}

/// What all transfers over one connection share.
#[derive(Clone)]
struct Run<'a> {
    args: &'a Get,
    talk: Talk,
    session: &'a Session,
    limit: &'a Limit,
    stopped: watch::Receiver<bool>,
    tell: Tell<'a>,
}

impl Run<'_> {
    async fn fetch(&self, plan: &Plan, urls: &[ServerUrl], connected: Duration) -> Outcome {
        if self.args.recursive {
            return Batch::walk(self, plan, urls)
                .await?
                .fetch(self, connected)
                .await;
        }
        match urls {
            [url] if plan.is_single() => self.single(url, plan, connected).await,
            urls => {
                plan.prepare()?;
                let jobs = urls.iter().map(|url| plan.job(url)).collect();
                Batch::of(jobs).fetch(self, connected).await
            }
        }
    }

    /// One file, or one listing.
    async fn single(&self, url: &ServerUrl, plan: &Plan, connected: Duration) -> Outcome {
        if url.file_name().is_none() {
            return self.list(url).await;
        }
        plan.prepare()?;
        let job = plan.job(url);
        let progress = self.progress();
        let done = file::fetch(self, &job, &progress).await;
        let samples = progress.finish();
        let report = match done {
            Err(file::Broken::Directory(there)) if self.args.output.is_none() => {
                output::say(format!(
                    "note: {} is a directory: this is what is in it; `get -r` fetches it",
                    url.request_path()
                ));
                return self.list(&there).await;
            }
            done => done.map_err(file::Broken::into_failure)?,
        };
        let rows = samples.rows(Direction::In, &self.session.labels);
        let transfer = Transfer {
            file: report,
            connection: ConnectionReport::of(self.session, connected, rows),
        };
        (self.tell)(&transfer)
    }

    async fn list(&self, url: &ServerUrl) -> Outcome {
        let entries = self.or_stopped(listing::fetch(self, url)).await?;
        if self.talk.json {
            output::json(&entries)
        } else {
            output::raw(crate::files::listing::to_text(&entries).as_bytes())
        }
    }

    fn progress(&self) -> Progress {
        self.session.progress(Direction::In, self.talk.quiet)
    }

    /// Works until done, or until the user interrupts the command.
    async fn or_stopped<T>(&self, work: impl Future<Output = Outcome<T>>) -> Outcome<T> {
        tokio::select! {
            done = work => done,
            () = self.stopped() => Err(Failure::failed("interrupted")),
        }
    }

    /// Completes when the user interrupts the command.
    async fn stopped(&self) {
        let mut stopped = self.stopped.clone();
        if stopped.wait_for(|stopped| *stopped).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
