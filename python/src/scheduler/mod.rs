//! Schedulers written in Python, as schedulers of the engine.
//!
//! A scheduler is asked by the thread that carries the run, which stays attached to the
//! interpreter all the time: a question costs a call, not a hand-over. What it raises is kept in
//! [`Raised`] with the virtual time, and the run ends at once, by an unwinding that the simulator
//! catches as it does any other.

pub(crate) mod ask;
pub(crate) mod event;
pub(crate) mod parts;
mod reasons;
pub(crate) mod turn;
pub(crate) mod view;

use crate::error::raise;
use anabranch_proto::sched::{Choice, PathEvent, Reason, Scheduler, SchedulerFactory, SendView};
use anabranch_proto::time::Instant;
use event::PyEvent;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::fmt;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;
use turn::Turn;
use view::{PyChoice, PyView};

/// What counts as a hold because it is no answer of the view.
const NO_ANSWER: Reason = Reason::Other("no-answer");

/// What a scheduler raised, and when.
#[derive(Debug)]
pub(crate) struct Raised {
    pub(crate) error: PyErr,
    pub(crate) at: Instant,
}

impl Raised {
    /// When, in seconds of virtual time.
    pub(crate) fn seconds(&self) -> f64 {
        self.at.as_nanos() as f64 / 1e9
    }
}

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.seconds();
        write!(f, "at {at:.6} s of virtual time: {}", self.error)
    }
}

/// Where exceptions of the schedulers of one plan or one transfer are kept; the first of a run
/// counts.
#[derive(Debug, Default)]
pub(crate) struct Trouble {
    first: Mutex<Option<Raised>>,
    /// Whether the engine goes on without its scheduler, which then holds, until whoever hears of
    /// it has ended the connection. Otherwise the run ends by an unwinding.
    goes_on: bool,
    told: watch::Sender<bool>,
}

impl Trouble {
    /// For connections over real networks, whose threads serve others too.
    pub(crate) fn of_a_transfer() -> Self {
        Self {
            goes_on: true,
            ..Self::default()
        }
    }

    fn first(&self) -> MutexGuard<'_, Option<Raised>> {
        self.first.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, raised: Raised) {
        self.first().get_or_insert(raised);
        self.told.send_replace(true);
    }

    pub(crate) fn take(&self) -> Option<Raised> {
        self.first().take()
    }

    /// Whether a scheduler raised an exception.
    pub(crate) fn is_raised(&self) -> bool {
        self.first().is_some()
    }

    /// Waits until one does.
    pub(crate) async fn raised(&self) {
        // It cannot fail: the sender is here.
        let _ = self.told.subscribe().wait_for(|told| *told).await;
    }

    /// The `SchedulerError` for it.
    pub(crate) fn error(&self) -> PyErr {
        Python::attach(|py| {
            let cause = self.first().as_ref().map(|it| it.error.clone_ref(py));
            let Some(cause) = cause else {
                return raise("InternalError", "no scheduler raised anything");
            };
            let error = raise("SchedulerError", format!("a scheduler raised {cause}"));
            error.set_cause(py, Some(cause));
            error
        })
    }
}

/// What the engine asks about a scheduler before it asks the scheduler.
#[derive(Debug, Clone, Copy, Default)]
struct Wants {
    copies: bool,
    copies_while_busy: bool,
    copies_while_blocked: bool,
    streams: bool,
}

impl Wants {
    fn of(scheduler: &Bound<'_, PyAny>) -> PyResult<Self> {
        let flag = |name: &str, usual: bool| match scheduler.getattr_opt(name)? {
            Some(value) => value
                .extract::<Option<bool>>()
                .map(|flag| flag.unwrap_or(usual)),
            None => Ok(usual),
        };
        let copies = flag("wants_copies", false)?;
        let busy = flag("wants_copies_while_busy", copies)?;
        Ok(Self {
            copies,
            copies_while_busy: busy,
            copies_while_blocked: flag("wants_copies_while_blocked", busy)?,
            streams: flag("wants_streams", false)?,
        })
    }
}

/// A scheduler for each connection, from a Python callable that makes one. Its name is `name`.
pub(crate) fn factory(
    name: &str,
    make: &Bound<'_, PyAny>,
    about: &Bound<'_, PyAny>,
    trouble: &Arc<Trouble>,
) -> PyResult<SchedulerFactory> {
    let wants = Wants::of(about)?;
    let (make, trouble) = (Arc::new(make.clone().unbind()), Arc::clone(trouble));
    Ok(SchedulerFactory::from_fn(name, move || {
        Box::new(FromPython {
            make: Arc::clone(&make),
            wants,
            trouble: Arc::clone(&trouble),
            live: None,
            now: Instant::ZERO,
        })
    }))
}

/// One scheduler of one connection.
struct FromPython {
    make: Arc<Py<PyAny>>,
    wants: Wants,
    trouble: Arc<Trouble>,
    /// Made when it is first asked: an engine makes schedulers it never asks.
    live: Option<Live>,
    now: Instant,
}

impl fmt::Debug for FromPython {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FromPython")
            .field("now", &self.now)
            .finish_non_exhaustive()
    }
}

/// The object with what it is called with.
struct Live {
    select: Py<PyAny>,
    on_event: Option<Py<PyAny>>,
    view: Py<PyView>,
    arguments: Py<PyTuple>,
    event: Option<(Py<PyEvent>, Py<PyTuple>)>,
}

impl Live {
    fn new(py: Python<'_>, make: &Py<PyAny>) -> PyResult<Self> {
        let scheduler = make.bind(py).call0()?;
        let view = Py::new(py, PyView::new(py)?)?;
        let arguments = PyTuple::new(py, [view.clone_ref(py)])?.unbind();
        Ok(Self {
            select: scheduler.getattr("select")?.unbind(),
            on_event: scheduler.getattr_opt("on_event")?.map(Bound::unbind),
            view,
            arguments,
            event: None,
        })
    }

    fn select(&self, py: Python<'_>, view: &SendView<'_>) -> PyResult<Choice> {
        self.view.try_borrow_mut(py)?.show(py, view)?;
        let answer = self.select.bind(py).call1(self.arguments.bind(py))?;
        let Ok(answer) = answer.cast::<PyChoice>() else {
            return Ok(Choice::hold(NO_ANSWER));
        };
        // An answer counts once: one that is kept from an earlier call is none.
        Ok(answer
            .try_borrow_mut()?
            .0
            .take()
            .unwrap_or(Choice::hold(NO_ANSWER)))
    }

    fn tell(&mut self, py: Python<'_>, event: PyEvent) -> PyResult<()> {
        let Some(on_event) = &self.on_event else {
            return Ok(());
        };
        let arguments = if let Some((shown, arguments)) = &self.event {
            *shown.try_borrow_mut(py)? = event;
            arguments
        } else {
            let shown = Py::new(py, event)?;
            let arguments = PyTuple::new(py, [shown.clone_ref(py)])?.unbind();
            &self.event.insert((shown, arguments)).1
        };
        on_event.bind(py).call1(arguments.bind(py)).map(drop)
    }
}

impl FromPython {
    /// Does something with the object. If it raises, the run ends, or nothing more is asked of it.
    fn with<T>(&mut self, work: impl FnOnce(Python<'_>, &mut Live) -> PyResult<T>) -> Option<T> {
        if self.trouble.goes_on && self.trouble.is_raised() {
            return None;
        }
        // Nothing is asked of an interpreter that ends.
        let is_watched = self.trouble.goes_on;
        let done = Python::try_attach(|py| {
            let _turn = is_watched.then(|| Turn::begin(py)).transpose()?;
            if self.live.is_none() {
                self.live = Some(Live::new(py, &self.make)?);
            }
            match &mut self.live {
                Some(live) => work(py, live),
                None => unreachable!("it was made above"),
            }
        });
        match done? {
            Ok(done) => Some(done),
            Err(error) => {
                self.trouble.keep(Raised {
                    error,
                    at: self.now,
                });
                if self.trouble.goes_on {
                    return None;
                }
                resume_unwind(Box::new("a scheduler raised an exception"))
            }
        }
    }
}

impl Scheduler for FromPython {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        self.now = view.now;
        self.with(|py, live| live.select(py, view))
            .unwrap_or(Choice::hold(NO_ANSWER))
    }

    fn on_event(&mut self, event: &PathEvent) {
        if self
            .live
            .as_ref()
            .is_some_and(|live| live.on_event.is_none())
        {
            return;
        }
        if let Some(event) = PyEvent::of(event) {
            self.with(|py, live| live.tell(py, event));
        }
    }

    fn wants_copies(&self) -> bool {
        self.wants.copies
    }

    fn wants_streams(&self) -> bool {
        self.wants.streams
    }

    fn wants_copies_while_busy(&self) -> bool {
        self.wants.copies_while_busy
    }

    fn wants_copies_while_blocked(&self) -> bool {
        self.wants.copies_while_blocked
    }
}
