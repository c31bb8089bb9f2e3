//! One run, from a valid job to a report.

use crate::ledger::Ledger;
use crate::machine::Usage;
use crate::rules::Rules;
use crate::series::{Now, Series};
use crate::{engine, kernel};
use anabranch_lab::hosts::{Answer, Carrier, HostReport, Job, Ready};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{MissedTickBehavior, interval_at};

/// Sampling interval if no series is wanted.
const STEP: Duration = Duration::from_millis(100);

/// Interval of progress reports.
const PROGRESS: Duration = Duration::from_millis(500);

/// How long the flows continue after a run is cut off. The other host's clock may be a little
/// behind: it then reaches its own limit instead of seeing a broken connection.
const AFTER_CUT: Duration = Duration::from_secs(1);

/// How a run ended without an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Everything was delivered.
    Done,
    /// The other host cut it off.
    Cut,
}

#[derive(Debug)]
enum Carrying {
    Engine(Arc<engine::Host>),
    Kernel(Arc<kernel::Host>),
}

/// A run that can start.
#[derive(Debug)]
pub(crate) struct Prepared {
    job: Job,
    carrying: Carrying,
}

impl Prepared {
    /// Creates everything that a run needs.
    ///
    /// # Errors
    /// What cannot be done, in words.
    pub(crate) fn of(job: Job, rules: &Rules) -> Result<Self, String> {
        job.check()?;
        rules.check(&job)?;
        let carrying = match job.carrier {
            Carrier::Anabranch { .. } => {
                let host = engine::Host::prepare(&job, rules.qlog.folder(&job)?, rules)?;
                Carrying::Engine(Arc::new(host))
            }
            Carrier::Tcp { .. } | Carrier::Mptcp { .. } => {
                Carrying::Kernel(Arc::new(kernel::Host::prepare(&job, &rules.doors)?))
            }
        };
        Ok(Self { job, carrying })
    }

    /// What the other host has to know.
    pub(crate) fn ready(&self) -> Ready {
        match &self.carrying {
            Carrying::Engine(host) => host.ready(),
            Carrying::Kernel(host) => host.ready(),
        }
    }

    /// Carries the flows. Reports progress, then the result, and leaves when the other host knows
    /// what it must.
    pub(crate) async fn run(
        self,
        ready: Option<Ready>,
        stop: oneshot::Receiver<()>,
        answers: mpsc::UnboundedSender<Answer>,
    ) {
        let used = Usage::now();
        let ledger = Arc::new(Ledger::begin(&self.job));
        let mut series = Series::default();
        let well = {
            let work = self.carrying.run(ready, Arc::clone(&ledger));
            let mut work = std::pin::pin!(work);
            let mut stop = std::pin::pin!(stop);
            let mut bins = ticks(self.job.bin.unwrap_or(STEP));
            let mut progress = ticks(PROGRESS);
            let (error, timed_out) = loop {
                tokio::select! {
                    result = &mut work => {
                        let cut = result == Ok(Ending::Cut);
                        break (result.err().unwrap_or_default(), cut);
                    }
                    // Also resolves if the laboratory is gone.
                    _ = &mut stop => break (String::new(), true),
                    () = ledger.wait_until(self.job.stop) => break (String::new(), true),
                    _ = bins.tick() => {
                        series.note(ledger.elapsed(), ledger.received(), self.carrying.now());
                    }
                    _ = progress.tick() => {
                        // Fails if the laboratory is gone; then `stop` ends the run.
                        let _ = answers.send(Answer::Progress(ledger.received()));
                    }
                }
            };
            let mut report = HostReport {
                error,
                timed_out,
                ..HostReport::default()
            };
            self.report(&ledger, &mut series, used, &mut report);
            let well = !timed_out && report.error.is_empty();
            let _ = answers.send(Answer::Done(Box::new(report)));
            if timed_out {
                tokio::time::sleep(AFTER_CUT).await;
            }
            well
        };
        match &self.carrying {
            Carrying::Engine(host) => host.leave(well).await,
            Carrying::Kernel(host) => host.leave(well).await,
        }
    }

    fn report(
        &self,
        ledger: &Ledger,
        series: &mut Series,
        used: Option<Usage>,
        report: &mut HostReport,
    ) {
        conclude(ledger, series, || self.carrying.now(), report);
        series.report(self.job.bin.is_some(), report);
        match &self.carrying {
            Carrying::Engine(host) => host.report(ledger, report),
            Carrying::Kernel(host) => host.report(report),
        }
        let now = Usage::now();
        report.cpu_s = used.zip(now).map(|(used, now)| now.cpu_s - used.cpu_s);
        report.peak_rss_bytes = now.map(|now| now.peak_rss_bytes);
    }
}

impl Carrying {
    async fn run(&self, ready: Option<Ready>, ledger: Arc<Ledger>) -> Result<Ending, String> {
        match self {
            Self::Engine(host) => host.run(ready, ledger).await,
            Self::Kernel(host) => host.run(ready, ledger).await,
        }
    }

    fn now(&self) -> Now {
        match self {
            Self::Engine(host) => host.now(),
            Self::Kernel(host) => host.now(),
        }
    }
}

/// Ends the account and the last bin with the same figures. The other host may still be sending;
/// what arrives while the paths are sampled is counted in neither.
fn conclude(
    ledger: &Ledger,
    series: &mut Series,
    now: impl FnOnce() -> Now,
    report: &mut HostReport,
) {
    let end = ledger.report(report);
    series.note(end, report.received_bytes, now());
}

fn ticks(period: Duration) -> tokio::time::Interval {
    let mut ticks = interval_at(tokio::time::Instant::now() + period, period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    ticks
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_lab::hosts::{JobFlow, Role};
    use anabranch_lab::scenario::{FlowKind, Way};

    /// A server that receives bytes for a second.
    fn job() -> Job {
        Job {
            run_id: "test".to_owned(),
            role: Role::Server,
            carrier: Carrier::Tcp {
                congestion: "cubic".to_owned(),
                buffers: None,
            },
            paths: Vec::new(),
            flows: vec![JobFlow {
                kind: FlowKind::BulkTime(Duration::from_secs(1)),
                way: Way::Forward,
                start: Duration::ZERO,
                warm_up: Duration::ZERO,
            }],
            stop: Duration::from_secs(2),
            bin: Some(STEP),
            decisions: false,
            qlog: None,
            seed: 1,
        }
    }

    #[test]
    fn the_bins_hold_all_bytes_of_a_run_to_whose_end_more_come_in() {
        let ledger = Ledger::begin(&job());
        let mut series = Series::default();
        ledger.arrived(0, 1000);
        series.note(ledger.elapsed(), ledger.received(), Now::default());
        ledger.arrived(0, 200);
        let mut report = HostReport::default();
        let asked = || {
            ledger.arrived(0, 30);
            Now::default()
        };
        conclude(&ledger, &mut series, asked, &mut report);
        series.report(true, &mut report);
        let bins = report.series.iter().filter(|bin| bin.path == 0);
        let held: u64 = bins.map(|bin| bin.goodput_bytes).sum();
        assert_eq!((held, report.received_bytes), (1200, 1200));
    }
}
