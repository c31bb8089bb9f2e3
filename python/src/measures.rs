//! Whether a scheduler keeps what users take for granted: conformance and promise.

use crate::error::{caught, guarded, raise};
use crate::own::{Own, OwnNames, names_of};
use crate::table::PyTable;
use crate::trouble::Trouble;
use anabranch_lab::conformance::{Kit, Report};
use anabranch_lab::promise::{Promise, World, table};
use anabranch_lab::results::{Cell, Column, Kind, Table};
use anabranch_proto::spec::ParamDoc;
use anabranch_schedulers::Names;
use pyo3::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// How often signals are looked for.
const STEP: Duration = Duration::from_millis(100);

/// What is known by name, this scheduler and what is written in Python among it, and whether any
/// is.
fn names(scheduler: &str, own: &[Own<'_>], trouble: &Arc<Trouble>) -> PyResult<(Arc<Names>, bool)> {
    let names = names_of(own, trouble)?;
    names
        .scheduler(scheduler)
        .map_err(|error| raise("SpecError", error))?;
    Ok((names, !OwnNames::of(own).is_empty()))
}

/// Does the work in a thread of its own, attached if Python is asked in it, and hears signals
/// meanwhile.
fn aside<T: Send + 'static>(
    py: Python<'_>,
    is_own: bool,
    trouble: &Arc<Trouble>,
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> PyResult<T> {
    let (done, result) = channel();
    let work = move || match caught(work) {
        Ok(found) => found.map_err(|what| ("RunError", what)),
        Err(fault) => Err(("InternalError", fault)),
    };
    let thread = std::thread::Builder::new().name("anabranch-measure".to_owned());
    let begun = thread.spawn(move || {
        let found = if is_own {
            Python::attach(|_| work())
        } else {
            work()
        };
        // Nobody listens any more once the user broke it off.
        let _ = done.send(found);
    });
    begun.map_err(|error| raise("RunError", format!("no thread can be started: {error}")))?;
    let result = std::sync::Mutex::new(result);
    loop {
        let found = py.detach(|| match result.lock() {
            Ok(result) => result.recv_timeout(STEP),
            Err(_) => Err(RecvTimeoutError::Disconnected),
        });
        match found {
            Ok(Ok(found)) => return Ok(found),
            Ok(Err((class, what))) => {
                return Err(match trouble.take() {
                    Some(raised) => {
                        let at = raised.at.as_nanos() as f64 / 1e9;
                        let what = format!("at {at:.6} s of virtual time: {}", raised.error);
                        let error = raise("SchedulerError", what);
                        error.set_cause(py, Some(raised.error));
                        error
                    }
                    None => raise(class, what),
                });
            }
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(raise(
                    "InternalError",
                    "a measurement ended without a result",
                ));
            }
        }
    }
}

/// Checks one scheduler by the conformance kit: a row for each finding, and whether it conforms.
#[pyfunction]
pub(crate) fn conform(
    py: Python<'_>,
    scheduler: String,
    own: Vec<Own<'_>>,
) -> PyResult<(PyTable, bool)> {
    let trouble = Arc::new(Trouble::default());
    let (names, is_own) = names(&scheduler, &own, &trouble)?;
    let report = aside(py, is_own, &trouble, move || {
        Kit::new()
            .check(&names, &scheduler)
            .map_err(|error| error.to_string())
    })?;
    guarded(|| Ok((PyTable::new(&findings(&report))?, report.is_conformant())))
}

fn column(name: &str, kind: Kind, about: &'static str) -> Column {
    Column {
        name: name.to_owned(),
        kind,
        about,
    }
}

fn findings(report: &Report) -> Table {
    let text = |text: &str| Cell::Text(text.to_owned());
    let row = |one: &anabranch_lab::conformance::Finding| {
        let verdict = match (one.kept, one.excuse) {
            (true, _) => "kept",
            (false, Some(_)) => "excused",
            (false, None) => "broken",
        };
        let reason = one.excuse.filter(|_| !one.kept);
        vec![
            text(&report.scheduler),
            text(one.rule.name()),
            text(one.network),
            text(verdict),
            text(&one.figure),
            reason.map_or(Cell::Nothing, text),
        ]
    };
    Table {
        name: "conformance",
        columns: vec![
            column("scheduler", Kind::Text, "who was checked"),
            column("rule", Kind::Text, "the promise"),
            column("network", Kind::Text, "over which network"),
            column("verdict", Kind::Text, "kept, excused or broken"),
            column("figure", Kind::Text, "what was measured"),
            column("reason", Kind::Text, "why it is excused"),
        ],
        rows: report.findings.iter().map(row).collect(),
    }
}

/// Random worlds from seed `first` on: a row for each, with all links against the best one alone.
#[pyfunction]
#[allow(clippy::too_many_arguments, reason = "in Python most have names")]
#[pyo3(signature = (scheduler, own, *, worlds, first=1, plain=false, congestion=None, jobs=0))]
pub(crate) fn promise(
    py: Python<'_>,
    scheduler: String,
    own: Vec<Own<'_>>,
    worlds: u64,
    first: u64,
    plain: bool,
    congestion: Option<String>,
    jobs: usize,
) -> PyResult<PyTable> {
    let trouble = Arc::new(Trouble::default());
    let (names, is_own) = names(&scheduler, &own, &trouble)?;
    if let Some(congestion) = &congestion {
        names
            .controller(congestion)
            .map_err(|error| raise("SpecError", error))?;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&stop);
    let measured = aside(py, is_own, &trouble, move || {
        let all = Promise {
            scheduler,
            congestion,
            first,
            worlds,
            plain,
            control: false,
            draws: 1,
            jobs,
        };
        if !is_own {
            return all.run(&names, &asked, &|_| {});
        }
        // Python decides in one thread at a time: more of them would only wait for each other.
        let seeds = (first..first.saturating_add(worlds)).take_while(|_| !is_set(&asked));
        let one = |seed| all.measure(&World::draw(seed, plain), &names);
        seeds.map(one).collect()
    });
    stop.store(true, Ordering::Relaxed);
    let measured = measured?;
    guarded(|| PyTable::new(&table(&measured)))
}

fn is_set(flag: &AtomicBool) -> bool {
    flag.load(Ordering::Relaxed)
}

/// The name of what is built in, its summary, and its parameters: key, usual value, summary.
type BuiltIn = (
    &'static str,
    &'static str,
    Vec<(&'static str, &'static str, &'static str)>,
);

fn built_in(name: &'static str, summary: &'static str, params: &'static [ParamDoc]) -> BuiltIn {
    let params = params.iter().map(|doc| (doc.key, doc.default, doc.summary));
    (name, summary, params.collect())
}

/// The schedulers that are built in.
#[pyfunction]
pub(crate) fn schedulers() -> Vec<BuiltIn> {
    let names = Names::default();
    let entries = names.schedulers.entries().iter();
    entries
        .map(|it| built_in(it.name, it.summary, it.params))
        .collect()
}

/// The congestion controllers that are built in.
#[pyfunction]
pub(crate) fn controllers() -> Vec<BuiltIn> {
    let names = Names::default();
    let entries = names.controllers.entries().iter();
    entries
        .map(|it| built_in(it.name, it.summary, it.params))
        .collect()
}
