//! What the engine's observers record: order of arrival, decisions, and qlog.

use anabranch_lab::hosts::HostReport;
use anabranch_lab::results::Decided;
use anabranch_proto::event::{Observation, Observer, ObserverFactory};
use anabranch_proto::sched::Decision;
use anabranch_proto::time::Instant;
use anabranch_proto::wire::PathId;
use anabranch_qlog::Folder;
use anabranch_sim::record::{Histogram, Probe, Watch};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Each probe watches only one connection.
const ONLY: usize = 0;

/// The most decisions that are reported.
const MAX_DECISIONS: usize = 1_000_000;

/// The observations of one connection.
#[derive(Debug, Clone)]
struct Seen {
    probe: Probe,
    /// Its start by the engine's clock, and by the machine's.
    began: (Instant, std::time::Instant),
}

/// The observers of all connections of a host. Clones share their observations.
#[derive(Debug, Clone)]
pub(super) struct Eyes {
    decisions: bool,
    qlog: Option<Folder>,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Eyes {
    pub(super) fn new(decisions: bool, qlog: Option<Folder>) -> Self {
        Self {
            decisions,
            qlog,
            seen: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates the observers of each connection.
    pub(super) fn factory(&self) -> ObserverFactory {
        let eyes = self.clone();
        let both = ObserverFactory::from_fn(move |subject| {
            let probe = Probe::new(Watch {
                order: true,
                decisions: eyes.decisions,
                packets: false,
            });
            let parts = [probe.receiver(), probe.sender()];
            let parts = parts
                .iter()
                .filter_map(|part| part.build(subject))
                .collect();
            let began = (subject.began, std::time::Instant::now());
            eyes.lock().push(Seen { probe, began });
            Some(Box::new(Several(parts)))
        });
        match &self.qlog {
            Some(folder) => folder.beside(both),
            None => both,
        }
    }

    /// The most bytes that waited behind a gap since the last call.
    pub(super) fn take_waiting(&self) -> u64 {
        let seen = self.lock();
        let peaks = seen.iter().map(|one| one.probe.take_recent_peaks(ONLY).0);
        peaks.sum()
    }

    /// Stream bytes that arrived over a path first, over all connections.
    pub(super) fn first_copy(&self, path: PathId) -> u64 {
        let seen = self.lock();
        let bytes = seen.iter().map(|one| {
            one.probe
                .with_order(ONLY, |order| order.path(path).first_copy)
        });
        bytes.sum()
    }

    /// Adds waits and decisions to the report. `since_start` converts the machine's time, `path`
    /// gives the number of a path.
    pub(super) fn report(
        &self,
        report: &mut HostReport,
        since_start: impl Fn(std::time::Instant) -> u64,
        path: impl Fn(PathId) -> u32,
    ) {
        let seen = self.lock();
        let mut peak = 0;
        let mut longest: Option<Histogram> = None;
        for one in seen.iter() {
            one.probe.with_order(ONLY, |order| {
                peak += order.peak_bytes();
                let waits = order.waits();
                if longest
                    .as_ref()
                    .is_none_or(|other| other.total() < waits.total())
                {
                    longest = Some(waits.clone());
                }
            });
            let (engine, machine) = one.began;
            let began_ns = since_start(machine);
            let left = MAX_DECISIONS - report.decisions.len();
            for row in one.probe.decisions().into_iter().take(left) {
                let (decision, target) = words(&row.choice.decision);
                report.decisions.push(Decided {
                    t_ns: began_ns + row.at.since(engine).as_nanos() as u64,
                    decision: decision.to_owned(),
                    path: target.map(&path),
                    reason: row.choice.reason.name().to_owned(),
                    ..Decided::default()
                });
            }
        }
        report.reseq_peak_bytes = Some(peak);
        report.reseq_wait_s = longest.filter(|waits| waits.total() > 0).map(|waits| {
            let at = |share| waits.quantile(share).as_secs_f64();
            [at(0.5), at(0.95), at(0.99), waits.mean().as_secs_f64()]
        });
    }

    /// The first error of writing qlog, if any.
    pub(super) fn qlog_error(&self) -> Option<String> {
        let error = self.qlog.as_ref()?.error()?;
        Some(format!("qlog: {error}"))
    }
}

fn words(decision: &Decision) -> (&'static str, Option<PathId>) {
    match *decision {
        Decision::Send(path) => ("send", Some(path)),
        Decision::SendAt { path, .. } => ("send-at", Some(path)),
        Decision::SendStream { path, .. } => ("send-stream", Some(path)),
        Decision::Duplicate(_) => ("duplicate", None),
        Decision::Copy(path) => ("copy", Some(path)),
        Decision::Hold { .. } => ("hold", None),
        _ => ("other", None),
    }
}

/// Passes every event to several observers.
#[derive(Debug)]
struct Several(Vec<Box<dyn Observer>>);

impl Observer for Several {
    fn observe(&mut self, now: Instant, observation: &Observation<'_>) {
        for one in &mut self.0 {
            one.observe(now, observation);
        }
    }
}
