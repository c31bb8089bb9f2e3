//! `anabranch put`: sends files and directories.
//!
//! | module | does |
//! |---|---|
//! | [`plan`] | which files there are, and the name each gets |
//! | [`claims`] | makes sure that no two of them get the same name |
//! | [`mod@file`] | one file to the server: resumed and verified |
//! | [`batch`] | several files over one connection, and the directories they need |

mod batch;
mod claims;
mod file;
mod plan;

use self::plan::Plan;
use super::interrupted;
use super::transfer::{ConnectionReport, Talk, Tell, Transfer};
use crate::args::Put;
use crate::failure::{Failure, Outcome};
use crate::limit::Limit;
use crate::output::progress::Progress;
use crate::paths::Direction;
use crate::session::{Options, Session};
use anabranch_schedulers::Names;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::OnceCell;

/// Runs the command.
pub(crate) async fn run(args: &Put, names: &Names, quiet: bool) -> Outcome {
    let tell = |transfer: &Transfer| transfer.tell(quiet, args.moving.report.json);
    send(args, names, quiet, &tell, interrupted()).await
}

/// Sends what is asked for, until it is done or `stop` completes. A single file is told to `tell`.
pub(crate) async fn send(
    args: &Put,
    names: &Names,
    quiet: bool,
    tell: Tell<'_>,
    stop: impl Future<Output = ()>,
) -> Outcome {
    let sending = args.moving.tuning.resolve(names)?;
    let plan = Plan::new(args)?;
    let options = Options::of(&args.moving, &sending, quiet);
    tokio::pin!(stop);
    let started = Instant::now();
    let session = tokio::select! {
        session = Session::open(&args.url, &options) => session?,
        () = &mut stop => return Err(Failure::failed("interrupted while connecting")),
    };
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
        connected: started.elapsed(),
        over: AtomicBool::new(false),
        takes_nothing: OnceCell::new(),
        tell,
    };
    let result = tokio::select! {
        result = run.send(plan) => result,
        () = &mut stop => Err(going_on(Failure::failed("interrupted"))),
    };
    session.close().await;
    result
}

/// What all transfers over one connection share.
struct Run<'a> {
    args: &'a Put,
    talk: Talk,
    session: &'a Session,
    limit: &'a Limit,
    /// How long it took to connect.
    connected: Duration,
    /// Set once the server accepts nothing more over this connection.
    over: AtomicBool,
    /// Whether the server accepts no files at all, once it was asked; `None` without an answer.
    takes_nothing: OnceCell<Option<bool>>,
    tell: Tell<'a>,
}

impl Run<'_> {
    async fn send(&self, plan: Plan) -> Outcome {
        match plan.single() {
            Some(job) => self.single(job).await,
            None => batch::send(self, plan).await,
        }
    }

    async fn single(&self, job: &plan::Job) -> Outcome {
        let progress = self.progress();
        let sent = file::send(self, job, &progress).await;
        let samples = progress.finish();
        let file = sent?;
        let rows = samples.rows(Direction::Out, &self.session.labels);
        let transfer = Transfer {
            file,
            connection: ConnectionReport::of(self.session, self.connected, rows),
        };
        (self.tell)(&transfer)
    }

    fn progress(&self) -> Progress {
        self.session.progress(Direction::Out, self.talk.quiet)
    }

    /// Whether further files would fail too, so that they need not be tried.
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed) || self.session.connection.close_reason().is_some()
    }
}

fn going_on(failure: Failure) -> Failure {
    failure.hint("the server keeps what it got: give the same command again to go on")
}
