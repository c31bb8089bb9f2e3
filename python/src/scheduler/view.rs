//! `SendView`: what a scheduler written in Python is shown, and how it answers.

use super::parts::{PyBacklog, PyPath, PyStream, PyUnit, seconds};
use super::reasons::Reasons;
use anabranch_proto::path::PathSet;
use anabranch_proto::sched::{Choice, Decision, Reason, SendView};
use anabranch_proto::time::{Duration, Instant};
use anabranch_proto::wire::{PathId, StreamId};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

/// Why, if a scheduler does not say.
const UNNAMED: Reason = Reason::Other("unnamed");

/// Tuples of paths that are kept, by which paths they hold.
const MAX_SETS: usize = 16;

/// An answer. A view has one such object, which holds the last answer it was asked for.
#[pyclass(name = "Choice", module = "anabranch")]
#[derive(Debug, Default)]
pub(crate) struct PyChoice {
    /// None once it was carried out.
    pub(super) choice: Option<Choice>,
    /// The paths of the units after that.
    pub(super) then: Vec<PathId>,
}

#[pymethods]
impl PyChoice {
    fn __repr__(&self) -> String {
        match self.choice {
            Some(choice) => format!("<Choice {:?}: {}>", choice.decision, choice.reason.name()),
            None => "<Choice, carried out>".to_owned(),
        }
    }
}

/// Everything a decision may depend on. It is the same object in every call of a connection.
#[pyclass(name = "SendView", module = "anabranch")]
#[derive(Debug)]
pub(crate) struct PyView {
    now: Instant,
    paths: Vec<(PathId, Py<PyPath>)>,
    /// Paths by their places in `paths`, a bit each.
    ready: u32,
    candidates: u32,
    sets: Vec<(u32, Py<PyTuple>)>,
    streams: Py<PyTuple>,
    backlog: Py<PyBacklog>,
    unit: Py<PyUnit>,
    answer: Py<PyChoice>,
    reasons: Reasons,
}

impl PyView {
    pub(super) fn new(py: Python<'_>) -> PyResult<Self> {
        Ok(Self {
            now: Instant::ZERO,
            paths: Vec::new(),
            ready: 0,
            candidates: 0,
            sets: Vec::new(),
            streams: PyTuple::empty(py).unbind(),
            backlog: Py::new(py, PyBacklog::default())?,
            unit: Py::new(py, PyUnit::default())?,
            answer: Py::new(py, PyChoice::default())?,
            reasons: Reasons::default(),
        })
    }

    /// Shows what `view` shows.
    pub(super) fn show(&mut self, py: Python<'_>, view: &SendView<'_>) -> PyResult<()> {
        let same = self.paths.len() == view.paths.len()
            && self
                .paths
                .iter()
                .zip(view.paths)
                .all(|((id, _), path)| *id == path.id);
        if !same {
            self.name_paths(py, view)?;
        }
        (self.ready, self.candidates) = (0, 0);
        let mut candidates = view.candidates().peekable();
        for (at, ((_, object), path)) in self.paths.iter().zip(view.paths).enumerate() {
            let mut shown = object.try_borrow_mut(py)?;
            (shown.view, shown.now) = (*path, view.now);
            if candidates.next_if(|one| one.id == path.id).is_some() {
                self.candidates |= 1 << at;
                self.ready |= u32::from(path.can_send(view.now)) << at;
            }
        }
        self.now = view.now;
        self.unit.try_borrow_mut(py)?.0 = view.unit;
        self.backlog.try_borrow_mut(py)?.0 = view.backlog;
        if !view.streams.is_empty() || !self.streams.bind(py).is_empty() {
            let streams = view
                .streams
                .iter()
                .map(|stream| Py::new(py, PyStream(*stream)));
            let streams = streams.collect::<PyResult<Vec<_>>>()?;
            self.streams = PyTuple::new(py, streams)?.unbind();
        }
        Ok(())
    }

    /// Paths came or went: those that stay keep their objects.
    fn name_paths(&mut self, py: Python<'_>, view: &SendView<'_>) -> PyResult<()> {
        let mut known = std::mem::take(&mut self.paths);
        for path in view.paths {
            let at = known.iter().position(|(id, _)| *id == path.id);
            let object = match at {
                Some(at) => known.swap_remove(at).1,
                None => Py::new(
                    py,
                    PyPath {
                        view: *path,
                        now: view.now,
                    },
                )?,
            };
            self.paths.push((path.id, object));
        }
        self.sets.clear();
        Ok(())
    }

    /// The paths whose bits are set; a tuple that was made before is made once.
    fn set(&mut self, py: Python<'_>, bits: u32) -> PyResult<Py<PyTuple>> {
        if let Some((_, known)) = self.sets.iter().find(|(known, _)| *known == bits) {
            return Ok(known.clone_ref(py));
        }
        let chosen = self
            .paths
            .iter()
            .enumerate()
            .filter(|(at, _)| bits & (1 << at) != 0);
        let chosen: Vec<_> = chosen.map(|(_, (_, path))| path.clone_ref(py)).collect();
        let set = PyTuple::new(py, chosen)?.unbind();
        if self.sets.len() >= MAX_SETS {
            self.sets.clear();
        }
        self.sets.push((bits, set.clone_ref(py)));
        Ok(set)
    }

    fn choose(
        &mut self,
        py: Python<'_>,
        decision: Decision,
        reason: Option<&Bound<'_, PyString>>,
    ) -> PyResult<Py<PyChoice>> {
        let reason = reason.map_or(Ok(UNNAMED), |reason| self.reasons.of(reason))?;
        let mut answer = self.answer.try_borrow_mut(py)?;
        answer.choice = Some(Choice { decision, reason });
        answer.then.clear();
        drop(answer);
        Ok(self.answer.clone_ref(py))
    }
}

#[pymethods]
impl PyView {
    /// Virtual time in seconds since the run began; a real connection's, since it began.
    #[getter]
    fn now(&self) -> f64 {
        seconds(self.now)
    }

    /// All validated, open paths in ascending order of their ids, as a tuple.
    #[getter]
    fn paths(&mut self, py: Python<'_>) -> PyResult<Py<PyTuple>> {
        let all = (1u64 << self.paths.len().min(32)) - 1;
        self.set(py, all as u32)
    }

    /// The paths to choose from, full or not: those that are available and answer; if there is
    /// none, backups that answer; if there is none, the doubtful path with the fewest probe
    /// time-outs.
    #[getter]
    fn candidates(&mut self, py: Python<'_>) -> PyResult<Py<PyTuple>> {
        self.set(py, self.candidates)
    }

    /// The candidates that can take one packet now, as a tuple; it may be empty.
    #[getter]
    fn ready(&mut self, py: Python<'_>) -> PyResult<Py<PyTuple>> {
        self.set(py, self.ready)
    }

    /// What waits on the connection.
    #[getter]
    fn backlog(&self, py: Python<'_>) -> Py<PyBacklog> {
        self.backlog.clone_ref(py)
    }

    /// What is to be placed.
    #[getter]
    fn unit(&self, py: Python<'_>) -> Py<PyUnit> {
        self.unit.clone_ref(py)
    }

    /// The streams with fresh data in the order in which they would be served; only for
    /// schedulers that set `wants_streams`.
    #[getter]
    fn streams(&self, py: Python<'_>) -> Py<PyTuple> {
        self.streams.clone_ref(py)
    }

    /// Answer: send the unit on `path`.
    #[pyo3(signature = (path, reason=None))]
    fn send(
        &mut self,
        path: &Bound<'_, PyPath>,
        reason: Option<&Bound<'_, PyString>>,
    ) -> PyResult<Py<PyChoice>> {
        let id = id(path)?;
        self.choose(path.py(), Decision::Send(id), reason)
    }

    /// Answer: send this unit and the next ones on these paths, one after another, without another
    /// question. The scheduler is asked again after the last of them, and as soon as the next path
    /// cannot take a packet or a unit of another kind is to be placed.
    #[pyo3(signature = (paths, reason=None))]
    fn sequence(
        &mut self,
        py: Python<'_>,
        paths: Vec<Bound<'_, PyPath>>,
        reason: Option<&Bound<'_, PyString>>,
    ) -> PyResult<Py<PyChoice>> {
        let ids = paths.iter().map(id).collect::<PyResult<Vec<_>>>()?;
        let Some((first, then)) = ids.split_first() else {
            let what = "a sequence has no path: answer view.hold() to send nothing";
            return Err(PyValueError::new_err(what));
        };
        let choice = self.choose(py, Decision::Send(*first), reason)?;
        choice.try_borrow_mut(py)?.then.extend_from_slice(then);
        Ok(choice)
    }

    /// Answer: send on `path`, but leave the next `skip` bytes of fresh data for other paths.
    #[pyo3(signature = (path, skip, reason=None))]
    fn send_at(
        &mut self,
        path: &Bound<'_, PyPath>,
        skip: u64,
        reason: Option<&Bound<'_, PyString>>,
    ) -> PyResult<Py<PyChoice>> {
        let path_id = id(path)?;
        self.choose(
            path.py(),
            Decision::SendAt {
                path: path_id,
                skip,
            },
            reason,
        )
    }

    /// Answer: send fresh data of this stream of `view.streams` on `path`.
    #[pyo3(signature = (path, stream, reason=None))]
    fn send_stream(
        &mut self,
        path: &Bound<'_, PyPath>,
        stream: &Bound<'_, PyStream>,
        reason: Option<&Bound<'_, PyString>>,
    ) -> PyResult<Py<PyChoice>> {
        let (path_id, stream) = (id(path)?, StreamId(stream.get().0.id.0));
        self.choose(
            path.py(),
            Decision::SendStream {
                path: path_id,
                stream,
            },
            reason,
        )
    }

    /// Answer: send the unit on all of these paths at once.
    #[pyo3(signature = (paths, reason=None))]
    fn duplicate(
        &mut self,
        py: Python<'_>,
        paths: Vec<Bound<'_, PyPath>>,
        reason: Option<&Bound<'_, PyString>>,
    ) -> PyResult<Py<PyChoice>> {
        let mut set = PathSet::EMPTY;
        for path in &paths {
            set.insert(id(path)?);
        }
        self.choose(py, Decision::Duplicate(set), reason)
    }

    /// Answer: send on `path` the oldest unacknowledged data that only other paths have carried;
    /// only for schedulers that set `wants_copies`.
    #[pyo3(signature = (path, reason=None))]
    fn copy(
        &mut self,
        path: &Bound<'_, PyPath>,
        reason: Option<&Bound<'_, PyString>>,
    ) -> PyResult<Py<PyChoice>> {
        let id = id(path)?;
        self.choose(path.py(), Decision::Copy(id), reason)
    }

    /// Answer: send nothing until something happens, at the latest at `until`, in seconds as
    /// `now`.
    #[pyo3(signature = (reason=None, *, until=None))]
    fn hold(
        &mut self,
        py: Python<'_>,
        reason: Option<&Bound<'_, PyString>>,
        until: Option<f64>,
    ) -> PyResult<Py<PyChoice>> {
        let until = until.map(instant).transpose()?;
        self.choose(py, Decision::Hold { until }, reason)
    }

    fn __repr__(&self) -> String {
        let (now, paths) = (seconds(self.now), self.paths.len());
        format!(
            "<SendView at {now:.6}s, {} of {paths} paths ready>",
            self.ready.count_ones()
        )
    }
}

fn id(path: &Bound<'_, PyPath>) -> PyResult<PathId> {
    Ok(path.try_borrow()?.view.id)
}

fn instant(at: f64) -> PyResult<Instant> {
    let since = Duration::try_from_secs_f64(at);
    let since = since.map_err(|_| PyValueError::new_err(format!("until={at} is no time")))?;
    Ok(Instant::ZERO + since)
}
