//! Runs campaigns with a progress bar, until they are done or the user ends them.

use crate::failure::{Failure, Outcome};
use crate::output;
use crate::output::progress;
use anabranch_lab::backend::Backend;
use anabranch_lab::campaign::{Campaign, Order, Progress, Results};
use anabranch_lab::plan::Plan;
use anabranch_lab::results::{Part, Status, Store, StoreError};
use indicatif::ProgressBar;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::spawn_blocking;

/// How a campaign runs.
#[derive(Debug)]
pub(crate) struct How {
    /// The backend that runs the scenarios.
    pub(crate) backend: Arc<dyn Backend>,
    /// Runs at a time; 0 means one per core.
    pub(crate) jobs: u32,
    /// The order of the runs.
    pub(crate) order: Order,
    /// Set by the first signal: no further run begins.
    pub(crate) stop: Arc<AtomicBool>,
    /// Set by the second signal, or by a request to terminate, if the backend can break off a run:
    /// it cleans up first. If `None`, the program ends at once.
    pub(crate) abort: Option<Arc<AtomicBool>>,
    /// Whether to show nothing.
    pub(crate) quiet: bool,
    /// Whether to print a line for each run if there is no terminal for a progress bar.
    pub(crate) talk: bool,
}

/// Runs a plan. The first interrupt ends it after the current runs; a second one, or a request to
/// terminate, ends it at once.
pub(crate) async fn carry_out(
    plan: &Arc<Plan>,
    store: Option<Store>,
    how: How,
) -> Outcome<Results> {
    let watch = Watch::new(plan, &how);
    let work = {
        let (plan, watch, stop) = (Arc::clone(plan), Arc::clone(&watch), Arc::clone(&how.stop));
        let (backend, jobs, order) = (Arc::clone(&how.backend), how.jobs as usize, how.order);
        spawn_blocking(move || {
            let campaign = Campaign {
                store: store.as_ref(),
                jobs,
                stop: Some(&stop),
                order,
            };
            campaign.run(&plan, backend.as_ref(), &|progress| watch.on(progress))
        })
    };
    tokio::pin!(work);
    let mut signals = Signals::new()?;
    let mut asked = 0;
    let outcome = loop {
        let urgent = tokio::select! {
            outcome = &mut work => break outcome,
            urgent = signals.next() => urgent,
        };
        asked += 1;
        how.stop.store(true, Ordering::Relaxed);
        match (asked, urgent, &how.abort) {
            (1, false, _) => {
                output::say("ending after the runs under way; once more to end at once");
            }
            (1 | 2, _, Some(abort)) if !abort.swap(true, Ordering::Relaxed) => {
                output::say("breaking off; what was made is removed first");
            }
            _ => {
                watch.bar.finish_and_clear();
                return Err(Failure::failed("interrupted"));
            }
        }
    };
    watch.bar.finish_and_clear();
    match outcome {
        Ok(results) => results.map_err(|error| not_kept(&error)),
        Err(error) => Err(Failure::failed(format!("a run ended badly: {error}"))),
    }
}

/// A failure to store a result, with a hint if the disk is full.
fn not_kept(error: &StoreError) -> Failure {
    let failure = Failure::failed(error);
    match error {
        StoreError::File { error, .. }
            if matches!(
                error.kind(),
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded
            ) =>
        {
            failure.hint("make room; the same command goes on where it stopped")
        }
        StoreError::OtherFile { .. } => Failure::usage(error),
        _ => failure,
    }
}

/// The signals that end a campaign.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> Outcome<Self> {
        let on = |kind| signal(kind).map_err(|error| Failure::io("cannot hear signals", &error));
        Ok(Self {
            interrupt: on(SignalKind::interrupt())?,
            terminate: on(SignalKind::terminate())?,
        })
    }

    /// Waits for the next signal; returns whether it is urgent.
    async fn next(&mut self) -> bool {
        tokio::select! {
            _ = self.interrupt.recv() => false,
            _ = self.terminate.recv() => true,
        }
    }
}

/// Shows the progress of a campaign.
struct Watch {
    bar: ProgressBar,
    talk: bool,
    total: u64,
    began: Instant,
}

impl Watch {
    fn new(plan: &Plan, how: &How) -> Arc<Self> {
        let total = plan.runs.len() as u64;
        let runs = if total == 1 { "run" } else { "runs" };
        let template = format!("{{bar:24}} {{pos}}/{{len}} {runs}, {{eta}} left {{wide_msg}}");
        let bar = progress::bar(total, how.quiet, &template);
        let shown = !bar.is_hidden();
        if shown {
            bar.enable_steady_tick(Duration::from_secs(1));
        }
        Arc::new(Self {
            bar,
            talk: how.talk && !how.quiet && !shown,
            total,
            began: Instant::now(),
        })
    }

    fn on(&self, progress: Progress<'_>) {
        let part = match progress {
            Progress::Found(part) => {
                // Results found on disk took no time and must not distort the estimate.
                self.bar.inc(1);
                self.bar.reset_eta();
                part
            }
            Progress::Ended(part) => {
                self.bar.inc(1);
                if self.talk {
                    output::say(self.line(part));
                }
                part
            }
        };
        self.bar.set_message(part.contender.clone());
    }

    fn line(&self, part: &Part) -> String {
        let outcome = &part.outcome;
        let status = outcome.status.name();
        let came_out = match (outcome.status, outcome.goodput_bps) {
            (Status::Ok, Some(goodput)) => output::units::bit_rate(goodput),
            _ if outcome.reason.is_empty() => status.to_owned(),
            _ => format!("{status}, does not count: {}", outcome.reason),
        };
        let elapsed = self.began.elapsed().as_secs();
        format!(
            "{}/{} after {elapsed} s: {} repetition {}: {came_out}",
            self.bar.position(),
            self.total,
            part.contender,
            part.repetition
        )
    }
}
