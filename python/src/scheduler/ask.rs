//! Asking a scheduler without a network: for its author's tests, and for the bench.

use crate::error::{guarded, hint, raise};
use crate::own::Own;
use crate::trouble::Trouble;
use anabranch_proto::path::PathState;
use anabranch_proto::sched::{Backlog, Choice, Decision, PathView, Scheduler, SendView, Unit};
use anabranch_proto::time::{Duration, Instant};
use anabranch_proto::wire::frame::PathStatus;
use anabranch_schedulers::Names;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time;

/// What of a path may be told; times in seconds, sizes in bytes.
const FIELDS: [&str; 17] = [
    "id",
    "smoothed_rtt",
    "rttvar",
    "latest_rtt",
    "min_rtt",
    "congestion_window",
    "bytes_in_flight",
    "queued",
    "delivery_rate",
    "loss",
    "pto_count",
    "max_datagram_size",
    "weight",
    "priority",
    "cost",
    "backup",
    "doubtful",
];

fn path(at: usize, told: &Bound<'_, PyDict>) -> PyResult<PathView> {
    let mut path = PathView::new(at as u32);
    for (key, value) in told {
        let key: String = key.extract()?;
        let time = || -> PyResult<Duration> {
            let seconds = value.extract()?;
            Duration::try_from_secs_f64(seconds)
                .map_err(|_| raise("ScenarioError", format!("{key}: {seconds} is no time")))
        };
        match key.as_str() {
            "id" => path.id.0 = value.extract()?,
            "smoothed_rtt" => path.smoothed_rtt = time()?,
            "rttvar" => path.rttvar = time()?,
            "latest_rtt" => path.latest_rtt = time()?,
            "min_rtt" => path.min_rtt = time()?,
            "congestion_window" => path.congestion_window = value.extract()?,
            "bytes_in_flight" => path.bytes_in_flight = value.extract()?,
            "queued" => path.queued = value.extract()?,
            "delivery_rate" => path.delivery_rate = value.extract()?,
            "loss" => path.loss = value.extract()?,
            "pto_count" => path.pto_count = value.extract()?,
            "max_datagram_size" => path.max_datagram_size = value.extract()?,
            "weight" => path.weight = value.extract()?,
            "priority" => path.priority = value.extract()?,
            "cost" => path.cost = value.extract()?,
            "backup" if value.extract()? => path.status = PathStatus::Backup,
            "doubtful" if value.extract()? => path.state = PathState::Doubtful,
            "backup" | "doubtful" => {}
            other => {
                let hint = hint(other, FIELDS.into_iter());
                let what = format!(
                    "a path has no `{other}`{hint}; known: {}",
                    FIELDS.join(", ")
                );
                return Err(raise("ScenarioError", what));
            }
        }
    }
    Ok(path)
}

/// The paths in ascending order of their ids, as the engine shows them.
fn paths(told: Vec<Bound<'_, PyDict>>) -> PyResult<Vec<PathView>> {
    let told = told.iter().enumerate().map(|(at, told)| path(at, told));
    let mut paths = told.collect::<PyResult<Vec<_>>>()?;
    paths.sort_by_key(|path| path.id);
    Ok(paths)
}

/// A packet of fresh data, and more behind it.
fn view(paths: &[PathView], now: f64) -> PyResult<SendView<'_>> {
    let since = Duration::try_from_secs_f64(now);
    let since = since.map_err(|_| raise("ScenarioError", format!("now: {now} is no time")))?;
    Ok(SendView {
        now: Instant::ZERO + since,
        paths,
        backlog: Backlog {
            unsent: 1 << 20,
            credit: 1 << 20,
            send_window: 1 << 20,
            ..Backlog::default()
        },
        unit: Unit {
            bytes: 1200,
            ..Unit::default()
        },
        streams: &[],
    })
}

/// Asks a scheduler; what it raises is raised here.
fn asked(
    scheduler: &mut dyn Scheduler,
    view: &SendView<'_>,
    times: u64,
    trouble: &Trouble,
) -> PyResult<Choice> {
    let mut choice = None;
    let done = catch_unwind(AssertUnwindSafe(|| {
        for _ in 0..times.max(1) {
            choice = Some(black_box(scheduler.select(black_box(view))));
        }
    }));
    match (trouble.take(), done, choice) {
        (Some(raised), ..) => Err(raised.error),
        (None, Ok(()), Some(choice)) => Ok(choice),
        _ => Err(raise(
            "InternalError",
            "a scheduler ended without an answer",
        )),
    }
}

/// One that is built in, or one of a user's.
#[derive(FromPyObject)]
pub(crate) enum Asked<'py> {
    Name(String),
    Own(Own<'py>),
}

impl Asked<'_> {
    fn build(&self, trouble: &Arc<Trouble>) -> PyResult<Box<dyn Scheduler>> {
        let factory = match self {
            Self::Name(name) => Names::default()
                .scheduler(name)
                .map_err(|error| raise("SpecError", error))?,
            Self::Own(own) => own.scheduler(trouble)?,
        };
        Ok(factory.build())
    }
}

/// What a scheduler decides about one packet over these paths: the decision in words, the ids of
/// the paths, and the reason.
#[pyfunction]
pub(crate) fn ask(
    scheduler: Asked<'_>,
    told: Vec<Bound<'_, PyDict>>,
    now: f64,
) -> PyResult<(String, Vec<u32>, String)> {
    let trouble = Arc::new(Trouble::default());
    let mut scheduler = scheduler.build(&trouble)?;
    let paths = paths(told)?;
    let choice = guarded(|| asked(scheduler.as_mut(), &view(&paths, now)?, 1, &trouble))?;
    let (words, ids) = match choice.decision {
        Decision::Send(path) => ("send", vec![path.0]),
        Decision::SendAt { path, .. } => ("send-at", vec![path.0]),
        Decision::SendStream { path, .. } => ("send-stream", vec![path.0]),
        Decision::Duplicate(set) => ("duplicate", set.iter().map(|id| id.0).collect()),
        Decision::Copy(path) => ("copy", vec![path.0]),
        _ => ("hold", Vec::new()),
    };
    Ok((words.to_owned(), ids, choice.reason.name().to_owned()))
}

/// Seconds that `times` decisions of a scheduler take, by the clock of this machine.
#[pyfunction]
pub(crate) fn decide_many(
    scheduler: Asked<'_>,
    told: Vec<Bound<'_, PyDict>>,
    times: u64,
) -> PyResult<f64> {
    let trouble = Arc::new(Trouble::default());
    let mut scheduler = scheduler.build(&trouble)?;
    let paths = paths(told)?;
    let view = view(&paths, 1.0)?;
    guarded(|| {
        asked(scheduler.as_mut(), &view, 1, &trouble)?;
        let began = time::Instant::now();
        asked(scheduler.as_mut(), &view, times, &trouble)?;
        Ok(began.elapsed().as_secs_f64())
    })
}
