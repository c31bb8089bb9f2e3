//! Schedulers written in Python, as schedulers of the engine.
//!
//! A scheduler is asked by the thread that carries the run, which stays attached to the
//! interpreter all the time: a question costs a call, not a hand-over. What happens to what it
//! raises is a matter of [`Trouble`].

pub(crate) mod ask;
pub(crate) mod event;
pub(crate) mod parts;
mod reasons;
pub(crate) mod view;

use crate::trouble::Trouble;
use anabranch_proto::sched::{
    Choice, PathEvent, Reason, Scheduler, SchedulerFactory, SendView, UnitKind, Wants,
};
use anabranch_proto::time::Instant;
use anabranch_proto::wire::PathId;
use event::PyEvent;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use view::{PyChoice, PyView};

/// What counts as a hold because it is no answer of the view.
const NO_ANSWER: Reason = Reason::Other("no-answer");

/// What the attributes of a Python scheduler say that it wants.
fn wants_of(scheduler: &Bound<'_, PyAny>) -> PyResult<Wants> {
    let flag = |name: &str, usual: bool| match scheduler.getattr_opt(name)? {
        Some(value) => value
            .extract::<Option<bool>>()
            .map(|flag| flag.unwrap_or(usual)),
        None => Ok(usual),
    };
    let copies = flag("wants_copies", false)?;
    let copies_while_busy = flag("wants_copies_while_busy", copies)?;
    Ok(Wants {
        copies,
        copies_while_busy,
        copies_while_blocked: flag("wants_copies_while_blocked", copies_while_busy)?,
        streams: flag("wants_streams", false)?,
    })
}

/// A scheduler for each connection, from a Python callable that makes one. Its name is `name`.
pub(crate) fn factory(
    name: &str,
    make: &Bound<'_, PyAny>,
    about: &Bound<'_, PyAny>,
    trouble: &Arc<Trouble>,
) -> PyResult<SchedulerFactory> {
    let wants = wants_of(about)?;
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
    ahead: Ahead,
}

/// What a scheduler has decided about the units after one.
#[derive(Debug)]
struct Ahead {
    kind: UnitKind,
    reason: Reason,
    paths: VecDeque<PathId>,
}

impl Ahead {
    const NONE: Self = Self {
        kind: UnitKind::Fresh,
        reason: NO_ANSWER,
        paths: VecDeque::new(),
    };

    /// The answer for this view, if it was decided and can be carried out. Otherwise all of it is
    /// forgotten.
    fn next(&mut self, view: &SendView<'_>) -> Option<Choice> {
        let id = self.paths.pop_front()?;
        let mut candidates = view.candidates();
        let can_send = candidates.any(|path| path.id == id && path.can_send(view.now));
        if can_send && view.unit.kind == self.kind {
            return Some(Choice::send(id, self.reason));
        }
        self.paths.clear();
        None
    }
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
            ahead: Ahead::NONE,
        })
    }

    fn select(&mut self, py: Python<'_>, view: &SendView<'_>) -> PyResult<Choice> {
        self.view.try_borrow_mut(py)?.show(py, view)?;
        let answer = self.select.bind(py).call1(self.arguments.bind(py))?;
        let Ok(answer) = answer.cast::<PyChoice>() else {
            return Ok(Choice::hold(NO_ANSWER));
        };
        let mut answer = answer.try_borrow_mut()?;
        // An answer counts once: one that is kept from an earlier call is none.
        let Some(choice) = answer.choice.take() else {
            return Ok(Choice::hold(NO_ANSWER));
        };
        self.ahead = Ahead {
            kind: view.unit.kind,
            reason: choice.reason,
            paths: std::mem::take(&mut answer.then).into(),
        };
        Ok(choice)
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
    /// Does something with the object, unless code in Python has raised an exception.
    fn with<T>(&mut self, work: impl FnOnce(Python<'_>, &mut Live) -> PyResult<T>) -> Option<T> {
        let (live, make) = (&mut self.live, &self.make);
        self.trouble.call(self.now, |py| {
            if live.is_none() {
                *live = Some(Live::new(py, make)?);
            }
            match live {
                Some(live) => work(py, live),
                None => unreachable!("it was made above"),
            }
        })
    }
}

impl Scheduler for FromPython {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        self.now = view.now;
        let ahead = self.live.as_mut().and_then(|live| live.ahead.next(view));
        if let Some(choice) = ahead {
            return choice;
        }
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

    fn wants(&self) -> Wants {
        self.wants
    }
}
